"""Figure 2 of the paper: the network, drawn from the trained model itself, with its sizes."""

from typing import NamedTuple

import numpy as np

from capspoe.capsules import CapsuleLayer
from capspoe.figures.svg import document, number, picture, tag, text
from capspoe.model import CapsulePoE

_PITCH, _MARGIN = 236, 40
_MIDDLE = 192  # height at which the arrows run
_STACK = 7  # rectangles that stand for a row of capsules


class Stage(NamedTuple):
    """One state of the data on its way, and what leads to it from the state before."""

    name: str
    size: str
    shape: tuple[int, int, int] | None  # (height, width, channels) of a map, None for capsules
    up: tuple[str, ...] = ()  # what leads here
    down: tuple[str, ...] = ()  # what leads back
    weights: tuple[int, int] = (0, 0)  # parameters on the way here, and back if those are others


def stages_of(model: CapsulePoE) -> list[Stage]:
    """The states from image to top capsules, read from the modules."""
    a = model.autoencoder
    H, W, C = model.image
    channels, h, w = a.code_shape
    k = a.kernel
    (I, M) = a.capsules
    found = [
        Stage("image", f"{H}x{W}x{C}", (H, W, C)),
        Stage(
            "features", f"{H - k + 1}x{W - k + 1}x{channels}", (H - k + 1, W - k + 1, channels),
            (f"convolution {k}x{k}", f"[{k}, {k}, {C}, {channels}]", "LeakyReLU"),
            (f"transposed {k}x{k}", "sigmoid"), (_count(a.down_1), _count(a.up_2)),
        ),
        Stage(
            "code", f"{h}x{w}x{channels}", (h, w, channels),
            (f"convolution {k}x{k} / 2", f"[{k}, {k}, {channels}, {channels}]", "sigmoid"),
            (f"transposed {k}x{k} / 2", "LeakyReLU"), (_count(a.down_2), _count(a.up_1)),
        ),
        Stage("lower capsules", f"{I} x {M} neurons", None, ("reshape", f"{M} channels each"), ("reshape",)),
    ]  # fmt: skip
    for depth, layer in enumerate(model.stack):
        (J, N), top = layer.upper, depth == len(model.stack) - 1
        name = "upper capsules" if top else f"capsules, layer {depth + 1}"
        back = ("reverse routing", "the same W")
        found.append(Stage(name, f"{J} x {N} neurons", None, _upward(layer), back, (_count(layer), 0)))
    return found


def _count(*modules: object) -> int:
    return sum(p.numel() for m in modules for p in m.parameters() if p.requires_grad)  # type: ignore[attr-defined]


def _upward(layer: CapsuleLayer) -> tuple[str, ...]:
    iterations = layer.iterations
    routed = f"routing, {iterations} iterations" if iterations > 1 else "no routing"
    state = "one is on" if layer.gated else "no gate"
    return (routed, f"W: {layer.lower[0]}x{layer.upper[0]} of {layer.upper[1]}x{layer.lower[1]}",
            f"{layer.neurons}, {state}")  # fmt: skip


def architecture(
    model: CapsulePoE, image: np.ndarray | None = None, painted: np.ndarray | None = None
) -> str:
    """The SVG; `image` and `painted` (H, W, C) stand at the ends if given: one that goes in, one that comes out."""
    stages = stages_of(model)
    width = 2 * _MARGIN + (len(stages) - 1) * _PITCH + 130
    height = _MIDDLE + 292
    centre = [_MARGIN + 65.0 + k * _PITCH for k in range(len(stages))]
    parts = [
        text(_MARGIN, 38, "The network", 22, font_weight="700"),
        text(_MARGIN, 62, _summary(model), 13, "quiet"),
    ]
    parts.append(_brace(centre[0] - 60, centre[2] + 60, 96, "1  trained first, as an autoencoder"))
    parts.append(_brace(centre[3] - 60, centre[-1] + 60, 96, "2  trained next, as a product of experts"))
    low = _MIDDLE + 166
    for k, (stage, x) in enumerate(zip(stages, centre, strict=True)):
        if k:
            _connect(parts, centre[k - 1] + 62, x - 62, stage, low)
        if stage.shape:
            parts.append(
                _volume(x, _MIDDLE, stage.shape, stages[0].shape or (1, 1, 1), image if k == 0 else None)
            )
        else:
            parts.append(_capsules(x, _MIDDLE, k == len(stages) - 1 and model.top.gated))
        for line, (words, css) in enumerate(((stage.name, "text"), (stage.size, "quiet"))):
            parts.append(text(x, _MIDDLE + 82 + 17 * line, words, 13, css, text_anchor="middle",
                              font_weight="600" if line == 0 else None))  # fmt: skip
    parts.append(_way_back(model, centre, low, painted))
    names = ", ".join(f"{stage.name} {stage.size}" for stage in stages)
    return document(
        width, height, "The network", f"From image to capsules and back: {names}.", "".join(parts)
    )


