"""One way in for images: every command reads a picture alike, alone, among others, in a folder, or in an array."""

import io
import json
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from capspoe.cli import main
from capspoe.commands.images import open_given_images
from capspoe.figures.summary import Summary
from capspoe.run.model import CapsulePoE

BUNDLED = "mnist-small"


@pytest.fixture(scope="module")
def bundled():
    return CapsulePoE.load(BUNDLED)


@pytest.fixture(scope="module")
def drawings(bundled, tmp_path_factory):
    """A large dark drawing on white paper, and its negative in the corner of a canvas."""
    folder = tmp_path_factory.mktemp("drawings")
    digit = bundled.sample(1, capsule=4).images[0, :, :, 0]
    large = Image.fromarray(np.rint(255 * digit).astype(np.uint8)).resize((280, 280))
    Image.fromarray(255 - np.asarray(large)).save(folder / "paper.png")
    canvas = Image.new("L", (500, 400))
    canvas.paste(large, (0, 100))
    canvas.save(folder / "canvas.png")
    return folder


def read(model, names):
    dataset = open_given_images(model, "unused", [str(name) for name in names]).dataset
    return dataset.batch(np.arange(len(dataset)))


@pytest.fixture(autouse=True)
def summary(monkeypatch):
    """The bundled network's, which is in its folder."""
    monkeypatch.setattr(
        "capspoe.figures.summary.summary_of", lambda model, run, count: Summary([None] * 20, 0.05, 20 / 28)
    )


def test_a_picture_is_read_alike_wherever_it_is(bundled, drawings, monkeypatch):
    paper = drawings / "paper.png"
    alone = read(bundled, [paper])
    assert alone.shape == (1, 28, 28, 1)
    in_folder = read(bundled, [drawings])
    assert [k.tolist() for k in in_folder[1:]] == [alone[0].tolist()]  # canvas.png comes first
    assert (read(bundled, [drawings / "canvas.png", paper]) == in_folder).all()
    pixels = np.asarray(Image.open(paper))
    np.save(drawings.parent / "paper.npy", pixels[None])
    assert (read(bundled, [drawings.parent / "paper.npy"]) == alone).all()
    stdin = io.TextIOWrapper(io.BytesIO(paper.read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert (read(bundled, ["-"]) == alone).all()


def test_polarity_and_place_do_not_matter(bundled, drawings):
    canvas, paper = read(bundled, [drawings]).astype(int)
    assert np.abs(canvas - paper).max() < 30
    assert paper[0].max() == 0  # light on dark, as the network's images


def test_images_of_the_networks_own_kind_stay_as_they_are(bundled, tmp_path):
    digit = np.zeros((1, 28, 28), np.uint8)
    digit[0, 4:24, 12:16] = 255
    np.save(tmp_path / "x.npy", digit)
    assert (read(bundled, [tmp_path / "x.npy"])[..., 0] == digit).all()


def test_inverting_is_announced(drawings, capsys):
    main(["encode", BUNDLED, str(drawings / "paper.png"), str(drawings / "canvas.png")])
    output = capsys.readouterr()
    assert "inverted 1 of 2 images: the network was trained on objects that are light on dark" in output.err
    assert output.out.count(".png") == 2


def test_an_image_is_counted_once(drawings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["reconstruct", BUNDLED, str(drawings / "paper.png")])
    assert "inverted 1 of 1 images" in capsys.readouterr().err


OPTIONS = {
    "encode": [],
    "score": [],
    "explain": ["--objects", "1"],
    "complete": ["--mask", "left"],
    "reconstruct": [],
    "routing": [],
}


@pytest.mark.parametrize("command", OPTIONS)
def test_every_command_takes_files_and_says_what_is_odd_about_them(command, drawings, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # figures are written to runs/mnist-small
    noise = np.random.default_rng(0).integers(0, 120, (1, 28, 28), np.uint8)
    np.save("noise.npy", noise)
    main([command, BUNDLED, "noise.npy", str(drawings / "paper.png"), *OPTIONS[command]])
    said = capsys.readouterr().err
    assert "unlike what the network was trained on: 1 of 2 images (noise.npy[0])" in said
    if command != "routing":  # which reads one of the images
        assert "inverted 1 of 2 images" in said


def test_routing_and_reconstruct_name_the_image(drawings, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["routing", BUNDLED, str(drawings), "--image", "1"])
    svg = (tmp_path / "runs" / BUNDLED / "figures" / "routing-1.svg").read_text()
    assert "paper.png" in svg
    with pytest.raises(SystemExit):
        main(["reconstruct", BUNDLED, str(drawings), "--first", "2"])
    assert "image must be below 2, the number of images, not 2" in capsys.readouterr().err


def test_json(drawings, capsys):
    main(["encode", BUNDLED, str(drawings), "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in rows] == ["canvas.png", "paper.png"]
    assert {row["capsule"] for row in rows} == {rows[0]["capsule"]}


@pytest.mark.parametrize("command", ["encode", "score", "explain", "complete", "reconstruct"])
def test_unreadable_files_are_skipped_on_request_and_nothing_is_counted_twice(
    command, drawings, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(drawings, "folder")
    (tmp_path / "folder" / "broken.png").write_bytes(b"not an image")
    with pytest.raises(SystemExit):
        main([command, BUNDLED, "folder", *OPTIONS[command]])
    assert "repair or remove them, or use --skip-bad" in capsys.readouterr().err
    main([command, BUNDLED, "folder", "--skip-bad", *OPTIONS[command]])
    said = capsys.readouterr().err
    assert "skipped: 1 of 3 images cannot be read: broken.png" in said
    assert "inverted 1 of 2 images" in said


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_a_command_says_how_it_reads_an_array(suffix, tmp_path, capsys):
    digits = np.zeros((3, 1, 28, 28), np.float32)
    digits[:, 0, 4:24, 12:16] = 1
    path = tmp_path / f"x.{suffix}"
    if suffix == "npy":
        np.save(path, digits)
    else:
        np.savez(path, images=digits)
    main(["encode", BUNDLED, str(path), "--json"])
    output = capsys.readouterr()
    assert "3 images of 28x28, grey, float32 in [0, 1], read as (n, C, H, W)" in output.err
    assert len(json.loads(output.out)) == 3


def test_faint_noise_is_unlike_digits_even_if_many_objects_are_near_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    noise = np.random.default_rng(0).integers(0, 77, (1, 28, 28), np.uint8)
    np.save("noise.npy", noise)
    main(["explain", BUNDLED, "noise.npy", "--json"])
    (row,) = json.loads(capsys.readouterr().out)
    assert row["error"] < 0.05
    assert row["unlike"]


@pytest.mark.parametrize(("command", "name"), [("reconstruct", "x.png"), ("routing", "x.svg")])
def test_figures_are_written_where_one_says(command, name, drawings, tmp_path, capsys):
    out = tmp_path / name
    main([command, BUNDLED, str(drawings), "--out", str(out)])
    assert out.stat().st_size > 1000
    assert capsys.readouterr().out.strip() == str(out)
