"""The Hugging Face layout: the same network, a model card, and damage that is noticed."""

import json
import re

import numpy as np
import pytest

from capspoe import CapsulePoE
from capspoe.cli import main
from capspoe.errors import RunError
from capspoe.run import hub
from capspoe.run.checkpoint import EXPORTED
from runs import files_of

NAMES = ["README.md", "config.json", EXPORTED, "samples.png", "summary.json"]


@pytest.fixture
def exported(run, tmp_path, capsys):
    folder = tmp_path / "exported"
    main(["export", str(run), "--out", str(folder)])
    assert capsys.readouterr().out.split() == [str(folder / name) for name in NAMES]
    assert sorted(files_of(folder)) == sorted(NAMES)
    return folder


def test_the_folder_is_the_same_network(model, exported, images, tmp_path):
    there = CapsulePoE.load(exported)
    assert (there.config, there.image, there.stage) == (model.config, model.image, "done")
    assert np.array_equal(model.sample(8).images, there.sample(8).images)
    main(["sample", str(exported), "--out", str(tmp_path / "x.png")])
    assert (tmp_path / "x.png").read_bytes() == (exported / "samples.png").read_bytes()
    main(["export", str(exported), "--out", str(tmp_path / "again")])
    assert np.array_equal(CapsulePoE.load(tmp_path / "again").encode(images).on, model.encode(images).on)


def test_files_of_others_are_not_overwritten(run, exported, tmp_path, capsys):
    project = tmp_path / "project"
    project.mkdir()
    (project / "README.md").write_text("My project")
    with pytest.raises(SystemExit):
        main(["export", str(run), "--out", str(project)])
    assert "README.md was not written by capspoe export; choose another folder" in capsys.readouterr().err
    assert list(files_of(project)) == ["README.md"]
    assert (project / "README.md").read_text() == "My project"
    main(["export", str(run), "--out", str(exported), "--format", "hub", "web"])  # into its own folder


def test_training_does_not_touch_it_nor_export_a_run(run, exported, capsys):
    before = files_of(exported), files_of(run)
    for words in (
        ["train", "digits", "--out", str(exported)],
        ["train", "digits", "--resume", "--out", str(exported)],
        ["export", str(run), "--out", str(run)],
    ):
        with pytest.raises(SystemExit):
            main(words)
        assert re.search("is an exported network|is a run folder; export to another", capsys.readouterr().err)
    assert before == (files_of(exported), files_of(run))


def test_the_card(run, exported):
    text = (exported / "README.md").read_text()
    front = re.match(r"---\n(.*?)\n---\n", text, re.S)[1]
    for line in front.splitlines():
        assert re.fullmatch(r"\w+: (\w[\w-]*|\[[\w-]+(, [\w-]+)*\])", line)
    for words in (
        "library_name: capspoe",
        "![Samples, one column for each capsule](samples.png)",
        "36x8 lower and 4x6 upper capsules on images of 28x28 with 1 channel, trained",
        "| channels | 8 |",
        "`capspoe evaluate` had not been run",
    ):
        assert words in text
    assert str(run.parent) not in text
    code = re.search(r"```python\n(.*?)```", text, re.S)[1].replace("path/to/this/folder", str(exported))
    names: dict = {}
    exec(code, names)
    assert names["hidden"].shape == (20, 4, 6)


def test_the_scores_of_evaluate(model, tmp_path):
    rows = [
        {"name": "capspoe, fitted", "fid": 12.34567, "purity": 0.8, "seconds": 3},
        {"name": "k-means", "purity": 0.7},
        {"name": "VAE", "failed": "no memory"},
    ]
    (tmp_path / "evaluation.json").write_text(json.dumps({"rows": rows}))
    text = hub.card(model, tmp_path)
    assert "| model | fid | purity | seconds |\n| --- | --- | --- | --- |\n" in text
    assert "| capspoe, fitted | 12.35 | 0.8 | 3 |\n| k-means |  | 0.7 |  |\n" in text
    assert "VAE" not in text
    for damaged in ("{}", "[", '{"rows": 3}', '{"rows": []}', '{"rows": [3]}'):
        (tmp_path / "evaluation.json").write_text(damaged)
        assert "had not been run" in hub.card(model, tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-4], "checksum"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_damaged_weights_are_noticed(exported, damage, message):
    (exported / EXPORTED).write_bytes(damage((exported / EXPORTED).read_bytes()))
    with pytest.raises(RunError, match=message):
        CapsulePoE.load(exported)
