"""A folder of drawings that fall into three groups."""

import numpy as np
from PIL import Image


def write_squares(folder):
    """Sixty dark squares of three sizes on white: "square 0.png" and so on."""
    rng = np.random.default_rng(0)
    for k in range(60):
        side = (6, 14, 26)[k % 3]
        pixels = np.full((40, 40), 255, np.uint8)
        top, left = rng.integers(2, 38 - side, 2)
        pixels[top : top + side, left : left + side] = rng.integers(0, 80)
        Image.fromarray(pixels).save(folder / f"square {k}.png")
