"""The CPU kernels against the plain reference: shapes, values, axes, threads."""

import contextlib
import copy
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capspoe import contrastive, kernels, routing
from capspoe.capsules import CapsuleLayer
from capspoe.errors import InputError
from capspoe.noise import Noise

SIZES = st.sampled_from([1, 2, 3, 5, 8, 16, 17])
LOWER = st.sampled_from([1, 2, 7, 8, 9, 16, 31, 48, 50, 200])  # 200: more than one chunk of 24 vectors
AXES = st.sampled_from(["lower", "upper"])
AGREEMENTS = st.sampled_from(["cosine", "dot"])
shapes = st.tuples(st.integers(1, 9), LOWER, SIZES, SIZES, SIZES)  # B, I, M, J, N
quick = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@contextlib.contextmanager
def threads(count):
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def inputs(shape, seed, scale=1.0):
    B, I, M, J, N = shape
    return scale * normal(B, I, M, seed=seed), normal(J, I, N, M, seed=seed + 1) / M**0.5


def assert_same_routing(found, x, W, *arguments):
    """Equal within float32's rounding: the reference in double precision says what is right."""
    right = routing.route(x.double(), W.double(), *arguments)
    plain = routing.route(x, W, *arguments)
    for name in ("c", "z"):
        exact, here, there = (getattr(r, name).double() for r in (right, found, plain))
        size = exact.abs().amax().clamp_min(torch.finfo(torch.float32).tiny)
        allowed = 1e-5 * size + 4 * (there - exact).abs().amax()
        assert (here - exact).abs().amax() <= allowed, name


@quick
@given(
    shapes, st.integers(1, 5), AXES, AGREEMENTS, st.sampled_from([1.0, 0.3, -2.0, 50.0]), st.integers(0, 99)
)
def test_routing_is_the_references(shape, iterations, normalize, agreement, sharpness, seed):
    x, W = inputs(shape, seed)
    arguments = (iterations, normalize, agreement, sharpness)
    assert_same_routing(kernels.route(x, W, *arguments), x, W, *arguments)


