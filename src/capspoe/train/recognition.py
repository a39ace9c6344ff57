"""Train the recognition network of explain.py without labels.

Training images, whose capsules the gate knows, are laid over each other; the network learns to name the capsules.
"""

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from capspoe.infer.explain import COMPOSITIONS, light_edge, shifted
from capspoe.model.network import Network, centre_crop
from capspoe.model.recognition import Recognition

STEPS, BATCH, RATE = 6_000, 128, 3e-3
OBJECTS = (1, 2, 2, 3)  # in a scene, equally often
COMPOSED = ("maximum", "maximum", "sum", "occlusion")  # equally often
SHIFT = 2.5  # pixels by which the objects of some scenes are moved
ERASED = 0.45  # of a side, at most: the shorter side of what is erased from some scenes of one object


def recognition_steps(
    network: Network, pixels: np.ndarray, steps: int = STEPS, seed: int = 0
) -> Iterator[tuple[Recognition, float]]:
    """Train on scenes of images (n, H, W, C); yields the network and the loss after every step."""
    on = torch.from_numpy(network.encode(pixels).on)
    cropped = centre_crop(pixels, max(network.image[:2]))
    if network.image[2] == 1 and light_edge(cropped[:BATCH] / 255):
        cropped = 255 - cropped  # as the search sees it
    images = torch.from_numpy(np.ascontiguousarray(cropped)).permute(0, 3, 1, 2)
    random = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Recognition(network.image, network.top.upper[0]).to(network.device)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.05, anneal_strategy="linear")
    for _ in range(steps):
        scene, target = (t.to(network.device) for t in scenes(images, on, random))
        loss = F.binary_cross_entropy_with_logits(net.train()(scene), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield net.eval(), loss.item()


def scenes(
    images: Tensor, on: Float[Tensor, "n J"], random: torch.Generator, count: int = BATCH
) -> tuple[Float[Tensor, "B C H W"], Float[Tensor, "B J"]]:
    """Scenes of one to three images, some moved, some of one with a part erased; P(on) of each capsule."""

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=random)

    k = torch.tensor(OBJECTS)[torch.randint(len(OBJECTS), (count,), generator=random)]
    there = (torch.arange(max(OBJECTS)) < k[:, None]).float()
    index = torch.randint(len(images), there.shape, generator=random)
    objects = images[index] / 255 * there[:, :, None, None, None]
    move = (2 * uniform(*there.shape, 2) - 1) * (uniform(count, 1, 1) < 0.4)
    moved = shifted(lambda *_: objects.flatten(0, 1), 2 * SHIFT)(index.flatten(), move.flatten(0, 1))
    compose = COMPOSITIONS[COMPOSED[int(torch.randint(len(COMPOSED), (), generator=random))]]
    scene = compose(moved.unflatten(0, there.shape))
    height, width = images.shape[2:]
    side = 0.2 + 0.8 * uniform(count, 2)
    side[torch.arange(count), torch.randint(2, (count,), generator=random)] *= ERASED
    centre = uniform(count, 2)
    rows, columns = (
        ((torch.arange(n) + 0.5) / n - centre[:, axis, None]).abs() < side[:, axis, None] / 2
        for axis, n in enumerate((height, width))
    )
    erased = rows[:, :, None] & columns[:, None] & ((k == 1) & (uniform(count) < 0.6))[:, None, None]
    return scene * ~erased[:, None], (on[index] * there[:, :, None]).amax(1)
