"""A capsule classifier trained by backpropagation, after Sabour, Frosst and Hinton 2017, on MNIST or digits.

A convolution, primary capsules, and one routed layer with a capsule of 16 neurons for each class; the margin loss
makes the right one long. `capspoe.route` runs forward and backward without storing predictions.
Run: python examples/supervised_capsules.py [--channels 256] [--detach] [--quick]
"""

import argparse
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe import data, route, squash


class DigitCapsules(nn.Module):
    """Capsules (B, I, 8) to class capsules (B, classes, 16): their routing, Sabour's axis and agreement."""

    def __init__(self, lower: int, classes: int, detach_routing: bool = False) -> None:
        super().__init__()
        self.W = nn.Parameter(0.1 * torch.randn(classes, lower, 16, 8))
        self.detach_routing = detach_routing

    def forward(self, x: Tensor) -> Tensor:
        routing = route(x, self.W, 3, normalize="upper", agreement="dot", detach_routing=self.detach_routing)
        return squash(routing.z)


class CapsuleNetwork(nn.Module):
    """Their network; `channels` are those of the first convolution, 256 in the paper."""

    def __init__(self, side: int = 28, classes: int = 10, channels: int = 16, detach_routing: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, channels, 9)
        self.primary = nn.Conv2d(channels, 256, 9, stride=2)
        places = ((side - 15) // 2) ** 2  # after two convolutions of 9x9, the second with stride 2
        self.digits = DigitCapsules(places * 32, classes, detach_routing)  # 1152 capsules for 28x28

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 1, side, side) to the length of each class capsule: the probability that the class is there."""
        features = self.primary(F.relu(self.conv(images)))  # (B, 32 * 8, 6, 6)
        x = squash(features.unflatten(1, (32, 8)).movedim(2, -1).flatten(1, 3))  # (B, 32 * 6 * 6, 8)
        return self.digits(x).norm(dim=-1)


def margin_loss(length: Tensor, labels: Tensor) -> Tensor:
    """Longer than 0.9 if the class is there, shorter than 0.1 if not (their Eq. 4)."""
    there = F.one_hot(labels, length.shape[1])
    short, long = F.relu(0.9 - length).square(), F.relu(length - 0.1).square()
    return (there * short + 0.5 * (1 - there) * long).sum(-1).mean()


def train_step(network: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor) -> float:
    loss = margin_loss(network(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def tensors(name: str, split: str) -> tuple[Tensor, Tensor]:
    pixels, labels = data.load(name, split)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255, torch.from_numpy(labels)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--channels", type=int, default=16, help="of the first convolution; 256 in the paper")
    options.add_argument("--detach", action="store_true", help="no gradient through the routing weights")
    options.add_argument("--images", type=int, default=60_000)
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--quick", action="store_true", help="a few hundred digits, for the tests")
    a = options.parse_args()
    torch.manual_seed(0)
    name = "digits" if a.quick else "mnist"
    (x, y), (test_x, test_y) = tensors(name, "train"), tensors(name, "test")
    count, epochs, channels = (600, 2, 8) if a.quick else (min(a.images, len(x)), a.epochs, a.channels)
    network = CapsuleNetwork(x.shape[-1], channels=channels, detach_routing=a.detach)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    for epoch in range(epochs):
        began = time.perf_counter()
        losses = [train_step(network, optimizer, x[i], y[i]) for i in torch.randperm(count).split(64)]
        seconds = time.perf_counter() - began
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}, {seconds:.0f} s")
    network.eval()
    with torch.no_grad():
        found = torch.cat([network(part).argmax(-1) for part in test_x.split(256)])
    print(f"test accuracy {(found == test_y).float().mean():.4f}")


if __name__ == "__main__":
    main()
