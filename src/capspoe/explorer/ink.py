"""Pictures from outside, brought to the form of the run's own images.

A network knows its digits as they are in MNIST: white on black, 20 pixels high or wide, the centre of mass in
the middle. What a person draws is none of that. How the run's own images are framed is measured on them, so
that the same holds for any grey data set of things on a dark ground.
"""

import binascii
import io
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from capspoe.errors import InputError
from capspoe.pictures import visible

MOST_PIXELS = 16_000_000  # of an image that is sent
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
SEEN = 0.2  # of full contrast, above which a pixel is ink


@dataclass(frozen=True)
class Framing:
    """`box`: how long the longer side of a thing is, as a share of the image; None for images that fill it."""

    box: float | None

    @classmethod
    def of(cls, images: np.ndarray) -> "Framing":
        """Measured on images (n, H, W, C), uint8."""
        n, height, width, colours = images.shape
        if colours != 1 or n == 0:
            return cls(None)
        grey = images[..., 0] / 255
        edge = np.concatenate([grey[:, 0], grey[:, -1], grey[:, :, 0], grey[:, :, -1]], axis=1)
        if np.median(edge) > 0.1 or (grey < 0.1).mean() < 0.25:
            return cls(None)
        sides = [max(extent(image)) for image in grey if (image > SEEN).any()]
        return cls(float(np.median(sides)) / max(height, width)) if sides else cls(None)


MNIST = Framing(20 / 28)


def extent(image: np.ndarray) -> tuple[int, int]:
    rows, columns = np.nonzero(image > SEEN)
    return int(np.ptp(rows)) + 1, int(np.ptp(columns)) + 1


def png(image: np.ndarray) -> bytes:
    """(H, W, C) in [0, 1], or uint8, as a PNG file."""
    image = visible(image)
    pixels = image if image.dtype == np.uint8 else (np.clip(image, 0, 1) * 255 + 0.5).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(
        buffer, "PNG", compress_level=1
    )
    return buffer.getvalue()


def data_url(image: np.ndarray) -> str:
    return "data:image/png;base64," + b64encode(png(image)).decode()


def opened(text: str) -> Image.Image:
    """A data URL, or bare base64, of an image file; decoded, upright."""
    encoded = text.split(",", 1)[1] if text.startswith("data:") and "," in text else text
    try:
        content = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("data is not a base64 data URL of an image") from None
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
        width, height = picture.size
        if width * height > MOST_PIXELS:
            raise InputError(f"the image has {width}x{height} pixels; at most {MOST_PIXELS:,} are read")
        picture.load()
        return in_bytes(ImageOps.exif_transpose(picture))
    except InputError:
        raise
    except Exception as error:  # a decoder raises whatever it likes on a damaged file
        raise InputError(f"data is not an image that can be read ({', '.join(FORMATS)})") from error


def in_bytes(picture: Image.Image) -> Image.Image:
    """Grey in 16 bits, which Pillow would cut off at 255, as grey in 8."""
    if not picture.mode.startswith("I"):
        return picture
    return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))


def from_data(text: str, shape: tuple[int, int, int], framing: Framing, fit: bool) -> np.ndarray:
    """An image file as the network takes it: (H, W, C) in [0, 1]."""
    height, width, colours = shape
    picture = flat(opened(text), framing.box is not None)
    exact = picture.size == (width, height)
    if colours != 1:
        picture = picture.convert("RGB")
        if not exact:
            picture = ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS)
        pixels = np.asarray(picture, np.float32) / 255
        return pixels if colours == 3 else np.repeat(pixels.mean(-1, keepdims=True), colours, axis=-1)
    grey = np.asarray(picture.convert("L"), np.float32) / 255
    if framing.box is None or not fit:
        if not exact:
            small = ImageOps.fit(Image.fromarray(grey), (width, height), Image.Resampling.BILINEAR)
            grey = np.clip(np.asarray(small, np.float32), 0, 1)
        return grey[..., None]
    ink = ink_of(grey)
    ready = exact and np.allclose(ink, np.where(grey < 0.1, 0, grey), atol=0.05)  # an image of the set itself
    return (grey if ready else framed(ink, (height, width), framing.box))[..., None]


def flat(picture: Image.Image, dark_ground: bool) -> Image.Image:
    """Without transparency: what is seen through goes to the side away from what is drawn."""
    if picture.mode == "P" or "transparency" in picture.info or picture.mode in ("LA", "RGBA", "PA"):
        picture = picture.convert("RGBA")
        pixels = np.asarray(picture, np.float32) / 255
        alpha = pixels[..., 3]
        bright = (pixels[..., :3].mean(-1) * alpha).sum() / max(alpha.sum(), 1e-6)
        ground = 0 if dark_ground and bright > 0.5 else 255
        under = Image.new("RGBA", picture.size, (ground, ground, ground, 255))
        return Image.alpha_composite(under, picture).convert("RGB")
    return picture if picture.mode in ("L", "RGB") else picture.convert("RGB")


def ink_of(grey: np.ndarray) -> np.ndarray:
    """Ink in [0, 1] on a ground of 0, from light on dark or dark on light."""
    edge = np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])
    ground = float(np.median(edge))
    ink = grey - ground if ground < 0.5 else ground - grey
    ink = np.clip(ink, 0, None)
    top = float(ink.max())
    if top < 0.1:
        raise InputError("the image is blank: nothing stands out from its ground")
    ink = ink / top
    return np.where(ink < 0.1, 0, ink)


def framed(ink: np.ndarray, size: tuple[int, int], box: float) -> np.ndarray:
    """The ink scaled into its box, with its centre of mass in the middle as far as it fits."""
    rows, columns = np.nonzero(ink > SEEN)
    cut = ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
    height, width = size
    scale = box * max(height, width) / max(cut.shape)
    h = min(height, max(1, round(cut.shape[0] * scale)))
    w = min(width, max(1, round(cut.shape[1] * scale)))
    resample = Image.Resampling.BOX if scale < 1 else Image.Resampling.BILINEAR
    small = np.asarray(Image.fromarray(cut.astype(np.float32)).resize((w, h), resample), np.float32)
    small = np.clip(small / max(float(small.max()), 1e-6), 0, 1)
    mass = max(float(small.sum()), 1e-6)
    centre_y = float((small.sum(1) * (np.arange(h) + 0.5)).sum()) / mass
    centre_x = float((small.sum(0) * (np.arange(w) + 0.5)).sum()) / mass
    top = int(np.clip(round(height / 2 - centre_y), 0, height - h))
    left = int(np.clip(round(width / 2 - centre_x), 0, width - w))
    canvas = np.zeros((height, width), np.float32)
    canvas[top : top + h, left : left + w] = small
    return canvas


def from_pixels(pixels: Any, shape: tuple[int, int, int]) -> np.ndarray:
    """Nested lists of numbers in [0, 1]: (H, W) or (H, W, C)."""
    try:
        array = np.array(pixels, np.float32)
    except (ValueError, TypeError, OverflowError):
        raise InputError("pixels must be rows of equal length, of numbers from 0 to 1") from None
    if array.ndim == 2:
        array = array[..., None]
    if array.shape != shape:
        raise InputError(f"pixels must have shape {shape}, not {array.shape}")
    if not ((array >= 0) & (array <= 1)).all():
        raise InputError("pixels must be between 0 and 1")
    return array