def _summary(model: CapsulePoE) -> str:
    every, capsules = _count(model), _count(*model.stack)
    return f"{every:,} parameters, {capsules:,} of them between capsules; all trained without labels"


def _brace(left: float, right: float, y: float, words: str) -> str:
    path = f"M{number(left)} {y + 8}v-8H{number(right)}v8"
    middle = (left + right) / 2
    return tag("path", d=path, class_="line") + text(middle, y - 9, words, 14, "accent", text_anchor="middle")


def _connect(parts: list[str], left: float, right: float, stage: Stage, low: float) -> None:
    """The arrow up with what it does, and the arrow back below."""
    middle = (left + right) / 2
    parts.append(
        tag("path", d=f"M{number(left)} {_MIDDLE}H{number(right - 8)}", class_="line", stroke_width=1.6)
    )
    parts.append(tag("path", d=f"M{number(right)} {_MIDDLE}l-10 -5v10z", class_="arrow", data_role="up"))
    for k, words in enumerate(stage.up):
        y = _MIDDLE - 14 - 16 * (len(stage.up) - 1 - k)
        parts.append(text(middle, y, words, 12, "text" if k == 0 else "quiet", text_anchor="middle"))
    forward, back = ((f"{count:,} parameters",) if count else () for count in stage.weights)
    for words in forward:
        parts.append(text(middle, _MIDDLE + 20, words, 12, "quiet", text_anchor="middle"))
    parts.append(
        tag("path", d=f"M{number(left + 8)} {low}H{number(right)}", class_="edge-accent", stroke_width=1.6)
    )
    parts.append(tag("path", d=f"M{number(left)} {low}l10 -5v10z", class_="accent", data_role="down"))
    for k, words in enumerate((*stage.down, *back)):
        parts.append(text(middle, low + 22 + 16 * k, words, 12, "quiet", text_anchor="middle"))


def _volume(
    x: float, y: float, shape: tuple[int, int, int], largest: tuple[int, int, int], image: np.ndarray | None
) -> str:
    """A box as high and wide as the map, and deeper with more channels."""
    unit = 84 / max(largest[:2])
    tall, wide = max(shape[0] * unit, 8), max(shape[1] * unit, 8)
    depth = min(4 + 1.6 * np.sqrt(shape[2]), 24)
    left, top = x - (wide + depth) / 2, y - (tall - depth) / 2
    d = number(depth)
    lid = f"M{number(left)} {number(top)}l{d} -{d}h{number(wide)}l-{d} {d}z"
    side = f"M{number(left + wide)} {number(top)}l{d} -{d}v{number(tall)}l-{d} {d}z"
    front = tag("rect", x=left, y=top, width=wide, height=tall, class_="box")
    if image is not None:
        front += picture(left, top, wide, image)
    return tag("path", d=lid, class_="box-top") + tag("path", d=side, class_="box-side") + front


def _capsules(x: float, y: float, gated: bool) -> str:
    """A few rectangles that stand for all; with a gate, one of them is filled."""
    parts = []
    for k in range(_STACK):
        top = y - 50 + k * 14.6
        parts.append(tag("rect", x=x - 30, y=top, width=60, height=11, rx=3, class_="box"))
        if gated and k == 2:
            parts.append(tag("rect", x=x - 30, y=top, width=60, height=11, rx=3, class_="accent"))
    return "".join(parts)


def _way_back(model: CapsulePoE, centre: list[float], low: float, painted: np.ndarray | None) -> str:
    """The states on the way down, where new images come from."""
    N = model.top.upper[1]
    prior = "its fitted prior" if model.config.capsules.prior == "fitted" else "sigmoid(N(0, 1))"
    parts = [
        text(centre[-1], low - 6, f"{N} numbers", 13, text_anchor="middle", font_weight="600"),
        text(centre[-1], low + 12, f"from {prior}", 12, "quiet", text_anchor="middle"),
    ]
    for x, words in zip(centre[1:-1], ("features", "code", *["capsules"] * (len(centre) - 4)), strict=True):
        parts.append(text(x, low + 4, words, 13, text_anchor="middle"))
    if painted is not None:
        parts.append(picture(centre[0] - 38, low - 38, 76, painted, data_role="painted"))
    else:
        parts.append(text(centre[0], low + 4, "new image", 13, text_anchor="middle", font_weight="600"))
    parts.append(
        _brace_below(centre[0] - 60, centre[-1] + 60, low + 76, "3  new images: one capsule on, and back")
    )
    return "".join(parts)


def _brace_below(left: float, right: float, y: float, words: str) -> str:
    path = f"M{number(left)} {y - 8}v8H{number(right)}v-8"
    return tag("path", d=path, class_="line") + text((left + right) / 2, y + 24, words, 14, "accent",
                                                     text_anchor="middle")  # fmt: skip
