"""`capspoe score`."""

from collections.abc import Iterable
from contextlib import suppress
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
from capspoe.commands.encode import BLOCK, write_table
from capspoe.commands.images import open_given_images, print_rows
from capspoe.errors import CapspoeError

if TYPE_CHECKING:
    import numpy as np

    from capspoe.infer.likelihood import Scores
    from capspoe.run.model import CapsulePoE

SHOWN = 10  # images that are printed
COMPARED = 2000  # test images of the run that typicality refers to


@command
def score(
    run: RunFolder,
    images: Images = (),
    split: SplitOf = None,
    skip_bad: SkipBad = False,
    out: Path | None = None,
    json: AsJson = False,
    device: AnyDevice = "auto",
) -> None:
    """Find odd images: how likely each one is under the model, the oddest first.

    The score is the log-likelihood of the image's code plus that of its pixels given the code, in nats. Typicality is
    the share of the run's own test images that are odder, by the weaker of the two in standard deviations. With
    --codec pixels the code is the image in 0 and 1, and the score is its log-likelihood.

    Args:
        out: x.csv or x.parquet (default: print the ten oddest).
    """
    if out:
        check_suffix(out, ".csv", ".parquet")
    import numpy as np

    from capspoe import data
    from capspoe.figures.gallery import label_of
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run, device)
    given = open_given_images(model, run, images, split, skip_bad=skip_bad)
    dataset = given.dataset
    scores = score_dataset(model, given.batches(BLOCK, "scoring"))
    given.note_errors(0, scores.error)
    given.announce()
    columns = {
        "score": scores.total.round(2),
        "code": scores.code.round(2),
        "pixels": scores.pixels.round(2),
        "capsule": scores.capsule,
    }
    rank_by = scores.total
    # Without the run's own images there is nothing to compare with.
    with suppress(CapspoeError, OSError):
        own_images = data.open_for(model.config, model.image, run=run).first(COMPARED)
        usual = score_dataset(model, progress(own_images.batches(BLOCK), -(-COMPARED // BLOCK), "comparing"))
        rank_by = scores.weaker(usual)
        odder = np.searchsorted(np.sort(usual.weaker(usual)), rank_by)
        columns["typicality"] = (odder / len(usual.code)).round(4)
    columns["error"] = scores.error.astype(np.float64).round(6)

    order = np.argsort(rank_by, kind="stable")
    table: dict[str, Any] = {"file": dataset.names(order)}
    if dataset.labels is not None:
        table["label"] = [label_of(dataset, k) for k in order.tolist()]
    for name, values in columns.items():
        table[name] = values[order].tolist()

    if out:
        write_table(table, out)
    if json:
        print_json(records_of(table))
        return
    log_z = scores.log_z
    gap = max(map(abs, log_z.gaps))
    bounds = f"between {log_z.lower:.1f} and {log_z.upper:.1f}"
    print(f"log Z {bounds}; its estimates differ by at most {gap:.1f} nats in a capsule")
    if model.codec.code_is_image:
        mean = float(scores.code.mean())
        half = (log_z.upper - log_z.lower) / 2
        print(f"log-likelihood of an image: {mean:.2f} ± {abs(half):.2f} nats, the mean of {len(scores.code):,}")
    if out:
        print(out)
    else:
        print_rows(table, SHOWN)


def score_dataset(model: "CapsulePoE", batches: "Iterable[np.ndarray]") -> "Scores":
    """The scores of all images, computed a block at a time."""
    import numpy as np

    from capspoe.infer.likelihood import Scores

    blocks = [model.score(pixels) for pixels in batches]
    return Scores(
        np.concatenate([block.code for block in blocks]),
        np.concatenate([block.pixels for block in blocks]),
        np.concatenate([block.capsule for block in blocks]),
        np.concatenate([block.error for block in blocks]),
        blocks[0].log_z,  # the same for all
    )
