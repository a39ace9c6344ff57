"""Where the routing looks: the winning capsule's weights c_ij as a heat map over the image."""

from pathlib import Path

import numpy as np

from capspoe.figures.panels import QUIET, Sheet
from capspoe.figures.routing import Routed
from capspoe.model import CapsulePoE

_SPANS = (0.05, 0.1, 0.2, 0.3, 0.5, 1.0)  # how far from the mean of 1 the colours may reach
_COLD, _EVEN, _HOT = (np.array(c) / 255 for c in ((44, 110, 186), (235, 235, 235), (217, 76, 13)))


def footprint(places: int, kernel: int, pixels: int) -> np.ndarray:
    """(places, pixels): how much of a place of the code is each pixel, along one side of the image.

    A place sees 2 kernel - 1 pixels through the two convolutions, the middle ones along the most paths.
    """
    triangle = np.convolve(np.ones(kernel), np.ones(kernel))
    rows = np.zeros((places, pixels))
    for p in range(places):
        rows[p, 2 * p : 2 * p + len(triangle)] = triangle[: pixels - 2 * p]
    return rows


def over_pixels(model: CapsulePoE, places: np.ndarray) -> np.ndarray:
    """Weights of the places (h, w), mean 1, as weights of the pixels (H, W): the mean over the places seeing each.

    Equal weights give 1 everywhere, so what remains is the routing and not the shape of the network. A pixel
    that no place sees, such as those of the last row of 28, has 1 as well.
    """
    (_, h, w), kernel, (H, W, _) = model.autoencoder.code_shape, model.autoencoder.kernel, model.image
    down, across = footprint(h, kernel, H), footprint(w, kernel, W)
    seen = down.sum(0)[:, None] * across.sum(0)[None]
    return np.divide(down.T @ places @ across, seen, out=np.ones((H, W)), where=seen > 0)


def span_for(weight: np.ndarray) -> float:
    """The smallest span of colours that holds the weights, or the largest there is."""
    farthest = float(np.abs(weight - 1).max())
    return next((span for span in _SPANS if farthest <= span), _SPANS[-1])


def colour(weight: np.ndarray, span: float) -> np.ndarray:
    """Weights to colours (..., 3): blue at 1 - span, grey at the mean of 1, orange at 1 + span."""
    t = np.clip((weight - 1) / span, -1, 1)[..., None]
    return np.where(t < 0, _EVEN + t * (_EVEN - _COLD), _EVEN + t * (_HOT - _EVEN))


def overlay(image: np.ndarray, pixels: np.ndarray, span: float) -> np.ndarray:
    """The image in the colours of its weights, (H, W, 3): brightness is the image, colour the weight."""
    return colour(pixels, span) * (0.35 + 0.65 * image.mean(-1, keepdims=True))


def write_heat(model: CapsulePoE, view: Routed, path: Path, name: str = "the image") -> None:
    """The image, the winner's weights of the positions, and these over the image, each with its scale."""
    H, W, _ = model.image
    places = view.place_weight[view.winner]
    pixels = over_pixels(model, places)
    scale = max(1, round(224 / max(H, W)))
    wide, tall = W * scale, H * scale
    left, top, gap = 24, 64, 28
    sheet = Sheet(3 * wide + 2 * gap + 2 * left, top + tall + 76)
    sheet.text(left, 22, f"Where capsule {view.winner} looks in {name}", size=17, weight="bold")
    h, w = places.shape
    rows, columns = (np.arange(tall) * h // tall, np.arange(wide) * w // wide)
    squares = colour(places, span_for(places))[rows][:, columns]
    for k, (image, enlarged, words, weights) in enumerate(
        (
            (view.image, scale, "the image", None),
            (squares, 1, f"weight of each of {h}x{w} positions", places),
            (overlay(view.image, pixels, span_for(pixels)), scale, "mean weight of each pixel", pixels),
        )
    ):
        x = left + k * (wide + gap)
        sheet.text(x, 50, words, size=13, colour=QUIET)
        sheet.image(x, top, image, enlarged)
        if weights is not None:
            _scale(sheet, x, top + tall + 12, wide, span_for(weights))
    sheet.text(left, top + tall + 18, "routing weight relative", size=12, colour=QUIET)
    sheet.text(left, top + tall + 36, "to the mean weight", size=12, colour=QUIET)
    sheet.write(path)


def _scale(sheet: Sheet, x: int, y: int, width: int, span: float) -> None:
    ramp = colour(np.linspace(1 - span, 1 + span, width), span)
    sheet.image(x, y, np.broadcast_to(ramp[None], (12, width, 3)), 1)
    for value, place, side in ((1 - span, 0.0, "left"), (1, 0.5, "center"), (1 + span, 1.0, "right")):
        sheet.text(x + place * width, y + 26, f"{value:g}", size=12, ha=side)
