"""A transposed convolution to few channels, computed as a convolution to many.

A CPU computes 8 or 16 output channels at once, so a transposed convolution to one colour leaves most of a vector
idle. Here the s x s pixels of a block are the channels of an ordinary convolution with stride s, whose kernel holds
the same weights at s x s offsets (a sub-pixel convolution, Shi et al. 2016). Forward takes a seventh of the time for
one colour, and a training step of the `small` autoencoder .63. Backward is PyTorch's own, which is fast already.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe import kernels

VECTOR = 16  # output channels to aim at


def block_size(height: int, width: int, colours: int) -> int:
    """Side of the blocks: 4 or 2 where it divides the image and fills at most a vector, else 1."""
    return next((s for s in (4, 2) if height % s == width % s == 0 and colours * s * s <= VECTOR), 1)


def subpixel(y: Float[Tensor, "B C h w"], weight: Float[Tensor, "C c k k"], s: int) -> Float[Tensor, "B c H W"]:
    """conv_transpose2d(y, weight) by blocks of s x s pixels."""
    (C, colours, k, _), flipped = weight.shape, weight.flip(2, 3).transpose(0, 1)
    blocks = weight.new_zeros(colours, s, s, C, k + s - 1, k + s - 1)
    for row in range(s):
        for column in range(s):
            blocks[:, row, column, :, row : row + k, column : column + k] = flipped
    kernel = blocks.flatten(0, 2).contiguous(memory_format=torch.channels_last)
    return F.pixel_shuffle(F.conv2d(y, kernel, stride=s, padding=k - 1), s)


class _Subpixel(torch.autograd.Function):
    """`subpixel` forward, the gradients of conv_transpose2d backward."""

    @staticmethod
    def forward(ctx: Any, y: Tensor, weight: Tensor, s: int) -> Tensor:
        ctx.save_for_backward(y, weight)
        return subpixel(y, weight, s)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        wanted, one, none = [*ctx.needs_input_grad[:2], False], [1, 1], [0, 0]
        arguments = (gradient, *ctx.saved_tensors, None, one, none, one, True, none, 1, wanted)
        return *torch.ops.aten.convolution_backward(*arguments)[:2], None


class SubpixelTransposed(nn.ConvTranspose2d):
    """nn.ConvTranspose2d with stride 1 and no padding, fast on a CPU for few output channels."""

    def forward(self, y: Float[Tensor, "B C h w"], output_size: Any = None) -> Float[Tensor, "B c H W"]:
        k = self.kernel_size[0]
        s = block_size(y.shape[2] + k - 1, y.shape[3] + k - 1, self.out_channels)
        if s == 1 or y.device.type != "cpu" or kernels.is_tracing(y, self.weight):
            return super().forward(y, output_size)
        return _Subpixel.apply(y, self.weight, s) + torch.as_tensor(self.bias)[:, None, None]
