"""Several processes, as tests start them: one thread each, and none left behind."""

import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

SECONDS = 400  # until they are ended


def environment(**more: object) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "COLUMNS": "120"}
    return {**os.environ, **threads, **{k: str(v) for k, v in more.items()}}


def torchrun(processes: int, *arguments: object, restarts: int = 0) -> list[str]:
    """The command line of a torchrun on this machine."""
    own = ["--standalone", "--nproc-per-node", str(processes), "--max-restarts", str(restarts)]
    return [sys.executable, "-m", "torch.distributed.run", *own, "-m", "capspoe", *map(str, arguments)]


@contextmanager
def started(command: list[str]):
    """A torchrun; at the end it is terminated, and terminates its processes."""
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(45)
            except subprocess.TimeoutExpired:
                process.kill()
        process.communicate()


def run(command: list[str]) -> subprocess.CompletedProcess:
    with started(command) as process:
        out, errors = process.communicate(timeout=SECONDS)
        return subprocess.CompletedProcess(command, process.returncode, out, errors)


def workers_of(process: subprocess.Popen) -> list[int]:
    """The process ids that a torchrun started, in the order of their ranks."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return sorted(int(pid) for pid in children if b"capspoe" in Path(f"/proc/{pid}/cmdline").read_bytes())


def peers(count: int, code: str) -> list[tuple[int, str, str]]:
    """Run code in `count` processes of one group; (return code, output, errors) of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment(RANK=rank, **group),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(count)
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
    return [(p.returncode, *output) for p, output in zip(processes, ended, strict=True)]
