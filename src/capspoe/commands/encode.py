"""`capspoe encode`."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capspoe.commands.arguments import (
    AnyDevice,
    AsJson,
    Images,
    RunFolder,
    SkipBad,
    SplitOf,
    check_suffix,
    command,
    print_json,
    progress,
    records_of,
)
from capspoe.commands.images import Given, open_given_images, print_rows, reconstruction_errors

if TYPE_CHECKING:
    import numpy as np

    from capspoe.data import Dataset
    from capspoe.run.model import CapsulePoE

BLOCK = 1024  # images encoded at once
SHOWN = 20  # images that are printed


@command
def encode(
    run: RunFolder,
    images: Images = (),
    out: Path | None = None,
    split: SplitOf = None,
    skip_bad: SkipBad = False,
    json: AsJson = False,
    device: AnyDevice = "auto",
) -> None:
    """Say which capsule is on for each image, and write its pose, with file names and labels if they are known.

    x.npz has on (n, J), hidden (n, J, N), labels (n,) and file (n,). x.csv and x.parquet have a row for each image:
    file, label, capsule, probability, typicality (the share of these images that are reconstructed worse), pose.

    Args:
        out: x.npz, x.csv or x.parquet (default: print the first images).
    """
    if out:
        check_suffix(out, ".npz", ".csv", ".parquet")
    import numpy as np

    from capspoe.atomic import npz_writer
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run, device)
    given = open_given_images(model, run, images, split, skip_bad=skip_bad)
    dataset = given.dataset
    if out is None or out.suffix.lower() != ".npz":
        table = columns(dataset, watched(given, encoded_blocks(model, dataset, errors=True)))
        given.announce()
        if out:
            write_table(table, out)
        show(given, table, out, json)
        return

    # `hidden` is large and written block by block; `on` is small and collected on the way.
    on: list[np.ndarray] = []

    def hidden() -> Iterator[np.ndarray]:
        blocks = encoded_blocks(model, dataset, errors=not given.own)
        for on_of_block, hidden_of_block, _ in watched(given, blocks):
            on.append(on_of_block)
            yield hidden_of_block

    with npz_writer(out) as file:
        file.add_pieces("hidden", (len(dataset), *model.top.upper), np.float32, hidden())
        file.add("on", np.concatenate(on))
        if dataset.labels is not None:
            file.add("labels", np.asarray(dataset.labels))
        if dataset.file_names is not None:
            file.add("file", np.asarray(dataset.file_names))
    given.announce()
    print(out)


def show(given: Given, table: dict[str, Any], out: Path | None, json: bool) -> None:
    """Print where the table is, or its rows."""
    if json:
        print_json(records_of(table))
    elif out:
        print(out)
    else:
        shown = {
            name: values for name, values in table.items() if name in ("file", "label", "capsule", "probability")
        }
        if any(given.summary.labels):
            shown["mostly"] = [given.label(capsule) for capsule in table["capsule"]]
        print_rows(shown, SHOWN)


def encoded_blocks(model: "CapsulePoE", dataset: "Dataset", errors: bool = False) -> Iterator[Any]:
    """on (b, J), hidden (b, J, N) and, if wanted, the error (b,) of the reconstructions, a block at a time."""
    for pixels in dataset.batches(BLOCK):
        error = reconstruction_errors(model, pixels) if errors else None
        on, hidden = model.encode(pixels)
        yield on, hidden, error


def watched(given: Given, blocks: Iterator[Any]) -> Iterator[Any]:
    """The blocks, with a progress bar; notes which images are unlike the run's."""
    done = 0
    for on, hidden, error in progress(blocks, -(-len(given.dataset) // BLOCK), "encoding"):
        if error is not None:
            given.note_errors(done, error)
        done += len(on)
        yield on, hidden, error


def columns(dataset: "Dataset", blocks: Iterator[Any], known: "np.ndarray | None" = None) -> dict[str, Any]:
    """The table of a data set by column; `error` is among them, after typicality.

    Where `known` (n,) is not negative, it is the capsule of an image, whatever P(on) says.
    """
    import numpy as np
    from scipy.stats import rankdata

    from capspoe.figures.gallery import label_of

    capsules: list[np.ndarray] = []
    done = 0
    probabilities = []
    errors = []
    poses = []
    for on, hidden, error_of_block in blocks:
        winner = on.argmax(-1)
        rows = np.arange(len(winner))
        if known is not None:
            own = known[done : done + len(winner)]
            winner = np.where(own >= 0, own, winner)
        done += len(winner)
        capsules.append(winner)
        probabilities.append(on[rows, winner])
        errors.append(error_of_block)
        poses.append(hidden[rows, winner])
    # In double precision, so that rounding leaves short numbers in the table.
    probability = np.concatenate(probabilities).astype(np.float64)
    error = np.concatenate(errors).astype(np.float64)
    pose = np.concatenate(poses).astype(np.float64)
    rows = np.arange(len(dataset))

    table: dict[str, Any] = {"file": dataset.names(rows)}
    if dataset.labels is not None:
        table["label"] = [label_of(dataset, k) for k in rows.tolist()]
    table["capsule"] = np.concatenate(capsules).tolist()
    table["probability"] = probability.round(4).tolist()
    table["typicality"] = (1 - rankdata(error, "max") / len(error)).round(4).tolist()
    table["error"] = error.round(6).tolist()
    for k, values in enumerate(pose.T):
        table[f"pose_{k}"] = values.round(4).tolist()
    return table


def write_table(table: dict[str, Any], path: Path) -> None:
    """Write columns as .csv or .parquet."""
    from capspoe.atomic import replacing

    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(table), temporary)
            return
        # File names that are no UTF-8 are written with their own bytes.
        with temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
