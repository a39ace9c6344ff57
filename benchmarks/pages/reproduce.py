"""Make everything behind docs/results.md (`make reproduce`).

    python -m benchmarks.pages.reproduce [NAME ...] [--plan]

Trains and evaluates every run of the plan in runs/, draws the figures into docs/figures, and writes docs/results.md.
This takes hours. Interrupt it at any time: the same command skips what is done and resumes what is not. With names,
only those runs are made; docs/results.md also shows the records of the others. --plan only prints the plan.
"""

import argparse
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.pages import results, runs

QUICK = ("--quick", "--samples", "2000")
ABLATE = (*QUICK, "--ablate")
LONG = ("--samples", "2000")
LONG_MINUTES = 30.0
DIVERGENCE = ("--chains", "0", "--learning-rate", "3e-3", "--epochs", "10")  # contrastive divergence in stage 2
CHAINS = (
    "--chains",
    "4",
    "--learning-rate",
    "1e-3",
)  # where contrastive divergence is the default
INTERRUPTED = 130  # exit code


class Places(NamedTuple):
    """Where the runs are, the page with its figures, and the records."""

    runs: Path = Path("runs")
    docs: Path = results.DOCS
    records: Path = results.RECORDS


HERE = Places()


@dataclass(frozen=True)
class Run:
    """A run of the plan, and the minutes it takes on two cores; those of evaluations are estimates."""

    name: str
    train: tuple[str, ...]
    training: float
    evaluate: tuple[str, ...] = QUICK
    evaluating: float = 8
    long: bool = False  # also the baselines that take long to train
    picture: str | None = None  # docs/figures/NAME.png, the paper's Figure 3
    drawn: tuple[str, ...] = ()  # options of `capspoe sample` for it; by default four images of each capsule
    floors: bool = False  # docs/figures/NAME-floors.png: what the autoencoder and one capsule keep of test images
    routing: bool = False  # docs/figures/routing.svg, the paper's Figure 1


PLAN = (
    Run("mnist-0", ("mnist",), 4, ABLATE, 12, picture="mnist-small", floors=True),
    Run("fashion-mnist-0", ("fashion-mnist",), 5, QUICK, 6, picture="fashion-mnist-small", floors=True),
    Run("cifar10-0", ("cifar10",), 10, QUICK, 20, picture="cifar10-small", drawn=("--count", "120"), floors=True),
    Run("cifar10-1", ("cifar10", "--seed", "1"), 10, QUICK, 20),
    Run("cifar10-2", ("cifar10", "--seed", "2"), 10, QUICK, 20),
    Run("cifar10-twenty-0", ("cifar10", "--layers", "20x16"), 6, QUICK, 12),
    Run("digits-0", ("digits",), 2, QUICK, 3, picture="digits-small", floors=True),
    Run("mnist-1", ("mnist", "--seed", "1"), 4, QUICK, 6),
    Run("mnist-2", ("mnist", "--seed", "2"), 4, QUICK, 6),
    Run("fashion-mnist-1", ("fashion-mnist", "--seed", "1"), 5, QUICK, 6),
    Run("fashion-mnist-2", ("fashion-mnist", "--seed", "2"), 5, QUICK, 6),
    Run("mnist-stack", ("mnist", "--layers", "64x16,20x16"), 8, QUICK, 6, picture="mnist-stack"),
    Run("mnist-0", ("mnist",), 4, (), 0, picture="mnist-energy", drawn=("--prior", "model")),
    *(Run(f"mnist-cd-{seed}", ("mnist", *DIVERGENCE, "--seed", str(seed)), 4) for seed in range(3)),
    *(Run(f"fashion-mnist-cd-{seed}", ("fashion-mnist", *DIVERGENCE, "--seed", str(seed)), 5) for seed in range(3)),
    Run("cifar10-chains-0", ("cifar10", *CHAINS), 10, QUICK, 20),
    Run("mnist-144-10", ("mnist", "--layers", "10x16"), 4, (), 0, routing=True),
    Run("mnist-0", ("mnist",), 4, ABLATE, 12, long=True),
    Run("mnist-paper", ("mnist", "--preset", "paper"), 15, QUICK, 10, picture="mnist-paper"),
)


def nothing() -> None:
    pass


@dataclass(frozen=True)
class Step:
    """A command, when it need not be run, and what to do after it."""

    command: tuple[str, ...]
    done: Callable[[], bool]
    minutes: float = 0.1
    after: Callable[[], Any] = nothing

    def __str__(self) -> str:
        return shlex.join(("capspoe", *self.command))


