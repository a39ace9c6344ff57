"""`capspoe score`."""

from contextlib import suppress
from pathlib import Path

from capspoe.commands.arguments import AnyDevice, Images, RunFolder, SplitOf, check_suffix, command, open_for_run
from capspoe.commands.encode import BLOCK, write_table
from capspoe.errors import CapspoeError

COMPARED = 2000  # test images of the run that typicality refers to


@command
def score(
    run: RunFolder, images: Images = None, split: SplitOf = None, out: Path | None = None, device: AnyDevice = "auto"
) -> None:
    """Find odd images: how likely each one is under the model, the oddest first.

    The score is the log-likelihood of the image's code plus that of its pixels given the code. Typicality is the
    share of the run's own test images that are odder, by the weaker of the two in standard deviations.

    Args:
        out: x.csv or x.parquet (default: print the ten oddest).
    """
    if out:
        check_suffix(out, ".csv", ".parquet")
    import numpy as np

    from capspoe import data
    from capspoe.figures.gallery import label_of
    from capspoe.infer.likelihood import Scores
    from capspoe.run.model import CapsulePoE

    model = CapsulePoE.load(run, device)
    dataset = open_for_run(model, run, images, split)

    def scored(images: data.Dataset) -> Scores:
        *parts, log_z = zip(*(model.score(pixels) for pixels in images.batches(BLOCK)), strict=True)
        code, pixels, capsule, error = map(np.concatenate, parts)
        return Scores(code, pixels, capsule, error, log_z[0])

    found = scored(dataset)
    odd, scores = found.total, {"score": found.total, "code": found.code, "pixels": found.pixels}
    table = {name: values.round(2) for name, values in scores.items()} | {"capsule": found.capsule}
    with suppress(CapspoeError, OSError):  # without the run's own images there is nothing to compare with
        usual = scored(data.open_for(model.config, model.image, run=run).first(COMPARED))
        odd = found.weaker(usual)
        table["typicality"] = (np.searchsorted(np.sort(usual.weaker(usual)), odd) / len(usual.code)).round(4)
    table["error"] = found.error.astype(np.float64).round(6)
    order = np.argsort(odd, kind="stable")
    labels = {} if dataset.labels is None else {"label": [label_of(dataset, k) for k in order.tolist()]}
    rows = {"file": dataset.names(order), **labels} | {name: values[order].tolist() for name, values in table.items()}
    low, high, gap = found.log_z.lower, found.log_z.upper, max(map(abs, found.log_z.gaps))
    print(f"log Z between {low:.1f} and {high:.1f}; its estimates differ by at most {gap:.1f} nats in a capsule")
    if out:
        write_table(rows, out)
        print(out)
        return
    print("  ".join(f"{name:>10}" for name in rows))
    for row in list(zip(*rows.values(), strict=True))[:10]:
        print("  ".join(f"{value!s:>10}" for value in row))
