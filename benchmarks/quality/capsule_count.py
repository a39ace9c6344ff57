"""How many capsules `--layers autox16` takes, and how pure that many groups are: python benchmarks/capsule_count.py

For MNIST, Fashion-MNIST, scikit-learn's digits, and two sets made here: the 26 capitals in eight fonts that come with
matplotlib, and eight shapes, turned, slanted and moved at random. The number is that of `count_groups`, by three
seeds. The purity is that of spectral groups of up to 5,000 images, for the number found, the number of classes
and the default 20. Nothing is trained, and the labels serve the purity only. Saves every
row in benchmarks/records/capsule_count.json, and makes it only once.
"""

import json
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from capspoe import __version__, data
from capspoe.evaluate.clustering import clustering_scores
from capspoe.train.spectral import COUNT_IMAGES, count_groups, spectral_groups

RECORD = Path(__file__).parent / "records" / "capsule_count.json"
FONTS = ["Sans", "Sans-Bold", "Sans-Oblique", "SansMono", "SansMono-Bold", "Serif", "Serif-Bold", "Serif-Italic"]


def letters(count: int, seed: int = 0) -> data.Images:
    rng = np.random.default_rng(seed)
    labels, pixels = np.arange(count) % 26, np.empty((count, 28, 28, 1), np.uint8)
    for k, label in enumerate(labels):
        path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"DejaVu{FONTS[rng.integers(len(FONTS))]}.ttf"
        image = Image.new("L", (56, 56))
        font = ImageFont.truetype(str(path), int(rng.integers(17, 24)))
        ImageDraw.Draw(image).text((28, 28), chr(ord("A") + label), 255, font, anchor="mm")
        turned, (x, y) = image.rotate(rng.normal(0, 6), Image.Resampling.BICUBIC), 14 + rng.normal(0, 1, 2)
        slanted = (1, rng.normal(0, 0.1), x, 0, 1, y)
        pixels[k, :, :, 0] = turned.transform((28, 28), Image.Transform.AFFINE, slanted, Image.Resampling.BICUBIC)
    return data.Images(pixels, labels)


def shapes(count: int, seed: int = 0) -> data.Images:
    rng = np.random.default_rng(seed)
    labels, pixels = np.arange(count) % 8, np.empty((count, 28, 28, 1), np.uint8)
    for k, label in enumerate(labels):
        image = Image.new("L", (112, 112))
        draw, r, width = ImageDraw.Draw(image), rng.uniform(28, 44), int(rng.uniform(6, 14))
        left, right, box = 56 - r, 56 + r, (56 - r, 56 - r, 56 + r, 56 + r)
        if label in (0, 1):  # a ring, an arc
            draw.arc(box, 60 * label, 360 - 60 * label, 255, width)
        elif label == 2:
            draw.ellipse(box, 255)
        lines = {
            3: [(left, 56), (right, 56), (56, 56), (56, left), (56, right)],
            4: [(left, left), (right, right), (56, 56), (left, right), (right, left)],
            5: [(left, right), (56, left), (right, right), (left, right)],
            6: [(left, left), (right, left), (right, right), (left, right), (left, left)],
            7: [(left, right), (56, left), (right, right)],
        }
        if label in lines:
            draw.line(lines[label], 255, width, joint="curve")
        turned, (x, y) = image.rotate(rng.normal(0, 6), Image.Resampling.BICUBIC), rng.normal(0, 4, 2)
        moved = turned.transform((112, 112), Image.Transform.AFFINE, (1, rng.normal(0, 0.05), x, 0, 1, y))
        pixels[k, :, :, 0] = moved.resize((28, 28), Image.Resampling.BOX)
    return data.Images(pixels, labels)


def purity(images: data.Images, groups: int) -> float | None:
    found = spectral_groups(images.pixels, groups)
    return (
        None
        if found is None
        else round(clustering_scores(found, images.labels, groups, classes(images))["purity"], 3)
    )


def classes(images: data.Images) -> int:
    return int(images.labels.max()) + 1


def main() -> None:
    rows = json.loads(RECORD.read_text()) if RECORD.exists() else []
    made = {"letters": letters, "shapes": shapes}
    for name in ("mnist", "fashion-mnist", "digits", "letters", "shapes"):
        if any(row["data"] == name for row in rows):
            continue
        whole = made[name](5200) if name in made else data.load(name, "train")
        few = np.linspace(0, len(whole.pixels) - 1, min(COUNT_IMAGES, len(whole.pixels))).astype(int)
        images = data.Images(whole.pixels[few], whole.labels[few])
        found = [count_groups(whole.pixels, seed=seed) for seed in range(3)]
        row = {"data": name, "images": len(few), "classes": classes(images), "found": found}
        row["purity"] = {str(number): purity(images, number) for number in sorted({found[0], classes(images), 20})}
        rows.append(row | {"capspoe": __version__})
        print(json.dumps(rows[-1]), flush=True)
        RECORD.write_text("[\n " + ",\n ".join(map(json.dumps, rows)) + "\n]\n")


if __name__ == "__main__":
    main()
