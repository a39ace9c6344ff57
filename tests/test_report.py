"""The page and the commands, on a real tiny run."""

import json
import re
import shutil
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from capspoe import sampling, training
from capspoe.cli import main
from capspoe.config import preset
from capspoe.errors import InputError, RunError
from capspoe.figures.commands import parse_between
from capspoe.model import CapsulePoE
from capspoe.report import sections, write_report
from capspoe.report.facts import duration, made_by, timings
from capspoe.report.html import nested_tables, shown, strip
from capspoe.report.page import open_subject
from capspoe.report.sections import Subject
from runs import QUICK

VOID = {"meta", "link", "img", "br"}


class Page(HTMLParser):
    """The page's elements; fails when they do not nest."""

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
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    def all(self, name):
        return [attributes for found, attributes in self.found if found == name]

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "tiny"
    training.train("digits", folder, quiet=True, **QUICK)
    return folder


@pytest.fixture(scope="module")
def page(trained):
    (trained / "evaluation.json").write_text(
        json.dumps(
            {"purity": 0.5, "fid": {"fitted": {"fid": 18.25}, "standard": {"fid": 210.0}}, "<b>": "<i>x</i>"}
        )
    )
    return Page(write_report(trained).read_text())


def test_the_page_has_every_section_and_names_the_papers_figures(page):
    anchors = [a["id"] for a in page.all("section")]
    assert anchors == ["generated", "routing", "network", "capsules", "traversals", "reconstructions", "training",
                       "evaluation", "made"]  # fmt: skip
    assert [a["href"] for a in page.all("a")] == [f"#{name}" for name in anchors]
    for figure in (1, 2, 3):
        assert f"Counterpart of the paper's Figure {figure}" in page.text
    assert "4 capsules trained without labels on digits" in page.text


def test_the_page_asks_for_nothing_else(trained, page):
    for name, attributes in page.found:
        assert name not in ("script", "iframe", "object")
        for key in ("src", "href", "srcset", "data"):
            value = attributes.get(key)
            assert value is None or value.startswith(("data:", "#")), (name, key)
    text = (trained / "report.html").read_text()
    assert "url(" not in text
    assert "@import" not in text
    assert re.findall(r"https?://[^\"' <]+", text.replace("http://www.w3.org/2000/svg", "")) == []
    assert str(trained.parent) not in text  # no path of the machine


def test_the_page_is_small_light_and_dark_and_fits_a_phone(trained, page):
    text = (trained / "report.html").read_text()
    assert len(text) < 1_500_000
    assert "prefers-color-scheme: dark" in text
    assert any(a.get("name") == "viewport" for a in page.all("meta"))
    assert page.all("html") == [{"lang": "en"}]


def test_every_image_has_words_and_every_drawing_a_title(page):
    assert all(a.get("alt") for a in page.all("img"))
    svgs = page.all("svg")
    assert len(svgs) == 2 + 5  # routing, network, charts
    assert len([1 for name, _ in page.found if name == "desc"]) == len(svgs)
    assert len(page.all("h1")) == 1


def test_colours_have_contrast():
    from importlib.resources import files

    css = (files("capspoe.report") / "style.css").read_text()

    def luminance(colour):
        rgb = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        return np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
            0.2126,
            0.7152,
            0.0722,
        ]

    for theme in re.findall(r":root \{([^}]*)\}", css):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for front in ("text", "quiet", "accent"):
            for back in ("paper", "card"):
                low, high = sorted([luminance(colours[front]), luminance(colours[back])])
                assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)


def test_the_page_shows_evaluation_escaped(page):
    assert "18.25" in page.text
    assert "<i>x</i>" in page.text  # as text
    assert "<b>" in page.text


def test_the_page_says_how_it_was_made(page):
    assert "capspoe train digits --limit 256 --channels 8" in page.text
    assert "--out tiny" in page.text


def test_the_figures_are_files_too(trained, page):
    names = {path.name for path in (trained / "figures").iterdir()}
    assert names >= {"grid.png", "routing-0.svg", "heat-0.png", "architecture.svg", "gallery.png",
                     "reconstructions.png", "interpolations.png", "curves.svg"}  # fmt: skip
    assert len([name for name in names if name.startswith("traverse-")]) == 1


def test_an_image_beyond_those_that_are_looked_at_is_routed_too(trained, page, monkeypatch):
    monkeypatch.setattr("capspoe.report.page.IMAGES", 20)
    model = CapsulePoE.load(trained)
    subject, missing = open_subject(trained, model, 200)
    assert (len(subject.pixels), missing) == (20, "")
    assert "Routing of test image 200" in Page(sections.routing(subject, 200)).text


