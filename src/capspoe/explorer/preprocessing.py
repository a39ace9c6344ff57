"""Drawings and photographs, made to look like the run's own images.

Digits in MNIST are white on black, 20 of 28 pixels high or wide, with the centre of mass in the
middle. A drawing is not. The size is measured on the run's images, so this works for any grey
data set of objects on a plain background.
"""

import io
from base64 import b64decode

import numpy as np
from PIL import Image, ImageOps

from capspoe.errors import InputError
from capspoe.figures.summary import THRESHOLD
from capspoe.infer.polarity import Polarity

MAX_PIXELS = 16_000_000  # of an uploaded image
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
MNIST_SIZE = 20 / 28


def from_data_url(
    text: str, shape: tuple[int, int, int], size: float | None, fit: bool, polarity: Polarity
) -> np.ndarray:
    """An image file as the network expects it, (H, W, C) in [0, 1].

    `size` is the run's `object_size`, to which `fit` scales and centres the object; `polarity` is the network's.
    """
    height, width, colours = shape
    picture = flatten(open_picture(text), size is not None)
    exact = picture.size == (width, height)
    if colours != 1:
        picture = picture.convert("RGB")
        if not exact:
            picture = ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS)
        pixels = np.asarray(picture, np.float32) / 255
        if colours == 3:
            return pixels
        return np.repeat(pixels.mean(-1, keepdims=True), colours, axis=-1)
    grey = np.asarray(picture.convert("L"), np.float32) / 255
    if size is not None:
        light = light_on_dark(grey)  # refuses a blank image
        grey = polarity_of(grey).ink(grey)
        # An image of the data set itself has the right size and background already.
        original = exact and np.allclose(light, np.where(grey < 0.1, 0, grey), atol=0.05)
        if fit and not original:
            grey = reframe(light, (height, width), size)
            exact = True
    if not exact:
        small = ImageOps.fit(Image.fromarray(grey), (width, height), Image.Resampling.BILINEAR)
        grey = np.clip(np.asarray(small, np.float32), 0, 1)
    if size is not None:
        grey = polarity.ink(grey)
    return grey[..., None]


def open_picture(text: str) -> Image.Image:
    """Decode a data URL, or bare base64, of an image file, and turn the image upright."""
    try:
        content = io.BytesIO(b64decode(text.rpartition(",")[2], validate=True))
        picture: Image.Image = Image.open(content, formats=FORMATS)
        width, height = picture.size
        if width * height > MAX_PIXELS:
            raise InputError(f"the image has {width}x{height} pixels; the limit is {MAX_PIXELS:,}")
        picture.load()
        picture = ImageOps.exif_transpose(picture)
    except InputError:
        raise
    except Exception as error:  # decoders raise all kinds of errors on damaged files
        raise InputError(f"data is not a readable image ({', '.join(FORMATS)}) in base64") from error
    if picture.mode.startswith("I"):  # 16 bits, which Pillow would clip at 255
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    return picture


def flatten(picture: Image.Image, dark_background: bool) -> Image.Image:
    """Replace transparency with a background that contrasts with the drawing."""
    if "transparency" not in picture.info and picture.mode not in ("P", "LA", "RGBA", "PA"):
        if picture.mode in ("L", "RGB"):
            return picture
        return picture.convert("RGB")
    picture = picture.convert("RGBA")
    pixels = np.asarray(picture, np.float32) / 255
    alpha = pixels[..., 3]
    brightness = (pixels[..., :3].mean(-1) * alpha).sum() / max(alpha.sum(), 1e-6)
    colour = "black" if dark_background and brightness > 0.5 else "white"
    background = Image.new("RGBA", picture.size, colour)
    return Image.alpha_composite(background, picture).convert("RGB")


def polarity_of(grey: np.ndarray) -> Polarity:
    """The polarity of one grey picture (H, W)."""
    return Polarity.of_images(grey[None, ..., None])


def light_on_dark(grey: np.ndarray) -> np.ndarray:
    """The object in [0, 1] on a background of 0, whichever of the two was darker."""
    ink = polarity_of(grey).ink(grey)
    # An object seldom covers half of the frame's border.
    border = np.concatenate([ink[0], ink[-1], ink[:, 0], ink[:, -1]])
    background = float(np.median(border))
    light = np.clip(ink - background, 0, None)
    if light.max() < 0.1:
        raise InputError("the image is blank: nothing stands out from its background")
    light = light / light.max()
    return np.where(light < 0.1, 0, light)


def reframe(light: np.ndarray, shape: tuple[int, int], size: float) -> np.ndarray:
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