@quick
@given(
    shapes,
    AXES,
    st.lists(st.sampled_from([0.0, 1e-38, 1e-30, 1e-12, 1.0, 1e12, 1e30]), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_extreme_values_give_the_references_finite_results(shape, normalize, scales, seed):
    """Lower capsules of very different lengths: the cosine sees through squares that leave float32."""
    x, W = inputs(shape, seed)
    x = x * torch.tensor(scales)[torch.arange(shape[1]) % len(scales)][None, :, None]
    found = kernels.route(x, W, 3, normalize)
    right = routing.route(x.double(), W.double(), 3, normalize)
    assert torch.isfinite(found.c).all()
    assert torch.isfinite(found.z).all()
    if min(s for s in [*scales, 1.0] if s) > 1e-38:  # below float32's smallest a direction is lost anyway
        torch.testing.assert_close(found.c.double(), right.c, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(
        found.z.double(), right.z, rtol=1e-3, atol=1e-5 * right.z.abs().amax().item() + 1e-37
    )


@pytest.mark.parametrize("agreement", ["cosine", "dot"])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e18])
def test_zero_tiny_and_huge_images(agreement, normalize, scale):
    x, W = inputs((5, 20, 4, 3, 6), 3, scale)
    found = kernels.route(x, W, 3, normalize, agreement)
    assert_same_routing(found, x, W, 3, normalize, agreement)


@pytest.mark.parametrize("sharpness", [59.0, 300.0, -300.0])
@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_sharp_routing_does_not_overflow(normalize, sharpness):
    """exp(300) is beyond float32: here the largest logit has to be subtracted first."""
    x, W = inputs((3, 20, 1, 4, 2), 5)
    W = W.abs()  # all predictions point the same way, so that the cosines are large
    found = kernels.route(x.abs(), W, 3, normalize, "cosine", sharpness)
    right = routing.route(x.abs().double(), W.double(), 3, normalize, "cosine", sharpness)
    torch.testing.assert_close(found.c.double(), right.c, rtol=1e-2, atol=1e-4)


def test_what_cannot_be_computed_is_named_as_by_the_reference():
    x, W = inputs((4, 9, 3, 2, 5), 0)
    for bad, message in ((float("nan"), "NaN or infinite"), (float("inf"), "NaN or infinite")):
        spoiled = x.clone()
        spoiled[1, 2, 0] = bad
        with pytest.raises(InputError, match=message):
            kernels.route(spoiled, W)
    for agreement in ("cosine", "dot"):
        with pytest.raises(InputError, match="too large"):
            kernels.route(1e30 * x, 1e30 * W, 3, "lower", agreement)
    layer = CapsuleLayer((9, 3), (2, 5))
    spoiled = x.clone()
    spoiled[3, 8, 2] = float("nan")
    with torch.no_grad(), pytest.raises(InputError, match="x contains NaN"):
        layer(spoiled)
    with pytest.raises(InputError, match="x contains NaN"):
        contrastive.step(layer, spoiled, Noise.for_batch(4))


LAYERS = st.fixed_dictionaries(
    {
        "gate": st.sampled_from(["winner", "none"]),
        "neurons": st.sampled_from(["gaussian", "binary"]),
        "iterations": st.integers(1, 3),
        "normalize": AXES,
        "agreement": AGREEMENTS,
        "bias": st.booleans(),
        "centred": st.booleans(),
    }
)


def some_layer(shape, options, seed=0):
    _, I, M, J, N = shape
    layer = CapsuleLayer((I, M), (J, N), initial_std=0.3, seed=seed, **options)
    layer.start_from(torch.rand(I, M, generator=torch.Generator().manual_seed(seed)) * 0.8 + 0.1)
    with torch.no_grad():
        layer.b.copy_(0.1 * normal(J, N))
        layer.d.copy_(0.1 * normal(J))
    return layer


@quick
@given(shapes, LAYERS, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 99))
def test_a_step_is_the_references(shape, options, k, regate, sample_visible, taught, seed):
    layer = some_layer(shape, options, seed)
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(shape[:3], generator=rng)
    noise = Noise(seed, 4, 7 * torch.arange(shape[0]))
    lesson = {"on": torch.randint(shape[3], (shape[0],), generator=rng), "teach": 0.7} if taught else {}
    steps = {"k": k, "temperature": 1.5, "regate": regate, "sample_visible": sample_visible, **lesson}
    with kernels.use("kernel"):
        found = contrastive.step(layer, x, noise, **steps)
    # In double precision: after three steps of a gaussian chain the float32 reference is 1e-4 off, the kernel 2e-5.
    right = contrastive.step(copy.deepcopy(layer).double(), x.double(), noise, **steps)
    for one, other in zip((*found[0], *found[1]), (*right[0], *right[1]), strict=True):
        assert one.shape == other.shape
        atol = 1e-4 * max(1.0, other.abs().amax().item())
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=atol)


@quick
@given(shapes, LAYERS, st.integers(0, 99))
def test_a_layers_passes_are_the_references(shape, options, seed):
    layer = some_layer(shape, options, seed)
    x = torch.rand(shape[:3], generator=torch.Generator().manual_seed(seed))
    h = normal(shape[0], *layer.upper, seed=seed)
    with torch.no_grad():
        results = {}
        for backend in ("reference", "kernel"):
            with kernels.use(backend):
                routed = layer(x)
                c = results["reference"][0] if results else routed.c  # the same weights for both
                results[backend] = (
                    routed.c,
                    routed.z,
                    layer.preactivation(x, c),
                    layer.preactivation(x, None),
                    layer.visible_given_hidden(h, c),
                    layer.visible_given_hidden(h, None),
                )
    for one, other in zip(results["kernel"], results["reference"], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-5 * max(1.0, other.abs().amax().item()))


def a_step(options, count, batch=37):
    layer = some_layer((batch, 50, 3, 4, 5), options)
    x = torch.rand(batch, 50, 3, generator=torch.Generator().manual_seed(2))
    with threads(count), kernels.use("kernel"):
        grads, info = contrastive.step(
            layer, x, Noise.for_batch(batch), on=torch.arange(batch) % 4, teach=1.0
        )
    return [*grads, *info]


