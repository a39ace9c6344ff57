"""The page follows a run that is still training."""

import json
import shutil
import time

import pytest
from serving import ADDRESS, until
from starlette.exceptions import HTTPException
from starlette.testclient import TestClient

from capspoe import kernels
from capspoe.explorer import live_metrics, server
from capspoe.explorer.scheduler import Scheduler
from capspoe.explorer.server import application
from capspoe.explorer.session import Session
from capspoe.run import checkpoint


@pytest.fixture
def growing(gated_run, tmp_path):
    """A run as it looks before its first checkpoint."""
    folder = tmp_path / "run"
    folder.mkdir()
    for name in ("config.json", "environment.json"):
        shutil.copy(gated_run / name, folder)
    return folder


def save(gated_run, folder, stage):
    weights = checkpoint.newest(gated_run).weights
    checkpoint.save(folder, checkpoint.State(stage, 10), weights, {})


def test_from_nothing_to_done(gated_run, growing, monkeypatch):
    monkeypatch.setattr(server, "POLL_SECONDS", 0.05)
    refused, real = [], Scheduler.run

    async def crowded(self, work, lane="", background=False):
        if background and len(refused) < 3:  # a full queue must not end the following
            refused.append(work)
            raise HTTPException(503)
        return await real(self, work, lane, background)

    monkeypatch.setattr(Scheduler, "run", crowded)
    with TestClient(application(growing), base_url=ADDRESS) as client:

        def run():
            return client.get("/api/run").json()

        assert run()["capsules"] is None
        for path in ("gallery", "samples", "random?capsule=0"):
            answer = client.get(f"/api/{path}")
            assert answer.status_code == 503
            assert "no checkpoint yet" in answer.json()["error"]
        assert client.get("/api/training").json()["stages"] == []
        lines = (gated_run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
        (growing / "metrics.jsonl").write_bytes(lines[0] + b'{"stage": "auto')
        answer = client.get("/api/training").json()
        assert answer["status"] == "training"
        assert [s["stage"] for s in answer["stages"]] == ["autoencoder"]
        for stage in ("autoencoder", "capsules-0", "done"):
            before = run()["revision"]
            save(gated_run, growing, stage)
            until(lambda stage=stage: run()["stage"] == stage and run()["images"])
            assert run()["revision"] != before
            assert client.get("/api/samples").status_code == 200
            assert client.get("/api/gallery").status_code == 200
        assert client.get("/api/training").json()["status"] == "finished"
        assert len(refused) == 3


def test_finished(api):
    answer = api.get("/api/training").json()
    assert answer["status"] == "finished"
    assert [s["stage"] for s in answer["stages"]] == ["autoencoder", "capsules-0", "recognition"]
    for stage in answer["stages"]:
        assert stage["step"] == stage["planned"]
        assert len({len(curve) for curve in stage["curves"].values()}) == 1


def test_an_unfinished_run_gets_a_simple_prior(gated_run, growing):
    save(gated_run, growing, "capsules-0")
    session = Session(growing)
    session.open_images()
    session.network.prior.centre.zero_()
    with kernels.use("reference"):
        list(session.survey())
    assert float(session.network.prior.centre.abs().sum()) > 0
    assert float(session.network.prior.use.sum()) == pytest.approx(1, abs=1e-4)


def test_silence_means_stopped(gated_run, growing, monkeypatch):
    shutil.copy(gated_run / "metrics.jsonl", growing)
    config = checkpoint.open_run(growing).config

    def status(stage):
        return live_metrics.training_status(growing, config, stage)["status"]

    assert status("capsules-0") == "training"
    later = time.time() + 3600
    monkeypatch.setattr(live_metrics.time, "time", lambda: later)
    assert [status("capsules-0"), status("done")] == ["stopped", "finished"]


def curves_of(folder, growing):
    config = checkpoint.open_run(growing).config
    (stage,) = live_metrics.training_status(folder, config, None)["stages"]
    return stage["curves"]


def test_long_curves_are_thinned_and_strange_lines_skipped(tmp_path, growing):
    rows = [{"stage": "autoencoder", "step": k, "loss": 1 / k, "bad": float("nan")} for k in range(1, 5001)]
    strange = ["null", "3", '{"stage": 3, "step": "x"}', "[" * 5000, "{}"]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*strange, *map(json.dumps, rows)]))
    curves = curves_of(tmp_path, growing)
    steps = curves.pop("step")
    assert len(steps) <= live_metrics.MAX_POINTS + 1
    assert (steps[0], steps[-1]) == (1, 5000)
    assert curves == {"loss": [1 / k for k in steps]}


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1" + "0" * 400, '"x"', "[0.5, NaN]", "null"])
def test_what_cannot_be_drawn_is_left_out(tmp_path, growing, value):
    line = '{"stage": "capsules-0", "step": 1, "reconstruction": 0.5, "loss": ' + value + "}"
    (tmp_path / "metrics.jsonl").write_text(line)
    assert curves_of(tmp_path, growing) == {"step": [1], "reconstruction": [0.5]}


def test_without_its_images_the_run_can_still_be_played(gated_run, growing):
    save(gated_run, growing, "done")
    run = checkpoint.open_run(growing)
    checkpoint.create(growing, run.config.replace(data=str(growing / "gone")), run.image)
    with TestClient(application(growing), base_url=ADDRESS) as client:
        until(lambda: client.get("/api/run").json()["no_images"])
        assert client.get("/api/run").json()["revision"] == "1.1"  # by which the page learns of it
        assert client.get("/api/images").status_code == 503
        assert client.post("/api/recognise", json={"image": {"index": 0}}).status_code == 503
        assert client.get("/api/gallery").status_code == 200
