"""What the README shows runs as it stands."""

import re
import shlex
from pathlib import Path

import pytest

import capspoe
from capspoe import cli, training
from runs import QUICK

README = (Path(__file__).parent.parent / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
COMMANDS = [
    line.split("#")[0].strip()
    for language, block in BLOCKS
    if language == ""
    for line in block.splitlines()
    if line.startswith("capspoe ")
]


def test_the_python_example(tmp_path, monkeypatch):
    """Run whole, on a smaller network so that it takes seconds."""
    monkeypatch.chdir(tmp_path)
    whole = training.train
    monkeypatch.setattr(capspoe, "train", lambda *a, **k: whole(*a, **{**QUICK, "quiet": True, **k}))
    names: dict = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(block, names)
    assert names["images"].shape == (20, 28, 28, 1)
    assert names["on"].shape == (20, 4)
    assert names["painted"].shape == names["images"].shape


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("capspoe train")])
def test_train_commands_are_understood(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(training, "command", lambda config, folder, resume: seen.append((config, folder)))
    cli.main(shlex.split(command)[1:])
    config, folder = seen[0]
    assert config.data.data == shlex.split(command)[2]
    assert folder.parts[0] == "runs"


def test_other_commands_exist():
    others = {shlex.split(c)[1] for c in COMMANDS} - {"train"}
    assert others
    assert others <= set(cli.COMMANDS)
    assert len(COMMANDS) >= 6


def test_make_targets_exist():
    makefile = (Path(__file__).parent.parent / "Makefile").read_text()
    targets = re.findall(r"^make (\w+)", README, re.M)
    assert targets[:2] == ["demo", "test"]
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M)
