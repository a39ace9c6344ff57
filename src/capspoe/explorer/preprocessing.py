"""Image files that the page sends, as the network expects them."""

import io
from base64 import b64decode

import numpy as np
from PIL import Image, ImageOps

from capspoe.data.drawings import frame
from capspoe.errors import InputError
from capspoe.infer.polarity import Polarity

MAX_PIXELS = 16_000_000  # of an uploaded image
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP")


def from_data_url(
    text: str, shape: tuple[int, int, int], size: float | None, fit: bool, polarity: Polarity
) -> np.ndarray:
    """An image file as the network expects it, (H, W, C) in [0, 1].

    `size` is the run's `object_size`, to which `fit` scales and centres the object; `polarity` is the network's.
    """
    height, width, colours = shape
    picture = flatten(open_picture(text), size is not None)
    if colours == 1 and size is not None:
        grey = np.asarray(picture.convert("L"), np.float32) / 255
        framed = frame(grey, (height, width), size, polarity, fit)
        if framed.blank:
            raise InputError("the image is blank: nothing stands out from its background")
        return framed.pixels[..., None]
    picture = picture.convert("L" if colours == 1 else "RGB")
    if picture.size != (width, height):
        method = Image.Resampling.BILINEAR if colours == 1 else Image.Resampling.LANCZOS
        picture = ImageOps.fit(picture, (width, height), method)
    pixels = np.asarray(picture, np.float32).reshape(height, width, -1) / 255
    if colours in (1, 3):
        return pixels
    return np.repeat(pixels.mean(-1, keepdims=True), colours, axis=-1)


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
