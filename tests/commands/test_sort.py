"""`capspoe sort`: groups, contact sheets, links and copies; the images stay as they are."""

import csv
import re
from urllib.parse import unquote

import numpy as np
import pytest
import torch
from PIL import Image

from capspoe import data, train
from capspoe.cli import main
from capspoe.commands.sort import odd_ones
from capspoe.model.recognition import Recognition
from capspoe.run import checkpoint
from runs import QUICK, files_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Sixty digits, some in a sub-folder, and one image that is all white."""
    folder = tmp_path_factory.mktemp("my photos & more")
    (folder / "sub").mkdir()
    for k, pixels in enumerate(data.load("digits", "test").pixels[:60]):
        Image.fromarray(pixels[..., 0]).save(folder / ("sub" if k % 2 else "") / f"digit <{k}>.png")
    Image.new("L", (28, 28), 255).save(folder / "white.png")
    return folder


def sorted_to(out, folder, run, *options):
    main(["sort", str(folder), "--out", str(out), "--run", str(run), *options])
    with (out / "groups.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_groups_pages_and_links(folder, run, model, tmp_path):
    before = files_of(folder)
    rows = sorted_to(tmp_path / "out", folder, run, "--link")
    assert {row["file"] for row in rows} == set(before)
    assert list(rows[0])[:5] == ["file", "group", "probability", "typicality", "pose_0"]
    found = {row["file"]: row for row in rows}
    assert found["white.png"]["group"] == "odd"
    assert float(found["white.png"]["typicality"]) == 0
    on = model.encode(np.asarray(Image.open(folder / "digit <0>.png"))).on[0]
    assert found["digit <0>.png"]["group"] == f"group-{on.argmax():02d}"
    assert float(found["digit <0>.png"]["probability"]) == pytest.approx(on.max(), abs=1e-3)
    page = (tmp_path / "out" / "index.html").read_text()
    shown = re.findall(r'<img loading="lazy" src="([^"]*)"', page)
    assert len(shown) == 61
    assert all((tmp_path / "out" / unquote(address)).exists() for address in shown)
    assert "digit <" not in page  # escaped
    means = {
        name: np.mean([float(r["typicality"]) for r in rows if r["group"] == name])
        for name in {r["group"] for r in rows}
    }
    assert re.findall(r'<section id="([^"]*)"', page) == sorted(means, key=lambda name: -means[name])
    assert len(re.findall(r'<a href="#[^"]*"><img', page)) == len(means)
    linked = {path.resolve() for path in (tmp_path / "out").glob("*/*.png")}
    assert linked == {(folder / name).resolve() for name in before}
    assert files_of(folder) == before


def test_copies_and_what_is_refused(folder, run, tmp_path, capsys):
    sorted_to(tmp_path / "out", folder, run, "--copy")
    assert len([p for p in (tmp_path / "out").glob("*/*.png") if not p.is_symlink()]) == 61
    (tmp_path / "link").symlink_to(folder)
    for words, message in (
        ([str(folder), "--out", str(tmp_path / "out"), "--run", str(run), "--copy"], "exists already"),
        ([str(folder), "--out", str(folder / "sorted")], "must be outside"),
        ([str(folder), "--out", str(tmp_path / "link" / "sorted"), "--run", str(run)], "must be outside"),
        ([str(folder), "--out", str(tmp_path / "x"), "--link", "--copy"], "not both"),
        ([str(tmp_path / "nothing"), "--out", str(tmp_path / "x")], "is not a folder"),
    ):
        with pytest.raises(SystemExit):
            main(["sort", *words])
        assert re.fullmatch(f"capspoe: .*{message}.*\n", capsys.readouterr().err)


def test_images_that_were_clustered_keep_their_group(tmp_path, monkeypatch):
    """In the training part the group is the group, even where the network has another opinion."""
    folder = tmp_path / "images"
    folder.mkdir()
    for k, pixels in enumerate(data.load("digits", "test").pixels[:80]):
        Image.fromarray(pixels[..., 0]).save(folder / f"{k}.png")
    network = tmp_path / "out" / "run"
    train(folder, network, quiet=True, **QUICK | {"limit": None, "skip_bad": True, "layers": "3x6"})
    with monkeypatch.context() as patch:
        patch.setattr(Recognition, "on_probability", lambda _, images: torch.eye(3)[[2]].expand(len(images), 3))
        main(["sort", str(folder), "--out", str(tmp_path / "out")])
    with (tmp_path / "out" / "groups.csv").open(newline="") as file:
        group = {row["file"]: row["group"] for row in csv.DictReader(file)}
    trained = data.open_dataset(str(folder), "train").file_names
    targets = checkpoint.newest(network).optimizer["gate_targets"].tolist()
    assert len(set(targets)) == 3
    for name, target in zip(trained, targets, strict=True):
        assert group[name] in (f"group-{target:02d}", "odd")
    for name in group.keys() - set(trained):
        assert group[name] in ("group-02", "odd")


def test_far_outliers_are_odd():
    rng = np.random.default_rng(0)
    error = np.exp(rng.normal(-4, 0.4, 1000))
    assert odd_ones(error).sum() <= 1
    assert odd_ones(np.append(error, 1.0))[-1]
    assert not odd_ones(np.zeros(5)).any()
