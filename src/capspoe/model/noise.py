"""Random numbers that belong to an image, not to its place in a batch.

Every number is a hash of (seed, step, stream, image index, position). So a batch that is split over several
processes, or resumed after an interruption, draws exactly the same numbers. The hash is SplitMix64 (Steele, Lea and
Flood 2014) in wrapping 64-bit integers, which every device has.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift; PyTorch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix64(x: Tensor) -> Tensor:
    """SplitMix64's finalizer, on int64 tensors."""
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


@dataclass(frozen=True)
class Noise:
    """The random numbers of one step for the images `index` (B,)."""

    seed: int
    step: int
    index: Tensor
    dtype: torch.dtype = torch.float32

    @classmethod
    def for_batch(cls, batch: int, seed: int = 0, step: int = 0, dtype: torch.dtype = torch.float32) -> "Noise":
        """Noise for rows numbered 0 to batch - 1."""
        return cls(seed, step, torch.arange(batch), dtype)

    def uniform(self, stream: int, *shape: int) -> Tensor:
        """(B, *shape) numbers in the open interval (0, 1); each stream is independent."""
        position = torch.arange(math.prod(shape), dtype=torch.int64, device=self.index.device)
        return self._uniform_at(stream, position).reshape(-1, *shape)

    def _uniform_at(self, stream: int, position: Tensor) -> Tensor:
        """(B, S) numbers at the given positions, (S,) or (B, S)."""
        key = torch.zeros((), dtype=torch.int64, device=self.index.device)
        for part in (self.seed, self.step, stream):
            key = mix64(key + GOLDEN + part)
        key_B = mix64(key + (self.index.to(torch.int64) + 1) * GOLDEN)
        bits = mix64(key_B[:, None] + (position + 1) * GOLDEN)
        kept = 23 if self.dtype == torch.float32 else 52  # so that nothing rounds to 0 or 1
        return (_shift(bits, 64 - kept).to(self.dtype) + 0.5) / (1 << kept)

    def normal(self, stream: int, *shape: int) -> Tensor:
        """(B, *shape) standard normal numbers (Box and Muller)."""
        u_B2S = self.uniform(stream, 2, math.prod(shape))
        radius = torch.sqrt(-2 * torch.log(u_B2S[:, 0]))
        return (radius * torch.cos(2 * math.pi * u_B2S[:, 1])).reshape(-1, *shape)

    def choose(self, stream: int, probability_BJ: Tensor) -> Tensor:
        """(B,) one index per row, drawn with the row's probabilities."""
        u_B = self.uniform(stream).to(probability_BJ)
        cumulative_BJ = probability_BJ.cumsum(-1)
        threshold_B1 = (u_B * cumulative_BJ[:, -1])[:, None]
        return (cumulative_BJ < threshold_B1).sum(-1)
