"""Faults that a run meets, and what must hold after each: nothing lost, no file left behind.

    python tests/reliability/faults.py kill [stop damage disk] [--times 100] [--seed 0]

kill: SIGKILL; stop: SIGTERM and Ctrl-C; damage: of one file; disk: full or read-only, as root, by mounting small
file systems.

Each prints one line about what it tried and what happened, and exits with 1 if anything was lost.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from capspoe import cli, train
from capspoe.errors import RunError
from capspoe.run import checkpoint
from runs import QUICK, WAYS, damage, options, same_weights, weights_of

LASTING = {"config.json", "environment.json", "metrics.jsonl", "samples.png", "checkpoints"}


class Command:
    """`capspoe ...` in a fork of this process, which has everything imported and compiled.

    Python starts in seconds and a quick run takes less, so a hundred of them can be ended at moments that matter.
    """

    def __init__(self, *arguments: object) -> None:
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `wait`)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(self.said.fileno(), 1)
            os.dup2(self.said.fileno(), 2)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            code = 70
            try:
                cli.main([str(a) for a in arguments])
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def poll(self) -> bool:
        """Whether it still runs."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def wait(self) -> "Ended":
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.said.seek(0)
        with self.said:
            return Ended(code, self.said.read())


class Ended(NamedTuple):
    code: int
    said: str


def capspoe(*arguments: object) -> Ended:
    return Command(*arguments).wait()


def training(folder: Path) -> list[str]:
    return ["train", "digits", "--out", str(folder), *options(QUICK)]


def finish(folder: Path) -> Ended:
    done = capspoe(*training(folder))
    assert done.code == 0, done
    return done


def metrics_of(folder: Path) -> list[dict]:
    """The lines without what a clock wrote."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if k != "images_per_second"} for line in lines]


def check_whole(reference: Path, folder: Path, metrics: bool = True) -> None:
    """The run equals one that was left alone, and has the same files, no more."""
    assert same_weights(reference, folder), "the weights differ"
    assert {path.name for path in folder.iterdir()} == LASTING, sorted(p.name for p in folder.iterdir())
    assert not [p for p in folder.rglob("*") if ".writing" in p.name], "a temporary file stayed"
    # One more if it was killed after its last checkpoint, before the oldest was removed.
    assert len(checkpoint.numbered(folder)) in (checkpoint.KEPT, checkpoint.KEPT + 1)
    assert checkpoint.newest(folder).problems == ()
    if metrics:
        assert metrics_of(reference) == metrics_of(folder), "the metrics differ"
    assert (reference / "samples.png").read_bytes() == (folder / "samples.png").read_bytes()


def finished(home: Path) -> Path:
    """A run that is left alone, trained once."""
    train("digits", home / "reference", quiet=True, **QUICK)
    return home / "reference"


def interrupted(home: Path, times: int, seed: int, *signals: signal.Signals) -> Counter:
    """Train, ending it at random moments `times` times; every run that finishes is compared, and a new one starts."""
    rng, ends = random.Random(seed), Counter()
    reference, folder = finished(home), home / "run"
    shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    finish(home / f"timed-{seed}-{signals[0]}")
    whole = time.monotonic() - began
    while sum(n for what, n in ends.items() if what.startswith("ended")) < times:
        fresh, began = not folder.exists(), time.monotonic()
        process = Command(*training(folder))
        moment = began + rng.uniform(0.02, 0.95) * whole
        while process.poll() and time.monotonic() < moment:
            time.sleep(0.002)
        if fresh and not process.poll():  # the machine was slow when the whole was timed
            whole = min(whole, time.monotonic() - began)
        process.send(rng.choice(signals))
        code, said = process.wait()
        assert "Traceback" not in said, said
        if code == 0:  # it finished before the signal
            check_whole(reference, folder)
            shutil.rmtree(folder)
            ends["finished first"] += 1
            continue
        ends[f"ended with {code}"] += 1
        if folder.exists() and checkpoint.numbered(folder):
            assert checkpoint.newest(folder).problems == (), "a checkpoint was left half-written"
            ends["in " + checkpoint.newest(folder).state.stage] += 1
    finish(folder)
    check_whole(reference, folder)
    return ends


def damaged_run(unfinished: Path, reference: Path, folder: Path, rng: random.Random) -> tuple[str, str, str]:
    """Damage one file of an unfinished run and resume it: the file is named and nothing is lost."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(unfinished, folder)
    victim = rng.choice(sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "samples.png"))
    how, before = rng.choice(WAYS), victim.read_bytes()
    damage(victim, how, rng)
    unchanged = victim.exists() and same_meaning(before, victim.read_bytes())
    done = finish(folder)
    check_whole(reference, folder, metrics=victim.name != "metrics.jsonl")
    named = victim.name in done.said or victim.parent.name in done.said
    # Codes are computed again as if they had not been there; older checkpoints are not even read.
    newest = checkpoint.numbered(unfinished)[-1].name
    older = victim.relative_to(folder).parts[0] == "checkpoints" and victim.parent.name != newest
    spare = victim.name.startswith("codes.") or older
    assert named or unchanged or spare, f"{victim.name} {how}: not named in {done.said!r}"
    return victim.name, how, "named" if named else "not needed" if not unchanged else "means the same"


