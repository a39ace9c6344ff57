"""`capspoe evaluate`."""

from capspoe.commands.arguments import AnyDevice, RunFolder, command


@command
def evaluate(
    run: RunFolder,
    quick: bool = False,
    samples: int | None = None,
    seed: int = 0,
    ablate: bool = False,
    device: AnyDevice = "auto",
) -> None:
    """Score a trained run and baselines on the same data; writes RUN/evaluation.json and prints a table.

    Finished parts are cached.

    Args:
        quick: Minutes instead of an hour: fewer samples, and only the baselines that train in seconds.
        samples: Samples of each model (default: 2000, or 1000 with --quick). FID depends on it.
        seed: Seed of the samples.
        ablate: Also train the run with one ingredient switched off at a time.
    """
    from rich.console import Console

    from capspoe import evaluate
    from capspoe.evaluate.table import print_table

    scores = evaluate.evaluate(run, quick, samples, seed, ablate=ablate, device=device)
    print_table(scores, Console())
    print(run / "evaluation.json")
