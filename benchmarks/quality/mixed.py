"""A folder of 1,000 mixed pictures of 30 kinds, for `benchmarks.quality.sorting`."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageFont
from sklearn.datasets import load_sample_images

from benchmarks.quality.emoji import read_package
from capspoe import data

CATEGORIES = ("Smileys & Emotion", "Animals & Nature", "Food & Drink", "Flags", "Objects")  # of emoji, 50 each
LETTERS = "AEGKMQRS"  # in 20 fonts each
DIGITS = 5  # 0 to 4, 30 each; all ten classes of CIFAR-10 have 35 images, the two photographs 45 crops
FONTS = ("DejaVuSans*.ttf", "DejaVuSerif*.ttf", "STIXGeneral*.ttf", "cm[brst][0-9sti]*.ttf")
TWICE = 40
BROKEN = 5
CROPPED = (4000, 3000)


def write_mixed(folder: Path, package: Path) -> None:
    """Write the pictures in sub-folders, with their kind in the names: "flags & more/000123-3.png".

    Parameters
    ----------
    folder : to write to
    package : of emoji
    """
    rng = np.random.default_rng(0)
    names = []
    for number, (where, picture, kind) in enumerate(pictures(package, rng)):
        extension = "jpg" if picture.size == CROPPED else "png"
        name = f"{where}/{number:06d}-{kind}.{extension}"
        (folder / where).mkdir(parents=True, exist_ok=True)
        picture.save(folder / name, quality=90)
        names.append(name)
    (folder / "copies").mkdir()
    for name in rng.choice(names, TWICE, replace=False).tolist():
        shutil.copy(folder / name, folder / "copies" / Path(name).name)
    (folder / "brökn #1%").mkdir()
    whole = (folder / names[-1]).read_bytes()
    for number in range(BROKEN):
        (folder / "brökn #1%" / f"{number}.jpg").write_bytes(whole[: len(whole) * number // BROKEN])


def pictures(package: Path, rng: np.random.Generator) -> Iterator[tuple[str, Image.Image, int]]:
    """The folder of each picture, the picture, and the number of its kind."""
    kind = 0
    images, categories = read_package(package)
    for category in CATEGORIES:
        rows = [row for row, name in enumerate(categories) if name == category]
        for row in rng.choice(rows, 50, replace=False).tolist():
            yield f"emoji, {category}", images[row], kind
        kind += 1
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = sorted({path for pattern in FONTS for path in folder.glob(pattern) if "Display" not in path.name})[:20]
    for letter in LETTERS:
        for font in fonts:
            yield "letters", drawn(letter, font), kind
        kind += 1
    for name, classes, each in (("cifar10", 10, 35), ("mnist", DIGITS, 30)):
        pixels, labels = data.load(name, "test")
        for label in range(classes):
            for row in np.flatnonzero(labels == label)[:each].tolist():
                yield name, Image.fromarray(pixels[row].squeeze()), kind
            kind += 1
    for pixels in load_sample_images().images:
        for _ in range(45):
            yield "photographs (12 MP)", large_crop(Image.fromarray(pixels), rng), kind
        kind += 1


def drawn(letter: str, font: Path) -> Image.Image:
    """A dark letter on white."""
    mask = ImageFont.truetype(str(font), 90).getmask(letter)
    glyph = Image.frombytes("L", mask.size, bytes(mask))
    picture = Image.new("L", (128, 128))
    picture.paste(glyph, ((128 - glyph.width) // 2, (128 - glyph.height) // 2))
    return Image.eval(picture, lambda value: 255 - value)


def large_crop(picture: Image.Image, rng: np.random.Generator) -> Image.Image:
    """A random part of a picture, enlarged to 12 megapixels."""
    share = rng.uniform(0.5, 0.9)
    width, height = (int(share * side) for side in picture.size)
    left = int(rng.integers(picture.width - width))
    top = int(rng.integers(picture.height - height))
    crop = picture.crop((left, top, left + width, top + height))
    return crop.resize(CROPPED, Image.Resampling.BICUBIC)
