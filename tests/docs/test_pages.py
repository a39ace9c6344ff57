"""README, CONTRIBUTING.md and docs: Python blocks run, commands parse, and flags, files and links exist."""

import importlib
import io
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from functools import partial, wraps
from pathlib import Path

import numpy as np
import pytest
import requests
import torch
from PIL import Image

import capspoe
import capspoe.data
import capspoe.sklearn
from capspoe import cli, kernels
from capspoe.commands.arguments import parse
from capspoe.model.routed import RoutedRBM, StateSums
from capspoe.training.cd import ContrastiveDivergence

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXT = {str(page.relative_to(ROOT)): page.read_text() for page in PAGES}
MORE = {"channels": 8, "autoencoder_epochs": 1, "min_steps": 4, "threads": 1}
SMALL = {"limit": 48, "layers": "4x6", "epochs": 1, "batch_size": 16, "prior_components": 2, **MORE}
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.S | re.M)


def blocks(page: str, language: str) -> list[str]:
    return [text for found, text in FENCE.findall(TEXT[page]) if found == language]


def commands(page: str) -> list[str]:
    """`capspoe ...` in the blocks of a page, alone or after torchrun, without comments."""
    indented = re.findall(r"(?:^    .*\n)+", FENCE.sub("", TEXT[page]), re.M)
    text = "\n".join([*blocks(page, ""), *indented]).replace("\\\n", " ")
    found = re.findall(r"^ *(?:torchrun .* -m |\.venv/bin/)?(capspoe .*)", text, re.M)
    return [command.split("#")[0].strip() for command in found]


COMMANDS = sorted({command for page in TEXT for command in commands(page)})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small run that all pages share."""
    folder = tmp_path_factory.mktemp("pages") / "digits"
    with kernels.use("reference"):  # nothing to compile
        capspoe.train("digits", out=folder, quiet=True, **SMALL | {"limit": 160, "min_steps": 40})
    return folder


@pytest.mark.parametrize("page", [page for page in TEXT if blocks(page, "python")])
def test_python_runs(page, trained, tmp_path, monkeypatch):
    """All blocks of a page in order, with digits instead of MNIST and small networks."""
    train, fit = capspoe.train, capspoe.sklearn.CapsulePoE.fit
    fit_network = capspoe.fit
    pixels, labels = (part[:60] for part in capspoe.data.load("digits", "test"))
    shutil.copytree(trained, tmp_path / "runs" / "mnist")
    for folder in (tmp_path / "photos", tmp_path / "my-photos"):
        folder.mkdir()
        for k, image in enumerate(pixels):
            Image.fromarray(image[..., 0]).save(folder / f"{k}.png")

    def small_train(images, out=None, **settings):
        if isinstance(images, str) and images == "digits" and page != "README.md":
            return capspoe.CapsulePoE.load(shutil.copytree(trained, out or "runs/digits", dirs_exist_ok=True))
        return train(images, out, **{**settings, **SMALL, "quiet": True})

    def small_network_fit(network, images, **settings):
        fit_network(network, images[:60], **{**settings, "epochs": 1, "autoencoder_epochs": 1, "min_steps": 4})

    def small_fit(self, X, y=None):
        return fit(self.set_params(n_components=4, n_iter=1, config=MORE), X, y)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(capspoe, "train", small_train)
    monkeypatch.setattr(capspoe, "fit", small_network_fit)
    monkeypatch.setattr(capspoe.sklearn.CapsulePoE, "fit", small_fit)
    if page == "docs/evaluation.md":
        monkeypatch.setattr("capspoe.evaluate.features.MIN_STEPS", 30)
    names = {  # what the blocks use without defining it
        "capspoe": capspoe, "pixels": pixels, "pixels_of": lambda k: pixels[k % len(pixels)],
        "X_train": pixels[:, :24:3, :24:3].reshape(-1, 64), "y_train": labels,
        "layer": capspoe.CapsuleLayer((144, 8), (2, 3)), "x": torch.rand(2, 144, 8),
    }  # fmt: skip
    with kernels.use("reference"), explorer() if page == "docs/explorer.md" else nullcontext("8765") as port:
        for block in blocks(page, "python"):
            block = block.replace('"mnist"', '"digits"').replace("samples=500", "samples=40")
            exec(compile(block.replace("8765", port), page, "exec"), names)
    if page in ("README.md", "docs/index.md"):
        assert names["images"].shape == names["decoded"].shape == (20, 28, 28, 1)
        assert np.allclose(names["decoded"], names["model"].decode(names["hidden"], names["on"].argmax(1)))


@contextmanager
def explorer():
    """The port of a running `capspoe explore`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    words = ["explore", "runs/mnist", "--no-browser", "--port", port]
    server = subprocess.Popen([sys.executable, "-m", "capspoe", *words])
    try:
        while True:
            assert server.poll() is None, "the explorer stopped"
            with suppress(requests.ConnectionError):
                image = {"image": {"index": 0}}  # refused until the test images are opened
                if requests.post(f"http://127.0.0.1:{port}/api/recognise", json=image, timeout=60).ok:
                    break
            time.sleep(0.2)
        yield port
    finally:
        server.terminate()
        server.wait()


