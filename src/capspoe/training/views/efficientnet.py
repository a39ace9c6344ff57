"""EfficientNet-Lite0 (Tan and Le 2019, without squeeze-and-excitation), to compute features of photographs.

The batch normalisations of the stored weights are folded into the convolutions before them, since nothing is trained
here.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

STAGES = ((1, 1), (2, 2), (2, 2), (3, 2), (3, 1), (4, 2), (1, 1))  # blocks, and the stride of the first
FEATURES = 1280
EPSILON = 1e-3  # of the batch normalisations

Weights = dict[str, Tensor]


class Convolution(nn.Module):
    """A convolution with its batch normalisation folded in.

    Parameters
    ----------
    weights : the stored weights
    name, normalisation : of the convolution and of its batch normalisation in them
    stride : in pixels
    active : whether ReLU6 follows
    """

    def __init__(self, weights: Weights, name: str, normalisation: str, stride: int = 1, active: bool = True) -> None:
        super().__init__()
        kernel = weights[f"{name}.weight"]
        depthwise = kernel.shape[1] == 1
        scale = weights[f"{normalisation}.weight"]
        scale = scale / torch.sqrt(weights[f"{normalisation}.running_var"] + EPSILON)
        shift = weights[f"{normalisation}.bias"] - scale * weights[f"{normalisation}.running_mean"]
        kernel = (kernel * scale[:, None, None, None]).contiguous(memory_format=torch.channels_last)
        self.kernel = nn.Parameter(kernel, requires_grad=False)
        self.shift = nn.Parameter(shift, requires_grad=False)
        self.groups = len(kernel) if depthwise else 1
        self.stride = stride
        self.active = active

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d u v"]:
        size = self.kernel.shape[-1]
        # TensorFlow's padding: the output has ceil(size / stride) pixels, and the odd pixel is on the right.
        height = padding(x.shape[2], size, self.stride)
        width = padding(x.shape[3], size, self.stride)
        even = (height[0], width[0])
        if height != even[:1] * 2 or width != even[1:] * 2:
            x = F.pad(x, (*width, *height))
            even = (0, 0)
        x = F.conv2d(x, self.kernel, self.shift, self.stride, even, groups=self.groups)
        return F.hardtanh_(x, 0, 6) if self.active else x


def padding(length: int, size: int, stride: int) -> tuple[int, int]:
    """The padding before and after a line of pixels."""
    total = max(0, (math.ceil(length / stride) - 1) * stride + size - length)
    return total // 2, total - total // 2


class Block(nn.Module):
    """An inverted bottleneck: expand the channels, convolve each, project; added to its input if shapes agree."""

    def __init__(self, weights: Weights, name: str, stride: int) -> None:
        super().__init__()
        layers = []
        if f"{name}._expand_conv.weight" in weights:
            layers.append(Convolution(weights, f"{name}._expand_conv", f"{name}._bn0"))
        layers.append(Convolution(weights, f"{name}._depthwise_conv", f"{name}._bn1", stride))
        layers.append(Convolution(weights, f"{name}._project_conv", f"{name}._bn2", active=False))
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Float[Tensor, "n c h w"]) -> Float[Tensor, "n d u v"]:
        y = self.layers(x)
        return y.add_(x) if x.shape == y.shape else y


class EfficientNetLite(nn.Module):
    """The network up to the mean of its last feature maps, without the classifier."""

    def __init__(self, weights: Weights) -> None:
        super().__init__()
        layers: list[nn.Module] = [Convolution(weights, "_conv_stem", "_bn0", stride=2)]
        number = 0
        for blocks, first_stride in STAGES:
            for place in range(blocks):
                stride = first_stride if place == 0 else 1
                layers.append(Block(weights, f"_blocks.{number}", stride))
                number += 1
        layers.append(Convolution(weights, "_conv_head", "_bn1"))
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Float[Tensor, "n 3 H W"]) -> Float[Tensor, "n 1280"]:
        """Features of RGB images with values from 0 to 255."""
        x = (images - 127) / 128
        return self.layers(x.contiguous(memory_format=torch.channels_last)).mean((2, 3))
