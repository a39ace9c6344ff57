"""The command line as a person meets it."""

import subprocess
import sys

import pytest

import capspoe as package
from capspoe.cli import COMMANDS, main
from runs import capspoe


def test_help_lists_the_commands():
    done = capspoe("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"\n  {command} " in done.stdout


def test_version():
    assert capspoe("--version").stdout == f"capspoe {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["train", "--epochs", "x"], ["nonsense"]]
)
def test_help_and_wrong_usage_do_not_wait_for_pytorch(arguments):
    code = (
        "import sys\nfrom capspoe.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as stop:\n    print('exit', stop.code)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert f"exit {0 if '--help' in arguments else 2}" in done.stdout


def test_train_help_is_grouped_and_fits_two_screens():
    text = capspoe("train", "--help").stdout
    for word in ("--preset", "--literal", "--gate", "--neurons", "--out", "--resume", "--seed", "--layers"):
        assert word in text
    assert "stage 1" in text.lower()
    assert len(text.splitlines()) < 110


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["train", "nothing-here"], "no data set", 1),
        (["train", "digits", "--layers", "20"], "layers must look like", 1),
        (["train", "digits", "--batch", "0"], "batch must be between", 1),
        (["sample", "nothing", "--out", "x.png"], "is not a run folder", 1),
        (["sample", "nothing", "--out", "x.gif"], "--out must end in .png or .npz", 1),
        (["encode", "nothing", "--out", "x.npz"], "is not a run folder", 1),
        (["trian"], "did you mean 'train'?", 2),
        (["data", "fetch"], "name the data set", 1),
        (["data", "fetch", "mnits"], "mnist", 1),
        ([], "usage", 2),
        (["train", "digits", "--epochs", "many"], "--epochs", 2),
    ],
)
def test_errors_are_one_clear_line(arguments, message, code, tmp_path):
    done = capspoe(*arguments, cwd=tmp_path)
    assert done.returncode == code
    said = done.stderr + done.stdout
    assert message in said
    assert "Traceback" not in said
    if code == 1:
        assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_debug_shows_the_traceback(tmp_path):
    done = capspoe("sample", tmp_path / "nothing", "--out", "x.png", "--debug")
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["cifar10", "--literal"], ["--literal", "cifar10"], ["--preset=paper", "cifar10"]]
)
def test_a_data_set_has_its_own_settings_wherever_it_is_named(arguments, monkeypatch):
    from capspoe import training

    asked = []
    monkeypatch.setattr(training, "command", lambda config, *rest: asked.append(config))
    main(["train", *arguments])
    (config,) = asked
    assert (config.data.data, config.data.crop) == ("cifar10", 28)
    assert config.capsules.gate == ("none" if "--literal" in arguments else "winner")


def test_data_list():
    done = capspoe("data", "list")
    assert done.returncode == 0
    for name in ("mnist", "fashion-mnist", "cifar10", "digits"):
        assert name in done.stdout


def test_data_verify_digits():
    assert capspoe("data", "verify", "digits").returncode == 0
