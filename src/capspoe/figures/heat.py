"""The routing weights c_ij of the winning capsule as a heat map over the image."""

from typing import NamedTuple

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from capspoe.core.network import Network
from capspoe.figures.routing import Routed
from capspoe.figures.sheet import DPI, PAPER, QUIET, TEXT
from capspoe.run.pictures import to_rgb_or_grey

_COLOURS = ("#2c6eba", "#ebebeb", "#d94c0d")  # below, at and above the mean
_MAP = LinearSegmentedColormap.from_list("weight", _COLOURS)


def footprint(places: int, kernel: int, pixels: int) -> np.ndarray:
    """(places, pixels): through how many paths of the two convolutions a place sees each pixel, along one side."""
    paths = np.convolve(np.ones(kernel), np.ones(kernel))
    rows = np.zeros((places, pixels))
    for p in range(places):
        rows[p, 2 * p : 2 * p + len(paths)] = paths[: pixels - 2 * p]
    return rows


def over_pixels(model: Network, places: np.ndarray) -> np.ndarray:
    """Weights of the places (h, w) as weights of the pixels (H, W): the mean over the places that see each pixel.

    Equal weights give 1 everywhere, so what remains is the routing and not the shape of the network. A pixel that no
    place sees, such as those of the last row of 28, has 1 as well.
    """
    (_, h, w), kernel, (H, W, _) = model.autoencoder.code_shape, model.autoencoder.kernel, model.image
    down, across = footprint(h, kernel, H), footprint(w, kernel, W)
    seen = down.sum(0)[:, None] * across.sum(0)[None]
    return np.divide(down.T @ places @ across, seen, out=np.ones((H, W)), where=seen > 0)


def span_of(weight: np.ndarray) -> float:
    """How far from 1 the colours reach: as far as the weights, within limits."""
    return float(np.clip(np.abs(weight - 1).max(), 0.05, 1))


def colour(weight: np.ndarray, span: float) -> np.ndarray:
    """Weights to colours (..., 3): blue at 1 - span, grey at 1, orange at 1 + span."""
    return _MAP(Normalize(1 - span, 1 + span)(weight))[..., :3]


class Panel(NamedTuple):
    words: str
    image: np.ndarray  # (H, W, C)
    span: float | None = None  # of its colours


def heat(model: Network, view: Routed) -> list[Panel]:
    """The image, the winner's weights of the positions, and the image in the colours of its pixels' weights."""
    places = view.place_weight[view.winner]
    pixels = over_pixels(model, places)
    near, far = span_of(places), span_of(pixels)
    tinted = colour(pixels, far) * (0.35 + 0.65 * view.image.mean(-1, keepdims=True))
    return [
        Panel("the image", view.image),
        Panel("routing weight of each position, relative to the mean", colour(places, near), near),
        Panel("mean weight of the positions that see each pixel", tinted, far),
    ]


def draw_heat(panels: list[Panel], title: str) -> Figure:
    """The panels with their scales."""
    figure = Figure((13, 6), dpi=DPI, facecolor=PAPER, layout=ConstrainedLayoutEngine(h_pad=0.15, w_pad=0.2))
    figure.suptitle(title, fontsize=17, color=TEXT, weight="bold", x=0.02, ha="left")
    for panel, axes in zip(panels, figure.subplots(1, len(panels)), strict=True):
        axes.imshow(to_rgb_or_grey(panel.image), cmap="gray", vmin=0, vmax=1, interpolation="none")
        axes.set_title(panel.words, fontsize=11, color=TEXT)
        axes.axis("off")
        span = panel.span or 1
        scale, ticks = ScalarMappable(Normalize(1 - span, 1 + span), _MAP), (1 - span, 1, 1 + span)
        bar = figure.colorbar(scale, ax=axes, location="bottom", ticks=ticks, format="%.2f", shrink=0.9)
        bar.ax.set_visible(panel.span is not None)
        bar.ax.tick_params(length=0, labelcolor=QUIET)
        bar.outline.set_visible(False)
    return figure
