"""The gate's targets: the gate learns them, copies of an image count once, and no group is empty."""

import numpy as np
import pytest
import torch

from capspoe import data
from capspoe.config import Config
from capspoe.errors import InputError, RunError
from capspoe.model.build import build_network
from capspoe.training import spectral
from capspoe.training.build import gate_targets
from capspoe.training.codes import codes_in_memory
from capspoe.training.stage import Training
from capspoe.training.targets import GateTargets, SpectralTargets
from capspoe.training.views import FUNCTIONS, Features, choose_view


def test_the_gate_learns_its_targets(model):
    """The gate of a trained network gives most images their spectral group."""
    pixels = data.load("digits").pixels[:256]
    codes = codes_in_memory(model, pixels)
    groups = SpectralTargets().find(Training(model, data.ArrayDataset(pixels), lambda: codes))
    agree = (model.encode(pixels, posterior="energy").on.argmax(1) == groups.numpy()).mean()
    assert agree > 0.6  # the largest group has less than half of them
    share = GateTargets.of(groups, model, 256).share
    assert share.tolist() == pytest.approx(np.bincount(groups) / 256)
    assert share.max() < 0.5


@pytest.mark.parametrize("options", [{"gate_targets": "none"}, {"gate": "none"}, {"layers": "1x4"}])
def test_a_gate_without_targets(options):
    network = build_network(Config(**{"channels": 8, "layers": "3x4"} | options), (8, 8, 1))
    assert gate_targets(Config(**options), network.top) is None
    network = build_network(Config(channels=8, layers="3x4"), (8, 8, 1))
    assert isinstance(gate_targets(Config(), network.top), SpectralTargets)


@pytest.mark.parametrize("groups", [[0, 1, 2], [0, 1, 2, 3], [0, 1, -1, 2], [0.0, 1.0, 2.0, 1.0]])
def test_targets_that_do_not_fit_are_refused(groups):
    network = build_network(Config(channels=8, layers="3x4"), (8, 8, 1))
    good = GateTargets.of(torch.tensor([0, 1, 2, 2], dtype=torch.int32), network, 4)
    assert good.at(np.array([3, 0])).tolist() == [2, 0]
    assert good.share.tolist() == [0.25, 0.25, 0.5]
    with pytest.raises(RunError, match="the gate's targets do not fit the images"):
        GateTargets.of(torch.tensor(groups), network, 4)


def test_copies_of_images_share_a_node_of_the_graph():
    """Six copies of each point would be one another's only neighbours."""
    rng = np.random.default_rng(0)
    points = rng.random((300, 8)).astype(np.float16)
    copies = rng.permutation(np.tile(np.arange(300), 6))
    alone, found = spectral.spectral_groups(points, 10), spectral.spectral_groups(points[copies], 10)
    for k in range(300):
        assert len(set(found[copies == k])) == 1
    sizes = np.bincount(found, minlength=10) / 6
    assert sizes.max() < 2 * np.bincount(alone).max()
    assert sizes.min() > 0.3 * np.bincount(alone).min()


def test_a_vote_leaves_no_group_empty(monkeypatch):
    """A group of one image in the graph has no majority among anyone's neighbours, its own included."""
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.random((400, 4)), [[1.2, 1.2, 1.2, 1.2]]]).astype(np.float16)
    monkeypatch.setattr(spectral, "GRAPH_IMAGES", 201)
    lonely = np.zeros(201, int)
    lonely[-1] = 1
    monkeypatch.setattr(spectral, "k_means", lambda *_: lonely)
    found = spectral.spectral_groups(points, 2)
    assert np.bincount(found, minlength=2).tolist() == [400, 1]


@pytest.mark.parametrize("view", ["pixels", "hog", "upright-hog", "auto"])
def test_the_graph_compares_another_view_of_the_images(view, model):
    """The groups are those of the view's points; two levels divide the kinds, and no group has two kinds."""
    images = data.ArrayDataset(data.load("digits").pixels[:256])
    training = Training(model, images, lambda: codes_in_memory(model, images.images().pixels))
    name = choose_view(images) if view == "auto" else view
    points = Features(FUNCTIONS[name]).points(images)
    found = SpectralTargets(view=view).find(training)
    assert np.array_equal(found.numpy(), spectral.spectral_groups(points, model.top.upper[0]))
    fine = SpectralTargets(view=view, kinds=2).find(training).numpy()
    kind = spectral.spectral_groups(points, 2)
    assert all(len(set(kind[fine == group])) == 1 for group in range(model.top.upper[0]))
    only_codes = Training(model, None, lambda: training.codes)
    if view == "auto":
        by_codes = SpectralTargets(view="codes").find(only_codes)
        assert torch.equal(SpectralTargets(view=view).find(only_codes), by_codes)
        return
    with pytest.raises(InputError, match="needs images"):
        SpectralTargets(view=view).find(only_codes)
