"""From slider to picture: how long the explorer takes to answer, as the page asks it.

    python benchmarks/explorer_latency.py RUN [--count 400]

Starts the real server on a socket of this machine, moves one number after the other with one request in flight,
and prints the median, the 95th and the 99th percentile from sending the numbers to having decoded the picture.
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
    rng = np.random.default_rng(0)
    with httpx.Client(base_url=address, headers={"x-client": "benchmark"}, timeout=60) as client:
        while True:  # until the capsules have their names and the machine is quiet again
            run = client.get("/api/run").json()
            if not run["revision"].endswith(".0") or run["no_test_images"]:
                break
            time.sleep(0.2)
        values, seconds = [0.0] * run["numbers"], []
        for k in range(count + 20):
            values[k % len(values)] = float(rng.normal())
            started = time.perf_counter()
            answer = client.post("/api/paint", json={"on": {str(k // 40 % run["capsules"]): values}})
            Image.open(io.BytesIO(b64decode(answer.json()["image"].split(",")[1]))).load()
            seconds.append(time.perf_counter() - started)
    return np.array(seconds[20:]) * 1000


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
        times = measure(address[0], arguments.count)
    finally:
        server.terminate()
        server.wait()
    median, p95, p99 = np.percentile(times, [50, 95, 99])
    load = f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores" if hasattr(os, "getloadavg") else ""
    print(f"slider to picture: median {median:.1f} ms, 95 % {p95:.1f} ms, 99 % {p99:.1f} ms{load}")


if __name__ == "__main__":
    main()
