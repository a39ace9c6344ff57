"""Drawings and photographs of objects on a plain background, made to look like a network's own images.

Digits in MNIST are white on black, 20 of 28 pixels high or wide, with the centre of mass in the middle. A drawing is
not. The size is measured on the run's images, so this works for any grey data set of objects on a plain background.
The commands and the explorer read pictures in this way, and so see the same.
"""

import numpy as np
from jaxtyping import Float, Shaped
from PIL import Image, ImageOps

from capspoe.data.given import Framed
from capspoe.infer.polarity import Polarity

THRESHOLD = 0.2  # pixels above it, on a scale of full contrast, belong to the object
MNIST_SIZE = 20 / 28
CONTRAST = 0.1  # between object and background, at least
SIMILAR = 0.05  # largest difference between an image and its cleaned version that counts as none


def frame(
    grey: Float[np.ndarray, "h w"], shape: tuple[int, int], size: float, polarity: Polarity, fit: bool = True
) -> Framed:
    """A grey picture in [0, 1] with the size, place and polarity of a network's own objects.

    Parameters
    ----------
    grey : the picture, dark on light or light on dark
    shape : (H, W) of the network
    size : the longer side of its objects as a fraction of the image
    polarity : of the network
    fit : scale and centre the object; an image of the network's own kind stays as it is
    """
    own = polarity_of(grey)
    light = light_on_dark(grey)
    grey = own.ink(grey)
    exact = grey.shape == shape
    # An image of the data set itself has the right size and background already.
    original = exact and light is not None and np.allclose(light, np.where(grey < CONTRAST, 0, grey), atol=SIMILAR)
    fitted = False
    if fit and light is not None and not original:
        grey = reframe(light, shape, size)
        fitted = True
    elif not exact:
        height, width = shape
        small = ImageOps.fit(Image.fromarray(grey), (width, height), Image.Resampling.BILINEAR)
        grey = np.clip(np.asarray(small, np.float32), 0, 1)
    return Framed(polarity.ink(grey), own != polarity, light is None, fitted)


def polarity_of(grey: Float[np.ndarray, "h w"]) -> Polarity:
    """The polarity of one grey picture."""
    return Polarity.of_images(grey[None, ..., None])


def light_on_dark(grey: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"] | None:
    """The object in [0, 1] on a background of 0, whichever of the two was darker; None for a blank picture."""
    ink = polarity_of(grey).ink(grey)
    # An object seldom covers half of the frame's border.
    border = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
    background = float(np.median(border))
    light = np.clip(ink - background, 0, None)
    if light.max() < CONTRAST:
        return None
    light = light / light.max()
    return np.where(light < CONTRAST, 0, light)


def reframe(light: Float[np.ndarray, "h w"], shape: tuple[int, int], size: float) -> Float[np.ndarray, "H W"]:
    """Scale the object to its size, and put its centre of mass in the middle as far as it fits."""
    rows, columns = np.nonzero(light > THRESHOLD)
    cut = light[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    scale = size * max(shape) / max(cut.shape)
    inner = []
    for side, length in zip(shape, cut.shape, strict=True):
        inner.append(min(side, max(1, round(length * scale))))
    resample = Image.Resampling.BOX if scale < 1 else Image.Resampling.BILINEAR
    picture = Image.fromarray(cut.astype(np.float32))
    small = np.asarray(picture.resize((inner[1], inner[0]), resample))
    # Shrinking dims thin strokes: restore full contrast.
    small = np.clip(small / max(float(small.max()), 1e-6), 0, 1)
    slices = []
    for axis in (0, 1):
        mass = small.sum(1 - axis)
        centre = float((mass * (np.arange(inner[axis]) + 0.5)).sum() / max(mass.sum(), 1e-6))
        start = int(np.clip(round(shape[axis] / 2 - centre), 0, shape[axis] - inner[axis]))
        slices.append(slice(start, start + inner[axis]))
    canvas = np.zeros(shape, np.float32)
    canvas[tuple(slices)] = small
    return canvas


def object_size(images: Shaped[np.ndarray, "n H W C"]) -> float | None:
    """The longer side of an object as a fraction of the image, measured on images (n, H, W, C), uint8.

    None for images in colour or without a plain background: those are only resized.
    """
    if images.shape[-1] != 1:
        return None
    grey = Polarity.of_images(images).ink(images)[..., 0] / 255
    # A plain background is dark at the border, and covers at least a quarter of the image.
    edge = np.concatenate([grey[:, 0], grey[:, -1], grey[:, :, 0], grey[:, :, -1]], axis=1)
    if np.median(edge) > 0.1 or (grey < 0.1).mean() < 0.25:
        return None
    sides = []
    for image in grey:
        rows, columns = np.nonzero(image > THRESHOLD)
        if len(rows):
            sides.append(max(np.ptp(rows), np.ptp(columns)) + 1)
    if not sides:
        return None
    return float(np.median(sides)) / max(grey.shape[1:])
