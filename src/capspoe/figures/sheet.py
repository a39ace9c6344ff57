"""Drawing in pixels on a matplotlib figure, rows of images, and figures as files."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from capspoe.atomic import write_atomic
from capspoe.run.pictures import to_rgb_or_grey, to_uint8, write_png

# By name, so that a page can replace them by its own light and dark colours.
COLOURS = {
    "paper": "#ffffff", "card": "#f3f5f8", "line": "#d5dce4", "text": "#17202b", "quiet": "#515e6d",
    "accent": "#a63c08", "bar": "#1d5fa8",
}  # fmt: skip
PAPER, CARD, LINE, TEXT, QUIET, ACCENT, BAR = COLOURS.values()
DPI = 72  # so that a pixel is a point
_CODES = {"M": Outline.MOVETO, "L": Outline.LINETO, "C": Outline.CURVE4, "Z": Outline.CLOSEPOLY}


class Sheet:
    """A figure of width x height pixels. Positions are pixels from the upper left."""

    def __init__(self, width: float, height: float) -> None:
        size = (int(width) / DPI, int(height) / DPI)
        self.figure = Figure(figsize=size, dpi=DPI, facecolor=PAPER)
        # y grows downwards, as in an image.
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, int(width)), ylim=(int(height), 0))
        self.axes.axis("off")

    def image(self, x: float, y: float, image: np.ndarray, width: float) -> None:
        """An image (H, W, C) in [0, 1].

        Its pixels are exact if `width` is a multiple of W and the position an integer.
        """
        H, W = image.shape[:2]
        pixels = np.broadcast_to(to_uint8(to_rgb_or_grey(image)), (H, W, 3))
        extent = (x, x + width, y + width * H / W, y)
        self.axes.imshow(pixels, extent=extent, interpolation="none", aspect="auto", zorder=2)

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 12,
        colour: str = TEXT,
        **options: Any,
    ) -> None:
        """Text of `size` pixels; x, y are its left end and middle, unless `options` say otherwise."""
        options = {"ha": "left", "va": "center", "zorder": 3, **options}
        self.axes.text(x, y, text, fontsize=size, color=colour, parse_math=False, **options)

    def shape(self, codes: str, points: Sequence[tuple[float, float]], **style: Any) -> None:
        """A path as in SVG, such as "MLLZ": move, lines, close; "C" takes three points."""
        outline = Outline(points, [_CODES[code] for code in codes])
        style = {"fc": "none", "ec": "none", "zorder": 2, **style}
        self.axes.add_patch(PathPatch(outline, **style))

    def box(self, x: float, y: float, width: float, height: float, **style: Any) -> None:
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height), (x, y)]
        self.shape("MLLLZ", corners, **style)

    def cells(
        self,
        x: Any,
        y: Any,
        width: float,
        height: float,
        opacity: Any,
        colour: str = TEXT,
    ) -> None:
        """Rectangles of one size, as opaque as `opacity` (n,) in [0, 1].

        x and y are their upper left corners, (n,) or a number.
        """
        corners_n12 = np.stack(np.broadcast_arrays(x, y), -1)[:, None]
        square = np.array([[0, 0], [width, 0], [width, height], [0, height]])
        colours = [to_rgba(colour, float(a)) for a in opacity]
        self.axes.add_collection(PolyCollection(corners_n12 + square, fc=colours, lw=0, zorder=2))

    def arrow(self, x: float, to_x: float, y: float, colour: str = QUIET) -> None:
        style = {
            "arrowstyle": "-|>",
            "color": colour,
            "mutation_scale": 13,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        self.axes.annotate("", (to_x, y), (x, y), arrowprops=style)


class Row(NamedTuple):
    """Images in groups, with text beside them."""

    name: str
    groups: Sequence[np.ndarray]  # of (n, H, W, C)
    note: str = ""  # below the name
    captions: Sequence[str] = ()  # below the images
    remark: str = ""  # to the right
    detail: str = ""  # below the remark


def draw_rows(
    title: str,
    words: str,
    rows: Sequence[Row],
    size: int,
    head: Sequence[str] = (),
) -> Figure:
    """Rows of images about `size` pixels wide, with `head` above the columns."""
    H, W = rows[0].groups[0].shape[1:3]
    # A whole number of pixels for each pixel of an image keeps it exact.
    scale = max(1, round(size / max(H, W)))
    width = W * scale
    height = H * scale
    gap = 14  # between groups
    has_captions = any(row.captions for row in rows)
    has_remarks = any(row.remark or row.detail for row in rows)
    below = 22 if has_captions else 4
    margin = 190 if has_remarks else 10
    left = 128
    top = 86 if head else 70
    extents = []
    for row in rows:
        images = sum(len(group) for group in row.groups)
        extents.append(images * (width + 4) + gap * (len(row.groups) - 1))
    right = left + max(extents) + 10
    sheet = Sheet(max(right + margin, 620), top + len(rows) * (height + below) + 12)
    sheet.text(20, 24, title, 18, weight="bold")
    sheet.text(20, 48, words, 12, QUIET)
    for k, text in enumerate(head):
        sheet.text(left + k * (width + 4) + width / 2, top - 12, text, 11, QUIET, ha="center")
    for r, row in enumerate(rows):
        x = left
        y = top + r * (height + below)
        middle = y + height / 2
        # Two lines of text leave the middle to each other; one alone takes it.
        name_y = middle - 9 if row.note else middle
        sheet.text(20, name_y, row.name, 13, weight="bold")
        sheet.text(20, middle + 9, row.note, 11, QUIET)
        for group in row.groups:
            for k, image in enumerate(group):
                sheet.image(x + k * (width + 4), y, image, width)
            x += len(group) * (width + 4) + gap
        for k, text in enumerate(row.captions):
            centre = left + k * (width + 4) + width / 2
            sheet.text(centre, y + height + 10, text, 11, QUIET, ha="center")
        remark_y = middle - 9 if row.detail else middle
        detail_y = middle + 9 if row.remark else middle
        sheet.text(right, remark_y, row.remark, 12, ACCENT, weight="bold")
        sheet.text(right, detail_y, row.detail, 11, QUIET)
    return sheet.figure


def svg(figure: Figure) -> str:
    """A figure as SVG; the same figure gives the same text."""
    buffer = io.StringIO()
    # Neither a date nor random identifiers.
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "capspoe"}):
        figure.savefig(buffer, format="svg", metadata=no_metadata)
    return buffer.getvalue()


def write(figure: Figure, path: Path) -> None:
    """Write a figure as .png or .svg; the folder is created if needed."""
    if path.suffix == ".svg":
        write_atomic(path, svg(figure).encode())
        return
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    write_png(np.asarray(canvas.buffer_rgba())[..., :3], path)