def same_meaning(before: bytes, after: bytes) -> bool:
    """Whether a changed byte of JSON was only space or the like."""
    try:
        return json.loads(before) == json.loads(after)
    except ValueError:
        return before == after


def half_way(home: Path) -> tuple[Path, Path]:
    """A finished run, and the same stopped in the middle of stage 2."""
    reference, unfinished = finished(home), home / "unfinished"
    if unfinished.exists():
        return reference, unfinished
    process = Command(*training(unfinished))
    while process.poll():
        try:
            state = checkpoint.newest(unfinished).state
        except RunError:  # none yet, or just being replaced
            continue
        if state.stage == "capsules-0" and state.step > 20:
            process.send(signal.SIGKILL)
            break
        time.sleep(0.002)
    assert process.wait().code == -signal.SIGKILL, "it finished before it could be stopped"
    return reference, unfinished


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "capspoe-test", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def can_mount() -> bool:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as place:
        tried = subprocess.run(["mount", "-t", "tmpfs", "none", place], capture_output=True, check=False)
        if tried.returncode == 0:
            subprocess.run(["umount", place], check=True)
        return tried.returncode == 0


def full_disk(home: Path, reference: Path, kilobytes: int) -> str:
    """Train on a file system of a given size; when it is full, enlarge it and resume."""
    with mounted(home / f"disk-{kilobytes}", f"{kilobytes}k") as disk:
        first = capspoe(*training(disk / "run"))
        if first.code:
            assert first.code == 1, first
            assert "No space left on device" in first.said.strip().splitlines()[-1], first
            assert "Traceback" not in first.said
            assert "unexpected" not in first.said, first
            assert not list(disk.rglob("*.writing*")), "half a file keeps the disk full"
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            finish(disk / "run")
        check_whole(reference, disk / "run")
        return "full, reported, resumed" if first.code else "large enough"


def read_only(home: Path, reference: Path, unfinished: Path) -> None:
    """A read-only run folder: a finished one can be used, an unfinished one gives one clear line."""
    with mounted(home / "closed", "64m") as disk:
        shutil.copytree(reference, disk / "done")
        shutil.copytree(unfinished, disk / "half")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        again = capspoe(*training(disk / "done"))
        assert again.code == 0, again
        assert "finished already" in again.said
        assert capspoe("sample", disk / "done", "--out", home / "x.npz").code == 0
        assert capspoe("encode", disk / "done", "--out", home / "y.npz").code == 0
        for verb in (training(disk / "half"), ["report", disk / "done"], training(disk / "new")):
            done = capspoe(*verb)
            assert done.code == 1, (verb, done)
            assert "Read-only file system" in done.said, done
            assert "Traceback" not in done.said
            assert "unexpected" not in done.said
        assert weights_of(disk / "half").keys() == weights_of(unfinished).keys()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("faults", nargs="+", choices=["kill", "stop", "damage", "disk"])
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        run: dict[str, Callable[[], Counter]] = {
            "kill": lambda: interrupted(home, a.times, a.seed, signal.SIGKILL),
            "stop": lambda: interrupted(home, a.times, a.seed, signal.SIGTERM, signal.SIGINT),
            "damage": lambda: many_damages(home, a.times, a.seed),
            "disk": lambda: disks(home, a.times),
        }
        for fault in a.faults:
            print(fault, dict(run[fault]()), "nothing lost", flush=True)


def many_damages(home: Path, times: int, seed: int) -> Counter:
    reference, unfinished = half_way(home)
    rng = random.Random(seed)
    return Counter(" ".join(damaged_run(unfinished, reference, home / "run", rng)) for _ in range(times))


def disks(home: Path, times: int) -> Counter:
    """File systems of ever more room, from less than the settings need to more than the run needs."""
    reference, unfinished = half_way(home)
    sizes = sorted({round(k) for k in np.geomspace(8, 1500, times)})
    found = Counter(full_disk(home, reference, kilobytes) for kilobytes in sizes)
    read_only(home, reference, unfinished)
    return found + Counter({"read-only": 1})


if __name__ == "__main__":
    main()
