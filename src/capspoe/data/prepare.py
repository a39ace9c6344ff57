"""Size, crop and colour: the same rules for a picture from a file and for an array of images."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from capspoe.errors import InputError

LARGEST_SIDE = 4096
WHITE = 255


@dataclass(frozen=True)
class Prepare:
    """First the colour, then `size` (resized with the aspect kept, what sticks out cut), then `crop`."""

    size: tuple[int, int] | None = None
    crop: tuple[int, int] | None = None
    colour: str | None = None

    @classmethod
    def of(
        cls, size: int | tuple[int, int] | None, crop: int | tuple[int, int] | None, colour: str | None
    ) -> "Prepare":
        """From what the caller gave, checked."""
        if colour not in (None, "grey", "rgb"):
            raise InputError(f"colour is {colour!r}; it is grey, rgb or None, which keeps what is there")
        return cls(_pair(size, "size"), _pair(crop, "crop"), colour)

    def shape(self, height: int, width: int, channels: int) -> tuple[int, int, int]:
        """What images of this height, width and number of channels become."""
        height, width = self.size or (height, width)
        if self.crop and (self.crop[0] > height or self.crop[1] > width):
            raise InputError(
                f"crop {self.crop[0]}x{self.crop[1]} is larger than the images ({height}x{width}); "
                "give a smaller crop or a larger size"
            )
        height, width = self.crop or (height, width)
        if self.colour and channels not in (1, 3, 4):
            raise InputError(
                f"images of {channels} channels have no colour to be made {self.colour}; those of 1, 3 or 4 have"
            )
        if self.colour:
            channels = 1 if self.colour == "grey" else 3
        return height, width, 3 if channels == 4 else channels

    def batch(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Images (n, H, W, C), prepared; four channels are red, green, blue and alpha."""
        if pixels.shape[-1] == 4:
            pixels = _over_white(pixels)
        if self.colour == "grey" and pixels.shape[-1] == 3:
            pixels = _grey(pixels)
        if self.size and pixels.shape[1:3] != self.size:
            pixels = np.stack([_resized(image, self.size) for image in pixels])
        if self.crop:
            pixels = _centre(pixels, self.crop)
        if self.colour == "rgb" and pixels.shape[-1] == 1:
            pixels = np.repeat(pixels, 3, axis=-1)
        return np.ascontiguousarray(pixels)

    def picture(self, picture: Image.Image) -> NDArray[np.uint8]:
        """One picture of mode L or RGB as (H, W, C), prepared; size and colour must be set."""
        picture = picture.convert("L" if self.colour == "grey" else "RGB")
        if self.size and picture.size != self.size[::-1]:
            picture = _fit(picture, self.size)
        pixels = np.asarray(picture).reshape(1, picture.height, picture.width, -1)
        return (_centre(pixels, self.crop) if self.crop else pixels)[0]


def _pair(value: int | tuple[int, int] | None, name: str) -> tuple[int, int] | None:
    if value is None:
        return None
    sides = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    for side in sides:
        if isinstance(side, bool) or not isinstance(side, (int, np.integer)) or not 1 <= side <= LARGEST_SIDE:
            raise InputError(
                f"{name} is {value!r}; it is a number of pixels from 1 to {LARGEST_SIDE}, or two"
            )
    if len(sides) != 2:
        raise InputError(f"{name} is {value!r}; it is one number, or a height and a width")
    return int(sides[0]), int(sides[1])


def _fit(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    return ImageOps.fit(picture, size[::-1], method=Image.Resampling.BICUBIC)


def _resized(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    if image.shape[-1] != 3:
        planes = [Image.fromarray(np.ascontiguousarray(plane)) for plane in np.moveaxis(image, -1, 0)]
        return np.stack([np.asarray(_fit(plane, size)) for plane in planes], axis=-1)
    return np.asarray(_fit(Image.fromarray(np.ascontiguousarray(image)), size))


def _centre(pixels: NDArray[np.uint8], crop: tuple[int, int]) -> NDArray[np.uint8]:
    top, left = (pixels.shape[1] - crop[0]) // 2, (pixels.shape[2] - crop[1]) // 2
    return pixels[:, top : top + crop[0], left : left + crop[1]]


def _grey(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Luma by ITU-R 601 in Pillow's own fixed-point arithmetic, so that arrays and files agree."""
    red, green, blue = (pixels[..., k].astype(np.uint32) for k in range(3))
    luma = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16
    return luma.astype(np.uint8)[..., None]


def _over_white(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    alpha = pixels[..., 3:].astype(np.uint32)
    mixed = pixels[..., :3] * alpha + WHITE * (255 - alpha)
    return ((mixed + 127) // 255).astype(np.uint8)
