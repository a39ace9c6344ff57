"""Measure the explorer under many clients at once while a training runs beside it: errors, memory, latencies.

    python -m benchmarks.speed.soak [--clients 200] [--requests 100000] [--seconds 3600]

Trains a small run, serves it as `capspoe explore` does, starts another training, and lets the clients send a mixture
of all requests, each one after another, until all are sent or the time is up. Exits with 1 on any answer that is an
error, or if the server's memory grows by more than 10% between the first tenth of the requests and the end. Prints
a summary.
"""

import argparse
import asyncio
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx
import numpy as np

from benchmarks.speed.explorer_latency import explorer

CAPSULES = 4
NEURONS = 6
SETTINGS = {
    "limit": 256,
    "channels": 8,
    "layers": f"{CAPSULES}x{NEURONS}",
    "autoencoder-epochs": 4,
    "min-steps": 0,
    "batch-size": 32,
    "threads": 1,
}
GROWTH = 1.1
TENTHS = 10
START_SECONDS = 5  # for the training beside the server to get going


class Request(NamedTuple):
    """A path of the explorer, and what is posted there, if anything."""

    path: str
    body: dict[str, Any] | None = None


def training(out: str, epochs: int) -> list[str]:
    """The command that trains a small run."""
    command = [sys.executable, "-m", "capspoe", "train", "digits", "--out", out, "--epochs", str(epochs)]
    for name, value in SETTINGS.items():
        command += [f"--{name}", str(value)]
    return command


def random_request(rng: random.Random) -> Request:
    """A request, as often as a person at the page would cause it."""
    capsule = rng.randrange(CAPSULES)
    image = {"index": rng.randrange(200)}
    poses = {str(capsule): [round(rng.gauss(0, 1), 3) for _ in range(NEURONS)]}
    frequencies = [
        (50, Request("decode", {"poses": poses})),
        (12, Request("recognise", {"image": image})),
        (8, Request(f"random?capsule={capsule}&seed={rng.randrange(1000)}")),
        (6, Request(f"images?start={rng.randrange(200)}&count=6")),
        (5, Request("run")),
        (5, Request("training")),
        (4, Request("gallery")),
        (3, Request("strips", {"poses": poses, "capsule": capsule})),
        (2, Request("explain", {"image": image})),
        (1, Request("samples")),
    ]
    weights = [weight for weight, _ in frequencies]
    requests = [request for _, request in frequencies]
    return rng.choices(requests, weights)[0]


def resident_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = re.search(r"VmRSS:\s+(\d+)", status)
    assert kilobytes
    return int(kilobytes[1]) / 1024


@dataclass
class Soak:
    """Clients of one server, and what they saw."""

    address: str
    server_pid: int
    clients: int
    requests: int
    end: float  # time.monotonic() at which clients stop
    seconds: dict[str, list[float]] = field(default_factory=dict)  # by path
    statuses: Counter = field(default_factory=Counter)
    memory: list[float] = field(default_factory=list)  # MB at the start and after each tenth of the requests

    async def run(self) -> None:
        self.memory.append(resident_megabytes(self.server_pid))
        await asyncio.gather(*(self.client(number) for number in range(self.clients)))
        # The end in place of the last tenth, which a time limit may have cut off.
        self.memory = [*self.memory[:TENTHS], resident_megabytes(self.server_pid)]

    async def client(self, number: int) -> None:
        rng = random.Random(number)
        async with httpx.AsyncClient(base_url=f"{self.address}/api/", timeout=120) as session:
            for _ in range(self.requests // self.clients):
                if time.monotonic() > self.end:
                    return
                await self.send(session, random_request(rng))

    async def send(self, session: httpx.AsyncClient, request: Request) -> None:
        began = time.perf_counter()
        if request.body is None:
            answer = await session.get(request.path)
        else:
            answer = await session.post(request.path, json=request.body)
        path = request.path.split("?")[0]
        self.seconds.setdefault(path, []).append(time.perf_counter() - began)
        self.statuses[answer.status_code] += 1
        if self.statuses.total() >= self.requests / TENTHS * len(self.memory):
            self.memory.append(resident_megabytes(self.server_pid))
            print(f"{self.statuses.total()} answered, server {self.memory[-1]:.0f} MB", flush=True)

    def summary(self, seconds: float) -> None:
        total = self.statuses.total()
        print(f"{total} requests of {self.clients} clients in {seconds:.0f} s, by status {dict(self.statuses)}")
        print("memory of the server in MB after each tenth:", *(f"{megabytes:.0f}" for megabytes in self.memory))
        everything = [value for values in self.seconds.values() for value in values]
        for path, values in [("all", everything), *sorted(self.seconds.items())]:
            p50, p95, p99 = np.percentile(np.array(values) * 1000, [50, 95, 99])
            print(f"  {path:10} {len(values):7}  median {p50:6.0f} ms  95% {p95:6.0f}  99% {p99:6.0f}")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")

    @property
    def healthy(self) -> bool:
        return set(self.statuses) == {200} and self.memory[-1] <= GROWTH * self.memory[1]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=math.inf, help="time limit")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(training(f"{place}/run", epochs=6), check=True, capture_output=True)
        endless = training(f"{place}/beside", epochs=1_000_000)
        with explorer(f"{place}/run") as (address, server):
            beside = subprocess.Popen(endless, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                time.sleep(START_SECONDS)
                began = time.monotonic()
                soak = Soak(address, server.pid, options.clients, options.requests, began + options.seconds)
                asyncio.run(soak.run())
                spent = time.monotonic() - began
                assert server.poll() is None, "the server ended"
                assert beside.poll() is None, "the training beside it ended"
            finally:
                beside.terminate()
                beside.wait()
    soak.summary(spent)
    if not soak.healthy:
        sys.exit("errors, or memory that grew")


if __name__ == "__main__":
    main()
