"""CapsulePoE and its samples, on a network that was trained for a moment."""

import numpy as np
import pytest
import torch

from capspoe import checkpoint
from capspoe.config import Config
from capspoe.errors import InputError, RunError
from capspoe.export import Generator
from capspoe.model import CapsulePoE
from capspoe.noise import Noise
from capspoe.prior import CapsulePrior
from capspoe.sampling import sample, sample_chunks, switched_on_states
from capspoe.stages import contrast_for
from capspoe.training import train
from runs import QUICK, capspoe

BIAS = "layers.0.b"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "model"
    train("digits", folder, quiet=True, **QUICK)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return CapsulePoE.load(folder)


@pytest.fixture(scope="module")
def images():
    from capspoe import data

    return data.load("digits", "test").pixels[:20]


def test_encode(model, images):
    on, hidden = model.encode(images)
    assert on.shape == (20, 4)
    assert hidden.shape == (20, 4, 6)
    np.testing.assert_allclose(on.sum(1), 1, atol=1e-5)
    x = torch.from_numpy(images.astype(np.float32) / 255).permute(0, 3, 1, 2)
    with torch.no_grad():
        z = model.top(model.autoencoder.encode(x)).z
    np.testing.assert_allclose(hidden, z, atol=1e-5)
    np.testing.assert_allclose(on, torch.softmax(z.square().sum(-1) / 2 + model.top.d, -1), atol=1e-5)


def test_images_may_come_in_any_sensible_form(model, images):
    expected = model.encode(images).hidden
    for other in (images[..., 0], images / np.float64(255), (images / 255).astype(np.float32)):
        np.testing.assert_allclose(model.encode(other).hidden, expected, atol=1e-4)
    np.testing.assert_allclose(model.encode(images[0]).hidden[0], expected[0], atol=1e-4)
    np.testing.assert_allclose(model.encode(images[0, ..., 0]).hidden[0], expected[0], atol=1e-4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.astype(int), "uint8 or float"),
        (lambda x: x.astype(float), r"values in \[0, 1\]"),
        (lambda x: x / 255 * np.nan, r"values in \[0, 1\]"),
        (lambda x: x[:, :20], r"shape \(n, 28, 28, 1\), not \(20, 20, 28, 1\)"),
        (lambda x: x[:0], "empty"),
        (lambda x: x.repeat(3, -1), "shape"),
        (lambda x: "cat.png", "uint8 or float"),
    ],
)
def test_images_that_do_not_fit_are_refused(model, images, wrong, message):
    with pytest.raises(InputError, match=message):
        model.encode(wrong(images))


def test_reconstruct_goes_through_the_winner_with_the_routing_of_the_way_up(model, images):
    painted = model.reconstruct(images)
    with torch.no_grad():
        c, z = model.top(model.autoencoder.encode(model.tensor(images)))
        on = model.top.on_given_visible(z).argmax(-1)
        h = torch.zeros_like(z)
        h[range(20), on] = z[range(20), on]
        code = torch.sigmoid(model.prior.contrast * torch.logit(model.top.visible_given_hidden(h, c)))
        expected = model.autoencoder.decode(code)
    np.testing.assert_allclose(painted, expected.permute(0, 2, 3, 1), atol=1e-5)
    with pytest.raises(InputError, match="through must be one of"):
        model.reconstruct(images, "the wall")


def test_contrast_makes_the_code_more_decided(model):
    h = torch.zeros(2, 4, 6)
    h[:, 1] = torch.tensor([[1.0], [-2.0]])
    seen = {}
    for factor in (1.0, 2.0, 5.0):
        decode = model.autoencoder.decode
        try:
            model.autoencoder.decode = lambda x, factor=factor: seen.update({factor: x.detach()})
            model.paint(h, None, factor)
        finally:
            model.autoencoder.decode = decode
    plain = model.top.visible_given_hidden(h, None).detach()
    torch.testing.assert_close(seen[1.0], plain)
    torch.testing.assert_close(torch.logit(seen[2.0]), 2 * torch.logit(plain), rtol=1e-3, atol=1e-3)
    assert (seen[5.0] * (1 - seen[5.0])).mean() < (plain * (1 - plain)).mean()


