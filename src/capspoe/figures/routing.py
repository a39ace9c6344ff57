"""Figure 1 of the paper: one image, its capsules, the routing weights, and what each decodes to."""

from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure

from capspoe.data import Dataset
from capspoe.errors import InputError
from capspoe.figures.sheet import ACCENT, LINE, QUIET, TEXT, Sheet
from capspoe.model.checks import check_count
from capspoe.model.gates import only
from capspoe.model.network import CHUNK, Network
from capspoe.model.routing import squash_length

SHOWN = 40  # upper capsules drawn, the most probable ones
WIDTH = 1200
MARGIN = 40
LOWER_Y = 320
LOWER_HEIGHT = 26
UPPER_Y = 590
UPPER_HEIGHT = 34


class Routed(NamedTuple):
    """One image on its way up, and what each upper capsule alone decodes to."""

    image: np.ndarray  # (H, W, C)
    code_on: np.ndarray  # (h, w, groups): |squash| of the code's capsules at their positions (Eq. 7)
    lower_on: np.ndarray  # (I,): |squash| of the top layer's input, the code if there is one layer
    upper_on: np.ndarray  # (J,): P(capsule j is on)
    weight: np.ndarray  # (J, I): the routing weights c_ij of the top layer, relative to their mean
    decoded: np.ndarray  # (J, H, W, C): the image as capsule j alone reconstructs it

    @property
    def ranking(self) -> np.ndarray:
        """The capsules, the most probable first."""
        return np.argsort(-self.upper_on, kind="stable")

    @property
    def winner(self) -> int:
        return int(self.ranking[0])

    @property
    def moves(self) -> str:
        """How far routing moves the winner's weights, in words."""
        moved = float(np.abs(self.weight[self.winner] - 1).mean())
        return f"Routing moves a weight by {moved:.0%} of the uniform weight on average."


def one_image(dataset: Dataset, number: int) -> np.ndarray:
    """Image `number` of a data set, uint8 (H, W, C)."""
    check_number(dataset, number)
    return dataset.batch([number])[0]


def check_number(dataset: Dataset, number: int) -> None:
    """Refuse the number of an image that is not there, without reading any."""
    check_count("image", number, minimum=0)
    if number >= len(dataset):
        limit = f"{len(dataset)}, the number of {dataset.what}"
        raise InputError(f"image must be below {limit}, not {number}")


@torch.no_grad()
def routed(model: Network, image: Any) -> Routed:
    """Route one image through the network."""
    x = model.tensor(image)
    if len(x) != 1:
        raise InputError(f"give one image, not {len(x)}")
    up = model.up(x)
    if model.codec.grid is None:
        raise InputError("the lower capsules of this network have no place in the image, so they cannot be drawn")
    h, w = model.codec.grid
    capsules = torch.arange(model.top.upper[0], device=x.device)
    decoded = []
    for on in capsules.split(CHUNK):
        alone = only(up.hidden.expand(len(on), -1, -1), on)
        decoded.append(model.array(model.down(alone, up.c.expand(len(on), -1, -1), on=on)))
    return Routed(
        image=model.array(x)[0],
        code_on=squash_length(up.code)[0].reshape(h, w, -1).cpu().numpy(),
        lower_on=squash_length(up.x)[0].cpu().numpy(),
        upper_on=up.on[0].cpu().numpy(),
        weight=(up.c / up.c.mean())[0].cpu().numpy(),
        decoded=np.concatenate(decoded),
    )


