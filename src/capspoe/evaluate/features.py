"""The feature net in which images are compared: a small classifier of the training images."""

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from capspoe.atomic import locked, write_atomic
from capspoe.data import cache_dir
from capspoe.run.checkpoint import json_bytes, tensor_bytes

FEATURES = 128
VERSION = 1  # increment when the net or its training changes, so that cached nets are not used
SEED = 0
EPOCHS = 3
BATCH = 128
RATE = 4e-3
MIN_STEPS = 1500  # small data sets get extra epochs
CHUNK = 500

Labelled = tuple[np.ndarray, np.ndarray]  # uint8 pixels (n, H, W, C) and int64 labels (n,)
Loss = Callable[[np.ndarray], Tensor]  # of the images with these indices


class FeatureNet(nn.Module):
    """conv 3x3, pool, conv 3x3, pool, 128 features, classes."""

    info: dict[str, Any]  # accuracy, hash, ...: distances compare only within one net

    def __init__(self, image: tuple[int, ...], classes: int) -> None:
        super().__init__()
        height, width, colours = image
        side = (min(7, max(1, height // 4)), min(7, max(1, width // 4)))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
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

    def fit(self, train: Labelled) -> None:
        """Adam, with a short warm-up and a learning rate that falls to 0."""
        pixels, labels = train
        targets = torch.from_numpy(labels)
        per_epoch = -(-len(pixels) // BATCH)
        steps = per_epoch * max(EPOCHS, -(-MIN_STEPS // per_epoch))
        adam = torch.optim.Adam(self.parameters(), RATE)
        schedule = OneCycleLR(adam, RATE, total_steps=steps, pct_start=0.2)

        def loss(index: np.ndarray) -> Tensor:
            return F.cross_entropy(self(as_tensor(pixels[index])), targets[index])

        minimize(loss, schedule, len(pixels), BATCH, steps, SEED)
        self.eval()

    @torch.no_grad()
    def see(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features (n, 128), float64, and predicted classes (n,) of images (n, H, W, C)."""
        features = []
        classes = []
        for start in range(0, len(images), CHUNK):
            part = self.features(as_tensor(images[start : start + CHUNK]))
            features.append(part)
            classes.append(self.last(part).argmax(-1))
        return torch.cat(features).double().numpy(), torch.cat(classes).numpy()


def as_tensor(images: np.ndarray) -> Float[Tensor, "B C H W"]:
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float()
    if images.dtype == np.uint8:
        return x / 255
    return x


def minimize(
    loss: Loss,
    schedule: LRScheduler,
    count: int,
    batch_size: int,
    steps: int,
    seed: int,
) -> None:
    """Minimize the loss over shuffled batches of `count` images, by the schedule's optimizer."""
    per_epoch = -(-count // batch_size)
    optimizer = schedule.optimizer
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(seed)
        for step in range(steps):
            # A new order for every epoch.
            if step % per_epoch == 0:
                order = np.random.default_rng([seed % 2**64, step]).permutation(count)
            start = step % per_epoch * batch_size
            optimizer.zero_grad(set_to_none=True)
            loss(order[start : start + batch_size]).backward()
            nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], 100.0)
            optimizer.step()
            schedule.step()


def feature_net(name: str, train: Labelled, test: Labelled) -> FeatureNet:
    """The feature net of a labelled data set, from the cache or trained now.

    Only one process trains it; the others wait.
    """
    classes = int(max(train[1].max(), test[1].max())) + 1
    settings = {"version": VERSION, "seed": SEED, "epochs": EPOCHS, "rate": RATE, "batch": BATCH}
    # The file is named by a digest of everything that the net and its accuracy depend on.
    digest = hashlib.sha256()
    for array in (*train, *test):
        digest.update(np.ascontiguousarray(array).data)
    digest.update(json.dumps([settings, list(train[0].shape)]).encode())
    plain = re.sub(r"[^\w-]+", "-", Path(name).name) or "images"
    folder = cache_dir() / "features"
    file = folder / f"{plain}-{digest.hexdigest()[:16]}.safetensors"
    with locked(folder, wait=True):
        if stored := read(file, train[0].shape[1:], classes):
            return stored
        net = FeatureNet(train[0].shape[1:], classes)
        net.fit(train)
        weights = tensor_bytes(net.state_dict())
        net.info = {
            "data": plain,
            "features": FEATURES,
            "classes": classes,
            "train_images": len(train[0]),
            "test_images": len(test[0]),
            "test_accuracy": float((net.see(test[0])[1] == test[1]).mean()),
            "sha256": hashlib.sha256(weights).hexdigest(),
            **settings,
        }
        write_atomic(file, weights)
        write_atomic(file.with_suffix(".json"), json_bytes(net.info))
    return net


def read(file: Path, image: tuple[int, ...], classes: int) -> FeatureNet | None:
    """A cached net, or None if it is missing or damaged."""
    net = FeatureNet(image, classes)
    try:
        net.info = json.loads(file.with_suffix(".json").read_text("utf-8"))
        weights = file.read_bytes()
        net.load_state_dict(safetensors.torch.load(weights))
        intact = hashlib.sha256(weights).hexdigest() == net.info["sha256"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, safetensors.SafetensorError):
        return None
    if not intact:
        return None
    return net.eval()
