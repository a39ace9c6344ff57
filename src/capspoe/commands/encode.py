"""`capspoe encode`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capspoe.commands.arguments import AnyDevice, Images, RunFolder, SplitOf, check_suffix, command, open_for_run

if TYPE_CHECKING:
    from capspoe.data import Dataset
    from capspoe.run.model import CapsulePoE

BLOCK = 1024  # images encoded at once


@command
def encode(
    run: RunFolder, out: Path, images: Images = None, split: SplitOf = None, device: AnyDevice = "auto"
) -> None:
    """Write which capsule is on for each image, and its pose, with file names and labels if they are known.

    x.npz has on (n, J), hidden (n, J, N), labels (n,) and file (n,). x.csv and x.parquet have a row for each image:
    file, label, capsule, probability, typicality (the share of these images that are reconstructed worse), pose.

    Args:
        out: x.npz, x.csv or x.parquet
    """
    check_suffix(out, ".npz", ".csv", ".parquet")
    import numpy as np

    from capspoe.atomic import npz_writer
    from capspoe.run.model import CapsulePoE

    model, on = CapsulePoE.load(run, device), []
    dataset = open_for_run(model, run, images, split)
    if out.suffix.lower() != ".npz":
        write_table(columns(dataset, encoded_blocks(model, dataset, errors=True)), out)
        print(out)
        return

    def hidden() -> Iterator[np.ndarray]:
        for own, poses, _ in encoded_blocks(model, dataset):
            on.append(own)
            yield poses

    with npz_writer(out) as file:  # `hidden` is written block by block, in constant memory
        file.add_pieces("hidden", (len(dataset), *model.top.upper), np.float32, hidden())
        file.add("on", np.concatenate(on))
        for name, values in (("labels", dataset.labels), ("file", dataset.file_names)):
            if values is not None:
                file.add(name, np.asarray(values))
    print(out)


def encoded_blocks(model: "CapsulePoE", dataset: "Dataset", errors: bool = False) -> Iterator[Any]:
    """on (b, J), hidden (b, J, N) and the error (b,) of the reconstructions, if wanted, a block at a time."""
    import numpy as np

    for pixels in dataset.batches(BLOCK):
        back = model.reconstruct(pixels) - model.array(model.tensor(pixels)) if errors else None
        yield *model.encode(pixels), None if back is None else np.square(back).mean((1, 2, 3))


def columns(dataset: "Dataset", blocks: Iterator[Any]) -> dict[str, Any]:
    """The table of a data set by column; `error` is among them, after typicality."""
    import numpy as np
    from scipy.stats import rankdata

    from capspoe.figures.gallery import label_of

    parts = []
    for on, hidden, error in blocks:
        winner = on.argmax(-1)
        parts.append((winner, on.max(-1), error, hidden[np.arange(len(winner)), winner]))
    capsule, *rest = (np.concatenate(values) for values in zip(*parts, strict=True))
    probability, error, pose = (values.astype(np.float64) for values in rest)
    rows = np.arange(len(dataset))
    labels = {} if dataset.labels is None else {"label": [label_of(dataset, k) for k in rows.tolist()]}
    return {
        "file": dataset.names(rows),
        **labels,
        "capsule": capsule.tolist(),
        "probability": probability.round(4).tolist(),
        "typicality": (1 - rankdata(error, "max") / len(error)).round(4).tolist(),
        "error": error.round(6).tolist(),
        **{f"pose_{k}": values.round(4).tolist() for k, values in enumerate(pose.T)},
    }


def write_table(table: dict[str, Any], path: Path) -> None:
    """Write columns as .csv or .parquet."""
    import csv

    from capspoe.atomic import replacing

    with replacing(path) as temporary:
        if path.suffix.lower() == ".parquet":
            import pyarrow
            from pyarrow import parquet

            parquet.write_table(pyarrow.table(table), temporary)
            return
        with temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
            writer = csv.writer(file)
            writer.writerow(table)
            writer.writerows(zip(*table.values(), strict=True))