@pytest.mark.parametrize("normalize", ["lower", "upper"])
def test_any_number_of_threads_gives_the_same_bits(normalize):
    options = {"normalize": normalize}
    first = a_step(options, 1)
    for count in (1, 2, 3, 5):
        again = a_step(options, count)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
        for _ in range(3):
            assert all(
                torch.equal(one, other) for one, other in zip(again, a_step(options, count), strict=True)
            )


def test_an_image_does_not_depend_on_its_neighbours():
    x, W = inputs((11, 50, 3, 4, 5), 1)
    whole = kernels.route(x, W)
    for part in (slice(0, 1), slice(3, 10), slice(5, 7)):
        some = kernels.route(x[part], W)
        assert torch.equal(some.c, whole.c[part])
        assert torch.equal(some.z, whole.z[part])


def test_several_callers_at_once():
    x, W = inputs((40, 100, 4, 5, 6), 1)
    right = kernels.route(x, W)
    found = [None] * 4

    def call(k):
        found[k] = [kernels.route(x, W) for _ in range(5)]

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(torch.equal(r.z, right.z) and torch.equal(r.c, right.c) for results in found for r in results)


def test_the_winners_noise_is_the_noise_of_all_capsules():
    from capspoe.kernels.winner import sample_winner

    noise, on = Noise(3, 9, torch.tensor([5, 0, 123456789])), torch.tensor([2, 0, 3])
    for binary in (False, True):
        mean, h = torch.full((3, 6), 0.5), torch.empty(3, 6)
        sample_winner(mean.numpy(), on.numpy(), noise.index.numpy(), 3, 9, 1, 4, binary, h.numpy())
        everywhere = noise.uniform(1, 4, 6) < 0.5 if binary else 0.5 + noise.normal(1, 4, 6)
        torch.testing.assert_close(h, everywhere[torch.arange(3), on].float(), rtol=1e-5, atol=1e-6)


def test_the_choice_is_automatic_and_can_be_forced(monkeypatch):
    layer = CapsuleLayer((9, 3), (2, 5))
    x = torch.rand(4, 9, 3)
    assert not kernels.chosen(x, layer.w_JNMI)  # a gradient may have to flow
    with torch.no_grad():
        assert kernels.chosen(x, layer.w_JNMI)
        assert not kernels.chosen(x.double())
        assert not kernels.chosen(torch.empty(1, device="meta"))
        with kernels.use("reference"):
            assert not kernels.chosen(x)
        with kernels.use("kernel"), pytest.raises(InputError, match="float32 tensors on the CPU"):
            kernels.chosen(x.double())
        monkeypatch.setenv("CAPSPOE_BACKEND", "reference")
        assert not kernels.chosen(x)
        with kernels.use("kernel"):
            assert kernels.chosen(x)
        monkeypatch.setenv("CAPSPOE_BACKEND", "gpu")
        with pytest.raises(InputError, match="CAPSPOE_BACKEND must be one of"):
            kernels.chosen(x)
    with pytest.raises(InputError, match="backend must be one of"), kernels.use("fast"):
        pass


def test_the_exponential_is_good_to_the_last_bits():
    import numba

    from capspoe.kernels.vector import sigmoid

    @numba.njit
    def sigmoid_all(values):
        for i in range(0, len(values), 8):
            sigmoid(values, i)

    x = np.linspace(-95, 95, 8 * 2000, dtype=np.float32)
    found = x.copy()
    sigmoid_all(found)
    right = 1 / (1 + np.exp(-x.astype(np.float64)))
    near = np.abs(x) < 80
    assert np.abs(found / right - 1)[near].max() < 1e-5
    assert np.abs(found - right).max() < 3e-7


def test_kept_kernels_are_those_of_all_the_files(tmp_path):
    """A change in one file must not leave functions of another file in numba's cache that contain the old code."""
    package = tmp_path / "capspoe"
    shutil.copytree(
        Path(kernels.__file__).parent.parent, package, ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    program = (
        "import numpy as np; from capspoe.kernels import agreement; z = np.zeros(1, np.float32);"
        "agreement.collect(np.ones(8, np.float32), 0, np.float32(3), z); print(z[0])"
    )

    def run():
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    assert run() == 24
    file = package / "kernels" / "vector.py"
    text = file.read_text()
    changed = text.replace("b.store(b.fmul(first, factor)", "b.store(factor")
    assert changed != text
    file.write_text(changed)
    assert run() == 3
