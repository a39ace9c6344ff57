"""The feature space that images are compared in: a small classifier of the data set's own training images.

Distances in it mean something only within one feature net, so its accuracy and hash stand beside every score.
"""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe.data import cache_dir
from capspoe.durable import locked, write_atomically, writing

FEATURES = 128
VERSION = 1  # raised when the net or its training changes, so that an old one is not taken for a new one
EPOCHS, BATCH, RATE = 3, 128, 4e-3
LEAST_STEPS = 1500  # a small data set is gone through more often
CHUNK = 500

Told = Callable[[int, int], None]  # told (steps done, of how many)


class Labelled(NamedTuple):
    """Images with a label for each."""

    pixels: np.ndarray  # (n, H, W, C) uint8
    labels: np.ndarray  # (n,) int64


class FeatureNet(nn.Module):
    """conv 3x3, pool, conv 3x3, pool, 128 features, classes."""

    def __init__(self, image: tuple[int, int, int], classes: int, seed: int = 0) -> None:
        super().__init__()
        height, width, colours = image
        self.image, self.classes = image, classes
        side = (min(7, max(1, height // 4)), min(7, max(1, width // 4)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.conv_1 = nn.Conv2d(colours, 24, 3, padding=1)
            self.conv_2 = nn.Conv2d(24, 48, 3, padding=1)
            self.pool = nn.AdaptiveAvgPool2d(side)
            self.dense = nn.Linear(48 * side[0] * side[1], FEATURES)
            self.last = nn.Linear(FEATURES, classes)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B 128"]:
        x = F.max_pool2d(F.relu(self.conv_1(images)), 2, ceil_mode=True)
        x = F.max_pool2d(F.relu(self.conv_2(x)), 2, ceil_mode=True)
        return F.relu(self.dense(self.pool(x).flatten(1)))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B K"]:
        return self.last(F.dropout(self.features(images), 0.3, self.training))


class Seen(NamedTuple):
    """What the net says of some images."""

    features: np.ndarray  # (n, 128) float64
    labels: np.ndarray  # (n,) the class it takes each for


class Trained(NamedTuple):
    net: FeatureNet
    info: dict[str, Any]  # accuracy, hash, ...: what the report has to say of it


@torch.no_grad()
def see(net: FeatureNet, images: np.ndarray) -> Seen:
    """Features and classes of images (n, H, W, C), uint8 or float in [0, 1]."""
    net.eval()
    features, labels = [], []
    for start in range(0, len(images), CHUNK):
        found = net.features(as_tensor(images[start : start + CHUNK]))
        features.append(found.double().numpy())
        labels.append(net.last(found).argmax(-1).numpy())
    return Seen(np.concatenate(features), np.concatenate(labels))


def as_tensor(images: np.ndarray) -> Float[Tensor, "B C H W"]:
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    return x.float() / 255 if images.dtype == np.uint8 else x.float()


def train_net(images: Labelled, classes: int, seed: int = 0, told: Told | None = None) -> FeatureNet:
    """Train a classifier: Adam, the learning rate rising shortly and falling to 0."""
    pixels, labels = images
    net = FeatureNet((pixels.shape[1], pixels.shape[2], pixels.shape[3]), classes, seed)
    per_epoch = -(-len(pixels) // BATCH)
    steps = per_epoch * max(EPOCHS, -(-LEAST_STEPS // per_epoch))
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.2)
    targets = torch.from_numpy(labels)
    net.train()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        for step in range(steps):
            if step % per_epoch == 0:
                order = np.random.default_rng([seed, step]).permutation(len(pixels))
            at = step % per_epoch * BATCH
            index = order[at : at + BATCH]
            loss = F.cross_entropy(net(as_tensor(pixels[index])), targets[index])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            if told:
                told(step + 1, steps)
    return net.eval()


def feature_net(
    name: str,
    train: Labelled,
    test: Labelled,
    seed: int = 0,
    told: Told | None = None,
    home: Path | None = None,
) -> Trained:
    """The feature net of a labelled data set: from the cache, or trained and kept there.

    Of several processes that need it one trains, and the others wait.
    """
    classes = int(max(train.labels.max(), test.labels.max())) + 1
    settings = {"version": VERSION, "seed": seed, "epochs": EPOCHS, "rate": RATE, "batch": BATCH}
    plain = re.sub(r"[^\w-]+", "-", Path(name).name) or "images"
    folder = (home or cache_dir()) / "features"
    weights_file = folder / f"{plain}-{fingerprint(train, test, settings)}.safetensors"
    info_file = weights_file.with_suffix(".json")
    stored = read(weights_file, info_file, train, classes)
    if stored:
        return stored
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True):
        stored = read(weights_file, info_file, train, classes)
        if stored:
            return stored
        net = train_net(train, classes, seed, told)
        data = safetensors.torch.save({k: v.contiguous() for k, v in net.state_dict().items()})
        info = {
            "data": plain,
            "features": FEATURES,
            "classes": classes,
            "train_images": len(train.pixels),
            "test_images": len(test.pixels),
            "test_accuracy": float((see(net, test.pixels).labels == test.labels).mean()),
            "sha256": hashlib.sha256(data).hexdigest(),
            **settings,
        }
        with writing(folder):
            write_atomically(weights_file, data)
            write_atomically(info_file, (json.dumps(info, indent=2) + "\n").encode())
    return Trained(net, info)


def fingerprint(train: Labelled, test: Labelled, settings: dict[str, Any]) -> str:
    """A hash of the images, their labels and the settings: of all that a net and its accuracy depend on."""
    seen = hashlib.sha256()
    for part in (*train, *test):
        seen.update(np.ascontiguousarray(part).tobytes())
    seen.update(json.dumps([settings, list(train.pixels.shape)]).encode())
    return seen.hexdigest()[:16]


def read(weights_file: Path, info_file: Path, train: Labelled, classes: int) -> Trained | None:
    """A cached net, or None when it is not there or not what was written."""
    try:
        info = json.loads(info_file.read_text(encoding="utf-8"))
        data = weights_file.read_bytes()
        if hashlib.sha256(data).hexdigest() != info["sha256"]:
            return None
        height, width, colours = train.pixels.shape[1:]
        net = FeatureNet((height, width, colours), classes)
        net.load_state_dict(safetensors.torch.load(data))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, safetensors.SafetensorError):
        return None
    return Trained(net.eval(), info)
