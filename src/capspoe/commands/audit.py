"""`capspoe audit`."""

from pathlib import Path

from capspoe.commands.arguments import (
    MovedData,
    RunFolder,
    RunSplit,
    check_suffix,
    command,
    figure_path,
    open_for_run,
)
from capspoe.run.bundled import output_folder


@command
def audit(
    run: RunFolder,
    count: int = 2000,
    split: RunSplit = "test",
    data: MovedData = None,
    seed: int = 0,
    out: Path | None = None,
) -> None:
    """Compare the routing of a run with uniform, shuffled, random and negated weights, and look for starved capsules.

    Writes RUN/figures/routing-audit.svg and RUN/routing-audit.json.

    Args:
        count: Number of images, evenly spaced.
        seed: Seed of the shuffled and the random weights.
        out: Write the numbers to this .json instead.
    """
    import json

    from capspoe.atomic import write_atomic
    from capspoe.figures.audit import draw_audit
    from capspoe.figures.sheet import write
    from capspoe.infer.audit import audit_network
    from capspoe.model.checks import check_count
    from capspoe.run.model import CapsulePoE

    if out is not None:
        check_suffix(out, ".json")
    check_count("count", count, minimum=2)
    model = CapsulePoE.load(run)
    pixels, labels = open_for_run(model, run, data, split).spread(count).images()
    audits = audit_network(model, pixels, labels, seed)
    path = out or output_folder(run) / "routing-audit.json"
    write_atomic(path, (json.dumps([layer.to_dict() for layer in audits], indent=2) + "\n").encode())
    print(path)
    for number, layer in enumerate(audits, 1):
        name = f"Routing audit of layer {number}" if len(audits) > 1 else "Routing audit"
        suffix = f"-{number}" if len(audits) > 1 else ""
        figure = figure_path(run, f"routing-audit{suffix}.svg")
        write(draw_audit(layer, name), figure)
        print(figure)
        print(*layer.summary(), sep="\n")
