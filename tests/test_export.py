"""A trained network in other programs gives what it gives here."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from starlette.testclient import TestClient

from capspoe import CapsulePoE, hub, train
from capspoe.cli import COMMANDS, main
from capspoe.errors import RunError
from capspoe.evaluate.settings import Settings
from capspoe.explorer.server import application
from capspoe.export import Generator, compare, needed
from runs import QUICK, capspoe, files_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "run"
    train("digits", folder, quiet=True, **QUICK)
    return folder


@pytest.fixture(scope="module")
def exported(run):
    folder = run.parent / "exported"
    done = capspoe("export", run, "--out", folder, "--format", "hub", "onnx", "torch")
    assert done.returncode == 0, done.stderr
    names = "README.md config.json model.safetensors samples.png "
    names += "encoder.onnx generator.onnx encoder.pt2 generator.pt2"
    assert [line.rsplit("/", 1)[1] for line in done.stdout.split()] == names.split()
    assert {path.name for path in folder.iterdir()} == set(names.split())
    return folder


def programs(folder):
    """(encoder, generator) as functions on arrays, by each of the two formats."""
    for suffix in ("onnx", "pt2"):
        found = []
        for name in ("encoder", "generator"):
            if suffix == "onnx":
                session = onnxruntime.InferenceSession(folder / f"{name}.onnx")
                inputs = [given.name for given in session.get_inputs()]
                found.append(lambda *a, s=session, i=inputs: s.run(None, dict(zip(i, a, strict=True))))
            else:
                module = torch.export.load(folder / f"{name}.pt2").module()
                found.append(lambda *a, m=module: m(*map(torch.from_numpy, a)))
        yield found


def test_programs_give_what_the_network_gives(run, exported):
    model = CapsulePoE.load(run)
    J, N = model.top.upper
    rng = np.random.default_rng(0)
    for encoder, generator in programs(exported):
        for count in (1, 6):
            images = rng.random((count, *model.image), dtype=np.float32)
            on, hidden = encoder(images)
            expected = model.encode(images)
            np.testing.assert_allclose(on, expected.on, atol=1e-4)
            np.testing.assert_allclose(hidden, expected.hidden, atol=1e-3)
            capsule = rng.integers(0, J, count)
            white = rng.standard_normal((count, N), dtype=np.float32)
            z = model.prior.from_white(torch.from_numpy(capsule), torch.from_numpy(white)).numpy()
            alone = np.zeros((count, J, N), np.float32)
            alone[np.arange(count), capsule] = z
            painted = generator(capsule, white)
            painted = painted[0] if isinstance(painted, list) else painted
            np.testing.assert_allclose(painted, model.decode(alone, capsule), atol=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"neurons": "binary", "gate": "none", "normalize": "upper", "agreement": "dot"},
        {"layers": "5x4,3x6", "iterations": 1},
    ],
)
def test_other_networks_can_be_exported(tmp_path, options):
    from capspoe.config import Config
    from capspoe.export import write_onnx, write_torch

    model = CapsulePoE(Config().replace(channels=8, **({"layers": "3x6"} | options)), (9, 12, 3))
    assert (
        len(write_onnx(model, tmp_path) + write_torch(model, tmp_path)) == 4
    )  # each is compared as it is written


def test_an_export_that_differs_is_refused(run):
    part = Generator(CapsulePoE.load(run))
    compare(part, part, run / "same")
    with pytest.raises(Exception, match=r"x\.onnx would differ from the network by .* in 'images'"):
        compare(part, lambda *inputs: part(*inputs) + 0.01, run / "x.onnx")


def test_the_hub_folder_is_the_same_network(run, exported):
    here, there = CapsulePoE.load(run), CapsulePoE.load(exported)
    assert there.config == here.config
    assert np.array_equal(here.sample(8).images, there.sample(8).images)


def test_every_command_takes_the_hub_folder(exported, tmp_path, capsys, monkeypatch):
    """In this process: starting Python for each would take longer than they do."""
    folder = tmp_path / "exported"
    shutil.copytree(exported, folder)
    monkeypatch.setattr("capspoe.evaluate.settings.QUICK", Settings(True, 20, ais_steps=10, ais_chains=5))
    monkeypatch.setattr("capspoe.evaluate.features.LEAST_STEPS", 20)
    monkeypatch.setenv("CAPSPOE_DATA", str(tmp_path / "cache"))
    commands = {
        "sample": ["--count", "2", "--out", f"{tmp_path}/x.png"],
        "encode": ["--out", f"{tmp_path}/x.npz"],
        "reconstruct": ["--count", "2"],
        "traverse": ["--capsule", "1"],
        "routing": [],
        "evaluate": ["--quick"],
        "report": [],
        "export": ["--out", f"{tmp_path}/again"],
    }
    assert set(COMMANDS) - set(commands) == {"train", "data", "bench", "explore"}
    for command, words in commands.items():
        main([command, str(folder), *words])
        written = capsys.readouterr().out.split("\n")[-2]
        assert Path(written).stat().st_size > 1000, command
    page = (folder / "report.html").read_text()
    assert "The course of training" not in page
    assert "k-means + PCA" in page
    assert "| k-means + PCA on the codes |" in (tmp_path / "again" / "README.md").read_text()
    assert CapsulePoE.load(tmp_path / "again").sample(1)
    with TestClient(application(folder), base_url="http://127.0.0.1:8765") as client:
        assert client.get("/api/run").json()["capsules"] == 4
        assert client.get("/api/training").json()["status"] == "finished"
    before = files_of(folder)
    for words in (["--out", str(folder)], ["--resume", "--out", str(folder)]):
        with pytest.raises(SystemExit):
            main(["train", "digits", *words])
        assert "is an exported network, without what training needs" in capsys.readouterr().err
    assert files_of(folder) == before


def test_the_card(run, exported):
    text = (exported / "README.md").read_text()
    front = re.match(r"---\n(.*?)\n---\n", text, re.S)[1]
    for line in front.splitlines():
        assert re.fullmatch(r"\w+: (\w[\w-]*|\[[\w-]+(, [\w-]+)*\])", line)
    assert "library_name: capspoe" in front
    assert "![Samples, a column a capsule](samples.png)" in text
    assert "4x6 upper capsules on images of 28x28 with 1 channel" in text
    assert "| channels | 8 |" in text
    assert "`capspoe evaluate` had not been run" in text
    assert str(run.parent) not in text
    code = re.search(r"```python\n(.*?)```", text, re.S)[1].replace("path/to/this/folder", str(exported))
    names: dict = {}
    exec(code, names)
    assert names["hidden"].shape == (20, 4, 6)
    row = {"name": "capspoe, fitted", "fid": 12.34, "purity": 0.8}
    evaluation = {
        "rows": [row],
        "specialisation": {"alive": 4, "capsules": 4},
        "instantiation": {},
        "likelihood": dict.fromkeys(
            (
                "log_p_lower",
                "log_p_upper",
                "log_p_independent",
                "log_z_lower",
                "log_z_upper",
                "log_z_near_data",
            ),
            1.0,
        ),
    }
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    assert "| capspoe, fitted | 12.3 |" in hub.card(CapsulePoE.load(run), run)
    (run / "evaluation.json").write_text("{}")
    assert "had not been run" in hub.card(CapsulePoE.load(run), run)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-4], "checksum"),
        (lambda data: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (lambda data: b"", "checksum"),
    ],
)
def test_damaged_weights_are_noticed(exported, tmp_path, damage, message):
    for name in ("config.json", hub.WEIGHTS):
        (tmp_path / name).write_bytes((exported / name).read_bytes())
    (tmp_path / hub.WEIGHTS).write_bytes(damage((exported / hub.WEIGHTS).read_bytes()))
    with pytest.raises(RunError, match=message):
        CapsulePoE.load(tmp_path)


def test_a_missing_package_is_one_clear_line(run, tmp_path):
    (tmp_path / "onnx.py").write_text("raise ImportError\n")
    path = f"{tmp_path}:{':'.join(p for p in sys.path if p)}"
    done = capspoe("export", run, "--out", tmp_path / "out", "--format", "onnx", env={"PYTHONPATH": path})
    assert done.returncode == 1
    assert done.stderr == "capspoe: ONNX needs the package onnx: pip install 'capspoe[export]'\n"
    assert not (tmp_path / "out").exists()
    assert needed("json") is json


def test_a_run_folder_is_not_overwritten(run):
    done = capspoe("export", run, "--out", run)
    assert done.returncode == 1
    assert "is a run folder; export into another one" in done.stderr