@pytest.mark.parametrize(("a_unit", "expected"), [(0.02, 5), (-0.04, 3), (0.09, 2), (0.4, 1.2), (2, 1)])
def test_contrast_is_the_largest_that_keeps_the_brightness(model, monkeypatch, a_unit, expected):
    codes = np.random.default_rng(0).uniform(0, 1, (40, *model.top.lower)).astype(np.float32)
    shade = lambda n, value: torch.full((n, 1, 2, 2), 0.5 + value)  # noqa: E731
    monkeypatch.setattr(model.autoencoder, "decode", lambda x: shade(len(x), 0))
    monkeypatch.setattr(model, "paint", lambda h, c, factor: shade(len(h), a_unit * (factor - 1)))
    assert contrast_for(model, codes) == expected


def test_the_contrast_that_was_found_is_painted_with_unless_one_is_said(model):
    h = torch.zeros(2, 4, 6)
    h[:, 1] = 1.0
    found = float(model.prior.contrast)
    assert found > 1
    said = CapsulePoE(model.config.replace(contrast=0.5), model.image).eval()
    said.load_state_dict(model.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(model.paint(h, None), model.paint(h, None, found))
        torch.testing.assert_close(said.paint(h, None), model.paint(h, None, 0.5))
        assert not torch.allclose(said.paint(h, None), model.paint(h, None))


def test_decode_needs_to_know_which_capsule_is_on(model, images):
    on, hidden = model.encode(images)
    with pytest.raises(InputError, match="several capsules on"):
        model.decode(hidden)
    painted = model.decode(hidden, on)
    np.testing.assert_allclose(model.decode(hidden, on.argmax(1)), painted, atol=1e-6)
    alone = np.zeros_like(hidden)
    alone[range(20), on.argmax(1)] = hidden[range(20), on.argmax(1)]
    np.testing.assert_allclose(model.decode(alone), painted, atol=1e-6)
    for wrong in (np.full(20, 4), np.zeros((20, 3)), np.zeros(19, int)):
        with pytest.raises(InputError, match="on must be"):
            model.decode(hidden, wrong)
    with pytest.raises(InputError, match=r"hidden must have shape \(n, 4, 6\)"):
        model.decode(hidden[:, :3])


@pytest.mark.parametrize("agreement", ["cosine", "dot"])
def test_a_single_capsule_is_routed_in_reverse_by_the_layers_agreement(agreement):
    settings = Config().replace(channels=8, layers="3x4", components=1, agreement=agreement)
    model = CapsulePoE(settings, (12, 12, 1)).eval()
    white = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    capsule = torch.tensor([0, 1, 2, 1, 0])
    h = switched_on_states(model, capsule, white)  # the prior is standard: z is white
    with torch.no_grad():
        expected = model.array(model.paint(h, model.top.reverse(h)))
        uniform = model.array(model.paint(h, None))
        exported = Generator(model)(capsule, white).numpy()
    np.testing.assert_allclose(model.decode(h), expected, atol=1e-5)
    np.testing.assert_allclose(exported, expected, atol=1e-5)
    assert np.allclose(uniform, expected, atol=1e-5) == (agreement == "cosine")


def test_save_and_load(model, images, tmp_path):
    model.save(tmp_path / "copy")
    copy = CapsulePoE.load(tmp_path / "copy")
    assert copy.config == model.config
    assert np.array_equal(copy.reconstruct(images), model.reconstruct(images))
    assert np.array_equal(copy.sample(4).images, model.sample(4).images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: {**w, "one more": w[BIAS].clone()}, "do not fit"),
        (lambda w: {k: v for k, v in w.items() if k != BIAS}, "do not fit"),
        (lambda w: {**w, BIAS: w[BIAS][:-1]}, "do not fit"),
        (lambda w: {**w, BIAS: w[BIAS].double()}, "another type"),
        (lambda w: {**w, BIAS: w[BIAS] * torch.nan}, "NaN or infinite"),
        (lambda w: {**w, BIAS: w[BIAS] + torch.inf}, "NaN or infinite"),
    ],
)
def test_weights_of_a_stranger_are_refused(model, tmp_path, change, message):
    """Their checksum is right: whoever writes a run writes that too."""
    checkpoint.create(tmp_path, model.config, model.image)
    checkpoint.save(tmp_path, checkpoint.State("done", 0), change(model.state_dict()), {})
    with pytest.raises(RunError, match=message):
        CapsulePoE.load(tmp_path)


