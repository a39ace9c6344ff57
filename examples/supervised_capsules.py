"""A capsule classifier trained with labels, after Sabour, Frosst and Hinton 2017, from capspoe's layers.

A convolution, primary capsules, one routed layer with a capsule for each class; the margin loss makes the right
one long. Run: python examples/supervised_capsules.py [--normalize upper|lower] [--detach] [--quick]
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

from capspoe import CapsuleLayer, data, squash
from capspoe.routing import on_probability


class CapsuleClassifier(nn.Module):
    def __init__(self, side: int, classes: int, channels: int, normalize: str, detach: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 9)
        self.primary = nn.Conv2d(channels, 32, 9, stride=2)
        places = ((side - 15) // 2) ** 2  # after two convolutions of 9x9, the second with stride 2
        self.capsules = CapsuleLayer(
            lower=(places * 4, 8), upper=(classes, 16), iterations=3, gate="none", centred=False,
            normalize=normalize, agreement="dot", detach_routing=detach, initial_std=0.03,
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 1, side, side) to the length of each class's capsule: the probability that it is there."""
        x = self.primary(F.relu(self.conv(images)))
        x = squash(x.permute(0, 2, 3, 1).reshape(len(images), -1, 8))
        return on_probability(self.capsules(x).z)


def margin_loss(length: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Longer than 0.9 if the class is there, shorter than 0.1 if not (their Eq. 4)."""
    there = F.one_hot(labels, length.shape[1])
    short, long = F.relu(0.9 - length).square(), F.relu(length - 0.1).square()
    return (there * short + 0.5 * (1 - there) * long).sum(-1).mean()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--normalize", choices=("upper", "lower"), default="upper")
    options.add_argument("--detach", action="store_true", help="take the routing weights as given")
    options.add_argument("--images", type=int, default=20_000)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="a few hundred digits, for the tests")
    a = options.parse_args()
    torch.manual_seed(0)
    (pixels, labels), (test_pixels, test_labels) = (
        data.load("digits" if a.quick else "mnist", split) for split in ("train", "test")
    )
    count, epochs, channels = (600, 4, 8) if a.quick else (a.images, a.epochs, 32)
    x, y = torch.from_numpy(pixels[:count]).permute(0, 3, 1, 2) / 255, torch.from_numpy(labels[:count])
    network = CapsuleClassifier(x.shape[-1], 10, channels, a.normalize, a.detach)
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 4e-3, epochs=epochs, steps_per_epoch=-(-count // 64)
    )
    for epoch in range(epochs):
        began, total = time.perf_counter(), 0.0
        for index in torch.randperm(count).split(64):
            loss = margin_loss(network(x[index]), y[index])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(index)
        print(f"epoch {epoch + 1}: loss {total / count:.4f}, {time.perf_counter() - began:.0f} s")
    network.eval()
    with torch.no_grad():  # without gradients the CPU kernels do the routing
        parts = (torch.from_numpy(test_pixels).permute(0, 3, 1, 2) / 255).split(256)
        found = torch.cat([network(part).argmax(-1) for part in parts])
    accuracy = (found == torch.from_numpy(test_labels)).float().mean()
    print(f"test accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
