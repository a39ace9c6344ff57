"""From slider to image: how long the explorer takes to answer, as the page asks it.

    python benchmarks/explorer_latency.py RUN [--count 400]

Starts the real server, moves one dimension of a pose after another with one request in flight, and prints percentiles
of the time from sending the pose to having decoded the image.
"""

import argparse
import io
import os
import re
import subprocess
import sys
import time
from base64 import b64decode

import httpx2 as httpx
import numpy as np
from PIL import Image


def measure(address: str, count: int) -> np.ndarray:
    """Milliseconds of each request."""
    rng, milliseconds = np.random.default_rng(0), []
    with httpx.Client(base_url=address, timeout=60) as client:
        while (run := client.get("/api/run").json())["revision"].endswith(".0"):
            time.sleep(0.2)  # the test images are still being surveyed
        pose = [0.0] * run["dimensions"]
        for k in range(count + 20):
            pose[k % len(pose)] = float(rng.normal())
            started = time.perf_counter()
            answer = client.post("/api/decode", json={"poses": {str(k // 40 % run["capsules"]): pose}})
            Image.open(io.BytesIO(b64decode(answer.json()["image"].split(",")[1]))).load()
            milliseconds.append(1000 * (time.perf_counter() - started))
    return np.array(milliseconds[20:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--count", type=int, default=400)
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "capspoe", "explore", arguments.run, "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    try:
        address = re.search(r"http://\S+", server.stdout.readline())
        if address is None:
            sys.exit("the server did not start")
        median, p95, p99 = np.percentile(measure(address[0], arguments.count), [50, 95, 99])
    finally:
        server.terminate()
        server.wait()
    print(f"slider to image: median {median:.1f} ms, 95% {p95:.1f} ms, 99% {p99:.1f} ms,", end=" ")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