def test_samples_depend_on_seed_and_number_alone(model):
    whole = model.sample(600, seed=3)
    assert whole.images.shape == (600, 28, 28, 1)
    assert whole.images.dtype == np.float32
    assert 0 <= whole.images.min() < whole.images.max() <= 1
    few = model.sample(7, seed=3)
    np.testing.assert_allclose(few.images, whole.images[:7], atol=1e-6)
    assert np.array_equal(few.capsule, whole.capsule[:7])
    assert not np.allclose(model.sample(7, seed=4).images, few.images)
    assert [len(part.images) for part in sample_chunks(model, 600)] == [256, 256, 88]


def test_capsules_are_chosen_by_use_or_by_name(model):
    counts = np.bincount(model.sample(600).capsule, minlength=4) / 600
    np.testing.assert_allclose(counts, model.prior.use, atol=0.07)
    assert set(model.sample(5, capsule=2).capsule) == {2}
    assert list(model.sample(5, capsule=[3, 1]).capsule) == [3, 1, 3, 1, 3]
    assert list(model.sample(np.int64(3), capsule=np.array([3, 1])).capsule) == [3, 1, 3]


def test_the_papers_sampling(model):
    """One capsule on, its neurons sigmoid(N(0, 1)), the rest 0, uniform weights, decoded."""
    found = model.sample(6, capsule=1, prior="standard", seed=2)
    e = Noise(2, 0, torch.arange(6)).normal(102, 6)
    h = torch.zeros(6, 4, 6)
    h[:, 1] = torch.sigmoid(e)
    with torch.no_grad():
        c = model.top.reverse(h)
        torch.testing.assert_close(c, torch.full_like(c, 1 / 36))
        expected = model.autoencoder.decode(model.top.visible_given_hidden(h, c))
    np.testing.assert_allclose(found.images, expected.permute(0, 2, 3, 1), atol=1e-5)


def test_spread_scales_the_variety_of_the_samples(model):
    """The same draws, farther from their components' means, of which there are few."""
    means, plain, wide = (model.sample(200, seed=1, spread=s).images for s in (0.0, 1.0, 1.6))
    assert len(np.unique(means.round(3), axis=0)) <= 4 * model.config.capsules.components
    assert 0 < np.square(plain - means).mean() < np.square(wide - means).mean()
    with pytest.raises(InputError, match="spread must be between"):
        model.sample(1, spread=-1.0)


def test_gibbs_steps_change_the_image_and_keep_the_capsule(model):
    start, later = model.sample(8, capsule=0), model.sample(8, capsule=0, gibbs=3)
    assert not np.allclose(start.images, later.images)
    assert set(later.capsule) == {0}
    assert np.array_equal(later.images, model.sample(8, capsule=0, gibbs=3).images)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"count": 0}, "count must be"),
        ({"count": 3, "capsule": 4}, "capsule must be below 4"),
        ({"count": 3, "capsule": -1}, "capsule must be"),
        ({"count": 3, "capsule": []}, "empty list"),
        ({"count": 3, "capsule": [1.5]}, "capsule must be a whole number"),
        ({"count": 3, "capsule": True}, "capsule must be a whole number"),
        ({"count": 3, "capsule": "1"}, "capsule must be a whole number"),
        ({"count": 3, "seed": 2**70}, "seed must be a whole number between"),
        ({"count": 3, "seed": 0.5}, "seed must be"),
        ({"count": 3, "prior": "flat"}, "prior must be one of"),
        ({"count": 3, "gibbs": -1}, "gibbs must be"),
    ],
)
def test_wrong_requests_are_named(model, arguments, message):
    with pytest.raises(InputError, match=message):
        model.sample(**arguments)


