"""What the page shows, by section. The figures are also written to RUN/figures."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from capspoe.config import data_name, train_command
from capspoe.data import Dataset
from capspoe.figures import architecture, curves, gallery, reconstruction, routing, traversal
from capspoe.figures.sheet import write
from capspoe.report import facts
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import sample_grid, tile, write_png

Sections = dict[str, dict[str, Any]]


def save(run: Path, name: str, figure: Figure) -> None:
    write(figure, run / "figures" / name)


def from_model(run: Path, model: CapsulePoE, pixels: np.ndarray | None) -> Sections:
    """`pixels` are the first test images, if they can be opened."""
    image = None if pixels is None else model.array(model.tensor(pixels[0]))[0]
    grid = sample_grid(model)
    write_png(tile(grid, scale=2), run / "figures" / "grid.png")
    network = architecture.draw_architecture(model, grid[0, 0], image)
    save(run, "architecture.svg", network)
    full = traversal.traversal(model, int(model.prior.use.argmax()))
    save(run, f"traverse-{full.capsule}.png", traversal.draw_traversal(full))
    short = [traversal.traversal(model, j, "principal") for j in range(model.top.upper[0])]
    limits = {"correlation": traversal.RANK_CORRELATION, "effect": traversal.EFFECT}
    return {
        "samples": {"columns": grid.swapaxes(0, 1)},
        "network": {"figure": network},
        "traversals": {"full": full, "short": short, **limits},
    }


def from_images(run: Path, model: CapsulePoE, dataset: Dataset, pixels: np.ndarray, number: int) -> Sections:
    """`number` is the image whose routing is shown."""
    view, name = routing.routed(model, routing.one_image(dataset, number)), f"test image {number}"
    encoded = model.encode(pixels)
    diagram = routing.draw_routing(view, name, gallery.label_of(dataset, number))
    save(run, f"routing-{number}.svg", diagram)
    found = gallery.gallery(model, dataset, encoded)
    save(run, "gallery.png", gallery.draw_gallery(found))
    files, winner = np.array((dataset.file_names or [])[: len(pixels)]), encoded.on.argmax(1)
    names = [files[winner == j].tolist() for j in range(len(found.mean))] if len(files) else []
    back = reconstruction.reconstructions(model, pixels[:1000])
    save(run, "reconstructions.png", reconstruction.draw_reconstructions(back, 10))
    return {
        "routing": {"name": name, "view": view, "diagram": diagram},
        "capsules": {"found": found, "rows": gallery.gallery_rows(found), "count": len(pixels), "names": names},
        "reconstructions": {"found": back, "rows": back.rows(10)},
    }


def from_files(run: Path, out: Path, model: CapsulePoE) -> Sections:
    """The log of training, the evaluation, and how the run was made; figures go to `out`."""
    found: Sections = {}
    charts = curves.charts(curves.read_metrics(run))
    if charts:
        save(out, "curves.svg", curves.draw_charts(charts))
        found["training"] = {"charts": [(chart.title, curves.draw_charts([chart], 1)) for chart in charts]}
    if scores := facts.read_json(run / "evaluation.json"):
        found["evaluation"] = {"tables": facts.tables(scores)}
    machine = facts.read_json(run / "environment.json")
    settings = vars(model.config) | {"data": data_name(model.config)}
    tables = facts.tables({"machine": machine, "settings": settings})
    return found | {"settings": {"command": train_command(model.config), "tables": tables}}