def largest(weight_I: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` largest weights of a capsule are, ascending, but at most a quarter of all."""
    I = len(weight_I)
    count = min(count, max(1, I // 4))
    # Of equal weights none is the largest.
    if np.ptp(weight_I) < 1e-6:
        count = 0
    return np.argsort(weight_I, kind="stable")[I - count :]


def strength(weight: Any) -> Any:
    """0 to 1 for weights of half to twice the uniform weight, the same for all images."""
    return np.clip((1 + np.log2(np.maximum(weight, 1e-9))) / 2, 0, 1)


def draw_routing(view: Routed, name: str = "an image", label: str | None = None) -> Figure:
    """`name` says which image it is, `label` its label if it has one."""
    shown = view.ranking[:SHOWN]
    pitch = (WIDTH - 2 * MARGIN) / len(shown)
    side = min(pitch - 6, 76)
    x = MARGIN + (np.arange(len(shown)) + 0.5) * pitch
    decoded_y = UPPER_Y + UPPER_HEIGHT + 30
    tall = side * view.image.shape[0] / view.image.shape[1]
    sheet = Sheet(WIDTH, decoded_y + tall + 46)
    sheet.text(MARGIN, 30, f"Routing of {name}", 22, weight="bold")
    _draw_code(sheet, view, label)
    # The winner comes first, and with more of its weights than the others.
    edges = [largest(view.weight[shown[0]], 36)]
    edges += [largest(view.weight[j], 6) for j in shown[1:]]
    _draw_legend(sheet, view, edges)
    _draw_edges(sheet, view, edges, x)
    I = len(view.lower_on)
    lower_words = f"{I} lower capsules"
    if view.code_on.size == I:
        lower_words += ", position by position"
    sheet.text(MARGIN, LOWER_Y - 14, lower_words, 13, QUIET)
    width = (WIDTH - 2 * MARGIN) / I
    gap = min(1.2, 0.15 * width)
    sheet.cells(_lower_x(np.arange(I), I), LOWER_Y, width - gap, LOWER_HEIGHT, view.lower_on)
    sheet.cells(x - side / 2, UPPER_Y, side, UPPER_HEIGHT, view.upper_on[shown])
    for rank, j in enumerate(shown):
        left = x[rank] - side / 2
        number_style: dict[str, Any] = {"colour": QUIET, "weight": "normal"}
        frame: dict[str, Any] = {"ec": LINE, "lw": 1}
        if rank == 0:
            number_style = {"colour": ACCENT, "weight": "bold"}
            frame = {"ec": ACCENT, "lw": 2.5}
        size = min(13.0, 0.55 * pitch)
        number_y = UPPER_Y + UPPER_HEIGHT + 14
        sheet.text(x[rank], number_y, str(j), size, ha="center", **number_style)
        sheet.image(left, decoded_y, view.decoded[j], side)
        sheet.box(left, UPPER_Y, side, UPPER_HEIGHT, **frame)
        sheet.box(left - 1, decoded_y - 1, side + 2, tall + 2, **frame)
    J = len(view.upper_on)
    which = f"the {len(shown)} most probable of {J}"
    if len(shown) == J:
        which = f"{J}"
    words = f"{which} upper capsules, most probable first, and what each alone decodes to"
    sheet.text(MARGIN, decoded_y + tall + 24, words, 13, QUIET)
    return sheet.figure


def _draw_code(sheet: Sheet, view: Routed, label: str | None) -> None:
    """The image, and the capsules of its code at their positions."""
    side = 190
    x = MARGIN + 250
    y = 74
    h, w, groups = view.code_on.shape
    caption = f"labelled {label}" if label else "the image"
    sheet.text(MARGIN, 60, caption, 13, QUIET)
    sheet.image(MARGIN, y, view.image, side)
    sheet.arrow(MARGIN + side + 12, x - 14, y + side / 2)
    sheet.text(x, 60, f"its {h}x{w} positions, {groups} capsules at each", 13, QUIET)
    row, column, group = np.indices((h, w, groups)).reshape(3, -1)
    # The capsules of a position share its square, in rows and columns.
    rows = max(1, int(np.sqrt(groups)))
    columns = -(-groups // rows)
    width = (side / w - 3) / columns
    height = (side / h - 3) / rows
    left = x + column * side / w + group % columns * width
    top = y + row * side / h + group // columns * height
    sheet.cells(left, top, width, height, view.code_on.ravel())


def _draw_legend(sheet: Sheet, view: Routed, edges: list[np.ndarray]) -> None:
    x = 560
    y = 84
    wide = 120
    sheet.text(x, y, f"Capsule {view.winner} is on", 19, ACCENT, weight="bold")
    chances = f"P(on) = {view.upper_on[view.winner]:.3f}"
    if len(view.ranking) > 1:
        second = view.ranking[1]
        chances += f"; next is capsule {second} with {view.upper_on[second]:.3f}"
    sheet.text(x, y + 24, chances, 13, QUIET)
    sheet.cells(x + np.arange(11) * wide / 11, y + 46, wide / 11, 14, np.linspace(0, 1, 11))
    sheet.box(x, y + 46, wide, 14, ec=LINE)
    words = ["shade: probability of being on, 0 to 1"]
    # One line for the winner's weights, one for those of the other capsules.
    whose = (f"capsule {view.winner}", "each other capsule")
    colours = (ACCENT, TEXT)
    drawn_edges = (edges[:1], edges[1:])
    for k, drawn in enumerate(drawn_edges):
        weights = [np.empty(0)]
        for j, index in zip(view.ranking[k:], drawn, strict=False):
            weights.append(view.weight[j][index])
        values = np.concatenate(weights)
        if len(values):
            limits = f"{values.min():.1f} to {values.max():.1f} times uniform"
            words.append(f"the {len(drawn[0])} largest weights of {whose[k]}: {limits}")
            line_y = y + 81 + 28 * k
            sheet.shape("ML", [(x, line_y), (x + wide, line_y)], ec=colours[k], lw=2.2 - k)
    if len(words) == 1:
        words.append("all routing weights are equal")
    for k, line in enumerate(words):
        sheet.text(x + wide + 12, y + 53 + 28 * k, line, 13)
    scale = "From half the uniform weight, invisible, to twice, full strength: the same scale for all images."
    for k, line in enumerate((scale, *view.moves.splitlines())):
        sheet.text(x, y + 145 + 20 * k, line, 12, QUIET)


def _lower_x(index: Any, count: int) -> Any:
    return MARGIN + index * (WIDTH - 2 * MARGIN) / count


def _draw_edges(sheet: Sheet, view: Routed, edges: list[np.ndarray], x: np.ndarray) -> None:
    """Curves from lower to upper capsules; the winner's on top."""
    top = LOWER_Y + LOWER_HEIGHT
    bottom = UPPER_Y
    middle = (LOWER_Y + LOWER_HEIGHT + UPPER_Y) / 2
    # The winner, of rank 0, is drawn last.
    for rank in reversed(range(len(edges))):
        colour, opacity, width = (TEXT, 0.4, 1.1) if rank else (ACCENT, 0.9, 2.2)
        end = x[rank]
        for i in edges[rank]:
            start = _lower_x(i + 0.5, len(view.lower_on))
            full = strength(view.weight[view.ranking[rank], i])
            points = [(start, top), (start, middle), (end, middle), (end, bottom)]
            sheet.shape("MCCC", points, ec=colour, alpha=opacity * full, lw=width * full)
