"""The codes of all training images, which the capsules are trained on.

Stored as float16: a code is a probability, and its rounding (below .0005) is far below the sampling noise.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from capspoe.model.network import Network, centre_crop
from capspoe.train.loops import to_tensor

BATCH = 512  # images encoded at once


@torch.no_grad()
def encode_pixels(network: Network, pixels: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Batches of uint8 images to batches of codes."""
    crop = network.config.crop
    for batch in pixels:
        x = to_tensor(centre_crop(batch, crop) if crop else batch, network.device)
        yield network.codec.encode(x).cpu().numpy().astype(np.float16)


def codes_in_memory(network: Network, pixels: np.ndarray) -> np.ndarray:
    """The codes of images (n, H, W, C), as float16."""
    batches = (pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH))
    none = np.empty((0, *network.codec.capsules), np.float16)
    return np.concatenate([none, *encode_pixels(network, batches)])
