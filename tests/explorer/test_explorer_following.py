"""The page follows a run that is still training."""

import asyncio
import json
import shutil
import time

import pytest
from starlette.testclient import TestClient

from capspoe import checkpoint
from capspoe.explorer import following
from capspoe.explorer.server import application
from capspoe.explorer.server import following as following_the_run
from capspoe.explorer.studio import Studio
from capspoe.explorer.turns import TooBusy, Turns
from conftest import ADDRESS, until


@pytest.fixture
def growing(gated_run, tmp_path):
    """A run as it looks before its first checkpoint."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.json", "environment.json"):
        shutil.copy(gated_run / name, folder)
    return folder


def put(gated_run, folder, stage, number):
    saved = checkpoint.newest(gated_run)
    checkpoint.save(folder, checkpoint.State(stage, 10), saved.weights, {})
    assert checkpoint.numbered(folder)[-1].name == f"{number:08d}"


def test_from_nothing_to_done(gated_run, growing, monkeypatch):
    monkeypatch.setattr("capspoe.explorer.server.LOOK_SECONDS", 0.05)
    with TestClient(application(growing), base_url=ADDRESS) as client:
        assert client.get("/api/run").json()["capsules"] is None
        for path in ("/api/gallery", "/api/capsules/0", "/api/grid.png", "/api/random?capsule=0"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert "no checkpoint yet" in answer.json()["error"]
        assert client.get("/api/training").json()["stages"] == []
        lines = (gated_run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (growing / "metrics.jsonl").write_bytes(lines[0] + b'{"stage": "auto')
        found = client.get("/api/training").json()
        assert found["status"] == "training"
        assert [s["stage"] for s in found["stages"]] == ["autoencoder"]
        put(gated_run, growing, "autoencoder", 1)
        until(lambda: client.get("/api/run").json()["stage"] == "autoencoder")
        until(lambda: client.get("/api/run").json()["test_images"])
        assert client.get("/api/samples.png").headers["content-type"] == "image/png"
        put(gated_run, growing, "capsules-0", 2)
        until(lambda: client.get("/api/run").json()["stage"] == "capsules-0")
        assert client.get("/api/samples.png").status_code == 200
        before = client.get("/api/run").json()["revision"]
        put(gated_run, growing, "done", 3)
        until(lambda: client.get("/api/run").json()["stage"] == "done")
        assert client.get("/api/run").json()["revision"] != before
        assert client.get("/api/training").json()["status"] == "finished"
        assert client.get("/api/gallery").status_code == 200


def test_a_crowd_does_not_end_the_following(gated_run, growing, monkeypatch):
    monkeypatch.setattr("capspoe.explorer.server.LOOK_SECONDS", 0.01)
    studio = Studio(growing)
    refused = []

    class Crowded(Turns):
        async def do(self, *arguments):
            if len(refused) < 3:
                refused.append(arguments)
                raise TooBusy(everybody=True)
            return await super().do(*arguments)

    async def follow():
        turns = Crowded()
        turns.start()
        task = asyncio.create_task(following_the_run(studio, turns))
        put(gated_run, growing, "done", 1)
        await asyncio.to_thread(until, lambda: studio.stage == "done" or task.done())
        task.cancel()
        await turns.stop()

    asyncio.run(follow())
    assert (studio.stage, len(refused)) == ("done", 3)


def test_a_prior_is_fitted_while_there_is_none(gated_run, growing):
    put(gated_run, growing, "capsules-0", 1)
    studio = Studio(growing)
    studio.open_images()
    studio.model.prior.centre.zero_()
    for _ in studio.study():
        pass
    assert float(studio.model.prior.centre.abs().sum()) > 0
    assert float(studio.model.prior.use.sum()) == pytest.approx(1, abs=1e-4)


def test_a_damaged_checkpoint_is_passed_over(gated_run, growing):
    put(gated_run, growing, "capsules-0", 1)
    put(gated_run, growing, "capsules-0", 2)
    (checkpoint.numbered(growing)[-1] / "model.safetensors").write_bytes(b"half")
    assert Studio(growing).stage == "capsules-0"


def test_silence_means_stopped(gated_run, growing, monkeypatch):
    shutil.copy(gated_run / "metrics.jsonl", growing)
    config = checkpoint.open_run(growing).config
    assert following.training(growing, config, "capsules-0")["status"] == "training"
    later = time.time() + 3600
    monkeypatch.setattr(following.time, "time", lambda: later)
    assert following.training(growing, config, "capsules-0")["status"] == "stopped"
    assert following.training(growing, config, "done")["status"] == "finished"


def test_long_curves_are_thinned_and_strange_lines_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"stage": "autoencoder", "step": k, "loss": 1 / k, "bad": float("nan")} for k in range(1, 5001)]
    strange = ["null", "3", '{"stage": 3, "step": "x"}', "[" * 5000, "{}"]
    path.write_text("\n".join([*strange, *map(json.dumps, rows)]))
    (stage,) = following.curves(path)
    assert len(stage["steps"]) <= following.POINTS + 1
    assert (stage["steps"][0], stage["steps"][-1]) == (1, 5000)
    assert stage["curves"]["loss"][-1] == 1 / 5000
    assert "bad" not in stage["curves"]


@pytest.mark.parametrize(
    "words", ['"use": [0.5, NaN]', '"use": 3', '"use": ["x"]', '"loss": 1' + "0" * 400, '"loss": Infinity']
)
def test_numbers_that_cannot_be_shown_do_not_stop_the_page(tmp_path, words):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"stage": "capsules-0", "step": 1, "reconstruction": 0.5, ' + words + "}")
    (stage,) = following.curves(path)
    json.dumps(stage, allow_nan=False)
    assert stage["use"] is None
    assert stage["curves"]["reconstruction"] == [0.5]


def test_without_its_images_the_run_can_still_be_played(gated_run, growing):
    put(gated_run, growing, "done", 1)
    content = json.loads((growing / "config.json").read_text())
    content["data"]["data"] = str(growing / "gone")
    del content["sha256"]  # changed by hand, and so without a checksum
    (growing / "config.json").write_text(json.dumps(content))
    with TestClient(application(growing), base_url=ADDRESS) as client:
        before = Studio(growing).revision
        until(lambda: "being opened" not in client.get("/api/run").json()["no_test_images"])
        assert client.get("/api/run").json()["test_images"] == 0
        assert client.get("/api/training").json()["revision"] != before  # by which the page learns of it
        assert client.get("/api/images").status_code == 503
        assert client.get("/api/gallery").status_code == 200
        assert client.post("/api/recognise", json={"image": {"index": 0}}).status_code == 503
