"""Which colours an image has."""

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch.nn import functional as F

from capspoe.training.views.hog import small_images

LEVELS = 4  # of each of red, green and blue
PARTS = 4  # along each side, of the layout
GREY = 32  # difference of the channels up to which a pixel looks grey


def colour_histogram(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n V"]:
    """The square root of the share of pixels in each of 64 colours, so that distances are Hellinger's."""
    images = small_images(pixels).expand(-1, 3, -1, -1)
    level = (images * (LEVELS / 256)).long().clamp(0, LEVELS - 1)
    colour = (level[:, 0] * LEVELS + level[:, 1]) * LEVELS + level[:, 2]
    n = len(colour)
    count = torch.zeros(n, LEVELS**3)
    count.scatter_add_(1, colour.view(n, -1), torch.ones(n, colour[0].numel()))
    return (count / colour[0].numel()).sqrt().numpy()


def colour_layout(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n V"]:
    """Mean brightness and colour (red against green, yellow against blue) in each of 4x4 parts of the image."""
    images = small_images(pixels).expand(-1, 3, -1, -1) / 255
    red, green, blue = images.unbind(1)
    opponent = torch.stack([(red + green + blue) / 3, red - green, (red + green) / 2 - blue], 1)
    return F.adaptive_avg_pool2d(opponent, PARTS).flatten(1).numpy()


def colourfulness(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, " n"]:
    """The share of each image's pixels that are clearly not grey."""
    if pixels.shape[-1] == 1:
        return np.zeros(len(pixels))
    spread = pixels.max(-1).astype(np.int16) - pixels.min(-1)
    return (spread > GREY).mean((1, 2))
