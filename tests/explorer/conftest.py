"""Real runs of a few seconds, the application around them, and a server on a real socket."""

import contextlib
import threading
import time

import httpx2 as httpx
import pytest
import uvicorn
from starlette.testclient import TestClient

from capspoe import kernels, training
from capspoe.explorer.server import application, bind
from runs import QUICK

SMALLER = {"checkpoint_seconds": 60.0, "limit": 160, "autoencoder_epochs": 2, "epochs": 4}
ADDRESS = "http://127.0.0.1:8765"


def trained(folder, **changes):
    with kernels.use("reference"):  # nothing to compile: a run this small is done before the compiler is
        training.train("digits", out=folder, quiet=True, **{**QUICK, **SMALLER, **changes})
    return folder


@pytest.fixture(scope="session")
def gated_run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="session")
def literal_run(tmp_path_factory):
    return trained(
        tmp_path_factory.mktemp("runs") / "digits-literal", literal=True, autoencoder_epochs=1, epochs=1
    )


@contextlib.contextmanager
def client_of(folder, **options):
    with TestClient(application(folder), base_url=ADDRESS, **options) as client:
        until(lambda: client.get("/api/run").json()["test_images"])
        yield client


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


@pytest.fixture(scope="session")
def api(gated_run):
    with client_of(gated_run) as client:
        until(lambda: client.get("/api/run").json()["revision"].endswith(".1"))
        yield client


@pytest.fixture(scope="session")
def literal_api(literal_run):
    with client_of(literal_run) as client:
        until(lambda: client.get("/api/run").json()["revision"].endswith(".1"))
        yield client


@contextlib.contextmanager
def served(folder):
    """A server in a thread, on a socket of this machine."""
    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(application(folder), log_level="warning", timeout_graceful_shutdown=2, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        until(lambda: server.started)
        until(lambda: httpx.get(f"{address}/api/run").json()["revision"].endswith(".1"))
        yield address
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
        assert not thread.is_alive()


@pytest.fixture(scope="session")
def address(gated_run):
    with served(gated_run) as address:
        yield address
