"""What README, docs and CONTRIBUTING.md show works: Python is run, commands are at least understood."""

import contextlib
import re
import shlex
import shutil
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

import capspoe
import capspoe.sklearn
from capspoe import cli, kernels, training
from capspoe.evaluate import features
from runs import QUICK

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FEW = QUICK | {"limit": 48, "autoencoder_epochs": 1, "epochs": 1, "least_steps": 4, "batch": 16}
CHEAP = ("sample", "encode", "reconstruct", "traverse", "routing")  # commands that are run, on a tiny run
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(page.read_text()) if language in languages]


def commands(page: Path) -> list[str]:
    """`capspoe ...` in the blocks of a page, by itself or after torchrun, without what is said beside it."""
    indented = re.findall(r"(?:^    .*\n)+", FENCE.sub("", page.read_text()), re.M)
    text = "\n".join([*blocks(page, "", "sh"), *indented]).replace("\\\n", " ")
    found = re.findall(r"^ *(?:torchrun .* -m )?(capspoe .*)", text, re.M)
    return [re.split(r"#|\s{2,}(?=[a-zA-Z])", command)[0].strip() for command in found]


PYTHON = [page for page in PAGES if blocks(page, "python")]
COMMANDS = sorted({command for page in PAGES for command in commands(page)})


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A run that every page shares."""
    folder = tmp_path_factory.mktemp("pages") / "digits"
    with kernels.use("reference"):  # nothing to compile
        training.train(
            "digits", out=folder, quiet=True, **QUICK | {"limit": 160, "autoencoder_epochs": 2, "epochs": 4}
        )
    return folder


@pytest.fixture
def home(tiny, tmp_path, monkeypatch):
    """A folder with what the pages take for granted: a run, and images of one's own."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny, tmp_path / "runs" / "mnist")
    for folder in ("photos", "my-photos"):
        (tmp_path / folder).mkdir()
        for k in range(60):
            pixels = np.random.default_rng(k).integers(0, 255, (28, 28), np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{k}.png")
    with kernels.use("reference"):
        yield tmp_path


def named(page: Path) -> dict:
    """What the blocks of a page use and do not make."""
    digits = capspoe.data.load("digits", "test")
    pixels = digits.pixels[:60]
    given = {"capspoe": capspoe, "pixels": pixels, "pixels_of": lambda k: pixels[k % len(pixels)]}
    if page.name == "sklearn.md":
        rows = pixels[:, :24:3, :24:3].reshape(len(pixels), 64)
        given |= {"X_train": rows, "y_train": digits.labels[:60], "x": torch.rand(2, 144, 8)}
    if page.name == "performance.md":
        given |= {"layer": capspoe.CapsuleLayer((6, 2), (2, 3)), "x": torch.rand(2, 6, 2)}
    return given


@pytest.mark.parametrize("page", PYTHON, ids=name)
def test_python_runs(page, tiny, home, monkeypatch):
    """All blocks of a page, one after the other; MNIST is played by the digits, and networks are small."""
    whole, estimator = training.train, capspoe.sklearn.CapsulePoE

    def train(images="digits", out=None, **settings):
        if (
            isinstance(images, str) and images == "digits" and page.name != "README.md"
        ):  # the README's is trained for real
            if not Path(out).exists():
                shutil.copytree(tiny, out)
            return capspoe.CapsulePoE.load(out)
        return whole(images, out, **{**settings, **FEW, "quiet": True})

    few = {key: value for key, value in FEW.items() if key not in ("limit", "checkpoint_seconds")}
    monkeypatch.setattr(capspoe, "train", train)
    monkeypatch.setattr(capspoe.sklearn, "CapsulePoE", lambda **k: estimator(**(k | few)))
    monkeypatch.setattr(features, "LEAST_STEPS", 30)
    monkeypatch.setenv("CAPSPOE_DATA", str(home / "cache"))
    names = named(page)
    with explorer(home / "runs" / "mnist") if page.name == "explorer.md" else contextlib.nullcontext():
        for block in blocks(page, "python"):
            block = block.replace('"mnist"', '"digits"').replace("samples=500", "samples=40")
            exec(compile(block, name(page), "exec"), names)
    if page.name in ("README.md", "index.md"):
        assert names["images"].shape == names["painted"].shape == (20, 28, 28, 1)
        assert names["on"].shape == (20, 4)


@contextlib.contextmanager
def explorer(run: Path):
    """What a page asks of http://127.0.0.1:8765 with requests is answered by the explorer."""
    from explorer.conftest import client_of

    with client_of(run) as client, pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "requests", SimpleNamespace(post=client.post))
        yield


class Understood(Exception):
    pass


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_are_understood(command, home, monkeypatch):
    words = shlex.split(command.replace("RUN", "runs/mnist"))[1:]
    if words[0] == "train":
        seen = []
        monkeypatch.setattr(training, "command", lambda config, folder, resume: seen.append(config))
        cli.main(words)
        assert seen[0].data.data == words[1]
    elif words[0] in CHEAP:
        before = set(home.rglob("*"))
        cli.main(words)
        assert set(home.rglob("*")) - before, "it wrote nothing"
    else:
        module = import_module(f"capspoe.commands.{cli.COMMANDS[words[0]]}")
        parse = module.parse

        def stop(*arguments):
            raise Understood(parse(*arguments))

        monkeypatch.setattr(module, "parse", stop)
        with pytest.raises(Understood):
            getattr(module, words[0])(words[1:])


def test_commands_are_found():
    """The search for commands sees all kinds of blocks that the pages have."""
    assert "capspoe data fetch mnist" in COMMANDS  # an indented block, with words beside it
    assert any(command.startswith("capspoe train /shared/photos") for command in COMMANDS)  # after torchrun
    assert {shlex.split(command)[1] for command in COMMANDS} >= set(cli.COMMANDS) - {"bench"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_are_named_exist(page):
    for path in re.findall(r"\b(?:examples|benchmarks|tests|src)/[\w./-]+\w", page.read_text()):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    """As they stand in the repository; the site's own are checked when it is built."""
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        headings = re.findall(r"^#+ (.*)", file.read_text(), re.M) if anchor else []
        anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
        assert not anchor or anchor in anchors, target


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = {t for page in PAGES for t in re.findall(r"(?:^|`)make (\w+)", page.read_text(), re.M)}
    assert targets >= {"demo", "test", "docs", "reproduce"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.M), target
