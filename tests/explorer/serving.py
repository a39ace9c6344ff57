"""Runs of a few seconds, the application around them, and a server on a real socket."""

import asyncio
import contextlib
import threading
import time

import httpx2 as httpx
import uvicorn
from starlette.testclient import TestClient

from capspoe import kernels
from capspoe.explorer.server import application, bind
from capspoe.run.train import train

TINY = {"limit": 160, "channels": 8, "layers": "4x6", "autoencoder_epochs": 9, "epochs": 4, "min_steps": 0}
TINY |= {"batch_size": 32, "prior_components": 2, "recognition_steps": 8, "checkpoint_seconds": 60.0, "threads": 1}
J, N = 4, 6
ADDRESS = "http://127.0.0.1:8765"


def trained(folder, **changes):
    with kernels.use("reference"):  # a run this small is done before the kernels are compiled
        train("digits", out=folder, quiet=True, **{**TINY, **changes})
    return folder


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


@contextlib.contextmanager
def client_of(folder):
    """A client of the explorer of a run, whose test images are surveyed."""
    with TestClient(application(folder), base_url=ADDRESS) as client:
        until(lambda: not client.get("/api/run").json()["revision"].endswith(".0"))
        yield client


@contextlib.contextmanager
def served(folder):
    """The address of the explorer of a run, whose test images are surveyed."""
    with served_by(application(folder)) as address:
        until(lambda: not httpx.get(f"{address}/api/run").json()["revision"].endswith(".0"))
        yield address


@contextlib.contextmanager
def served_by(app):
    """The address of a server in a thread, on a real socket."""
    listening = bind("127.0.0.1", 0)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        until(lambda: server.started)
        loop = server.servers[0].get_loop()
        yield address
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
        if thread.is_alive():
            for task in asyncio.all_tasks(loop):  # where it hangs
                task.print_stack()
        assert not thread.is_alive()
