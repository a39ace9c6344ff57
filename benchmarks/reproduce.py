"""Everything behind docs/results.md: python benchmarks/reproduce.py [NAME ...] [--plan]  (`make reproduce`)

Trains and evaluates every run of the plan in runs/, draws the figures into docs/figures, and writes docs/results.md.
This takes hours. Interrupt it at any time: the same command skips what is done and resumes what is not. With names,
only those runs are made; docs/results.md also shows the records of the others. --plan only prints the plan.
"""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import results

QUICK = ("--quick", "--samples", "2000")
ABLATE = (*QUICK, "--ablate")
LONG = ("--samples", "2000")
INTERRUPTED = 130


class Places(NamedTuple):
    """Where the runs are, the page and its figures, and what is kept of the runs for it."""

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
    routing: bool = False  # docs/figures/routing.svg, the paper's Figure 1


PLAN = (
    Run("mnist-0", ("mnist",), 4, ABLATE, 12, picture="mnist-small"),
    Run("fashion-mnist-0", ("fashion-mnist",), 5, QUICK, 6, picture="fashion-mnist-small"),
    Run("cifar10-0", ("cifar10",), 6, QUICK, 6, picture="cifar10-small"),
    Run("digits-0", ("digits",), 2, QUICK, 3, picture="digits-small"),
    Run("mnist-1", ("mnist", "--seed", "1"), 4, QUICK, 6),
    Run("mnist-2", ("mnist", "--seed", "2"), 4, QUICK, 6),
    Run("fashion-mnist-1", ("fashion-mnist", "--seed", "1"), 5, QUICK, 6),
    Run("fashion-mnist-2", ("fashion-mnist", "--seed", "2"), 5, QUICK, 6),
    Run("mnist-stack", ("mnist", "--layers", "64x16,20x16"), 8, QUICK, 6, picture="mnist-stack"),
    *(Run(f"mnist-chains-{seed}", ("mnist", "--chains", "32", "--seed", str(seed)), 6) for seed in range(3)),
    Run("fashion-mnist-chains-0", ("fashion-mnist", "--chains", "32"), 7),
    Run("mnist-144-10", ("mnist", "--layers", "10x16"), 4, (), 0, routing=True),
    Run("mnist-0", ("mnist",), 4, ABLATE, 12, long=True),
    Run("mnist-paper", ("mnist", "--preset", "paper"), 15, QUICK, 10, picture="mnist-paper"),
)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """A command, when it need not be run, and what to do after it."""

    command: tuple[str, ...]
    done: Callable[[], bool]
    minutes: float = 0.1
    after: Callable[[], Any] = lambda: None

    def __str__(self) -> str:
        return shlex.join(("capspoe", *self.command))


def steps_of(run: Run, where: Places = HERE) -> Iterator[Step]:
    """What has to be done for a run, in order."""
    folder, figures = where.runs / run.name, where.docs / "figures"
    yield Step(("train", *run.train, "--out", str(folder)), lambda: results.finished(folder), run.training)
    if run.picture:
        path = figures / f"{run.picture}.png"
        yield Step(("sample", str(folder), "--out", str(path)), lambda: newer(path, folder))
    if run.routing:
        drawn, path = folder / "figures" / "routing-0.svg", figures / "routing.svg"
        yield Step(("routing", str(folder)), lambda: newer(path, folder), after=lambda: shutil.copyfile(drawn, path))
    if run.evaluate:
        evaluation, full = folder / "evaluation.json", folder / results.FULL
        if run.long:
            yield Step(
                ("evaluate", str(folder), *LONG),
                lambda: evaluated(full, LONG),
                30,
                after=lambda: evaluation.replace(full),
            )
        yield Step(
            ("evaluate", str(folder), *run.evaluate),
            lambda: evaluated(evaluation, run.evaluate),
            run.evaluating,
        )


def newer(path: Path, folder: Path) -> bool:
    """Whether something was made after the run's end."""
    return path.exists() and path.stat().st_mtime >= (folder / "metrics.jsonl").stat().st_mtime


def evaluated(path: Path, options: tuple[str, ...]) -> bool:
    """Whether an evaluation with these options stands there."""
    if not path.exists():
        return False
    settings = json.loads(path.read_text())["settings"]
    samples = int(options[options.index("--samples") + 1])
    return settings["samples"] == samples and all(
        settings[name] == (f"--{name}" in options) for name in ("quick", "ablate")
    )


def call(step: Step) -> int:
    """Run a step's command; when we are interrupted, it is too, and is waited for while it saves."""
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


def left(run: Run, where: Places = HERE) -> list[Step]:
    """The steps of a run that are still to be done; before it is trained, all of them."""
    steps = list(steps_of(run, where))
    return steps if not steps[0].done() else [step for step in steps if not step.done()]


def print_plan(plan: tuple[Run, ...], where: Places = HERE) -> None:
    todo = [(run, left(run, where)) for run in plan]
    for run, steps in todo:
        print(f"{run.name:<22}", f"{sum(s.minutes for s in steps):>4.0f} min" if steps else "there already")
        for step in steps:
            print("   ", step)
    each = {str(step): step.minutes for _, steps in todo for step in steps}  # two runs may share a step
    total = sum(each.values())
    print(f"in all about {total / 60:.1f} hours on two free cores; Ctrl-C is safe, the same command carries on")


def carry_out(plan: tuple[Run, ...], where: Places = HERE) -> list[str]:
    """Do what is left of the plan and write the page; gives the commands that failed."""
    failed = []
    for run in plan:
        for step in steps_of(run, where):
            if step.done():
                continue
            began = time.monotonic()
            print(f"\n=== {step}", flush=True)
            code = call(step)
            if code:
                failed.append(f"{step} (exit code {code})")
                break
            step.after()
            print(f"=== done in {(time.monotonic() - began) / 60:.1f} minutes", flush=True)
        if failed and failed[-1].endswith(f"(exit code {INTERRUPTED})"):
            break
        made = sorted(p for p in where.runs.glob("*") if p.is_dir())
        print(results.write(made, where.docs, where.records), flush=True)
    return failed


def main(arguments: list[str]) -> None:
    names = [a for a in arguments if a != "--plan"]
    unknown = set(names) - {run.name for run in PLAN}
    if unknown:
        sys.exit(f"reproduce: not in the plan: {', '.join(sorted(unknown))}; --plan prints it")
    plan = tuple(run for run in PLAN if run.name in names or not names)
    print_plan(plan)
    if "--plan" in arguments:
        return
    if failed := carry_out(plan):
        sys.exit("\n".join(["reproduce: not done, and to be tried again by the same command:", *failed]))


if __name__ == "__main__":
    main(sys.argv[1:])