def test_a_run_without_its_images_still_has_a_page(trained, tmp_path):
    run = tmp_path / "moved"
    shutil.copytree(trained, run)
    config = json.loads((run / "config.json").read_text())
    config["data"]["data"] = str(tmp_path / "gone.npz")
    del config["sha256"]  # changed by hand, and so without a checksum
    (run / "config.json").write_text(json.dumps(config))
    (run / "evaluation.json").unlink()
    page = Page(write_report(run).read_text())
    assert [a["id"] for a in page.all("section")] == [
        "generated",
        "network",
        "traversals",
        "training",
        "made",
    ]
    assert "test images cannot be had" in page.text
    assert "gone.npz" in page.text
    assert str(tmp_path) not in page.text


def test_an_unfinished_run_is_said_to_be_one(trained, tmp_path):
    from capspoe import checkpoint

    run = tmp_path / "unfinished"
    shutil.copytree(trained, run)
    saved = checkpoint.newest(run)
    state = checkpoint.State(stage="capsules-0", step=7)
    checkpoint.save(run, state, saved.weights, saved.optimizer)
    assert "not finished: it stands at step 7" in Page(write_report(run).read_text()).text


def test_literal_settings_have_a_page_too(tmp_path):
    run = tmp_path / "literal"
    training.train("digits", run, literal=True, quiet=True, **{**QUICK, "epochs": 2, "autoencoder_epochs": 1})
    page = Page(write_report(run).read_text())
    assert "--literal" in page.text
    assert "sigmoid(N(0, 1))" in page.text
    assert "mean probability of being on" in page.text


def test_a_damaged_evaluation_is_one_clear_line(trained, tmp_path):
    run = tmp_path / "damaged"
    shutil.copytree(trained, run)
    (run / "evaluation.json").write_text("{")
    with pytest.raises(RunError, match=r"evaluation\.json"):
        write_report(run)


def test_odd_words_beside_the_run_do_not_keep_the_page_from_being_written(trained, tmp_path):
    run = tmp_path / "odd"
    shutil.copytree(trained, run)
    (run / "environment.json").write_text("[1]")
    (run / "evaluation.json").write_text('{"half a letter": "\\ud800"}')
    assert "half a letter" in Page(write_report(run).read_text()).text


# Commands


def command(capsys, *arguments):
    """A command in this process: its exit code, output and errors."""
    code = 0
    try:
        main([str(a) for a in arguments])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_commands_write_into_the_run(trained, capsys):
    figures = trained / "figures"
    code, out, _ = command(capsys, "traverse", trained, "--capsule", 3, "--axes", "principal")
    assert (code, out.split()) == (0, [str(figures / "traverse-3-principal.png")])
    code, out, _ = command(capsys, "traverse", trained)
    assert out.split() == [str(figures / f"traverse-{j}.png") for j in range(4)]
    code, out, _ = command(capsys, "routing", trained, "--image", 7)
    assert out.split() == [str(figures / "routing-7.svg"), str(figures / "heat-7.png")]
    code, out, _ = command(capsys, "reconstruct", trained, "--count", 3, "--between", "5,5")
    assert out.split() == [str(figures / "reconstructions.png"), str(figures / "interpolation-5-5.png")]
    for path in figures.glob("*.png"):
        assert min(struct.unpack(">II", path.read_bytes()[16:24])) > 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["traverse", "--capsule", "4"], "capsule must be below 4"),
        (["traverse", "--capsule", "-1"], "capsule must be a whole number of 0 or more"),
        (["routing", "--image", "297"], "image must be below 297, the number of test images"),
        (["routing", "--image", "-2"], "image must be a whole number of 0 or more"),
        (["reconstruct", "--first", "500"], "image must be below 297"),
        (["reconstruct", "--count", "0"], "count must be a whole number of 1 or more"),
        (["reconstruct", "--between", "3"], "--between must be two image numbers"),
        (["report", "--image", "1000"], "image must be below 297"),
    ],
)
def test_wrong_numbers_are_one_clear_line(trained, capsys, arguments, message):
    code, _, err = command(capsys, arguments[0], trained, *arguments[1:])
    assert code == 1
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_no_run_folder(tmp_path, capsys):
    for name in ("traverse", "routing", "reconstruct", "report"):
        code, _, err = command(capsys, name, tmp_path / "nothing")
        assert code == 1
        assert "is not a run folder" in err
    assert list(tmp_path.iterdir()) == []


def test_the_report_command_writes_the_same_page_again(trained, page, capsys):
    first = (trained / "report.html").read_bytes()
    code, out, _ = command(capsys, "report", trained)
    assert (code, out.strip()) == (0, str(trained / "report.html"))
    assert (trained / "report.html").read_bytes() == first


def test_between():
    assert parse_between("3,18") == (3, 18)
    assert parse_between(None) is None
    with pytest.raises(InputError, match="two image numbers"):
        parse_between("3,x")


# Sampling


