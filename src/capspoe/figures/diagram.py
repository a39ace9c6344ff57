"""Figure 1 of the paper drawn: one image, its capsules, the routing weights, and what each capsule paints."""

from typing import Any, NamedTuple

import numpy as np

from capspoe.figures.routing import Routed
from capspoe.figures.svg import document, number, picture, tag, text

WIDTH, MARGIN = 1200, 40
SHOWN = 40  # upper capsules drawn; of more, those most probably on
HAZE_BINS = 72
_SAMPLE = 11  # width of a shade in the legend
_ROW_Y, _ROW_HEIGHT, _UPPER_Y, _UPPER_HEIGHT = 320, 26, 590, 34


class Edges(NamedTuple):
    """Which of a capsule's weights are lines, and what the others add up to."""

    lower: np.ndarray  # (k,): lower capsules at the far end of the lines, weakest first
    weight: np.ndarray  # (k,): their weights
    density: np.ndarray  # (bins,): the mean of the other weights, along the row of lower capsules


def line_counts(lower: int) -> tuple[int, int]:
    """How many of the strongest weights are lines, of a capsule and of the winner: at most a quarter of all."""
    quarter = max(1, lower // 4)
    return min(6, quarter), min(36, quarter)


def edges_of(weight_I: np.ndarray, count: int, bins: int = HAZE_BINS) -> Edges:
    """The `count` strongest weights of a capsule, none if all are equal, and the rest as a density."""
    strongest = np.argsort(weight_I, kind="stable")[len(weight_I) - min(count, len(weight_I)) :]
    if np.ptp(weight_I) < 1e-6:
        strongest = strongest[:0]
    rest = np.ones(len(weight_I), bool)
    rest[strongest] = False
    bins = min(bins, len(weight_I))
    home = np.arange(len(weight_I)) * bins // len(weight_I)
    total = np.bincount(home, weight_I * rest, bins)
    return Edges(strongest, weight_I[strongest], total / np.bincount(home, minlength=bins))


def shown_capsules(view: Routed) -> np.ndarray:
    """The numbers of the upper capsules that are drawn, in order."""
    J = len(view.upper_on)
    return np.sort(np.argsort(-view.upper_on, kind="stable")[:SHOWN]) if J > SHOWN else np.arange(J)


def routing_diagram(view: Routed, name: str = "an image", label: str | None = None) -> str:
    """The SVG. `name` says which image it is, `label` what is known to be on it."""
    shown = shown_capsules(view)
    I, winner = len(view.lower_on), view.winner
    pitch = (WIDTH - 2 * MARGIN) / len(shown)
    upper_x = {int(j): MARGIN + (k + 0.5) * pitch for k, j in enumerate(shown)}
    side = min(pitch - 6, 76)
    painted_y = _UPPER_Y + _UPPER_HEIGHT + 30
    height = painted_y + side * view.image.shape[0] / view.image.shape[1] + 46
    body = "".join(
        (
            _head(view, name, label),
            _legend(view),
            _edges(view, shown, upper_x),
            _lower_row(view),
            _upper_row(view, shown, upper_x, pitch),
            _paintings(view, shown, upper_x, side, painted_y),
        )
    )
    confidence = f"{100 * view.upper_on[winner]:.0f} %"
    description = (
        f"{name}{f', labelled {label}' if label else ''}, as {I} lower capsules, routed to "
        f"{len(view.upper_on)} upper capsules. Capsule {winner} is on with probability {confidence}. Lines are the "
        "strongest routing weights; below each upper capsule is the image as it alone would paint it."
    )
    return document(WIDTH, height, f"Routing of {name}", description, tag("g", body))


def _head(view: Routed, name: str, label: str | None) -> str:
    """The image, and the capsules of the code where they look."""
    side, y = 190, 74
    parts = [
        text(MARGIN, 36, f"Routing of {name}", 22, font_weight="700"),
        text(MARGIN, 62, "the image" + (f", labelled {label}" if label else ""), 13, "quiet"),
        picture(MARGIN, y, side, view.image, data_role="image"),
    ]
    h, w, groups = view.code_on.shape
    rows = max(1, int(np.sqrt(groups)))
    columns = -(-groups // rows)
    x0 = MARGIN + side + 60
    parts.append(text(x0, 62, f"its {h}x{w} positions, {groups} capsules in each", 13, "quiet"))
    cell_x, cell_y = side / w, side / h
    for r in range(h):
        for c in range(w):
            x, top = x0 + c * cell_x, y + r * cell_y
            parts.append(tag("rect", x=x, y=top, width=cell_x - 3, height=cell_y - 3, class_="panel"))
            for g in range(groups):
                dx, dy = (cell_x - 3) / columns, (cell_y - 3) / rows
                parts.append(
                    tag(
                        "rect", x=x + g % columns * dx, y=top + g // columns * dy, width=dx, height=dy,
                        class_="ink place", fill_opacity=f"{view.code_on[r, c, g]:.3f}",
                    )
                )  # fmt: skip
    middle = y + side / 2
    parts.append(_arrow(MARGIN + side + 12, middle, x0 - 14, middle))
    return "".join(parts)


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    head = f"M{number(to_x)} {number(to_y)}l-9 -5v10z"
    return tag(
        "path", d=f"M{number(x)} {number(y)}H{number(to_x - 8)}", class_="line", stroke_width=1.5
    ) + tag("path", d=head, class_="arrow")


def _legend(view: Routed) -> str:
    """What shades and lines mean, with the numbers behind them."""
    x, y = 570, 84
    winner = view.winner
    parts = [
        text(x, y, f"Capsule {winner} is on", 19, "accent", font_weight="700"),
        text(x, y + 22, f"P(on) = {view.upper_on[winner]:.3f}; {_runner_up(view)}", 13, "quiet"),
    ]
    y += 56
    steps = 11  # of the scale of shades
    for k in range(steps):
        parts.append(
            tag(
                "rect",
                x=x + k * _SAMPLE,
                y=y - 11,
                width=_SAMPLE,
                height=14,
                class_="ink",
                fill_opacity=k / (steps - 1),
            )
        )
    parts.append(tag("rect", x=x, y=y - 11, width=_SAMPLE * steps, height=14, class_="frame"))
    parts.append(text(x + _SAMPLE * steps + 12, y, "shade: probability of being on, 0 to 1", 13))
    each, most = line_counts(len(view.lower_on))
    edges = [edges_of(view.weight[j], each) for j in range(len(view.weight))]
    drawn = np.concatenate([e.weight for e in edges])
    y += 32
    if not len(drawn):
        parts.append(text(x, y, "all routing weights are equal: the haze is all there is to draw", 13))
        return "".join(parts)
    won = edges_of(view.weight[winner], most)
    for k, (css, words) in enumerate(
        (
            ("edge-accent", f"its {len(won.weight)} strongest routing weights, "
                            f"{won.weight.min():.1f} to {won.weight.max():.1f} times the mean"),
            ("edge", f"the {each} strongest of each other capsule, up to {drawn.max():.1f} times the mean"),
        )
    ):  # fmt: skip
        line = y + 28 * k
        parts.append(tag("path", d=f"M{x} {line - 4}h{_SAMPLE * steps}", class_=css, stroke_width=2.4))
        parts.append(text(x + _SAMPLE * steps + 12, line, words, 13))
    line = y + 56
    parts.append(
        tag(
            "rect",
            x=x,
            y=line - 11,
            width=_SAMPLE * steps,
            height=14,
            class_="haze-accent",
            fill_opacity=0.25,
        )
    )
    parts.append(text(x + _SAMPLE * steps + 12, line, "the rest of its weights, as a density", 13))
    return "".join(parts)


def _runner_up(view: Routed) -> str:
    if len(view.upper_on) == 1:
        return "it is the only one"
    second = int(np.argsort(-view.upper_on, kind="stable")[1])
    return f"next is capsule {second} with {view.upper_on[second]:.3f}"


def _lower_x(index: float, count: int) -> float:
    return MARGIN + index * (WIDTH - 2 * MARGIN) / count


def _edges(view: Routed, shown: np.ndarray, upper_x: dict[int, float]) -> str:
    """Haze below lines, the winner above the others."""
    top, bottom = _ROW_Y + _ROW_HEIGHT, _UPPER_Y
    I = len(view.lower_on)
    each, most = line_counts(I)
    haze, lines = [], []
    for j in [*(j for j in shown if j != view.winner), view.winner]:
        won = j == view.winner
        edges = edges_of(view.weight[j], most if won else each)
        x, strongest = upper_x[int(j)], float(view.weight[j].max() if won else view.weight.max())
        if won:
            haze.append(_haze(edges.density, x, top, bottom))
        for i, weight in zip(edges.lower, edges.weight, strict=True):
            share = float(weight) / max(strongest, 1e-9)
            path = f"M{number(_lower_x(i + 0.5, I))} {top}{_bend(_lower_x(i + 0.5, I), top, x, bottom)}"
            lines.append(
                tag(
                    "path", d=path, class_="edge-accent" if won else "edge",
                    stroke_opacity=f"{(0.9 if won else 0.4) * share**2:.3f}",
                    stroke_width=f"{(2.2 if won else 1.1) * share:.2f}",
                    data_i=int(i), data_j=int(j), data_weight=f"{weight:.3f}",
                )
            )  # fmt: skip
    return tag("g", "".join(haze), data_role="density") + tag("g", "".join(lines), data_role="edges")


def _bend(x: float, y: float, to_x: float, to_y: float) -> str:
    """A curve that leaves and arrives upright."""
    middle = number((y + to_y) / 2)
    return f"C{number(x)} {middle} {number(to_x)} {middle} {number(to_x)} {number(to_y)}"


def _haze(density: np.ndarray, x: float, top: float, bottom: float) -> str:
    """A fan from stretches of the lower row to the winner, as dense as their weights."""
    parts = []
    for k, value in enumerate(density):
        left, right = _lower_x(k, len(density)), _lower_x(k + 1, len(density))
        path = (
            f"M{number(left)} {top}{_bend(left, top, x - 4, bottom)}"
            f"H{number(x + 4)}{_bend(x + 4, bottom, right, top)}Z"
        )
        opacity = 0.12 * min(float(value) ** 2, 4)
        parts.append(
            tag(
                "path",
                d=path,
                class_="haze-accent",
                fill_opacity=f"{opacity:.3f}",
                data_density=f"{value:.3f}",
            )
        )
    return "".join(parts)


def _lower_row(view: Routed) -> str:
    """The paper's row of rectangles: every lower capsule, shaded by its length."""
    I = len(view.lower_on)
    size = (WIDTH - 2 * MARGIN) / I
    gap = min(1.2, 0.15 * size)
    cells = [
        tag(
            "rect", x=_lower_x(i, I) + gap / 2, y=_ROW_Y, width=size - gap, height=_ROW_HEIGHT, class_="ink lower",
            fill_opacity=f"{on:.3f}", data_i=i,
        )
        for i, on in enumerate(view.lower_on)
    ]  # fmt: skip
    words = f"{I} lower capsules, position by position" if view.code_on.size == I else f"{I} lower capsules"
    return text(MARGIN, _ROW_Y - 12, words, 13, "quiet") + "".join(cells)


def _upper_row(view: Routed, shown: np.ndarray, upper_x: dict[int, float], pitch: float) -> str:
    width = min(pitch - 6, 76)
    parts = []
    for j in shown:
        x, on, won = upper_x[int(j)], float(view.upper_on[j]), j == view.winner
        box: dict[str, Any] = {
            "x": x - width / 2,
            "y": _UPPER_Y,
            "width": width,
            "height": _UPPER_HEIGHT,
            "rx": 3,
        }
        parts.append(tag("rect", **box, class_="paper"))
        parts.append(tag("rect", **box, class_="ink upper", fill_opacity=f"{on:.3f}", data_j=int(j)))
        parts.append(
            tag("rect", **box, class_="edge-accent" if won else "frame", stroke_width=2.5 if won else 1)
        )
        label: dict[str, Any] = {"text_anchor": "middle", "font_weight": "700" if won else None}
        y, size = _UPPER_Y + _UPPER_HEIGHT + 18, min(13.0, 0.55 * pitch)
        parts.append(text(x, y, str(j), size, "accent" if won else "quiet", **label))
    return "".join(parts)


def _paintings(view: Routed, shown: np.ndarray, upper_x: dict[int, float], side: float, y: float) -> str:
    """Under each capsule, the image as it alone would paint it."""
    parts = []
    tall = side * view.image.shape[0] / view.image.shape[1]
    for j in shown:
        x = upper_x[int(j)] - side / 2
        parts.append(picture(x, y, side, view.painted[j], data_role="painted", data_j=int(j)))
        if j == view.winner:
            frame: dict[str, Any] = {"x": x - 2, "y": y - 2, "width": side + 4, "height": tall + 4}
            parts.append(tag("rect", **frame, class_="edge-accent", stroke_width=2.5))
    J = len(view.upper_on)
    which = (
        f"{J} upper capsules"
        if len(shown) == J
        else f"the {len(shown)} of {J} upper capsules most probably on"
    )
    words = f"{which}, and the image as each alone would paint it"
    return "".join(parts) + text(MARGIN, y + tall + 28, words, 13, "quiet")
