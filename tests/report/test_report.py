"""The page and the commands that draw figures, on a tiny run."""

import base64
import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from capspoe import train
from capspoe.cli import main
from capspoe.config import preset, train_command
from capspoe.data import load
from capspoe.errors import RunError
from capspoe.report.evaluation import evaluation_section
from capspoe.report.facts import tables
from capspoe.report.page import show, strip, write_report
from capspoe.run import checkpoint
from capspoe.run.bundled import bundled_folder
from runs import QUICK

VOID = {"meta", "link", "img", "br"}
HOSTILE = "<img src=x onerror=alert(1)>&\"'"  # the name of a file, which may be anything
ALL = [
    "samples",
    "network",
    "traversals",
    "routing",
    "capsules",
    "reconstructions",
    "training",
    "evaluation",
    "settings",
]


class Page(HTMLParser):
    """The elements of a page; fails when they do not nest."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.found.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.found.append((name, dict(attributes)))

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        self.words.append(data)

    def all(self, name):
        return [attributes for found, attributes in self.found if found == name]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def reported(run, tmp_path_factory):
    """A run with an evaluation, on a file with a hostile name, and its report."""
    home = tmp_path_factory.mktemp("report")
    folder = shutil.copytree(run, home / "tiny")
    images = load("digits", "test")
    np.savez(home / f"{HOSTILE}.npz", images=images.pixels, labels=images.labels)
    use_data(folder, home / f"{HOSTILE}.npz")
    rows = [{"name": HOSTILE, "fid": 18.25}, {"name": "floor", "kid": 0.5}]
    (folder / "evaluation.json").write_text(json.dumps({"rows": rows, "half a letter": "\ud800"}))
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(reported):
    return Page((reported / "report.html").read_text())


def use_data(folder, data):
    run = checkpoint.open_run(folder)
    checkpoint.create(folder, run.config.replace(data=str(data)), run.image)


def test_the_page_says_which_prior_scale_was_fitted(page, model):
    assert re.search(rf"prior scale\s+{model.prior.scale.item():.3g}\.", page.text)


def test_the_page_has_every_section_and_figure(reported, page):
    assert [a["id"] for a in page.all("section")] == ALL
    assert [a["href"] for a in page.all("a")] == [f"#{name}" for name in ALL]
    for words in (
        "4 capsules",
        "Figure 1 of the paper",
        "18.2",
        "half a letter ?",
        "--limit 256",
        "--out tiny",
    ):
        assert words in page.text
    assert page.text.count(HOSTILE) >= 4  # as text: title, heading, command, evaluation
    assert len(page.all("svg")) == 2 + 6  # routing, network; the curves
    names = {path.name for path in (reported / "figures").iterdir()}
    assert len([name for name in names if name.startswith("traverse-")]) == 1
    drawings = {"routing-0.svg", "architecture.svg", "curves.svg"}
    assert names >= drawings | {"grid.png", "gallery.png", "reconstructions.png"}


def test_own_files_are_all_listed_by_capsule(run_copy, model, images, tmp_path):
    (tmp_path / "own").mkdir()
    for k, pixels in enumerate(images[:12]):
        Image.fromarray(pixels[..., 0]).save(tmp_path / "own" / f"{k:02}.png")
    page = Page(write_report(run_copy, images=str(tmp_path / "own")).read_text())
    winner = model.encode(images[:12]).on.argmax(1)
    for j in range(4):
        assert ", ".join(f"{k:02}.png" for k in np.flatnonzero(winner == j)) in page.text
    assert "then the first of 12 images" in page.text


def test_the_bundled_network_has_a_report_beside_its_figures(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = Page(write_report(bundled_folder()).read_text())
    assert "the folder figures beside this page" in " ".join(page.text.split())
    assert "{}" not in page.text  # it brings no environment.json


def test_the_page_asks_for_nothing_else(reported, page):
    assert all(a.get("alt") for a in page.all("img"))
    for name, attributes in page.found:
        assert name not in ("script", "iframe", "object")
        assert not any(key.startswith("on") for key in attributes)
        for key in ("src", "href", "xlink:href", "srcset", "data"):
            value = attributes.get(key)
            assert value is None or value.startswith(("data:", "#")), (name, key)
    text = (reported / "report.html").read_text()
    assert "@import" not in text
    assert re.findall(r"url\((?!#)", text) == []
    assert re.findall(r"https?://(?!www\.w3\.org/(?:2000/svg|1999/xlink))", text) == []
    assert str(reported.parent) not in text  # no path of the machine
    assert len(text) < 1_500_000


def test_the_same_run_gives_the_same_page(reported, capsys):
    first = (reported / "report.html").read_bytes()
    main(["report", str(reported)])
    assert capsys.readouterr().out.strip() == str(reported / "report.html")
    assert (reported / "report.html").read_bytes() == first


def test_an_unfinished_run_without_its_images_still_has_a_page(run_copy, tmp_path):
    use_data(run_copy, tmp_path / "gone.npz")
    saved = checkpoint.newest(run_copy)
    state = checkpoint.State("capsules-0", step=7)
    checkpoint.save(run_copy, state, saved.weights, saved.optimizer)
    page = Page(write_report(run_copy).read_text())
    assert [a["id"] for a in page.all("section")] == [
        "samples",
        "network",
        "traversals",
        "training",
        "settings",
    ]
    assert "not finished: it is at step 7 of stage capsules-0" in page.text
    assert "The test images cannot be opened" in page.text
    assert "gone.npz" in page.text
    assert str(tmp_path) not in page.text


def test_literal_settings_have_a_page_too(tmp_path):
    settings = QUICK | {
        "epochs": 1,
        "autoencoder_epochs": 1,
        "checkpoint_seconds": 1e9,
        "learning_rate": 0.02,
    }
    train("digits", tmp_path / "literal", literal=True, quiet=True, **settings)
    text = Page(write_report(tmp_path / "literal").read_text()).text
    for words in ("--literal", "sigmoid(N(0, 1)), as in the paper", "mean probability of each capsule"):
        assert words in text


# Commands


def command(capsys, *arguments):
    """The exit code, output and errors of a command."""
    code = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out.split(), said.err


def test_commands_write_into_the_run(run_copy, capsys):
    figures = run_copy / "figures"
    _, out, _ = command(capsys, "traverse", run_copy, "--capsule", 3, "--basis", "principal")
    assert out == [str(figures / "traverse-3-principal.png")]
    _, out, _ = command(capsys, "traverse", run_copy)
    assert out == [str(figures / f"traverse-{j}.png") for j in range(4)]
    _, out, _ = command(capsys, "routing", run_copy, "--image", 7)
    assert out == [str(figures / "routing-7.svg")]
    _, out, _ = command(capsys, "audit", run_copy, "--count", 40)
    assert out[:2] == [str(run_copy / "routing-audit.json"), str(figures / "routing-audit.svg")]
    assert json.loads(Path(out[0]).read_text())[0]["inputs"] == 40
    _, out, _ = command(capsys, "reconstruct", run_copy, "--count", 3)
    assert out == [str(figures / "reconstructions.png")]
    assert len(list(figures.iterdir())) == 8


WRONG = {
    "traverse --capsule 4": "capsule must be below 4",
    "routing --image 297": "image must be below 297, the number of test images",
    "reconstruct --first -1": "image must be an integer of 0 or more",
    "reconstruct --count 0": "count must be an integer of 1 or more",
    "report --image 1000": "image must be below 297",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_numbers_are_one_clear_line(run_copy, capsys, line):
    name, *options = line.split()
    code, _, err = command(capsys, name, run_copy, *options)
    assert code == 1
    assert WRONG[line] in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize("content", ["{", "[1]", "3"])
def test_a_damaged_evaluation_is_one_clear_line(run_copy, content):
    (run_copy / "evaluation.json").write_text(content)
    with pytest.raises(RunError, match=r"evaluation\.json cannot be read"):
        write_report(run_copy)


def test_an_evaluation_has_the_scores_of_the_command_and_no_list_of_every_capsule():
    clustering = {"alive": 20, "capsules": 20, "one_to_one": 0.65, "mean_sample_class_entropy": 0.03}
    shares = {"principal": {"slant": {"share_of_capsules": 0.5, "capsules": [{"measure": 1}]}}}
    scores = {
        "settings": {"samples": 2000, "sets": 5},
        "rows": [{"name": "capspoe", "fid": 7.1959, "purity": 0.98765, "seconds": 9.0}, {"name": "floor", "fid": 4}],
        "feature_net": {"test_accuracy": 0.9925, "sha256": "f92f4e1157b4696a"},
        "clustering": {
            "alive": 20,
            "capsules": 20,
            "one_to_one": 0.65,
            "mean_sample_class_entropy": 0.03,
            "table": [[1]],
        },
        "instantiation": shares,
        "likelihood": {},
    }
    section = evaluation_section(scores)
    assert section["columns"] == ["FID", "purity"]
    assert section["rows"] == [("capspoe", ["7.2", "0.988"]), ("floor", ["4.0", ""])]
    assert any("20 of 20 alive, one-to-one accuracy 0.650" in line for line in section["lines"])
    assert any("(principal): slant 50%" in line for line in section["lines"])
    shown = {caption: [row[0] for row in rows] for caption, _, rows in section["tables"]}
    assert shown["clustering"] == list(clustering)
    assert "rows" not in shown


@pytest.mark.parametrize("rows", [3, [3], [{"fid": 1.0}], [{"name": "capspoe", "fid": "low"}]])
def test_an_evaluation_that_no_command_wrote_is_one_clear_line(rows):
    with pytest.raises(RunError, match=r"evaluation\.json is damaged; run `capspoe evaluate` again"):
        evaluation_section({"rows": rows})


# Facts


def test_the_command_is_the_shortest_that_gives_the_settings():
    assert train_command(preset("small", "mnist")) == "capspoe train mnist"
    assert train_command(preset("paper", "mnist")) == "capspoe train mnist --preset paper"
    assert train_command(preset("small", "digits", True)) == "capspoe train digits --literal"
    binary = preset("small", "mnist", neurons="binary").replace(seed=3, bias=False)
    assert train_command(binary) == "capspoe train mnist --neurons binary --no-bias --seed 3"
    own = preset("small", "/home/me/my photos").replace(size=32)
    assert train_command(own) == "capspoe train 'my photos' --size 32"


def test_nested_values_become_tables():
    nest = {"a": 1, "rows": [{"x": 1, "y": 2}, {"y": 3}], "deep": {"one": {"two": [1, 2]}}, "none": {}}
    assert tables(nest) == [
        ("", [], [["a", 1], ["none", {}]]),
        ("rows", ["x", "y"], [[1, 2], [None, 3]]),
        ("deep one", [], [["two", [1, 2]]]),
    ]
    shown = [show(value) for value in (60000, 0.123456, 10070.0, True, None, [1, [2.5]], "text")]
    assert shown == ["60,000", "0.12346", "10,070", "yes", "-", "1, 2.5", "text"]


def test_a_strip_holds_its_images_and_transparent_gaps():
    images = np.random.default_rng(0).random((3, 4, 5, 1)).astype(np.float32)
    html = str(strip(images, '"<'))
    assert 'alt="&#34;&lt;"' in html
    data = base64.b64decode(re.search('base64,([^"]+)', html)[1])
    picture = np.asarray(Image.open(io.BytesIO(data)).convert("LA")) / 255
    assert picture.shape == (4, 3 * 5 + 2 * 2, 2)
    assert picture[:, 7:12, 0] == pytest.approx(images[1, ..., 0], abs=0.003)
    assert picture[0, :, 1].tolist() == [1] * 5 + [0] * 2 + [1] * 5 + [0] * 2 + [1] * 5
