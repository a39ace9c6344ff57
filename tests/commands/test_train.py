"""`capspoe train`: its help, and how presets, data sets and options become settings."""

import os
import re

import pytest

from capspoe.cli import main
from capspoe.config import FIELDS, preset


@pytest.fixture
def parse(monkeypatch):
    """The settings and the folder that a command line asks for."""
    asked = {}

    def train_run(config, folder, resume):
        asked.update(config=config, folder=folder, resume=resume)
        raise SystemExit(0)

    monkeypatch.setattr("capspoe.run.train.train_run", train_run)

    def parse(*argv):
        with pytest.raises(SystemExit):
            main(["train", *argv])
        return asked

    return parse


def help_text(capsys, *argv):
    with pytest.raises(SystemExit):
        main(["train", *argv, "--help"])
    return re.sub(r"[\s│]+", " ", capsys.readouterr().out)


def test_help_has_every_setting_in_its_group(capsys):
    text = help_text(capsys)
    basic, advanced = text[text.index("basic options") :].split("advanced options")
    for name, field in FIELDS.items():
        if name != "data":
            flag = "--" + ("no-" if field.default is True else "") + name.replace("_", "-") + " "
            assert (flag in advanced, flag in basic) == (
                field.metadata["advanced"],
                not field.metadata["advanced"],
            )
            assert field.metadata["no_help" if field.default is True else "help"] in text
    assert not re.search(r"None|True|False", text)
    assert not re.search(r"\(default[^()]*\)\.? \(default", text)
    assert "--out PATH The run folder (default: runs/NAME)." in text
    assert "--batch-size INT Images per training step. (default: 128)" in text
    assert "--crop INT" in text


def test_help_shows_the_defaults_of_the_preset_and_the_data_set(capsys):
    text = help_text(capsys, "digits", "--preset", "paper", "--literal")
    assert "Images per training step. (default: 64)" in text
    assert "(default: 128)" in text
    assert "--bias Learn biases. --centred Subtract the mean code." in text


@pytest.mark.parametrize("argv", [["cifar10", "--literal"], ["--literal", "cifar10"], ["--preset=paper", "cifar10"]])
def test_a_data_set_has_its_settings_wherever_it_is_named(argv, parse):
    name = "paper" if "--preset=paper" in argv else "small"
    assert parse(*argv)["config"] == preset(name, "cifar10", "--literal" in argv)
    assert parse(*argv)["config"].crop == 28


def test_options_change_single_settings(parse):
    options = "--batch-size 7 --learning-rate 0.5 --no-bias --size 20 --layers 9x9,4x4 --seed -3 --tensorboard"
    changes = {"batch_size": 7, "learning_rate": 0.5, "bias": False, "size": 20}
    changes |= {"layers": "9x9,4x4", "seed": -3, "tensorboard": True}
    asked = parse("digits", *options.split())
    assert asked["config"] == preset(data="digits").replace(**changes)
    assert (str(asked["folder"]), asked["resume"]) == ("runs/digits", False)


@pytest.mark.parametrize(
    ("argv", "rate"),
    [(["--neurons", "binary"], 0.03), (["--neurons=binary"], 0.03), (["--neurons", "gaussian"], 0.001),
     (["--neurons", "binary", "--learning-rate", "0.2"], 0.2)],
)  # fmt: skip
def test_binary_neurons_have_their_own_learning_rate(argv, rate, parse):
    assert parse("digits", *argv)["config"].learning_rate == pytest.approx(rate)


@pytest.mark.parametrize(
    ("argv", "folder"),
    [
        (["mnist"], "runs/mnist"),
        (["a/pictures/", "--preset", "paper", "--literal"], "runs/pictures-paper-literal"),
        (["mnist", "--out", "here", "--resume"], "here"),
        (["a/b/1.png", "a/b/2.png", "--seed", "1"], "runs/b"),
        (["-"], "runs/standard-input"),
    ],
)
def test_the_run_folder(argv, folder, parse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("1.png", "2.png"):
        (tmp_path / "a" / "b" / name).touch()
    assert str(parse(*argv)["folder"]) == folder
    assert parse(*argv)["resume"] == ("--resume" in argv)


def test_an_option_that_does_not_exist_is_named(capsys):
    for words in (["--nope"], ["digits", "--min_step=3"]):
        with pytest.raises(SystemExit) as end:
            main(["train", *words])
        assert end.value.code == 2
    message = capsys.readouterr().err
    assert "there is no option --nope; capspoe train --help lists them" in message
    assert "there is no option --min_step; did you mean --min-steps?" in message


def test_several_paths(parse):
    assert parse("a.png", "b.png", "--seed", "1")["config"].data == os.pathsep.join(["a.png", "b.png"])
