"""Images with words beside them, as one PNG: every image pixel becomes a whole number of picture pixels."""

from pathlib import Path
from typing import Any

import numpy as np

from capspoe.pictures import visible, write_picture

INK, QUIET, ACCENT = "#17202b", "#566373", "#b8430a"
_DPI = 100


class Sheet:
    """White paper of width x height pixels. Positions are pixels from the upper left corner."""

    def __init__(self, width: int, height: int) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.width, self.height = int(width), int(height)
        self.panels: list[tuple[int, int, np.ndarray]] = []  # drawn last, exactly, over the words
        self.figure = Figure(figsize=(self.width / _DPI, self.height / _DPI), dpi=_DPI, facecolor="white")
        self.canvas = FigureCanvasAgg(self.figure)
        self.axes = self.figure.add_axes((0, 0, 1, 1), xlim=(0, self.width), ylim=(self.height, 0))
        self.axes.axis("off")

    def image(self, x: int, y: int, image: np.ndarray, scale: int = 2) -> None:
        """An image (H, W, C) or (H, W) in [0, 1]."""
        image = visible(image if image.ndim == 3 else image[..., None])
        colours = np.broadcast_to(image, (*image.shape[:2], 3)) if image.shape[-1] == 1 else image
        pixels = (np.clip(colours, 0, 1) * 255 + 0.5).astype(np.uint8)
        self.panels.append((int(x), int(y), pixels.repeat(scale, 0).repeat(scale, 1)))

    def text(
        self, x: float, y: float, words: str, size: float = 12, colour: str = INK, **options: Any
    ) -> None:
        """Words whose size is in pixels; x and y are their left middle unless `options` say otherwise."""
        options = {"ha": "left", "va": "center", **options}
        self.axes.text(x, y, words, fontsize=size * 72 / _DPI, color=colour, **options)

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        from matplotlib.patches import Rectangle

        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, linewidth=0))

    def render(self) -> np.ndarray:
        """uint8 (height, width, 3)."""
        self.canvas.draw()
        picture = np.asarray(self.canvas.buffer_rgba())[..., :3].copy()
        for x, y, pixels in self.panels:
            picture[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
        return picture

    def write(self, path: Path) -> None:
        write_picture(self.render(), path)
