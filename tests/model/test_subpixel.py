"""The sub-pixel form of a transposed convolution against PyTorch's own."""

import pytest
import torch
from torch import nn

from capspoe.model.subpixel import SubpixelTransposed, block_size


@pytest.mark.parametrize(
    ("colours", "height", "width", "kernel", "block"),
    [(1, 20, 20, 9, 4), (3, 20, 20, 9, 2), (1, 7, 9, 4, 2), (4, 6, 6, 3, 2), (1, 8, 7, 2, 1), (5, 5, 5, 4, 1)],
)
def test_equals_the_transposed_convolution(colours, height, width, kernel, block):
    torch.manual_seed(0)
    ours, theirs = SubpixelTransposed(8, colours, kernel).double(), nn.ConvTranspose2d(8, colours, kernel).double()
    theirs.load_state_dict(ours.state_dict())
    y = torch.randn(2, 8, height, width, dtype=torch.float64, requires_grad=True)
    assert block_size(height + kernel - 1, width + kernel - 1, colours) == block
    weight = torch.randn_like(theirs(y))
    found = [torch.autograd.grad((module(y) * weight).sum(), [y, *module.parameters()]) for module in (ours, theirs)]
    torch.testing.assert_close(ours(y), theirs(y))
    torch.testing.assert_close(*found)


def test_works_under_export_and_torch_func():
    module, y = SubpixelTransposed(8, 1, 9), torch.randn(2, 8, 20, 20)
    exported = torch.export.export(module, (y,)).module()
    torch.testing.assert_close(exported(y), module(y))
    _, pull = torch.func.vjp(module, y)
    leaf = y.clone().requires_grad_()
    module(leaf).sum().backward()
    torch.testing.assert_close(pull(torch.ones(2, 1, 28, 28))[0], leaf.grad)
