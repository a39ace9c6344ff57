"""Images with the object centred and its slant removed, by the moments of its ink."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

MOST_SLANT = 1.0  # pixels to the side for each pixel down


def upright(images: Float[Tensor, "n C H W"]) -> Float[Tensor, "n C H W"]:
    """Centre each object and remove its slant; the background becomes 0.

    Ink is what differs from the background, whether lighter or darker. Its centre moves to the middle of the image,
    and a shear makes its horizontal and vertical position uncorrelated, so that strokes stand upright.
    """
    images = images - background(images)
    ink = images.abs().amax(1)
    n, height, width = ink.shape
    x = torch.arange(width) - (width - 1) / 2
    y = torch.arange(height) - (height - 1) / 2
    weight = ink / ink.sum((1, 2), keepdim=True).clamp_min(1e-6)
    centre_x = weight.sum(1) @ x
    centre_y = weight.sum(2) @ y
    from_x = x - centre_x[:, None]
    from_y = y - centre_y[:, None]
    covariance = torch.einsum("nhw,nh,nw->n", weight, from_y, from_x)
    variance = torch.einsum("nhw,nh->n", weight, from_y.square())
    slant = (covariance / variance.clamp_min(1e-6)).clamp(-MOST_SLANT, MOST_SLANT)

    # Where each pixel of the result is taken from, in the coordinates of grid_sample: the image is from -1 to 1.
    source_x = x + (centre_x[:, None] + slant[:, None] * y)[:, :, None]
    source_y = (y + centre_y[:, None])[:, :, None].expand(n, height, width)
    source = torch.stack([2 * source_x / width, 2 * source_y / height], 3)
    return F.grid_sample(images, source, align_corners=False)


def background(images: Float[Tensor, "n C H W"]) -> Float[Tensor, "n C 1 1"]:
    """The median of the pixels along the border of each image."""
    return border(images).median(2).values[:, :, None, None]


def border_ink(images: Float[Tensor, "n C H W"]) -> Float[Tensor, " n"]:
    """The mean ink along the border over the mean ink of the image: 0 on an empty background."""
    ink = (images - background(images)).abs().amax(1, keepdim=True)
    return border(ink).mean((1, 2)) / ink.mean((1, 2, 3)).clamp_min(1e-6)


def border(images: Float[Tensor, "n C H W"]) -> Float[Tensor, "n C b"]:
    """The pixels along the border; corners twice."""
    top_and_bottom = images[:, :, [0, -1]].flatten(2)
    left_and_right = images[:, :, :, [0, -1]].flatten(2)
    return torch.cat([top_and_bottom, left_and_right], 2)
