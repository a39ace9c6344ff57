"""The recognition network: scenes with known capsules, training without labels, and its file."""

import numpy as np
import pytest
import torch

from capspoe import CapsulePoE
from capspoe.commands.explain import explain
from capspoe.config import Config
from capspoe.errors import InputError, RunError
from capspoe.model.build import build_network
from capspoe.model.network import Encoded, Network
from capspoe.model.recognition import Recognition, support
from capspoe.run import checkpoint
from capspoe.training import recognition
from capspoe.training.recognition import recognition_steps, scenes

SIDE, J = 12, 4


def bars(count=200, seed=0):
    """Images of a bar each, two kinds of rows and two of columns, and which kind it is, as P(on)."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, J, count)
    pixels = np.zeros((count, SIDE, SIDE, 1), np.uint8)
    for image, k in zip(pixels, kind, strict=True):
        at = rng.integers(0, 3) + (2 if k % 2 else 7)
        (image if k < 2 else image.transpose(1, 0, 2))[at] = rng.integers(150, 256)
    return pixels, np.eye(J, dtype=np.float32)[kind]


class Told(Network):
    """An untrained network whose gate always gives the P(on) passed in."""

    @classmethod
    def of(cls, on):
        network = build_network(Config(channels=8, layers=f"{J}x2"), (SIDE, SIDE, 1), kind=cls).requires_grad_(False)
        network.on = on
        return network

    def encode(self, images):
        return Encoded(self.on, np.zeros((len(self.on), J, 2)))


def test_scenes_hold_one_to_three_images_whose_capsules_are_the_target():
    pixels, on = bars()
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    scene, target = scenes(images, torch.from_numpy(on), torch.Generator().manual_seed(0), 300)
    assert scene.shape == (300, 1, SIDE, SIDE)
    assert 0 <= scene.min() <= scene.max() <= 1
    assert set(target.sum(1).tolist()) == {1, 2, 3}
    again = scenes(images, torch.from_numpy(on), torch.Generator().manual_seed(0), 300)
    assert all(map(torch.equal, again, (scene, target)))
    one = target.sum(1) == 1
    distance = torch.cdist(scene[one].flatten(1), images.flatten(1) / 255)
    same = distance.amin(1) < 0.05  # neither moved, nor erased, nor two of the same capsule
    assert 0.05 < same.float().mean() < 0.6
    assert torch.equal(target[one][same], torch.from_numpy(on)[distance.argmin(1)[same]])


def test_it_learns_to_name_the_capsules_of_two_objects():
    pixels, on = bars()
    steps = list(recognition_steps(Told.of(on), pixels, 150))
    net, losses = steps[-1][0], [loss for _, loss in steps]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) / 3
    pixels, on = bars(400, seed=1)
    pairs = np.arange(400).reshape(200, 2)
    pairs = pairs[(on[pairs[:, 0]] != on[pairs[:, 1]]).any(1)]
    two = torch.from_numpy(pixels[pairs].max(1)).permute(0, 3, 1, 2) / 255
    found = torch.zeros(len(two), J).scatter(1, net(two).topk(2, 1).indices, 1)
    right = (found.numpy() == on[pairs].max(1)).all(1).mean()
    assert right > 0.9


def test_dark_ink_is_learned_as_its_negative():
    pixels, on = bars()
    light = Told.of(on)
    dark = Told.of(on)
    dark.codec.up_2.bias.fill_(9.0)  # it decodes to white
    for (one, loss), (other, same) in zip(
        recognition_steps(light, pixels, 2), recognition_steps(dark, 255 - pixels, 2), strict=True
    ):
        assert loss == same
        assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))


def test_a_rectangle_is_at_most_as_large_as_its_sides_say(rng):
    rectangle = recognition.rectangles(500, (20, 30), rng)
    height = rectangle.any(2).sum(1)
    width = rectangle.any(1).sum(1)
    assert torch.equal(rectangle.sum((1, 2)), height * width)  # all of it is one rectangle
    assert (torch.minimum(height / 20, width / 30) <= recognition.SHORTER + 0.05).all()
    assert ((height == 20) | (width == 30)).float().mean() < 0.5


def test_support_is_the_sum_over_each_set():
    odds = torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])
    sets = torch.tensor([[[0, 1], [1, 2]], [[2, 0], [1, 0]]])
    assert support(odds, sets).tolist() == [[3, 6], [40, 24]]


def test_learn_stores_a_network_that_load_finds(run_copy, monkeypatch, tmp_path, images):
    monkeypatch.setattr(recognition, "STEPS", 3)
    before = CapsulePoE.load(run_copy)
    saved = checkpoint.newest(run_copy)
    assert before.recognition is None
    np.save(tmp_path / "x.npy", images[:2])
    explain([str(run_copy), str(tmp_path / "x.npy"), "--objects", "2", "--learn", "--out", str(tmp_path / "x.npz")])
    after = CapsulePoE.load(run_copy)
    assert isinstance(after.recognition, Recognition)
    assert after.recognition(after.tensor(images)).shape == (20, 4)
    assert not any(parameter.requires_grad for parameter in after.recognition.parameters())
    weights = after.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in before.state_dict().items())
    again = checkpoint.newest(run_copy)  # the run is otherwise what it was
    assert again.state == saved.state
    assert again.optimizer.keys() == saved.optimizer.keys()
    after.save(tmp_path / "copy")
    copy = CapsulePoE.load(tmp_path / "copy").state_dict()
    assert copy.keys() == weights.keys()
    assert all(torch.equal(value, copy[name]) for name, value in weights.items())


def test_it_moves_with_the_network(run_copy):
    model = CapsulePoE.load(run_copy)
    model.recognition = Recognition(model.image, model.top.upper[0])
    model.to("meta")
    assert {p.device.type for p in model.recognition.parameters()} == {"meta"}


def test_a_recognition_network_that_makes_no_sense_is_refused(run_copy):
    model = CapsulePoE.load(run_copy)
    model.recognition = Recognition(model.image, 4)
    weights = model.state_dict()
    for name in ("recognition.layers.1.running_mean", "recognition.layers.0.weight"):
        for wrong in (torch.full_like(weights[name], torch.nan), weights[name][:1]):
            with pytest.raises(RunError, match="the weights"):
                CapsulePoE.load(run_copy).load_weights({**weights, name: wrong})
    variance = "recognition.layers.1.running_var"
    with pytest.raises(RunError, match="give NaN"):
        CapsulePoE.load(run_copy).load_weights({**weights, variance: -weights[variance]})


def test_the_bundled_network_is_not_trained_again(tmp_path, images):
    np.save(tmp_path / "x.npy", images[:2])
    with pytest.raises(InputError, match="has a recognition network; leave out --learn"):
        explain(["mnist-small", str(tmp_path / "x.npy"), "--learn"])
