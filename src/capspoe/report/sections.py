"""The sections of the page. The figures are also written to RUN/figures."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from capspoe.config import data_name, train_command
from capspoe.data import Dataset
from capspoe.figures import architecture, curves, gallery, reconstruction, routing, traversal
from capspoe.figures.sheet import write
from capspoe.report import facts
from capspoe.report.evaluation import evaluation_section
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import sample_grid, tile_columns, write_png

Sections = dict[str, dict[str, Any]]
IMAGES = 10_000  # encoded, at most


def save(run: Path, name: str, figure: Figure) -> None:
    write(figure, run / "figures" / name)


def from_model(run: Path, model: CapsulePoE, first: np.ndarray | None) -> Sections:
    """`first` is the first test image, if it can be opened."""
    image = None
    if first is not None:
        image = model.array(model.tensor(first))[0]
    grid = sample_grid(model)
    write_png(tile_columns(grid, scale=2), run / "figures" / "grid.png")
    network = architecture.draw_architecture(model, grid[0, 0], image)
    save(run, "architecture.svg", network)
    full = traversal.traversal(model, int(model.prior.use.argmax()))
    save(run, f"traverse-{full.capsule}.png", traversal.draw_traversal(full))
    short = [traversal.traversal(model, j, "principal") for j in range(model.top.upper[0])]
    return {
        "samples": {"columns": grid.swapaxes(0, 1)},
        "network": {"figure": network},
        "traversals": {
            "full": full,
            "short": short,
            "correlation": traversal.RANK_CORRELATION,
            "effect": traversal.EFFECT,
        },
    }


def from_images(
    run: Path,
    model: CapsulePoE,
    test: Dataset,
    shown: Dataset,
    number: int,
) -> Sections:
    """What needs images: routing, capsules and reconstructions.

    `number` is the test image whose routing is shown; `shown` are the images that capsules are on
    for.
    """
    view = routing.routed(model, routing.one_image(test, number))
    name = f"test image {number}"
    diagram = routing.draw_routing(view, name, gallery.label_of(test, number))
    save(run, f"routing-{number}.svg", diagram)
    count = min(len(shown), IMAGES)
    kind = "test images" if shown is test else "images"
    encoded = model.encode(shown.batch(np.arange(count)))
    capsules = gallery.gallery(model, shown, encoded)
    save(run, "gallery.png", gallery.draw_gallery(capsules))
    # Somebody's own images have file names: each capsule lists those it is on for.
    winner = encoded.on.argmax(1)
    names = []
    if shown.file_names:
        file_names = np.array(shown.file_names[:count])
        names = [file_names[winner == j].tolist() for j in range(len(capsules.mean))]
    back = reconstruction.reconstructions(model, test.batch(np.arange(min(len(test), 1000))))
    save(run, "reconstructions.png", reconstruction.draw_reconstructions(back, 10))
    return {
        "routing": {"name": name, "view": view, "diagram": diagram},
        "capsules": {
            "found": capsules,
            "rows": gallery.gallery_rows(capsules),
            "count": count,
            "kind": kind,
            "names": names,
        },
        "reconstructions": {"found": back, "rows": back.rows(10)},
    }


def from_files(run: Path, out: Path, model: CapsulePoE) -> Sections:
    """The log of training, the evaluation, and how the run was made; figures go to `out`."""
    sections: Sections = {}
    code = "an image" if model.codec.code_is_image else "a code"
    charts = curves.charts(curves.read_metrics(run), code)
    if charts:
        save(out, "curves.svg", curves.draw_charts(charts))
        single = [(chart.title, curves.draw_charts([chart], 1)) for chart in charts]
        bounds = any(set(chart.lines) >= set(curves.LIKELIHOOD.values()) for chart in charts)
        sections["training"] = {"charts": single, "bounds": bounds}
    if scores := facts.read_json(out / "evaluation.json"):
        sections["evaluation"] = evaluation_section(scores)
    described = {"settings": vars(model.config) | {"data": data_name(model.config)}}
    # An exported network does not say on which machine it was trained.
    if machine := facts.read_json(run / "environment.json"):
        described = {"machine": machine, **described}
    sections["settings"] = {
        "command": train_command(model.config),
        "tables": facts.tables(described),
    }
    return sections