def test_sampling_repeats_by_seed_and_does_not_depend_on_the_count(trained):
    model = CapsulePoE.load(trained)
    for options in ({}, {"prior": "standard"}, {"gibbs": 2}, {"capsule": 2}):
        few, many = model.sample(5, seed=3, **options), model.sample(300, seed=3, **options)
        assert few.images == pytest.approx(many.images[:5], abs=1e-6)
        assert few.capsule.tolist() == many.capsule[:5].tolist()
        assert not np.allclose(few.images, model.sample(5, seed=4, **options).images)


def test_the_grid_and_the_files_show_the_same_samples(trained, tmp_path):
    model = CapsulePoE.load(trained)
    sampling.write_samples(model, tmp_path / "x.npz", count=4)
    from capspoe.figures import grid

    stored = np.load(tmp_path / "x.npz")["images"]
    assert grid(model).swapaxes(0, 1) == pytest.approx(stored, abs=1e-6)


MEMORY = """
import resource, sys
from pathlib import Path
from capspoe.model import CapsulePoE
from capspoe import sampling
model = CapsulePoE.load(sys.argv[1])
sampling.write_samples(model, Path(sys.argv[2]), count=300, capsule=0)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sampling.write_samples(model, Path(sys.argv[2]), count=int(sys.argv[3]), capsule=0)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="resource is of Unix")
def test_memory_stays_flat_with_the_count(trained, tmp_path):
    command = [sys.executable, "-c", MEMORY, str(trained), str(tmp_path / "x.npz"), "20000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=_one_thread())
    grown = int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
    written = 20_000 * 28 * 28 * 4
    assert (tmp_path / "x.npz").stat().st_size > written
    assert grown < written / 4, f"{grown / 1e6:.0f} MB more for {written / 1e6:.0f} MB of images"


def _one_thread():
    import os

    return {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


# Parts


def test_the_command_is_the_shortest_that_gives_the_settings():
    assert made_by(preset("small", "mnist")) == "capspoe train mnist"
    assert made_by(preset("paper", "mnist")) == "capspoe train mnist --preset paper"
    assert made_by(preset("small", "digits", True)) == "capspoe train digits --literal"
    binary = preset("small", "mnist", neurons="binary").replace(seed=3, bias=False)
    assert made_by(binary) == "capspoe train mnist --neurons binary --no-bias --seed 3"


def test_timings():
    lines = [{"step": 50, "images_per_second": 1000.0}, {"step": 60, "images_per_second": 500.0}]
    found = timings({"autoencoder": lines, "capsules-0": lines}, batch=100)
    assert found["autoencoder"] == {"steps": 60, "images per second": 750, "about seconds": 7}
    assert list(found) == ["autoencoder", "capsules"]
    assert [duration(s) for s in (12, 222, 7200)] == ["12 seconds", "3.7 minutes", "2.0 hours"]


def test_any_nest_of_numbers_becomes_tables():
    nest = {
        "a": 1,
        "rows": {"x": {"p": 0.5, "q": 2}, "y": {"p": 0.25}},
        "deep": {"one": {"two": {"three": 3.0}}},
        "list": [{"k": 1}, {"k": 2}],
        "numbers": list(range(40)),
        "empty": {},
        "none": None,
    }
    page = Page(nested_tables(nest))
    for words in ("0.5", "0.25", "three", "40 in all", "deep one two", "none"):
        assert words in page.text
    assert len(page.all("table")) == 4
    for odd in (3, "text", [], {}, [1, 2], None, float("nan")):
        Page(nested_tables(odd))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.1235"), (18.0, "18"), (11234.5, "11,234"), (1e-5, "1e-05"), (True, "yes"), (60000, "60,000"),
     (float("inf"), "inf")],
)  # fmt: skip
def test_values_are_shown_shortly(value, text):
    assert shown(value) == text


def test_a_strip_holds_its_images_and_clear_gaps():
    import base64
    import io

    from PIL import Image

    images = np.random.default_rng(0).random((2, 3, 4, 5, 1))
    source = Page(strip(images, 'a "quoted" alt', gap=1)).all("img")[0]
    assert source["alt"] == 'a "quoted" alt'
    picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(source["src"].split(",")[1]))))
    assert picture.shape == (9, 17, 2)
    assert picture[5:9, 6:11, 0] / 255 == pytest.approx(images[1, 1, ..., 0], abs=0.003)
    assert (picture[4, :, 1] == 0).all()
    assert (picture[5:9, 6:11, 1] == 255).all()


def test_commands_name_the_run_as_it_was_named_and_show_no_path_of_the_machine(tmp_path):
    def name(path):
        return Subject(Path(path), None, None, None, None).name

    assert name("runs/demo") == "runs/demo"
    assert name("my runs/a") == "'my runs/a'"
    assert name(tmp_path / "demo") == "demo"
