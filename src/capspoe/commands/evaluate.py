"""`capspoe evaluate`."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from capspoe.commands.arguments import AnyDevice, AsJson, check_suffix, command, print_json
from capspoe.errors import InputError
from capspoe.run.bundled import find_run, output_folder

Runs = Annotated[
    Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help="Run folders; several are compared in one table.")
]


@command
def evaluate(
    runs: Runs,
    quick: bool = False,
    samples: int | None = None,
    seed: int = 0,
    ablate: bool = False,
    out: Path | None = None,
    json: AsJson = False,
    device: AnyDevice = "auto",
) -> None:
    """Score trained runs and baselines on the same data; writes RUN/evaluation.json and prints a table.

    Of several runs, such as several seeds, the table has the mean and the standard deviation. Finished parts are
    cached.

    Args:
        quick: Minutes instead of an hour: fewer samples, and only the baselines that train in seconds.
        samples: Samples of each model (default: 2000, or 1000 with --quick). FID depends on it.
        seed: Seed of the samples.
        ablate: Also train the run with one ingredient switched off at a time.
        out: Also write the table of several runs: x.csv, x.json or x.md.
    """
    if not runs:
        raise InputError("which run? capspoe evaluate RUN")
    if out:
        check_suffix(out, ".csv", ".json", ".md")
    from rich.console import Console

    from capspoe import evaluate
    from capspoe.evaluate.table import print_table
    from capspoe.run import checkpoint

    for run in runs:
        checkpoint.open_run(find_run(run))  # refuses a folder that is no run, before hours of work on the others
    results: dict[str, Any] = {}
    for run in runs:
        folder = find_run(run)
        if len(runs) > 1:
            Console(stderr=True).print(str(run), style="bold", markup=False, highlight=False)
        results[str(run)] = evaluate.evaluate(folder, quick, samples, seed, ablate=ablate, device=device)
        if json and len(runs) == 1:
            print_json(results[str(run)])
        elif len(runs) == 1:
            print_table(results[str(run)], Console())
            print(output_folder(folder) / "evaluation.json")
    if len(runs) > 1 or out:
        show_comparison(results, out, json)


def show_comparison(results: dict[str, Any], out: Path | None, json: bool) -> None:
    """Print and write the table of several runs."""
    from capspoe.evaluate.compare import as_json, as_markdown, compare, settings_of, write_comparison

    table = compare(results)
    settings = settings_of(results)
    if out:
        write_comparison(table, settings, out)
    if json:
        print(as_json(table, settings), end="")
    else:
        print(as_markdown(table, settings), end="")
    if out and not json:
        print(out)
