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

import capspoe
from capspoe.config import Config
from capspoe.data import Dataset
from capspoe.evaluate.data import EvaluationData, Split, in_memory
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


def codec_digest(config: Config) -> str:
    """A name for the autoencoder of these settings, as this version of the code trains it."""
    digest = hashlib.sha256(json.dumps(stage_1(config), sort_keys=True).encode())
    package = Path(capspoe.__file__).parent
    for source in SOURCES:
        digest.update((package / source).read_bytes())
    return digest.hexdigest()[:12]


def with_trained_codec(config: Config) -> CapsulePoE:
    """A network of these settings whose autoencoder is trained and whose capsules are not.

    The network that ships with the package lends its autoencoder if its settings are the same.
    """
    shipped = CapsulePoE.load(BUNDLED)
    if stage_1(config) == stage_1(shipped.config):
        return CapsulePoE.build(config, shipped.image, shipped.codec).eval()
    images = open_images(config)
    network = CapsulePoE.build(config, image_shape(config, images))
    file = FOLDER / f"{config.data}-{config.channels}-{codec_digest(config)}.safetensors"
    if file.exists():
        network.codec.load_state_dict(safetensors.torch.load_file(file))
        return network.eval()
    fit(network, images, [codec_stage(config)])
    FOLDER.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.contiguous() for name, tensor in network.codec.state_dict().items()}
    safetensors.torch.save_file(weights, file)
    return network


class StoredCodes(EvaluationData):
    """Evaluation data whose codes are stored in runs/codecs, since a script that resumes needs them again."""

    def load(self, dataset: Dataset) -> Split:
        pixels, labels = in_memory(dataset)
        config = self.network.config
        split = "test" if dataset is self.test_set else "train"
        file = FOLDER / f"{config.data}-{config.channels}-{codec_digest(config)}-{split}.npy"
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
    """

    def __init__(self, config: Config, samples: int) -> None:
        self.network = with_trained_codec(config)
        self.data = StoredCodes(self.network, samples)

    @property
    def codes(self) -> np.ndarray:
        """(n, I, M), of the training images."""
        return self.data.train.codes

    def build(self, config: Config) -> CapsulePoE:
        """A network with untrained capsules of these settings above the same autoencoder."""
        return CapsulePoE.build(config, self.network.image, self.network.codec)
