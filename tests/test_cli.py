"""The command line: help, usage errors, exit codes."""

import subprocess
import sys

import pytest

import capspoe as package
from capspoe.cli import COMMANDS, main
from capspoe.errors import RunError
from runs import capspoe


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"\n  {command} " in printed for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stop:
        main([command, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"usage: capspoe {command}" in text
    assert "None" not in text


def test_version():
    assert capspoe("--version").stdout == f"capspoe {package.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "--epochs", "x"], ["nonsense"]])
def test_help_and_wrong_usage_do_not_wait_for_pytorch(arguments):
    code = (
        "import sys\nfrom capspoe.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as stop:\n    print('exit', stop.code)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert f"exit {0 if '--help' in arguments else 2}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["train", "nothing-here"], "neither a data set", 1),
        (["train", "digits", "--layers", "20"], "layers must look like", 1),
        (["train", "digits", "--batch-size", "0"], "batch_size must be between", 1),
        (["sample", "nothing", "--out", "x.png"], "is not a run folder", 1),
        (["sample", "nothing", "--out", "x.gif"], "--out must end in .png or .npz", 1),
        (["encode", "nothing", "--out", "x.npz"], "is not a run folder", 1),
        (["trian"], "did you mean 'train'?", 2),
        ([], "usage", 2),
        (["train"], "capspoe train: missing: DATA; capspoe train --help lists the options", 2),
        (["train", "digits", "--epochs", "many"], "--epochs takes a whole number, not 'many'", 2),
        (["train", "digits", "--learning-rate", "high"], "--learning-rate takes a number, not 'high'", 2),
        (["train", "digits", "--batch", "3"], "--batch", 2),
        (["sort"], "missing: FOLDER, --out PATH", 2),
        (["sort", "folder", "--out", "x", "--groups", "3.5"], "--groups takes a whole number, not '3.5'", 2),
        (["sample", "a", "b", "c"], "missing: --out PATH; unknown: b, c", 2),
        (["sample", "--out", "x.png", "--prior", "flat"], "--prior is one of fitted, model, standard, not 'flat'", 2),
        (["sample", "--count", "--out", "x.png"], "--count needs a value", 2),
        (["sample", "--out", "x.png", "--coun", "3"], "unknown: --coun, 3; did you mean --count?", 2),
    ],
)
def test_errors_are_one_clear_line(arguments, message, code, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == code
    printed = capsys.readouterr()
    assert message in printed.err + printed.out
    if arguments:
        assert len(printed.err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_debug_lets_the_error_through(tmp_path):
    with pytest.raises(RunError, match="is not a run folder"):
        main(["sample", str(tmp_path / "nothing"), "--out", "x.png", "--debug"])
