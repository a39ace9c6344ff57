"""The whole page."""

import base64
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from capspoe import __version__
from capspoe.atomic import write_atomic
from capspoe.config import data_name
from capspoe.data import names_in, open_for
from capspoe.errors import DataError, InputError
from capspoe.figures.architecture import count
from capspoe.figures.gallery import shown_split
from capspoe.figures.sheet import COLOURS, svg
from capspoe.report import sections
from capspoe.run import checkpoint
from capspoe.run.bundled import BUNDLED, output_folder
from capspoe.run.model import CapsulePoE
from capspoe.run.pictures import png, tile


def write_report(run: Path, image: int = 0, images: str | None = None) -> Path:
    """Write RUN/report.html and RUN/figures, and return the path of the page.

    `image` is the test image whose routing is shown; `images` says where the run's images are, if
    they have moved.
    """
    out = output_folder(run)
    model = CapsulePoE.load(run)
    # Files come first, since a damaged one is an error.
    page_sections = sections.from_files(run, out, model)
    first = None
    problem = ""
    try:
        split = shown_split(images or model.config.data)
        shown = open_for(model.config, model.image, images, split, run=run)
        test = shown
        if split != "test":
            test = open_for(model.config, model.image, images)
        first = test.batch([0])
    except (DataError, InputError) as error:
        problem = str(error)
        for name in names_in(model.config.data):
            problem = problem.replace(name, Path(name).name)
    if first is not None:
        page_sections = sections.from_images(out, model, test, shown, image) | page_sections
    page_sections = sections.from_model(out, model, first) | page_sections
    folder = files("capspoe.report")
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"strip": strip, "inline": inline, "show": show}
    template = environment.from_string((folder / "template.html").read_text(encoding="utf-8"))
    page = template.render(
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),
        sections=page_sections,
        model=model,
        parameters=count(model),
        data=data_name(model.config),
        run=shlex.quote(run_name(run, out)),
        image=image,
        state=checkpoint.newest(run).state,
        problem=problem,
        version=__version__,
    )
    write_atomic(out / "report.html", page.encode(errors="replace"))
    return out / "report.html"


def run_name(run: Path, out: Path) -> str:
    """The run as a command on the page names it."""
    # Only a bundled run has its output elsewhere.
    if out != run:
        return BUNDLED
    # An absolute path says more about the machine than about the run.
    if run.is_absolute():
        return run.name
    return str(run)


def strip(images: np.ndarray, alt: str, column: bool = False) -> Markup:
    """Images (n, H, W, C) in [0, 1] side by side, or one below the other, with transparent gaps."""
    images = images[:, None] if column else images[None]
    # A tiled picture of black images is white in the gaps: inverted, it is the opacity.
    opacity = 255 - tile(np.zeros_like(images[..., :1]))
    picture = np.concatenate([tile(images), opacity], -1)
    height, width, _ = picture.shape
    data = base64.b64encode(png(picture)).decode()
    html = '<img src="data:image/png;base64,{}" width="{}" height="{}" alt="{}" style="--n:{}">'
    return Markup(html).format(data, width, height, alt, images.shape[1])


def inline(figure: Figure, name: str) -> Markup:
    """A figure as part of the page, in the page's colours."""
    text = svg(figure)
    text = text[text.index("<svg") + 4 :]
    # Identifiers such as axes_1 occur in every figure, and must be unique on a page.
    text = re.sub(r' id="[\w.]+_\d{1,6}"', "", text)
    for variable, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{variable})")
    return Markup('<svg role="img" aria-label="{}"{}').format(name, Markup(text))


def show(value: Any) -> str:
    """A value as text."""
    if isinstance(value, list):
        return ", ".join(map(show, value))
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.5g}"
    return str(value)
