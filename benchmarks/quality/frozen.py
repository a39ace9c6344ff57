"""An autoencoder that is trained once, and shared by all settings of the capsules that a script compares.

It is stored in runs/codecs, named by everything that it depends on: the settings of stage 1 and the source of the
autoencoder and its training. So another version of the code trains another one.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

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


def codec_name(config: Config, tied: bool) -> str:
    """A name for the autoencoder of these settings, as this version of the code trains it."""
    kind = "-tied" if tied else ""
    return f"{config.data}-{config.channels}{kind}-{codec_digest(config)}"


def codec_digest(config: Config) -> str:
    """Of what the autoencoder depends on."""
    digest = hashlib.sha256(json.dumps(stage_1(config), sort_keys=True).encode())
    package = Path(capspoe.__file__).parent
    for source in SOURCES:
        digest.update((package / source).read_bytes())
    return digest.hexdigest()[:12]


def tie_filters(codec: Codec) -> None:
    """Give the decoder the encoder's filters: those of a transposed convolution have the same shape."""
    assert isinstance(codec, ConvAutoencoder)
    for down, up in ((codec.down_2, codec.up_1), (codec.down_1, codec.up_2)):
        assert up.weight.shape == down.weight.shape, "only the mirrored decoder has the encoder's filters"
        up.weight = down.weight


def with_trained_codec(config: Config, tied: bool = False) -> CapsulePoE:
    """A network of these settings whose autoencoder is trained and whose capsules are not.

    The network that ships with the package lends its autoencoder if its settings are the same.

    Parameters
    ----------
    config : the settings
    tied : whether encoder and decoder share their filters
    """
    shipped = CapsulePoE.load(BUNDLED)
    if stage_1(config) == stage_1(shipped.config) and not tied:
        return CapsulePoE.build(config, shipped.image, shipped.codec).eval()
    images = open_images(config)
    network = CapsulePoE.build(config, image_shape(config, images))
    if tied:
        tie_filters(network.codec)
    file = FOLDER / f"{codec_name(config, tied)}.safetensors"
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

    def __init__(self, network: CapsulePoE, samples: int, tied: bool) -> None:
        super().__init__(network, samples)
        self.tied = tied

    def load(self, dataset: Dataset) -> Split:
        pixels, labels = in_memory(dataset)
        split = "test" if dataset is self.test_set else "train"
        file = FOLDER / f"{codec_name(self.network.config, self.tied)}-{split}.npy"
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
    tied : whether encoder and decoder share their filters
    """

    def __init__(self, config: Config, samples: int, tied: bool = False) -> None:
        self.network = with_trained_codec(config, tied)
        self.data = StoredCodes(self.network, samples, tied)

    @property
    def codes(self) -> np.ndarray:
        """(n, I, M), of the training images."""
        return self.data.train.codes

    def build(self, config: Config) -> CapsulePoE:
        """A network with untrained capsules of these settings above the same autoencoder."""
        return CapsulePoE.build(config, self.network.image, self.network.codec)
