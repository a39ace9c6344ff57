"""Images of any size and colour: draw coloured discs of 24x40 pixels, train on them and sample.

Run: python examples/other_sizes.py [--quick] [OUT.png]
"""

import sys
from pathlib import Path

import numpy as np

from capspoe.run.pictures import tile, write_png
from capspoe.sklearn import CapsulePoE

quick = "--quick" in sys.argv
rng = np.random.default_rng(0)
count, height, width = 300 if quick else 4000, 24, 40
colours = np.array([[230, 60, 50], [50, 170, 80], [60, 90, 220], [240, 190, 40]])
y, x = np.mgrid[:height, :width]
centre = rng.uniform((6, 6), (height - 6, width - 6), (count, 2))
radius, kind = rng.uniform(3, 6, count), rng.integers(0, 4, count)
inside = (y - centre[:, 0, None, None]) ** 2 + (x - centre[:, 1, None, None]) ** 2 < radius[:, None, None] ** 2
images = np.where(inside[..., None], colours[kind][:, None, None], 255).astype(np.uint8)

config = {"channels": 16, **({"min_steps": 30, "autoencoder_epochs": 1} if quick else {})}
capsules = CapsulePoE(n_components=8, n_iter=1 if quick else 10, config=config).fit(images)
print(f"{height}x{width}x3 images, {capsules.model_.top.lower[0]} lower capsules")
pure = sum(np.bincount(kind[capsules.labels_ == j]).max() for j in np.unique(capsules.labels_)) / count
print(f"{pure:.0%} of the discs have the most common colour of their capsule")
samples, _ = capsules.sample(32, capsule=list(range(8)))
paths = [word for word in sys.argv[1:] if not word.startswith("--")]
if paths:
    write_png(tile(samples.reshape(4, 8, height, width, 3) / 255, scale=2), Path(paths[0]))
    print(paths[0])
