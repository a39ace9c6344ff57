"""Answers of networks that were trained with labels, on superposed training images."""

import itertools
import time
from functools import cache

import numpy as np
import torch
from examples.supervised_capsules import CapsuleNetwork
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.quality.scenes.bench import Bench
from benchmarks.quality.scenes.data import Answer, Scenes, make_scenes
from capspoe import kernels

MINUTES = 5.0  # of one core, to train each network
LEARNING_RATE = 1e-3
SCENES = 6_400  # made at once
BATCH = 64
CHUNK = 100  # images that are classified at once


def by_network(bench: Bench, scenes: Scenes, capsules: bool = False) -> Answer:
    """The most probable labels of two convolutions, or of a narrow copy of Sabour's capsules."""
    with kernels.use("auto"):
        network = trained(bench, capsules)
        scores = torch.cat([network(x) for x in bench.tensor(scenes.images).split(CHUNK)])
    return Answer(scores.topk(scenes.objects.shape[1], 1).indices.numpy())


@cache
def trained(bench: Bench, capsules: bool) -> nn.Module:
    """A network trained for `MINUTES`, with a learning rate that falls to 0."""
    torch.manual_seed(bench.seed)
    classes = int(bench.train.labels.max()) + 1
    height, width, colours = bench.train.pixels.shape[1:]
    if capsules:
        network: nn.Module = CapsuleNetwork(height, classes, channels=32)
        loss_of = margin_loss
    else:
        network = convolutions(height, width, colours, classes)
        loss_of = F.binary_cross_entropy_with_logits
    optimizer = torch.optim.Adam(network.parameters(), LEARNING_RATE)
    began = time.process_time()
    for block in itertools.count(bench.seed + 1):
        scenes = make_scenes(bench.train, "superposed", SCENES, block)
        for rows in np.split(np.arange(SCENES), SCENES // BATCH):
            progress = (time.process_time() - began) / 60 / MINUTES
            if progress >= 1:
                return network.requires_grad_(False)
            optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - progress)
            x = torch.from_numpy(scenes.images[rows]).float().permute(0, 3, 1, 2) / 255
            target = F.one_hot(torch.from_numpy(scenes.labels[rows]), classes).amax(1).float()
            loss = loss_of(network(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    raise AssertionError("the loop above ends by time")


def convolutions(height: int, width: int, colours: int, classes: int) -> nn.Sequential:
    """Two strided convolutions and two linear maps."""
    places = -(-height // 4) * -(-width // 4)
    return nn.Sequential(
        nn.Conv2d(colours, 32, 5, 2, 2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, 2, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * places, 256),
        nn.ReLU(),
        nn.Linear(256, classes),
    )


def margin_loss(length: Tensor, there: Tensor) -> Tensor:
    """The margin loss of Sabour et al. (their Eq. 4), for several classes at once."""
    too_short = F.relu(0.9 - length).square()
    too_long = F.relu(length - 0.1).square()
    return (there * too_short + 0.5 * (1 - there) * too_long).sum(-1).mean()
