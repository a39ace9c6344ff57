"""The pretrained network: its layers against PyTorch's own, and weights that are refused."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from capspoe.errors import DataError
from capspoe.training.views import photos
from capspoe.training.views.efficientnet import EPSILON, Convolution, padding

needs_weights = pytest.mark.skipif(not photos.photos_installed(), reason="the extra photos is not installed")


@pytest.mark.parametrize(("size", "stride", "depthwise"), [(3, 2, False), (5, 1, True), (5, 2, True), (1, 1, False)])
def test_a_convolution_with_its_normalisation_folded_in(size, stride, depthwise):
    channels = 6
    plain = nn.Conv2d(channels, channels, size, stride, groups=channels if depthwise else 1, bias=False)
    normal = nn.BatchNorm2d(channels, eps=EPSILON).eval()
    nn.init.uniform_(normal.weight, 0.5, 2)
    nn.init.normal_(normal.bias)
    normal.running_mean.normal_()
    normal.running_var.uniform_(0.5, 2)
    weights = {"conv.weight": plain.weight.detach()}
    weights.update({f"bn.{name}": value for name, value in normal.state_dict().items()})
    x = torch.randn(2, channels, 13, 14)
    width, height = padding(14, size, stride), padding(13, size, stride)
    expected = F.relu6(normal(plain(F.pad(x, (*width, *height)))))
    assert expected.shape[2:] == (-(-13 // stride), -(-14 // stride))
    assert torch.allclose(Convolution(weights, "conv", "bn", stride)(x), expected, atol=1e-5)


@needs_weights
def test_features_of_photographs_know_what_they_show():
    """Crops of a flower are nearer to each other than to crops of a temple."""
    from sklearn.datasets import load_sample_images

    temple, flower = load_sample_images().images
    crops = [picture[y : y + 300, x : x + 300] for picture in (temple, flower) for y, x in ((20, 60), (90, 160))]
    features = photos.photo_features(np.stack(crops))
    assert features.shape == (4, 1280)
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    alike = features @ features.T
    assert min(alike[0, 1], alike[2, 3]) > alike[:2, 2:].max() + 0.1


@needs_weights
def test_other_weights_are_refused(monkeypatch):
    photos.load_network.cache_clear()
    monkeypatch.setattr(photos, "SHA256", "0" * 64)
    with pytest.raises(DataError, match="SHA-256"):
        photos.load_network()
    photos.load_network.cache_clear()
