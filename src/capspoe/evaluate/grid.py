"""How much of a grid images show: what is locked to the parity of their rows and columns.

Strided convolutions treat even and odd pixels differently, and a decoder of strided convolutions can leave a mesh on
everything it paints. Its power at a period of two pixels does not show it, since real images have more of that, with
any phase.
"""

import numpy as np
import torch
from torch.nn import functional as F

from capspoe.evaluate.features import as_tensor

INK = 0.5  # pixels above this count: a dark ground has no mesh
CHUNK = 2000


@torch.no_grad()
def grid(images: np.ndarray) -> float:
    """The strength of the grid in images (n, H, W, C), on the scale of the pixels.

    The mean of the 3x3 pixels around a pixel is subtracted from it, and the rest averaged over all pixels with ink,
    separately for the four parities of row and column. The largest difference of these four from their mean is
    returned; 0 if there is no ink.
    """
    sums = torch.zeros(2, 2, dtype=torch.float64)
    counts = torch.zeros(2, 2, dtype=torch.float64)
    for start in range(0, len(images), CHUNK):
        x = as_tensor(images[start : start + CHUNK]).mean(1, keepdim=True)
        rest = x - F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        ink = (x > INK).double()
        for row in (0, 1):
            for column in (0, 1):
                here = (..., slice(row, None, 2), slice(column, None, 2))
                sums[row, column] += (rest[here] * ink[here]).sum()
                counts[row, column] += ink[here].sum()
    if not counts.all():
        return 0.0
    means = sums / counts
    return float((means - means.mean()).abs().max())