class Parsed(Exception):
    pass


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_parse(line, monkeypatch):
    _, command, *words = shlex.split(line)
    module = importlib.import_module(f"capspoe.commands.{command}")
    function = getattr(module, command)

    def stop(*_, **__):
        raise Parsed

    if command == "train":
        monkeypatch.setattr("capspoe.run.train.train_run", stop)
    else:
        # A command wraps its function; parse for that function's options, and stop there.
        function = partial(parse, wraps(function.__wrapped__)(stop), command)
    with pytest.raises(Parsed):
        function(words)


def test_every_command_is_documented():
    assert any(line.startswith("capspoe train /shared/photos") for line in COMMANDS)  # after torchrun
    assert {line.split()[1] for line in COMMANDS} == set(cli.COMMANDS)


def test_flags_exist():
    text = io.StringIO()
    for command in cli.COMMANDS:
        with redirect_stdout(text), pytest.raises(SystemExit):
            cli.main([command, "--help"])
    flags = {*re.findall(r"--[a-z][\w-]*", text.getvalue()), "--debug", "--version"}
    flags |= {"--nproc-per-node", "--nnodes", "--max-restarts"}  # of torchrun
    other = re.compile(r"(?:torchrun|pip|pytest|python|docker) .*?(?=-m capspoe|`|\n\n|$)", re.S)
    for page, text in TEXT.items():
        used = re.findall(r"(?<![\w-])--[a-z][\w-]*", other.sub("", text))
        assert set(used) <= flags, f"{page}: {set(used) - flags}"


def test_files_and_links_exist():
    for page, text in TEXT.items():
        for path in re.findall(r"\b(?:examples|benchmarks|tests|src)/[\w./-]+\w", text):
            assert (ROOT / path).exists(), f"{page}: {path}"
        for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            file = (ROOT / page).parent / path if path else ROOT / page
            assert file.exists(), f"{page}: {target}"
            headings = re.findall(r"^#+ (.*)", file.read_text(), re.M) if anchor else []
            anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert not anchor or anchor in anchors, f"{page}: {target}"


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = {target for text in TEXT.values() for target in re.findall(r"(?:^|`)make (\w+)", text, re.M)}
    assert targets >= {"demo", "test", "docs", "bench"}
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.M)] == []


def test_equations_have_functions_and_tests():
    """Every row of the table in docs/model.md names functions and tests that exist."""
    table = TEXT["docs/model.md"].split("## Every equation of the paper")[1]
    rows = [line.split(" | ") for line in table.splitlines() if re.match(r"\| \d", line)]
    assert [int(n) for row in rows for n in re.findall(r"\d+", row[0])] == list(range(1, 19))
    modules = ("model.routing", "model.gates", "model.neurons")
    owners = {home.split(".")[1]: importlib.import_module(f"capspoe.{home}") for home in modules}
    for kind in (capspoe.CapsuleLayer, ContrastiveDivergence, RoutedRBM, StateSums):
        owners[kind.__name__] = kind
    for row in rows:
        functions, tests = re.findall(r"`(\w+)\.(\w+)`", row[2]), re.findall(r"`([\w./]+)::(\w+)`", row[3])
        assert functions
        assert tests
        for owner, attribute in functions:
            assert hasattr(owners[owner], attribute), f"{owner}.{attribute}"
        for file, test in tests:
            assert f"def {test}(" in (ROOT / "tests" / file).read_text(), f"{file}::{test}"
