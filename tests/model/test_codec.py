"""Codecs: pixels as capsules, and anybody's encoder."""

import pytest
import torch
from torch import nn

from capspoe.errors import InputError
from capspoe.infer.sample import sample
from capspoe.model.codec import Codec, ModuleCodec, as_codec, to_capsules
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.model.pixels import Pixels


class Autoencoder(nn.Module):
    """Somebody's, with a code of one of three shapes."""

    def __init__(self, code=(8, 3, 3)):
        super().__init__()
        self.code = code
        self.up = nn.Linear(36, 72)
        self.down = nn.Linear(72, 36)

    def encode(self, images):
        return torch.sigmoid(self.up(images.flatten(1))).reshape(-1, *self.code)

    def decode(self, code):
        return torch.sigmoid(self.down(code.flatten(1))).reshape(-1, 1, 6, 6)


@pytest.mark.parametrize(("code", "capsules"), [((8, 3, 3), (9, 8)), ((72,), (9, 8)), ((12, 6), (12, 6))])
def test_any_module_is_a_codec(code, capsules, rng):
    module = Autoencoder(code)
    codec = as_codec(module, (6, 6, 1))
    images = torch.rand(4, 1, 6, 6, generator=rng)
    x = codec.encode(images)
    assert codec.capsules == capsules == x.shape[1:]
    expected = module.encode(images)
    torch.testing.assert_close(x, to_capsules(expected) if len(code) == 3 else expected.reshape(4, *capsules))
    torch.testing.assert_close(codec.decode(x), module.decode(expected))
    assert codec.grid == ((3, 3) if len(code) == 3 else None)
    loss = codec.loss(images, Noise.for_batch(4))
    decoded = module.decode(expected)
    right = -(images * decoded.log() + (1 - images) * (1 - decoded).log()).mean((1, 2, 3))
    torch.testing.assert_close(loss, right)
    torch.testing.assert_close(codec.log_likelihood(images, x), -36 * right)
    assert codec.learns
    assert not as_codec(module.requires_grad_(False), (6, 6, 1)).learns


def test_a_module_may_have_a_loss_of_its_own():
    module = Autoencoder()
    module.loss = lambda images: images.sum((1, 2, 3))
    assert ModuleCodec(module, (6, 6, 1)).loss(torch.ones(2, 1, 6, 6), Noise.for_batch(2)).tolist() == [36, 36]


class Linear(Autoencoder):
    def encode(self, images):
        return self.up(images.flatten(1)) + 5


@pytest.mark.parametrize(
    ("module", "image", "message"),
    [
        (nn.Linear(2, 2), (6, 6, 1), "Linear has no method `encode`"),
        (Autoencoder(), None, r"image=\(height, width, colours\) is needed"),
        (Linear((72,)), (6, 6, 1), r"the code must lie in \[0, 1\]"),
        (Autoencoder((2, 6, 6)), (6, 6, 1), "make the number of channels a multiple of 8"),
        (Autoencoder(), (3, 12, 1), r"decode gives images of \(1, 6, 6\), not \(1, 3, 12\)"),
    ],
)
def test_what_cannot_be_a_codec_is_refused(module, image, message):
    with pytest.raises(InputError, match=message):
        as_codec(module, image)


def test_patches_of_binarised_pixels(rng):
    codec = Pixels((6, 8, 2), patch=2)
    images = torch.rand(3, 2, 6, 8, generator=rng)
    x = codec.encode(images)
    assert x.shape == (3, 12, 8)
    assert codec.grid == (3, 4)
    binary = (images > 0.5).float()
    for row in range(3):
        for column in range(4):
            square = binary[:, :, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
            assert torch.equal(x[:, 4 * row + column], square.flatten(1))
    assert torch.equal(codec.decode(x), binary)
    assert not codec.learns
    assert codec.log_likelihood(images, x).tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="cannot be divided into patches of 4x4"):
        Pixels((6, 8, 1), patch=4)


def test_pixels_are_drawn_with_their_brightness(rng):
    codec = Pixels((20, 30, 1), patch=2, drawn=True)
    grey = torch.full((1, 1, 20, 30), 51 / 255)  # a fifth
    images = torch.cat([grey.repeat(40, 1, 1, 1), torch.rand(3, 1, 20, 30, generator=rng).round()])
    images[:40].flatten(1)[torch.arange(40), torch.arange(40)] = 1.0  # so that all differ
    binary = codec.binary(images)
    assert set(binary.unique().tolist()) == {0, 1}
    assert binary[:40].mean().item() == pytest.approx(0.2, abs=0.01)
    # Each image has draws of its own, independent of each other.
    assert torch.corrcoef(binary[:40].flatten(1)).fill_diagonal_(0).abs().max() < 0.25
    # The same image is drawn alike, wherever it occurs; an image in 0 and 1 stays as it is.
    assert torch.equal(codec.binary(images[7:9]), binary[7:9])
    assert torch.equal(binary[40:], images[40:])
    assert torch.equal(codec.decode(codec.encode(images)), binary)
    assert not torch.equal(binary, Pixels((20, 30, 1), patch=2).binary(images))


def test_a_codec_without_a_decoder_says_so():
    class Encoder(Codec):
        image = (6, 6, 1)
        capsules = (9, 4)

        def encode(self, images):
            return torch.sigmoid(images.reshape(-1, 9, 4))

    network = Network(Encoder(), [CapsuleLayer((9, 4), (2, 3))])
    assert network.encode(torch.zeros(2, 6, 6, 1).numpy()).on.shape == (2, 2)
    with pytest.raises(InputError, match="Encoder has no decoder; its network cannot make images"):
        sample(network, 1)
