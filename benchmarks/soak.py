"""The explorer under many clients at once while a training runs beside it: errors, memory, latencies.

    python benchmarks/soak.py [--clients 200] [--requests 100000] [--seconds 3600]

Trains a quick run, serves it as `capspoe explore` does, starts another training in a process of its own, and lets
the clients ask for a mixture of everything, one request after the other each, until all is asked or the time is up
(or `kill -INT` of this process ends it), and tells the numbers so far.
Exits with 1 on any answer that is an error, or when the server's memory has grown by more than a tenth between the
first tenth of the requests and the end.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

SIZES = {
    "--limit": 256,
    "--channels": 8,
    "--layers": "4x6",
    "--autoencoder-epochs": 4,
    "--epochs": 6,
    "--least-steps": 0,
    "--batch": 32,
    "--components": 2,
    "--threads": 1,
}
J, N = 4, 6
GROWTH, TENTHS = 1.1, 10
IDLE = 25.0  # seconds after which the server may have closed a connection that is not used; it waits 30
REOPENED = "connections opened again"


def capspoe(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "capspoe", *arguments]


def options(**changes: object) -> list[str]:
    return [str(word) for pair in {**SIZES, **changes}.items() for word in pair]


def resident(pid: int) -> float:
    """Megabytes of memory that the process holds."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024  # type: ignore[index]


def one_request(rng: random.Random) -> tuple[str, str, dict | None]:
    """(method, path, body), the frequent ones as a person at the page would cause them."""
    numbers = [round(rng.gauss(0, 1), 3) for _ in range(N)]
    j = rng.randrange(J)
    kinds = [
        (50, ("POST", "/api/paint", {"on": {str(j): numbers}})),
        (12, ("POST", "/api/recognise", {"image": {"index": rng.randrange(200)}})),
        (8, ("GET", f"/api/random?capsule={j}&seed={rng.randrange(1000)}", None)),
        (6, ("GET", f"/api/images?start={rng.randrange(200)}&count=6", None)),
        (5, ("GET", "/api/run", None)),
        (5, ("GET", "/api/training", None)),
        (4, ("GET", "/api/gallery", None)),
        (3, ("GET", f"/api/capsules/{j}", None)),
        (2, ("POST", "/api/routing", {"image": {"index": rng.randrange(200)}})),
        (
            2,
            (
                "POST",
                "/api/interpolate",
                {"first": {"index": 1}, "last": {"on": {str(j): numbers}}, "steps": 4},
            ),
        ),
        (2, ("GET", "/", None)),
        (1, ("GET", f"/api/grid.png?rows=1&seed={rng.randrange(1000)}", None)),
    ]
    return rng.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, name: str, what: tuple
) -> int:
    """One request on an open connection; the status of its answer."""
    method, path, content = what
    body = json.dumps(content).encode() if content is not None else b""
    head = f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nx-client: {name}\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", answer, re.I)[1])  # type: ignore[index]
    await reader.readexactly(length)
    return int(answer[9:12])


async def client(
    number: int,
    count: int,
    port: int,
    seconds: dict[str, list[float]],
    statuses: Counter,
    stop: asyncio.Event,
) -> None:
    rng, name = random.Random(number), f"soak-{number}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    started = time.perf_counter()
    for _ in range(count):
        if stop.is_set():
            break
        what, before = one_request(rng), started
        started = time.perf_counter()
        try:
            status = await ask(reader, writer, port, name, what)
        except (ConnectionError, asyncio.IncompleteReadError):
            if started - before < IDLE:
                raise
            # This process was stopped for so long that the server closed the connection: as a browser does,
            # open another one.
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status = await ask(reader, writer, port, name, what)
            statuses[REOPENED] += 1
        seconds.setdefault(what[1].split("?")[0].removeprefix("/api/"), []).append(
            time.perf_counter() - started
        )
        statuses[status] += 1
    writer.close()


async def soak(
    port: int, pid: int, clients: int, requests: int, limit: float = float("inf")
) -> tuple[dict, Counter, list[float]]:
    """Seconds of each kind of request, how many answers of each status, and the server's memory after each tenth."""
    seconds: dict[str, list[float]] = {}
    statuses: Counter = Counter()
    memory = [resident(pid)]
    began = time.perf_counter()

    async def watch() -> None:
        while True:
            await asyncio.sleep(0.2)
            while statuses[200] >= requests / TENTHS * len(memory):
                memory.append(resident(pid))
                spent = time.perf_counter() - began
                print(f"{statuses[200]} answered in {spent:.0f} s, server {memory[-1]:.0f} MB", flush=True)

    loop, stop, count = asyncio.get_running_loop(), asyncio.Event(), requests // clients
    loop.add_signal_handler(signal.SIGINT, stop.set)
    clock = loop.call_later(limit, stop.set) if limit < float("inf") else None
    watching = asyncio.create_task(watch())
    try:
        await asyncio.gather(*(client(k, count, port, seconds, statuses, stop) for k in range(clients)))
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        watching.cancel()
        if clock:
            clock.cancel()
    return seconds, statuses, [*memory[:TENTHS], resident(pid)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="at most, from the first request on"
    )
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        run = f"{place}/run"
        subprocess.run(capspoe("train", "digits", "--out", run, *options()), check=True, capture_output=True)
        server = subprocess.Popen(
            capspoe("explore", run, "--port", "0", "--no-browser"), stdout=subprocess.PIPE, text=True
        )
        beside = subprocess.Popen(
            capspoe("train", "digits", "--out", f"{place}/beside", *options(**{"--epochs": 1_000_000})),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            assert server.stdout
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])  # type: ignore[index]
            time.sleep(5)
            began = time.monotonic()
            seconds, statuses, memory = asyncio.run(soak(port, server.pid, a.clients, a.requests, a.seconds))
            spent = time.monotonic() - began
            assert server.poll() is None, "the server ended"
            assert beside.poll() is None, "the training beside it ended"
        finally:
            for process in (server, beside):
                process.terminate()
                process.wait()
    everything = np.concatenate([np.array(times) for times in seconds.values()]) * 1000
    print(f"{len(everything)} requests of {a.clients} clients in {spent:.0f} s, statuses {dict(statuses)}")
    print("memory of the server, MB, after each tenth:", *(f"{m:.0f}" for m in memory))
    for name, times in [("all", everything / 1000), *sorted(seconds.items())]:
        p50, p95, p99 = np.percentile(np.array(times) * 1000, [50, 95, 99])
        print(f"  {name:14} {len(times):7}  median {p50:6.0f} ms  95 % {p95:6.0f}  99 % {p99:6.0f}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if set(statuses) - {REOPENED} != {200} or memory[-1] > GROWTH * memory[1]:
        sys.exit("errors, or memory that grew")


if __name__ == "__main__":
    main()
