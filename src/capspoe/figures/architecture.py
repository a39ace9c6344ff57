"""Figure 2 of the paper: the network, drawn from the trained model itself, with its sizes."""

from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from capspoe.figures.sheet import ACCENT, CARD, QUIET, TEXT, Sheet
from capspoe.model.network import Network

PITCH = 236
MARGIN = 40
# Heights of the arrows.
UP = 192
DOWN = 358


class State(NamedTuple):
    """The data at one point on its way up, and what leads to it from the state before."""

    name: str
    size: str
    shape: tuple[int, int, int] | None = None  # (height, width, channels) of a map, None for capsules
    up: tuple[str, ...] = ()  # what leads here
    down: tuple[str, ...] = ()  # what leads back
    parameters: tuple[int, int] = (0, 0)  # of the way here, and of the way back if it has its own


def states_of(model: Network) -> list[State]:
    """The states from the image to the top capsules, read from the modules."""
    height, width, colours = model.image
    states = [State("image", f"{height}x{width}x{colours}", model.image)]
    for codec_map in model.codec.maps():
        size = "x".join(map(str, codec_map.shape))
        states.append(
            State(
                codec_map.name,
                size,
                codec_map.shape,
                up=codec_map.up,
                down=codec_map.down,
                parameters=codec_map.parameters,
            )
        )
    I, M = model.codec.capsules
    states.append(
        State(
            "lower capsules",
            f"{I} x {M} neurons",
            up=("reshape", f"{M} numbers each"),
            down=("reshape",),
        )
    )
    for depth, layer in enumerate(model.stack, 1):
        I, M = layer.lower
        J, N = layer.upper
        name = f"capsules, layer {depth}"
        if layer is model.top:
            name = "upper capsules"
        routing = "no routing"
        if layer.iterations > 1:
            routing = f"routing, {layer.iterations} iterations"
        kind = f"{layer.neurons.name}, {layer.gate.caption}"
        states.append(
            State(
                name,
                f"{J} x {N} neurons",
                up=(routing, f"W: {I}x{J} of {N}x{M}", kind),
                down=("reverse routing", "the same W"),
                parameters=(count(layer), 0),
            )
        )
    return states


def count(*modules: nn.Module) -> int:
    """Trained parameters."""
    total = 0
    for module in modules:
        total += sum(p.numel() for p in module.parameters() if p.requires_grad)
    return total


def draw_architecture(
    model: Network,
    generated: np.ndarray,
    image: np.ndarray | None = None,
) -> Figure:
    """`generated` (H, W, C) is a sample of the network, `image` an input."""
    states = states_of(model)
    x = MARGIN + 65.0 + PITCH * np.arange(len(states))
    sheet = Sheet(x[-1] + 65 + MARGIN, DOWN + 126)
    sheet.text(MARGIN, 30, "The network", 22, weight="bold")
    parameters = f"{count(model):,} parameters, {count(*model.stack):,} of them between capsules"
    sheet.text(MARGIN, 58, f"{parameters}; all trained without labels", 13, QUIET)
    lower = len(states) - len(model.stack) - 1  # the state of the lower capsules
    if model.codec.learns:
        _bracket(sheet, x[0], x[lower - 1], 96, 8, "1  trained first, as an autoencoder")
        _bracket(sheet, x[lower], x[-1], 96, 8, "2  trained next, as a product of experts")
    else:
        _bracket(sheet, x[lower], x[-1], 96, 8, "1  trained as a product of experts")
    _bracket(sheet, x[0], x[-1], DOWN + 76, -8, "new images: one capsule on, and back")
    for k, state in enumerate(states):
        if k:
            _connect(sheet, x[k - 1] + 62, x[k] - 62, state)
        if state.shape:
            picture = image if k == 0 else None
            _map(sheet, x[k], state.shape, max(model.image[:2]), picture)
        else:
            _capsules(sheet, x[k], one_on=k == len(states) - 1 and model.top.gate.one_on)
        sheet.text(x[k], UP + 80, state.name, 13, ha="center", weight="bold")
        sheet.text(x[k], UP + 97, state.size, 13, QUIET, ha="center")
        if 0 < k < len(states) - 1:
            name = state.name if state.shape else "capsules"
            sheet.text(x[k], DOWN, name, 13, ha="center")
    prior = "sigmoid(N(0, 1))"
    if model.sampling.prior == "fitted":
        prior = "its fitted prior"
    sheet.text(x[-1], DOWN - 9, f"pose of {model.top.upper[1]}", 13, ha="center", weight="bold")
    sheet.text(x[-1], DOWN + 9, f"from {prior}", 12, QUIET, ha="center")
    height = 76 * generated.shape[0] / generated.shape[1]
    sheet.image(x[0] - 38, DOWN - height / 2, generated, 76)
    return sheet.figure


def _bracket(sheet: Sheet, x: float, to_x: float, y: float, tick: float, words: str) -> None:
    points = [(x - 60, y + tick), (x - 60, y), (to_x + 60, y), (to_x + 60, y + tick)]
    sheet.shape("MLLL", points, ec=QUIET)
    sheet.text((x + to_x) / 2, y - 1.75 * tick, words, 14, ACCENT, ha="center")


def _connect(sheet: Sheet, left: float, right: float, state: State) -> None:
    """The arrow up with what it does, and the arrow back."""
    middle = (left + right) / 2
    sheet.arrow(left, right, UP)
    # Written from the arrow upwards, so that the first line, the most important one, is on top.
    for k, words in enumerate(reversed(state.up), 1):
        colour = TEXT if k == len(state.up) else QUIET
        sheet.text(middle, UP - 2 - 16 * k, words, 12, colour, ha="center")
    up_parameters, down_parameters = state.parameters
    words_below = f"{up_parameters:,} parameters" if up_parameters else ""
    sheet.text(middle, UP + 16, words_below, 12, QUIET, ha="center")
    sheet.arrow(right, left, DOWN, ACCENT)
    way_back = list(state.down)
    if down_parameters:
        way_back.append(f"{down_parameters:,} parameters")
    for k, words in enumerate(way_back, 1):
        sheet.text(middle, DOWN + 2 + 16 * k, words, 12, QUIET, ha="center")


def _capsules(sheet: Sheet, x: float, one_on: bool) -> None:
    """Seven bars that stand for all capsules, one of them on if `one_on`."""
    for bar in range(7):
        colours = {"ec": QUIET, "fc": CARD}
        if one_on and bar == 2:
            colours = {"ec": ACCENT, "fc": ACCENT}
        sheet.box(x - 30, UP - 50 + 14.6 * bar, 60, 11, **colours)


def _map(
    sheet: Sheet,
    x: float,
    shape: tuple[int, int, int],
    largest: int,
    image: np.ndarray | None,
) -> None:
    """A stack of maps of the right size, thicker with more channels."""
    height = max(84 * shape[0] / largest, 8)
    width = max(84 * shape[1] / largest, 8)
    sheets = round(min(1 + np.sqrt(shape[2]), 9))
    left = x - width / 2 - 1.5 * sheets
    top = UP - height / 2 + 1.5 * sheets
    for k in reversed(range(sheets)):
        sheet.box(left + 3 * k, top - 3 * k, width, height, ec=QUIET, fc=CARD)
    if image is not None:
        sheet.image(left, top, image, width)
