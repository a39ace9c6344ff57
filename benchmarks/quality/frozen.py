"""An autoencoder that is trained once, and shared by all settings of the capsules that a script compares.

It is stored in runs/codecs, named by everything that it depends on: the settings of stage 1 and the source of the
autoencoder and its training. So another version of the code trains another one.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

import capspoe
from capspoe.config import Config
from capspoe.data import Dataset
from capspoe.evaluate.data import EvaluationData, Split, in_memory
from capspoe.model.autoencoder import ConvAutoencoder
from capspoe.model.codec import Codec
from capspoe.run.bundled import BUNDLED
from capspoe.run.model import CapsulePoE
from capspoe.run.train import image_shape, open_images
from capspoe.training.build import codec_stage
from capspoe.training.codes import codes_in_memory
from capspoe.training.fit import fit

FOLDER = Path("runs") / "codecs"
SOURCES = ("model/autoencoder.py", "model/codec.py", "model/subpixel.py", "training/codec_stage.py")
SETTINGS = (
    "data", "size", "crop", "colour", "limit", "codec", "patch", "channels", "dropout", "code_noise", "upsampling",
    "edge_weight",
)  # fmt: skip
STAGE_SETTINGS = ("min_steps", "momentum", "warmup", "clip_norm", "seed")


def stage_1(config: Config) -> dict[str, Any]:
    """The settings that the autoencoder depends on."""
    values = {}
    for name, value in asdict(config).items():
        if name in SETTINGS or name in STAGE_SETTINGS or name.startswith("autoencoder_"):
            values[name] = value
    return values


def codec_name(config: Config, altered: str | None) -> str:
    """A name for the autoencoder of these settings, as this version of the code trains it."""
    kind = f"-{altered}" if altered else ""
    return f"{config.data}-{config.channels}{kind}-{codec_digest(config)}"


def codec_digest(config: Config) -> str:
    """Of what the autoencoder depends on."""
    digest = hashlib.sha256(json.dumps(stage_1(config), sort_keys=True).encode())
    package = Path(capspoe.__file__).parent
    for source in SOURCES:
        digest.update((package / source).read_bytes())
    return digest.hexdigest()[:12]


def weights_digest(codec: Codec) -> str:
    """Of its parameters: the network that ships with the package may be made anew from the same settings."""
    digest = hashlib.sha256()
    for tensor in codec.state_dict().values():
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]


def tie_filters(codec: Codec) -> None:
    """Give the decoder the encoder's filters: those of a transposed convolution have the same shape."""
    assert isinstance(codec, ConvAutoencoder)
    for down, up in ((codec.down_2, codec.up_1), (codec.down_1, codec.up_2)):
        assert up.weight.shape == down.weight.shape, "only the mirrored decoder has the encoder's filters"
        up.weight = down.weight


class SteepAutoencoder(ConvAutoencoder):
    """LeakyReLU with slope .2 where it is negative, instead of .01; the paper does not say."""

    def code_logits(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B c h w"]:
        return self.down_2(F.leaky_relu(self.down_1(images), 0.2))

    def image_logits(self, code: Float[Tensor, "B c h w"]) -> Float[Tensor, "B C H W"]:
        return self.up_2(F.leaky_relu(self.up_1(code), 0.2))


def steepen(codec: Codec) -> None:
    """Make it a `SteepAutoencoder`, with the same parameters."""
    assert type(codec) is ConvAutoencoder
    codec.__class__ = SteepAutoencoder


# Autoencoders that no setting of the program gives.
ALTERATIONS: dict[str, Callable[[Codec], None]] = {"tied": tie_filters, "steep": steepen}


def with_trained_codec(config: Config, altered: str | None = None) -> CapsulePoE:
    """A network of these settings whose autoencoder is trained and whose capsules are not.

    The network that ships with the package lends its autoencoder if its settings are the same.

    Parameters
    ----------
    config : the settings
    altered : a name in ALTERATIONS, or None
    """
    shipped = CapsulePoE.load(BUNDLED)
    if stage_1(config) == stage_1(shipped.config) and altered is None:
        return CapsulePoE.build(config, shipped.image, shipped.codec).eval()
    images = open_images(config)
    network = CapsulePoE.build(config, image_shape(config, images))
    if altered is not None:
        ALTERATIONS[altered](network.codec)
    file = FOLDER / f"{codec_name(config, altered)}.safetensors"
    if file.exists():
        network.codec.load_state_dict(safetensors.torch.load_file(file))
        return network.eval()
    fit(network, images, [codec_stage(config)])
    FOLDER.mkdir(parents=True, exist_ok=True)
    # Copies: the file format refuses tensors that share memory, as tied filters do.
    weights = {}
    for name, tensor in network.codec.state_dict().items():
        weights[name] = tensor.clone(memory_format=torch.contiguous_format)
    safetensors.torch.save_file(weights, file)
    return network


class StoredCodes(EvaluationData):
    """Evaluation data whose codes are stored in runs/codecs, since a script that resumes needs them again."""

    def __init__(self, network: CapsulePoE, samples: int, altered: str | None) -> None:
        super().__init__(network, samples)
        self.altered = altered

    def load(self, dataset: Dataset) -> Split:
        pixels, labels = in_memory(dataset)
        split = "test" if dataset is self.test_set else "train"
        name = codec_name(self.network.config, self.altered)
        file = FOLDER / f"{name}-{weights_digest(self.network.codec)}-{split}.npy"
        if not file.exists():
            FOLDER.mkdir(parents=True, exist_ok=True)
            np.save(file, codes_in_memory(self.network, pixels))
        return Split(pixels, labels, np.load(file))


class FrozenCodes:
    """The codes of one autoencoder, with what scores need.

    Parameters
    ----------
    config : settings; those of the capsules do not matter
    samples : number of generated images that are scored
    altered : a name in ALTERATIONS, or None
    """

    def __init__(self, config: Config, samples: int, altered: str | None = None) -> None:
        self.network = with_trained_codec(config, altered)
        self.data = StoredCodes(self.network, samples, altered)

    @property
    def codes(self) -> np.ndarray:
        """(n, I, M), of the training images."""
        return self.data.train.codes

    def build(self, config: Config) -> CapsulePoE:
        """A network with untrained capsules of these settings above the same autoencoder."""
        return CapsulePoE.build(config, self.network.image, self.network.codec)
