"""Images of any size and colour: coloured discs of 24 x 40 pixels, drawn here, trained on and sampled.

Run: python examples/other_sizes.py [--quick] [OUT.png]
"""

import sys
from pathlib import Path

import numpy as np

from capspoe.pictures import tile, write_picture
from capspoe.sklearn import CapsulePoE

quick = "--quick" in sys.argv
rng = np.random.default_rng(0)
count, height, width = 300 if quick else 4000, 24, 40
colours = np.array([[230, 60, 50], [50, 170, 80], [60, 90, 220], [240, 190, 40]])
y, x = np.mgrid[:height, :width]
place = rng.uniform((6, 6), (height - 6, width - 6), (count, 2))
radius, kind = rng.uniform(3, 6, count), rng.integers(0, 4, count)
near = (y - place[:, 0, None, None]) ** 2 + (x - place[:, 1, None, None]) ** 2 < radius[:, None, None] ** 2
images = np.where(near[..., None], colours[kind][:, None, None], 255).astype(np.uint8)

steps = {"least_steps": 30, "epochs": 1, "autoencoder_epochs": 1} if quick else {}
capsules = CapsulePoE(layers="8x16", channels=16, **steps).fit(images)
print(f"{height}x{width}x3 images, {capsules.model_.top.lower[0]} lower capsules")
on = capsules.predict(images)
pure = sum(np.bincount(kind[on == j], minlength=4).max() for j in np.unique(on)) / count
print(f"{pure:.0%} of the discs have the commonest colour of their capsule")
painted, _ = capsules.sample(32, capsule=list(range(8)))
paths = [word for word in sys.argv[1:] if not word.startswith("--")]
if paths:
    picture = tile(painted.reshape(4, 8, height, width, 3) / 255, scale=2)
    write_picture(picture, Path(paths[0]))
    print(paths[0])
