"""`capspoe sort`: groups, the page, links and copies, additions and edits; the images stay as they are."""

import base64
import csv
import io
import json
import os
import re
import shutil
from urllib.parse import unquote

import numpy as np
import pytest
from PIL import Image, ImageDraw

from capspoe import CapsulePoE, data
from capspoe.cli import main
from capspoe.commands.sort import odd_ones
from runs import files_of

SHAPES = ("disc", "cross", "bars")


def drawing(kind: str, rng: np.random.Generator) -> Image.Image:
    """Dark shapes on white, never twice the same."""
    image = Image.new("L", (40, 40), 255)
    draw = ImageDraw.Draw(image)
    x, y = rng.integers(-3, 4, 2) + 20
    r = int(rng.integers(9, 14))
    if kind == "disc":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=int(rng.integers(0, 60)))
    elif kind == "cross":
        draw.line((x - r, y - r, x + r, y + r), fill=0, width=3)
        draw.line((x - r, y + r, x + r, y - r), fill=0, width=3)
    else:
        for k in (-8, 0, 8):
            draw.line((x - r, y + k, x + r, y + k), fill=int(rng.integers(0, 60)), width=2)
    return image


def kind_of(file: str) -> str:
    return re.search("|".join(SHAPES), file)[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Ninety drawings of three kinds with odd names, a copy, a smaller copy, and files that are no images."""
    folder = tmp_path_factory.mktemp("my photos & more")
    sub = folder / 'sub <b>"1" #%?'
    sub.mkdir()
    rng = np.random.default_rng(0)
    for k in range(90):
        kind = SHAPES[k % 3]
        drawing(kind, rng).save((sub if k % 2 else folder) / f"{kind} <{k}>.png")
    (folder / "copy of disc.png").write_bytes((folder / "disc <0>.png").read_bytes())
    Image.open(folder / "disc <6>.png").resize((34, 34), Image.Resampling.BICUBIC).save(folder / "small disc.png")
    (folder / "broken disc.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    (folder / "drawing.svg").write_text("<svg/>")
    (folder / "notes.txt").write_text("not a picture")
    (folder / ".hidden.png").write_bytes(b"")
    return folder


def sorted_to(out, folder, *options):
    main(["sort", str(folder), "--out", str(out), *options])
    with (out / "groups.csv").open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def page_data(out):
    text = (out / "index.html").read_text()
    return json.loads(re.search(r'<script type="application/json" id="data">(.*)</script>', text)[1])


@pytest.fixture(scope="module")
def first(folder, tmp_path_factory):
    """The folder, sorted in three groups."""
    out = tmp_path_factory.mktemp("sorted")
    return out, sorted_to(out, folder, "--groups", "3")


def test_the_groups_are_the_kinds(folder, first):
    out, rows = first
    assert len(rows) == 92
    assert list(next(iter(rows.values()))) == [
        *("file", "group", "probability", "typicality", "duplicate", "duplicate_of", "new", "moved")
    ]
    groups = {row["group"] for row in rows.values()} - {"odd"}
    assert groups == {"group-00", "group-01", "group-02"}
    for group in groups:
        assert len({kind_of(row["file"]) for row in rows.values() if row["group"] == group}) == 1
    assert all(0 <= float(row["probability"]) <= 1 for row in rows.values())
    assert np.mean([float(row["probability"]) for row in rows.values()]) > 0.8
    document = json.loads((out / "groups.json").read_text())
    assert {row["file"]: row["group"] for row in document["images"]} == {k: v["group"] for k, v in rows.items()}
    assert sum(group["images"] for group in document["groups"]) + document["odd"]["images"] == 92


def test_duplicates_are_marked_and_kept(first):
    _, rows = first
    copies = {"copy of disc.png", "disc <0>.png"}
    marked = [rows[name] for name in copies if rows[name]["duplicate"]]
    assert [row["duplicate"] for row in marked] == ["exact"]
    assert {marked[0]["file"], marked[0]["duplicate_of"]} == copies
    assert (rows["small disc.png"]["duplicate"], rows["small disc.png"]["duplicate_of"]) == ("near", "disc <6>.png")
    # Other drawings may nearly agree by chance, but only those of one kind.
    others = [row for row in rows.values() if row["duplicate"]]
    assert len(others) <= 5
    assert all(kind_of(row["file"]) == kind_of(row["duplicate_of"]) for row in others)


def test_what_cannot_be_read_is_named_in_one_line(folder, tmp_path, capsys):
    sorted_to(tmp_path / "out", folder, "--features", "outlines")
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("skipped")]
    assert len(lines) == 1
    assert "1 cannot be read: broken disc.png (" in lines[0]
    assert "1 of kinds that are not supported: drawing.svg" in lines[0]
    assert "notes.txt" not in lines[0]


def test_the_page_shows_every_image_and_escapes_names(folder, first):
    out, rows = first
    page = page_data(out)
    assert sorted(image[0] for image in page["images"]) == sorted(rows)
    for name, address, thumbnail, *_ in page["images"]:
        assert (out / unquote(address)).resolve() == (folder / name).resolve()
        assert (out / unquote(thumbnail)).exists()
    text = (out / "index.html").read_text()
    assert "<b>" not in text.partition('id="data"')[2].partition("</script>")[0]
    # Leaves follow each other without gaps, the groups' leaves too, and the slider goes down to one group.
    ends = 0
    for start, count, _, cover in page["leaves"]:
        assert start == ends
        assert start <= cover < start + count
        ends += count
    assert ends == page["odd"][0]
    groups = [leaf[2] for leaf in page["leaves"]]
    assert groups == sorted(groups)
    assert sorted(page["merges"]) == list(range(len(page["leaves"]) - 1))
    # Boundaries between groups are the last to disappear.
    between = {k for k in range(len(groups) - 1) if groups[k] != groups[k + 1]}
    assert set(page["merges"][-len(between) :]) == between


def test_one_file_holds_the_whole_page(folder, tmp_path):
    out = tmp_path / "out"
    sorted_to(out, folder, "--groups", "3", "--embed")
    page = page_data(out)
    assert page["skipped_files"] == 2
    for name, _, thumbnail, *_ in page["images"]:
        kind, content = thumbnail.split(",")
        assert kind == "data:image/png;base64"
        shown = Image.open(io.BytesIO(base64.b64decode(content)))
        assert shown.size == Image.open(folder / name).size
    assert 'href="groups.csv"' not in (out / "index.html").read_text()  # it is not sent with the page


def test_thumbnails_that_were_deleted_are_made_again(folder, tmp_path):
    out = tmp_path / "out"
    sorted_to(out, folder, "--groups", "3")
    shutil.rmtree(out / "thumbnails")
    rows = sorted_to(out, folder)
    assert not any(row["new"] for row in rows.values())
    assert all((out / image[2]).exists() for image in page_data(out)["images"])


def test_additions_keep_the_groups_and_are_marked(folder, tmp_path, monkeypatch):
    images = tmp_path / "images"
    images.mkdir()
    rng = np.random.default_rng(1)
    for k in range(60):
        drawing(SHAPES[k % 3], rng).save(images / f"{SHAPES[k % 3]} {k}.png")
    before = sorted_to(tmp_path / "out", images, "--groups", "3")
    assert not any(row["new"] for row in before.values())
    for k in range(3):
        drawing(SHAPES[k], rng).save(images / f"added {SHAPES[k]}.png")
    Image.fromarray(rng.integers(0, 255, (40, 40), np.uint8)).save(images / "noise.png")
    (images / "disc 0.png").unlink()
    read = []
    from capspoe.sorting import reading

    real = reading.read_file
    monkeypatch.setattr(reading, "read_file", lambda root, name, *rest: read.append(name) or real(root, name, *rest))
    after = sorted_to(tmp_path / "out", images)
    assert sorted(read) == ["added bars.png", "added cross.png", "added disc.png", "noise.png"]
    assert {name for name, row in after.items() if row["new"]} == set(read)
    assert set(after) == (set(before) | set(read)) - {"disc 0.png"}
    for name, row in after.items():
        if name in before:
            assert row["group"] == before[name]["group"]
        elif name != "noise.png":
            assert row["group"] == before[f"{kind_of(name)} {SHAPES.index(kind_of(name)) + 3}.png"]["group"]
    # For what looks like nothing else no group is probable.
    assert float(after["noise.png"]["probability"]) < 0.5
    assert np.mean([float(after[f"added {kind}.png"]["probability"]) for kind in SHAPES]) > 0.8
    # A mistake in edits.csv stops a run before it has taken new images in.
    drawing("disc", rng).save(images / "late disc.png")
    right = (tmp_path / "out" / "edits.csv").read_text()
    (tmp_path / "out" / "edits.csv").write_text(f"{right}group-09,a/b\n")
    with pytest.raises(SystemExit):
        sorted_to(tmp_path / "out", images)
    (tmp_path / "out" / "edits.csv").write_text(right)
    assert [name for name, row in sorted_to(tmp_path / "out", images).items() if row["new"]] == ["late disc.png"]
    # Another number of groups reads nothing again.
    read.clear()
    assert len({row["group"] for row in sorted_to(tmp_path / "out", images, "--groups", "2").values()} - {"odd"}) == 2
    assert read == []


def test_edits_survive(folder, first, tmp_path, capsys):
    out = tmp_path / "out"
    rows = sorted_to(out, folder, "--groups", "3")
    assert (out / "edits.csv").read_text().splitlines()[:2] == ["group_or_file,name", "group-00,"]
    discs = rows["disc <0>.png"]["group"]
    crosses = rows["cross <4>.png"]["group"]
    text = (
        f"group_or_file;name\r\n{discs};Kreise, rund\r\ncross <4>.png;{discs}\r\ngone.png;x\r\nbars <2>.png;mine\r\n"
    )
    (out / "edits.csv").write_text(text, encoding="utf-8-sig")
    for _ in range(2):
        capsys.readouterr()
        rows = sorted_to(out, folder, "--link")
        assert "1 line names no group or image, such as gone.png" in capsys.readouterr().err
        assert rows["disc <0>.png"]["group"] == "Kreise, rund"
        assert rows["cross <4>.png"]["group"] == "Kreise, rund"
        assert rows["cross <4>.png"]["moved"] == "yes"
        assert rows["bars <2>.png"]["group"] == "mine"
    with (out / "edits.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert [discs, "Kreise, rund"] in lines
    assert ["gone.png", "x"] in lines
    assert [crosses, ""] in lines
    assert {path.name for path in (out / "mine").iterdir()} == {"bars <2>.png"}
    # Two groups with one name are one.
    (out / "edits.csv").write_text(f"group_or_file,name\n{discs},both\n{crosses},both\n")
    rows = sorted_to(out, folder, "--link")
    assert {rows["disc <0>.png"]["group"], rows["cross <4>.png"]["group"]} == {"both"}
    assert not (out / "mine").exists()


def test_links_and_copies(folder, tmp_path):
    before = files_of(folder)
    rows = sorted_to(tmp_path / "out", folder, "--link")
    sorted_to(tmp_path / "out", folder, "--link")
    linked = {path.resolve() for path in (tmp_path / "out").glob("*/*") if path.is_symlink()}
    assert linked == {(folder / name).resolve() for name in rows}
    sorted_to(tmp_path / "copied", folder, "--copy")
    groups = {row["group"] for row in rows.values()}
    assert sum(len(list((tmp_path / "copied" / group).iterdir())) for group in groups) == len(rows)
    assert files_of(folder) == before


def test_what_is_refused(folder, first, run, tmp_path, capsys):
    (tmp_path / "link").symlink_to(folder)
    other = tmp_path / "other"
    other.mkdir()
    drawing("disc", np.random.default_rng(0)).save(other / "a.png")
    (tmp_path / "edited").mkdir()
    (tmp_path / "edited" / "edits.csv").write_text("group_or_file,name\ngroup-00,../up\n")
    (tmp_path / "empty").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("my home page")
    sorted_to(tmp_path / "copied", other, "--copy")
    capsys.readouterr()
    for words, message in (
        ([str(other), "--out", str(tmp_path / "copied"), "--copy"], "exists already"),
        ([str(folder), "--out", str(folder / "sorted")], "must be outside"),
        ([str(folder), "--out", str(tmp_path / "link" / "sorted"), "--run", str(run)], "must be outside"),
        ([str(folder), "--out", str(tmp_path / "x"), "--link", "--copy"], "not both"),
        ([str(folder), "--out", str(tmp_path / "x"), "--train", "--run", str(run)], "not both"),
        ([str(folder), "--out", str(tmp_path / "x"), "--size", "32"], "use it with --train"),
        ([str(folder), "--out", str(tmp_path / "x"), "--groups", "0"], "at least 1"),
        ([str(folder), "--out", str(tmp_path / "x"), "--run", str(other)], "other is not a run folder"),
        ([str(folder), "--out", str(tmp_path / "site")], "index.html was not written by capspoe sort"),
        ([str(tmp_path / "nothing"), "--out", str(tmp_path / "x")], "is not a folder"),
        ([str(tmp_path / "empty"), "--out", str(tmp_path / "x")], "no images in this folder"),
        ([str(other), "--out", str(first[0])], "choose another --out"),
        ([str(other), "--out", str(tmp_path / "edited")], "line 2: '../up' cannot be the name"),
    ):
        with pytest.raises(SystemExit):
            main(["sort", *words])
        assert re.search(f"^capspoe: .*{message}.*\n$", capsys.readouterr().err, re.M)
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "site" / "index.html").read_text() == "my home page"


def test_few_images_are_enough(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for k in range(1, 8):
        drawing(SHAPES[k % 3], rng).save(tmp_path / "images" / f"{k}.png")
        rows = sorted_to(tmp_path / f"out{k}", tmp_path / "images")
        assert len(rows) == k


def test_more_groups_than_there_are_is_said(folder, tmp_path, capsys):
    rows = sorted_to(tmp_path / "out", folder, "--groups", "1000")
    groups = len({row["group"] for row in rows.values()} - {"odd"})
    assert groups < 1000
    line = f"1000 groups were asked for; {groups} is all that these {len(rows)} images have"
    assert line in capsys.readouterr().err


def test_names_that_are_no_utf8(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    path = os.fsencode(folder) + b"/bad\xff.png"
    try:
        with open(path, "wb") as file:
            drawing("disc", np.random.default_rng(0)).save(file, "PNG")
    except OSError:
        pytest.skip("this file system allows only UTF-8")
    for _ in range(2):
        assert list(sorted_to(tmp_path / "out", folder)) == [os.fsdecode(b"bad\xff.png")]
    name, address, *_ = page_data(tmp_path / "out")["images"][0]
    assert name == "bad?.png"
    assert address.endswith("/bad%FF.png")


def test_groups_by_the_capsules_of_a_run(run, model, tmp_path):
    folder = tmp_path / "digits"
    folder.mkdir()
    for k, pixels in enumerate(data.load("digits", "test").pixels[:40]):
        Image.fromarray(pixels[..., 0]).save(folder / f"{k}.png")
    Image.new("L", (28, 28), 255).save(folder / "white.png")
    rows = sorted_to(tmp_path / "out", folder, "--run", str(run))
    assert rows["white.png"]["group"] == "odd"
    on = model.encode(np.asarray(Image.open(folder / "0.png"))).on[0]
    assert rows["0.png"]["group"] == f"group-{on.argmax():02d}"
    assert float(rows["0.png"]["probability"]) == pytest.approx(on.max(), abs=1e-3)
    assert "pose_5" in rows["0.png"]


def test_a_capsule_learns_each_group(folder, tmp_path, monkeypatch):
    from capspoe.config import Config
    from runs import QUICK

    quick = QUICK | {"limit": None, "min_steps": 0}
    del quick["layers"]
    real = Config.replace
    monkeypatch.setattr(Config, "replace", lambda config, **changes: real(config, **quick | changes))
    rows = sorted_to(tmp_path / "out", folder, "--groups", "3", "--train")
    assert CapsulePoE.load(tmp_path / "out" / "run").top.upper[0] == 3
    for row in rows.values():
        if row["group"] != "odd":
            same = {other["capsule"] for other in rows.values() if other["group"] == row["group"]}
            assert same == {row["capsule"]}
    assert "pose_5" in next(iter(rows.values()))


def test_far_outliers_are_odd():
    rng = np.random.default_rng(0)
    error = np.exp(rng.normal(-4, 0.4, 1000))
    assert odd_ones(error).sum() <= 1
    assert odd_ones(np.append(error, 1.0))[-1]
    assert not odd_ones(np.zeros(5)).any()
