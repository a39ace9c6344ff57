"""Where the object is in an image with a plain background."""

import numpy as np
from jaxtyping import Float, UInt8

from capspoe.training.views.hog import small_images
from capspoe.training.views.upright import background

FULL_INK = 32  # grey levels of difference from the background from which on a pixel is wholly of the object


def silhouette(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n V"]:
    """How much of each pixel is of the object and not of the background, from 0 to 1, whatever is drawn inside."""
    images = small_images(pixels)
    ink = (images - background(images)).abs().amax(1)
    return (ink / FULL_INK).clamp(0, 1).flatten(1).numpy()
