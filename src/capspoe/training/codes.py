"""The codes of all training images, which the capsules are trained on.

Stored as float16: a code is a probability, and its rounding (below .0005) is far below the sampling noise.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe.model.network import Network, centre_crop

BATCH = 512  # images encoded at once


def to_tensor(pixels: np.ndarray, device: torch.device) -> Float[Tensor, "B C H W"]:
    """uint8 (B, H, W, C) to float (B, C, H, W) in [0, 1], channels last in memory."""
    return torch.from_numpy(np.ascontiguousarray(pixels)).to(device).permute(0, 3, 1, 2).float().div_(255)


def code_batch(codes: np.ndarray, index: np.ndarray, device: torch.device) -> Float[Tensor, "B I M"]:
    """Some of the codes, as float32."""
    return torch.from_numpy(codes[index]).to(device).float()


@torch.no_grad()
def encode_pixels(network: Network, pixels: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Batches of uint8 images to batches of codes."""
    for batch in pixels:
        if network.crop is not None:
            batch = centre_crop(batch, network.crop)
        yield network.codec.encode(to_tensor(batch, network.device)).cpu().numpy().astype(np.float16)


def codes_in_memory(network: Network, pixels: np.ndarray) -> np.ndarray:
    """The codes of images (n, H, W, C), as float16."""
    batches = (pixels[start : start + BATCH] for start in range(0, len(pixels), BATCH))
    none = np.empty((0, *network.codec.capsules), np.float16)
    return np.concatenate([none, *encode_pixels(network, batches)])