def test_the_fitted_prior_is_the_distribution_of_the_capsules_images():
    rng = np.random.default_rng(0)
    prior = CapsulePrior(2, 3, components=2)
    cloud = np.concatenate(
        [rng.normal([5, 0, 0], 0.5, (3000, 3)), rng.normal([-5, 1, 0], [1, 0.1, 2], (1000, 3))]
    )
    prior.fit(1, cloud, seed=0)
    z = prior.sample(torch.full((20000,), 1), Noise.for_batch(20000)).numpy()
    np.testing.assert_allclose(z.mean(0), cloud.mean(0), atol=0.15)
    np.testing.assert_allclose(np.cov(z.T), np.cov(cloud.T), rtol=0.05, atol=0.2)
    assert (z[:, 0] > 0).mean() == pytest.approx(0.75, abs=0.02)
    white = torch.randn(20000, 3, generator=torch.Generator().manual_seed(0))
    coloured = prior.from_white(torch.full((20000,), 1), white).numpy()
    np.testing.assert_allclose(coloured.mean(0), cloud.mean(0), atol=0.15)
    np.testing.assert_allclose(np.cov(coloured.T), np.cov(cloud.T), rtol=0.05, atol=0.2)
    lengths = prior.axes[1].norm(dim=0)
    assert (lengths[:-1] >= lengths[1:]).all()


@pytest.mark.parametrize("count", [0, 1, 2, 30])
def test_a_prior_from_few_images_is_finite(count):
    prior = CapsulePrior(1, 4, components=8)
    prior.fit(0, np.random.default_rng(0).normal(size=(count, 4)), seed=0)
    z = prior.sample(torch.zeros(100, dtype=torch.long), Noise.for_batch(100))
    assert torch.isfinite(z).all()


def test_identical_images_make_a_point():
    prior = CapsulePrior(1, 4)
    prior.fit(0, np.full((500, 4), 2.0), seed=0)
    z = prior.sample(torch.zeros(100, dtype=torch.long), Noise.for_batch(100))
    torch.testing.assert_close(z, torch.full((100, 4), 2.0), atol=0.01, rtol=0)


def test_states_with_one_capsule_on(model):
    h = switched_on_states(model, torch.tensor([2, 0]), torch.ones(2, 6))
    assert h.sum() == 12
    assert (h[0, 2] == 1).all()
    assert (h[1, 0] == 1).all()


def test_sample_command(folder, model, tmp_path):
    assert capspoe("sample", folder, "--count", 300, "--out", tmp_path / "x.npz").returncode == 0
    with np.load(tmp_path / "x.npz") as stored:
        assert stored["images"].shape == (4, 300, 28, 28, 1)
        assert stored["images"].dtype == np.float32
        assert list(stored["capsule"]) == [0, 1, 2, 3]
        every = stored["images"]
    done = capspoe("sample", folder, "--count", 5, "--capsule", 2, "--out", tmp_path / "y.npz")
    assert done.returncode == 0
    with np.load(tmp_path / "y.npz") as stored:
        np.testing.assert_allclose(stored["images"][0], every[2, :5], atol=1e-6)
        assert list(stored["capsule"]) == [2]
    together = sample(model, 8, capsule=[0, 1, 2, 3]).images.reshape(2, 4, 28, 28, 1)
    np.testing.assert_allclose(together.swapaxes(0, 1), every[:, :2], atol=1e-6)


def test_encode_command(folder, model, tmp_path):
    assert capspoe("encode", folder, "--split", "test", "--out", tmp_path / "x.npz").returncode == 0
    from capspoe import data

    pixels, labels = data.load("digits", "test")
    with np.load(tmp_path / "x.npz") as stored:
        assert np.array_equal(stored["labels"], labels)
        np.testing.assert_allclose(stored["hidden"], model.encode(pixels).hidden, atol=1e-4)
        np.testing.assert_allclose(stored["on"], model.encode(pixels).on, atol=1e-4)
