"""The choice of an implementation, and what PyTorch's own tools make of it."""

import subprocess
import sys

import pytest
import torch
from tests.kernels.test_routing import inputs
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

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
        assert not kernels.select(x, agreement=None)  # a function of the user's own
        with kernels.use("kernel"), pytest.raises(InputError, match="agreement='cosine' or 'dot'"):
            kernels.select(x, agreement=None)
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
    class OnGpu(torch.Tensor):
        is_cuda = True

    x = X.as_subclass(OnGpu)

    def function(x):
        return x + 1

    assert kernels.compiled_on_gpu(function, X) is function
    compiled = kernels.compiled_on_gpu(function, x)
    assert compiled is not function
    assert compiled is kernels.compiled_on_gpu(function, x)
    with kernels.use("reference"):
        assert kernels.compiled_on_gpu(function, x) is function


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
    with forward_ad.dual_level():
        z = route(X, forward_ad.make_dual(W, torch.ones_like(W))).z
        right = reference(X, forward_ad.make_dual(W, torch.ones_like(W)))[1]
        torch.testing.assert_close(forward_ad.unpack_dual(z).tangent, forward_ad.unpack_dual(right).tangent)
    with FakeTensorMode() as mode:
        c, z = route(mode.from_tensor(X), mode.from_tensor(W))
        assert (c.shape, z.shape) == ((5, 4, 20), (5, 4, 6))


def test_routing_of_constants_inside_a_transform():
    """No input is transformed, but new tensors may be: inside torch.func.grad even zeros have no memory to read."""
    layer = CapsuleLayer((20, 3), (4, 5), seed=0)
    right = layer(X).z.detach()

    def scaled(factor):
        return (factor * layer(X).z).sum()

    with torch.no_grad():
        by_image = torch.func.vmap(lambda factor: factor * layer(X).z)(torch.ones(2))
        torch.testing.assert_close(by_image, right.expand(2, -1, -1, -1))
    torch.testing.assert_close(torch.func.grad(scaled)(torch.tensor(1.0)), right.sum(), rtol=1e-4, atol=1e-4)
    tangent = torch.func.jvp(scaled, (torch.tensor(1.0),), (torch.tensor(1.0),))[1]
    torch.testing.assert_close(tangent, right.sum(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("torch.func.vmap", lambda f: torch.func.vmap(f)(X)),
        ("torch.func.grad", lambda f: torch.func.grad(f)(X)),
        ("torch.func.jvp", lambda f: torch.func.jvp(f, (X,), (X,))),
        ("torch.func.functionalize", lambda f: torch.func.functionalize(f)(X)),
        ("torch.compile", lambda f: torch.compile(f, backend="eager")(X)),
        ("torch.export", lambda f: torch.export.export(Calls(f), (X,))),
    ],
)
def test_tracing_is_noticed(name, call):
    seen = []

    def function(x):
        seen.append(kernels.is_tracing(x))
        return (x * x).sum()

    call(function)
    assert seen, f"{name} has not called the function"
    assert all(seen), f"kernels.is_tracing no longer notices {name} of PyTorch {torch.__version__}"


def test_fake_tensors_and_tangents_are_noticed_without_a_warning(recwarn):
    assert not kernels.is_tracing(X, torch.nn.Parameter(X))
    assert kernels.is_tracing(torch.empty(2, device="meta"))
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(X)
        assert kernels.is_tracing()
    assert kernels.is_tracing(fake)
    with forward_ad.dual_level():
        assert kernels.is_tracing(X, forward_ad.make_dual(X, X))
        assert not kernels.is_tracing(X)
    assert not [warning for warning in recwarn if "data pointer" in str(warning.message)]


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_routing_does_not_wait_for_the_compiler_of_pytorch():
    program = (
        "import sys, capspoe.model.layer\n"
        "assert 'numba' not in sys.modules\n"
        "import torch\n"
        "capspoe.route(torch.rand(5, 20, 3), torch.rand(4, 20, 6, 3))\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
