"""The network that ships with the package, in the layout of `capspoe export`; benchmarks/pages/bundle.py makes it."""

from importlib.resources import files
from pathlib import Path

BUNDLED = "mnist-small"


def find_run(run: str | Path) -> Path:
    """The run folder; "mnist-small" is the bundled network unless a folder has that name."""
    if str(run) == BUNDLED and not Path(run).exists():
        return bundled_folder()
    return Path(run)


def bundled_folder() -> Path:
    return Path(str(files("capspoe"))) / "pretrained" / BUNDLED


def output_folder(run: Path) -> Path:
    """Where commands write about a run: into it, or for the bundled network into runs/mnist-small."""
    if run == bundled_folder():
        return Path("runs") / BUNDLED
    return run
