"""The choice of an implementation, and what PyTorch's own tools make of it."""

import pytest
import torch
from tests.kernels.test_routing import inputs
from torch._subclasses import FakeTensorMode

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.routing import reference, route

X, W = inputs((5, 20, 3, 4, 6), 1)


def test_the_choice_is_automatic_and_can_be_forced(monkeypatch):
    layer = CapsuleLayer((9, 3), (2, 5))
    x = torch.rand(4, 9, 3)
    assert not kernels.select(x, layer.w_JNMI)  # a gradient may have to flow
    assert kernels.select(x, layer.w_JNMI, differentiable=True)
    with torch.no_grad():
        assert kernels.select(x, layer.w_JNMI, None)
        assert not kernels.select(x.double(), differentiable=True)
        assert not kernels.select(torch.empty(1, device="meta"), differentiable=True)
        with kernels.use("reference"):
            assert not kernels.select(x, differentiable=True)
        with kernels.use("kernel"), pytest.raises(InputError, match="float32 tensors on the CPU"):
            kernels.select(x.double())
        monkeypatch.setenv("CAPSPOE_BACKEND", "reference")
        assert not kernels.select(x)
        with kernels.use("kernel"):
            assert kernels.select(x)
        monkeypatch.setenv("CAPSPOE_BACKEND", "gpu")
        with pytest.raises(InputError, match="backend must be one of"):
            kernels.select(x)
    with pytest.raises(InputError, match="backend must be one of"), kernels.use("fast"):
        pass


def test_only_a_gpu_gets_a_compiled_reference():
    class OnGpu:
        is_cuda = True

    assert kernels.compiled_on_gpu(reference, X) is reference
    compiled = kernels.compiled_on_gpu(reference, OnGpu())
    assert compiled is not reference
    assert compiled._torchdynamo_orig_callable is reference
    with kernels.use("reference"):
        assert kernels.compiled_on_gpu(reference, OnGpu()) is reference


def test_the_operators_are_what_torch_library_expects():
    w = W.permute(0, 2, 3, 1)
    for options in ((3, "lower", "cosine", 1.0, False), (2, "upper", "dot", 0.5, True)):
        arguments = (X.clone().requires_grad_(), w.clone().requires_grad_(), *options)
        torch.library.opcheck(torch.ops.capspoe.route.default, arguments)
    gc, gz = torch.randn(5, 4, 20), torch.randn(5, 4, 6)
    torch.library.opcheck(torch.ops.capspoe.route_backward.default, (gc, gz, X, w, None, 3, "lower", "cosine", 1.0))


def graph_targets(module):
    return [str(node.target) for node in module.graph.nodes]


def test_torch_compile_keeps_the_kernel_whole():
    seen = []

    def backend(module, example):
        seen.extend(graph_targets(module))
        return module.forward

    compiled = torch.compile(lambda x, W: 2 * route(x, W).z, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(X, W), 2 * route(X, W).z)
    assert "capspoe.route" in " ".join(seen)
    x = X.clone().requires_grad_()
    torch.testing.assert_close(
        torch.autograd.grad(compiled(x, W).sum(), x), torch.autograd.grad(2 * route(x, W).z.sum(), x)
    )


def test_an_exported_program_has_only_pytorchs_operators():
    class Routed(torch.nn.Module):
        def forward(self, x, W):
            return route(x, W).z

    program = torch.export.export(Routed(), (X, W))
    assert not any("capspoe" in target for target in graph_targets(program))
    torch.testing.assert_close(program.module()(X, W), route(X, W).z)


def test_transforms_and_fake_tensors():
    expected = reference(X, W)[1]
    batched = torch.func.vmap(lambda x: route(x[None], W).z[0])(X)
    torch.testing.assert_close(batched, expected, rtol=1e-4, atol=1e-5)
    tangent = torch.func.jvp(lambda x: route(x, W).z, (X,), (torch.ones_like(X),))[1]
    right = torch.func.jvp(lambda x: reference(x, W)[1], (X,), (torch.ones_like(X),))[1]
    torch.testing.assert_close(tangent, right)
    with FakeTensorMode() as mode:
        c, z = route(mode.from_tensor(X), mode.from_tensor(W))
        assert (c.shape, z.shape) == ((5, 4, 20), (5, 4, 6))