def steps_of(run: Run, where: Places = HERE) -> Iterator[Step]:
    """What has to be done for a run, in order."""
    folder = where.runs / run.name
    figures = where.docs / "figures"
    yield Step(("train", *run.train, "--out", str(folder)), lambda: runs.finished(folder), run.training)
    if run.picture:
        picture = figures / f"{run.picture}.png"
        yield Step(("sample", str(folder), *run.drawn, "--out", str(picture)), lambda: newer(picture, folder))
    if run.floors:
        reconstructions = folder / "figures" / "reconstructions.png"
        floors = figures / f"{run.picture}-floors.png"
        yield Step(
            ("reconstruct", str(folder)),
            lambda: newer(floors, folder),
            after=lambda: shutil.copyfile(reconstructions, floors),
        )
    if run.routing:
        drawn = folder / "figures" / "routing-0.svg"
        routing = figures / "routing.svg"
        yield Step(
            ("routing", str(folder)),
            lambda: newer(routing, folder),
            after=lambda: shutil.copyfile(drawn, routing),
        )
    if run.evaluate:
        evaluation = folder / runs.QUICK
        full = folder / runs.FULL
        if run.long:
            yield Step(
                ("evaluate", str(folder), *LONG),
                lambda: evaluated(full, LONG),
                LONG_MINUTES,
                after=lambda: evaluation.replace(full),
            )
        yield Step(
            ("evaluate", str(folder), *run.evaluate),
            lambda: evaluated(evaluation, run.evaluate),
            run.evaluating,
        )


def newer(path: Path, folder: Path) -> bool:
    """Whether a file was made after the run's end."""
    return path.exists() and path.stat().st_mtime >= (folder / "metrics.jsonl").stat().st_mtime


def evaluated(path: Path, options: tuple[str, ...]) -> bool:
    """Whether the file is an evaluation with these options."""
    if not path.exists():
        return False
    settings = json.loads(path.read_text())["settings"]
    samples = int(options[options.index("--samples") + 1])
    return (
        settings["samples"] == samples
        and settings["quick"] == ("--quick" in options)
        and settings["ablate"] == ("--ablate" in options)
    )


def call(step: Step) -> int:
    """Run a step's command and return its exit code.

    An interruption reaches the command too; we wait while it saves.
    """
    process = subprocess.Popen([sys.executable, "-m", "capspoe", *step.command])
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


def remaining_steps(run: Run, where: Places = HERE) -> list[Step]:
    """The steps of a run that are still to be done; before it is trained, all of them."""
    steps = list(steps_of(run, where))
    if not steps[0].done():
        return steps
    return [step for step in steps if not step.done()]


def print_plan(plan: tuple[Run, ...], where: Places = HERE) -> None:
    minutes: dict[str, float] = {}  # by command, since two runs may share a step
    for run in plan:
        steps = remaining_steps(run, where)
        if steps:
            print(f"{run.name:<22} {sum(step.minutes for step in steps):>4.0f} min")
        else:
            print(f"{run.name:<22} there already")
        for step in steps:
            print("   ", step)
            minutes[str(step)] = step.minutes
    hours = sum(minutes.values()) / 60
    print(f"in all about {hours:.1f} hours on two free cores; Ctrl-C is safe, the same command carries on")


def carry_out(plan: tuple[Run, ...], where: Places = HERE) -> list[str]:
    """Do what remains of the plan and write the page. Returns the commands that failed."""
    failures = []
    for run in plan:
        for step in steps_of(run, where):
            if step.done():
                continue
            began = time.monotonic()
            print(f"\n=== {step}", flush=True)
            code = call(step)
            if code:
                failures.append(f"{step} (exit code {code})")
                break
            step.after()
            print(f"=== done in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
        if failures and failures[-1].endswith(f"(exit code {INTERRUPTED})"):
            break
        folders = sorted(path for path in where.runs.glob("*") if path.is_dir())
        print(results.write(folders, where.docs, where.records), flush=True)
    return failures


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="runs of the plan")
    parser.add_argument("--plan", action="store_true", help="only print the plan")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {run.name for run in PLAN}
    if unknown:
        parser.error(f"not in the plan: {', '.join(sorted(unknown))}; --plan prints it")
    plan = PLAN
    if options.names:
        plan = tuple(run for run in PLAN if run.name in options.names)
    print_plan(plan)
    if options.plan:
        return
    failures = carry_out(plan)
    if failures:
        sys.exit("\n".join(["reproduce: not done, and to be tried again by the same command:", *failures]))


if __name__ == "__main__":
    main()
