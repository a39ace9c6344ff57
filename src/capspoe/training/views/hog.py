"""Histograms of oriented gradients (Dalal and Triggs 2005): outlines, whatever the brightness and small shifts."""

import math

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from capspoe.training.views.upright import upright

ORIENTATIONS = 9  # of lines: a gradient and its opposite are the same
CELLS = 7  # along the longer side; windows are two cells wide and overlap by one: 8x8 pixels of 28x28
SIDE = 28  # pixels of the longer side; images at least twice as large are reduced


def hog(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n V"]:
    """Histograms of oriented gradients of images of any size, grey or in colour."""
    return histograms(small_images(pixels)).numpy()


def upright_hog(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n V"]:
    """The same of images with the object centred and its slant removed."""
    return histograms(upright(small_images(pixels))).numpy()


def small_images(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[Tensor, "n C h w"]:
    """The images as float32, reduced by averaging so that the longer side has less than twice SIDE pixels."""
    images = torch.from_numpy(np.ascontiguousarray(pixels)).permute(0, 3, 1, 2).float()
    height, width = images.shape[2:]
    factor = max(1, max(height, width) // SIDE)
    window = (min(factor, height), min(factor, width))
    return F.avg_pool2d(images, window)


def histograms(images: Float[Tensor, "n C H W"]) -> Float[Tensor, "n V"]:
    """The square root of the histograms of overlapping windows, scaled to unit length as a whole."""
    strength, orientation = gradients(images)
    n, height, width = strength.shape

    # A gradient between two orientations counts for both, in proportion.
    lower = orientation.floor()
    part_of_upper = orientation - lower
    bins = torch.zeros(n, ORIENTATIONS, height, width)
    lower_bin = lower.long()[:, None] % ORIENTATIONS
    bins.scatter_(1, lower_bin, (strength * (1 - part_of_upper))[:, None])
    bins.scatter_(1, (lower_bin + 1) % ORIENTATIONS, (strength * part_of_upper)[:, None])

    cell = max(2, max(height, width) // CELLS)
    window = (min(2 * cell, height), min(2 * cell, width))
    histogram = F.avg_pool2d(bins, window, cell, ceil_mode=True).flatten(1).sqrt()
    return F.normalize(histogram)


def gradients(images: Float[Tensor, "n C H W"]) -> tuple[Float[Tensor, "n H W"], Float[Tensor, "n H W"]]:
    """The strength and the orientation, from 0 to ORIENTATIONS, of each pixel's gradient in its strongest channel."""
    padded = F.pad(images, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    square = across.square() + down.square()
    strongest = square.argmax(1, keepdim=True)
    strength = square.gather(1, strongest)[:, 0].sqrt()
    angle = torch.atan2(down.gather(1, strongest), across.gather(1, strongest))[:, 0]
    return strength, angle / math.pi % 1 * ORIENTATIONS
