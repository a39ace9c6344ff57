"""`capspoe evaluate`."""

from dataclasses import dataclass

from capspoe.commands.arguments import AnyDevice, RunFolder, parse


@dataclass(frozen=True)
class Evaluate:
    """Score a trained run and baselines on the same data; writes RUN/evaluation.json and prints a table.

    Finished parts are kept and not computed again.
    """

    run: RunFolder
    quick: bool = False
    """Minutes instead of an hour: fewer samples, and only the baselines that train in seconds."""
    samples: int | None = None
    """Samples of each model (default: 2000, or 1000 with --quick). FID depends on it."""
    seed: int = 0
    """Seed of the samples."""
    ablate: bool = False
    """Also train the run with one ingredient switched off at a time."""
    device: AnyDevice = "auto"


def evaluate(argv: list[str]) -> None:
    a = parse(Evaluate, "evaluate", argv)
    from rich.console import Console

    from capspoe.evaluate import run
    from capspoe.evaluate.table import print_table

    result = run.evaluate(a.run, a.quick, a.samples, a.seed, ablate=a.ablate, device=a.device)
    print_table(result, Console())
    print(a.run / "evaluation.json")
