"""The explorer under many clients at once while a training runs beside it: errors, memory, latencies.

    python benchmarks/soak.py [--clients 200] [--requests 100000] [--seconds 3600]

Trains a small run, serves it as `capspoe explore` does, starts another training, and lets the clients send a mixture
of all requests, each one after another, until all are sent or the time is up. Exits with 1 on any answer that is an
error, or if the server's memory grows by more than 10% between the first tenth of the requests and the end.
"""

import argparse
import asyncio
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np

J, N = 4, 6
SIZES = "--limit 256 --channels 8 --layers 4x6 --autoencoder-epochs 4 --min-steps 0 --batch-size 32 --threads 1"
GROWTH, TENTHS = 1.1, 10


def capspoe(*words: str) -> list[str]:
    return [sys.executable, "-m", "capspoe", *words]


def megabytes(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def random_request(rng: random.Random) -> tuple[str, dict[str, Any] | None]:
    """Path and body, as often as a person at the page would cause them."""
    j, image = rng.randrange(J), {"index": rng.randrange(200)}
    poses = {str(j): [round(rng.gauss(0, 1), 3) for _ in range(N)]}
    requests: list[tuple[int, str, dict[str, Any] | None]] = [
        (50, "decode", {"poses": poses}),
        (12, "recognise", {"image": image}),
        (8, f"random?capsule={j}&seed={rng.randrange(1000)}", None),
        (6, f"images?start={rng.randrange(200)}&count=6", None),
        (5, "run", None),
        (5, "training", None),
        (4, "gallery", None),
        (3, "strips", {"poses": poses, "capsule": j}),
        (2, "explain", {"image": image}),
        (1, "samples", None),
    ]
    return rng.choices([request[1:] for request in requests], [weight for weight, *_ in requests])[0]


async def soak(
    address: str, pid: int, clients: int, requests: int, limit: float = float("inf")
) -> tuple[dict[str, list[float]], Counter, list[float]]:
    """Seconds by path, answers by status, and the server's memory after each tenth of the requests."""
    seconds: dict[str, list[float]] = {}
    statuses: Counter = Counter()
    memory, end = [megabytes(pid)], time.monotonic() + limit

    async def client(number: int) -> None:
        rng = random.Random(number)
        async with httpx.AsyncClient(base_url=f"{address}/api/", timeout=120) as session:
            for _ in range(requests // clients):
                if time.monotonic() > end:
                    return
                (path, body), started = random_request(rng), time.perf_counter()
                answer = await (session.get(path) if body is None else session.post(path, json=body))
                seconds.setdefault(path.split("?")[0], []).append(time.perf_counter() - started)
                statuses[answer.status_code] += 1
                if statuses.total() >= requests / TENTHS * len(memory):
                    memory.append(megabytes(pid))
                    print(f"{statuses.total()} answered, server {memory[-1]:.0f} MB", flush=True)

    await asyncio.gather(*map(client, range(clients)))
    return seconds, statuses, [*memory[:TENTHS], megabytes(pid)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="time limit")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        train = capspoe("train", "digits", *SIZES.split())
        subprocess.run([*train, "--out", f"{place}/run", "--epochs", "6"], check=True, capture_output=True)
        explore = capspoe("explore", f"{place}/run", "--port", "0", "--no-browser")
        server = subprocess.Popen(explore, stdout=subprocess.PIPE, text=True)
        endless = [*train, "--out", f"{place}/beside", "--epochs", "1000000"]
        beside = subprocess.Popen(endless, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert server.stdout
            address = re.search(r"http://[\d.:]+", server.stdout.readline())[0]  # type: ignore[index]
            time.sleep(5)
            began = time.monotonic()
            seconds, statuses, memory = asyncio.run(soak(address, server.pid, a.clients, a.requests, a.seconds))
            spent = time.monotonic() - began
            assert server.poll() is None, "the server ended"
            assert beside.poll() is None, "the training beside it ended"
        finally:
            for process in (server, beside):
                process.terminate()
                process.wait()
    print(f"{statuses.total()} requests of {a.clients} clients in {spent:.0f} s, by status {dict(statuses)}")
    print("memory of the server in MB after each tenth:", *(f"{m:.0f}" for m in memory))
    everything = [value for values in seconds.values() for value in values]
    for name, values in [("all", everything), *sorted(seconds.items())]:
        p50, p95, p99 = np.percentile(np.array(values) * 1000, [50, 95, 99])
        print(f"  {name:10} {len(values):7}  median {p50:6.0f} ms  95% {p95:6.0f}  99% {p99:6.0f}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if set(statuses) != {200} or memory[-1] > GROWTH * memory[1]:
        sys.exit("errors, or memory that grew")


if __name__ == "__main__":
    main()
