"""Measure how long the explorer takes from slider to image, as its page asks it.

    python -m benchmarks.speed.explorer_latency RUN [--count 400]

Starts the real server, moves one dimension of a pose after another with one request in flight, and prints percentiles
of the time from sending the pose to having decoded the image.
"""

import argparse
import contextlib
import io
import os
import re
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence

import httpx2 as httpx
import numpy as np
from PIL import Image

WARM_UP = 20  # requests that do not count
PER_CAPSULE = 40  # requests before the next capsule


@contextlib.contextmanager
def explorer(run: str) -> Iterator[tuple[str, subprocess.Popen]]:
    """The address and the process of `capspoe explore`, which ends with the block."""
    command = [sys.executable, "-m", "capspoe", "explore", run, "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        address = re.search(r"http://[\d.:]+", server.stdout.readline())
        if address is None:
            sys.exit("the server did not start")
        yield address[0], server
    finally:
        server.terminate()
        server.wait()


def wait_for_survey(client: httpx.Client) -> dict:
    """What the explorer says of the run, once it has surveyed the test images."""
    while True:
        run = client.get("/api/run").json()
        if not run["revision"].endswith(".0"):
            return run
        time.sleep(0.2)


def measure(address: str, count: int) -> np.ndarray:
    """Milliseconds of each request."""
    rng = np.random.default_rng(0)
    milliseconds = []
    with httpx.Client(base_url=address, timeout=60) as client:
        run = wait_for_survey(client)
        pose = [0.0] * run["dimensions"]
        for k in range(WARM_UP + count):
            pose[k % len(pose)] = float(rng.normal())
            capsule = k // PER_CAPSULE % run["capsules"]
            began = time.perf_counter()
            answer = client.post("/api/decode", json={"poses": {str(capsule): pose}})
            png = b64decode(answer.json()["image"].split(",")[1])
            Image.open(io.BytesIO(png)).load()
            milliseconds.append(1000 * (time.perf_counter() - began))
    return np.array(milliseconds[WARM_UP:])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=400, help="requests")
    options = parser.parse_args(arguments)
    with explorer(options.run) as (address, _):
        milliseconds = measure(address, options.count)
    median, p95, p99 = np.percentile(milliseconds, [50, 95, 99])
    print(f"slider to image: median {median:.1f} ms, 95% {p95:.1f} ms, 99% {p99:.1f} ms")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
