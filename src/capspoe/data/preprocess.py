"""Size, crop, colour and pixel values: the same rules for image files and arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from capspoe.errors import DataError, InputError

Size = int | tuple[int, int] | None
MAX_SIDE = 4096
NEARLY_WHITE = 240  # mean of the darkest channel over what is visible
DARK_GREY = (64, 64, 64)


@dataclass(frozen=True)
class Prepare:
    """Convert the colour, resize to `size` (keep the aspect, cut off the excess), then crop the centre."""

    size: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    colour: str | None = None

    @classmethod
    def of(cls, size: Size = None, crop: Size = None, colour: str | None = None) -> "Prepare":
        """Check a user's settings; one number means a square."""
        if colour not in (None, "grey", "rgb"):
            raise InputError(f"colour is {colour!r}; choose grey, rgb or None, which keeps it")
        return cls(_pair(size, "size"), _pair(crop, "crop"), colour)

    def shape(self, height: int, width: int, channels: int) -> tuple[int, int, int]:
        """Return what images of this shape become."""
        height, width = self.size or (height, width)
        if self.crop and (self.crop[0] > height or self.crop[1] > width):
            crop = f"{self.crop[0]}x{self.crop[1]}"
            images = f"the images ({height}x{width})"
            raise InputError(f"crop {crop} is larger than {images}; use a larger size")
        if self.colour and channels not in (1, 3, 4):
            images = f"images with {channels} channels"
            raise InputError(f"{images} cannot be made {self.colour}; only 1, 3 or 4 can")
        if self.colour == "grey":
            channels = 1
        elif self.colour == "rgb" or channels == 4:  # alpha is blended with a background
            channels = 3
        return *(self.crop or (height, width)), channels

    def batch(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Preprocess images (n, H, W, C); four channels are red, green, blue and alpha."""
        channels = pixels.shape[-1]
        resize = self.size is not None and pixels.shape[1:3] != self.size
        recolour = channels == 4
        if self.colour is not None:
            recolour = recolour or self.shape(*pixels.shape[1:])[2] != channels
        if not resize and not recolour:
            return np.ascontiguousarray(self._crop(pixels))
        if channels in (1, 3, 4):
            images = pixels[..., 0] if channels == 1 else pixels  # as Pillow wants grey images
            pictures = (Image.fromarray(np.ascontiguousarray(image)) for image in images)
            return np.stack([self.picture(picture) for picture in pictures])
        # Pillow knows no other number of channels, so each is resized as a grey image.
        planes = [Prepare(self.size, self.crop).batch(pixels[..., k : k + 1]) for k in range(channels)]
        return np.concatenate(planes, axis=-1)

    def picture(self, picture: Image.Image) -> NDArray[np.uint8]:
        """Preprocess a Pillow image of mode L, RGB or RGBA to (H, W, C)."""
        if picture.mode == "RGBA":
            picture = over_background(picture)
        if self.colour:
            mode = "L" if self.colour == "grey" else "RGB"
            picture = picture.convert(mode)
        if self.size and picture.size != self.size[::-1]:
            picture = ImageOps.fit(picture, self.size[::-1], method=Image.Resampling.BICUBIC)
        return self._crop(np.asarray(picture).reshape(1, picture.height, picture.width, -1))[0]

    def _crop(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        height, width = self.crop or pixels.shape[1:3]
        top = (pixels.shape[1] - height) // 2
        left = (pixels.shape[2] - width) // 2
        return pixels[:, top : top + height, left : left + width]


def over_background(picture: Image.Image) -> Image.Image:
    """Blend a transparent image with white, or with dark grey if what is visible is nearly white."""
    picture = picture.convert("RGBA")
    background = Image.new("RGBA", picture.size, "white")
    blended = Image.alpha_composite(background, picture).convert("RGB")
    # A white icon on white would vanish.
    small = np.asarray(picture.reduce(max(1, max(picture.size) // 64)), np.float32)
    opacity = small[..., 3].sum()
    light = (small[..., :3].min(-1) * small[..., 3]).sum()
    if light > NEARLY_WHITE * max(opacity, 1):
        background = Image.new("RGBA", picture.size, DARK_GREY)
        return Image.alpha_composite(background, picture).convert("RGB")
    return blended


def pixel_scale(values: NDArray[Any], name: str) -> int:
    """Return the factor to the range 0..255: 255 for bool and floats in [0, 1], else 1.

    Values outside of both ranges are an error; nothing is clipped.
    """
    kind = values.dtype.kind
    if kind == "b":
        return 255
    if kind not in "uif":
        raise DataError(f"{name}: values of type {values.dtype} are not pixels; use uint8 or floats")
    # A sample usually shows that bytes are not just 0 and 1, without reading a whole memory map.
    if values.dtype == np.uint8 and (values[:: max(1, len(values) // 256)] > 1).any():
        return 1
    low = float(values.min())
    high = float(values.max())
    if not np.isfinite([low, high]).all():
        raise DataError(f"{name}: some values are not finite (NaN or infinity)")
    if low < 0 or high > 255:
        allowed = "[0, 1] or [0, 255]" if kind == "f" else "0 to 255"
        raise DataError(f"{name}: values from {low:g} to {high:g}; pixels must be in {allowed}")
    if kind != "f" and high == 1:
        raise DataError(f"{name}: integers that are only 0 and 1; save black and white images as bool")
    if kind == "f" and high <= 1:
        return 255
    return 1


def as_uint8(values: NDArray[Any], scale: int) -> NDArray[np.uint8]:
    """Convert pixel values, given their scale."""
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        return np.rint(values.astype(np.float32, copy=False) * np.float32(scale)).astype(np.uint8)
    return values.astype(np.uint8) * np.uint8(scale)


def _pair(value: Size, name: str) -> tuple[int, int] | None:
    if value is None:
        return None
    sides = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(sides) != 2 or not all(_is_side(side) for side in sides):
        allowed = f"1 to {MAX_SIDE} pixels: one number, or height and width"
        raise InputError(f"{name} is {value!r}; give {allowed}")
    return int(sides[0]), int(sides[1])


def _is_side(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return bool(whole and 1 <= value <= MAX_SIDE)
