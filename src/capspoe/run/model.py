"""CapsulePoE: a trained network that can be loaded, saved and sampled."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from capspoe.config import Config, Device
from capspoe.errors import CapspoeWarning, DamageWarning, InputError, RunError, damaged
from capspoe.infer.complete import complete
from capspoe.infer.explain import Explanation, Search, explain
from capspoe.infer.likelihood import score
from capspoe.infer.polarity import opposite
from capspoe.infer.sample import sample
from capspoe.model.build import build_network
from capspoe.model.checks import check_choice
from capspoe.model.codec import Codec
from capspoe.model.network import Network
from capspoe.model.recognition import Recognition
from capspoe.run import checkpoint, hub
from capspoe.run.bundled import find_run

SHIFT = 2.0  # pixels by which objects in an image may be off their usual place


def find_device(name: str = "auto") -> torch.device:
    """A device by name: cpu, cuda, mps, or auto for a GPU if there is one."""
    check_choice("device", name, get_args(Device))
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(kind for kind, there in available.items() if there))
    if not available[name]:
        raise InputError(f"there is no {name} device here; choose cpu, or auto")
    return torch.device(name)


class CapsulePoE(Network):
    """A capsule network from images to capsules and back; see `Network` for what images look like.

    >>> model = CapsulePoE.load("runs/mnist")  # or "mnist-small", which ships with the package
    >>> on, hidden = model.encode(images)
    >>> new = model.sample(20, seed=1).images
    """

    stage: str | None = None  # how far the training of its run got

    @classmethod
    def build(cls, config: Config, image: tuple[int, int, int], codec: Codec | None = None) -> "CapsulePoE":
        """An untrained network from settings, for images of shape (height, width, colours)."""
        return build_network(config, image, codec, cls)

    @property
    def config(self) -> Config:
        """The settings that it was built from."""
        if self.built_from is None:
            raise RunError("this network was put together from parts and has no settings; save its state_dict()")
        return self.built_from

    @config.setter
    def config(self, config: Config) -> None:
        self.built_from = config

    sample = sample
    """Generate images; see `capspoe.infer.sample.sample`."""
    complete = complete
    """Fill in what a mask hides, several times for each image; see `capspoe.infer.complete.complete`."""
    score = score
    """How likely each image is; see `capspoe.infer.likelihood.score`."""

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> "CapsulePoE":
        """Load a run folder, or a folder that `capspoe export` wrote, onto a device (see `find_device`).

        Takes the newest intact checkpoint, and warns if a newer one is damaged or the run is not finished.
        "mnist-small" is the network that ships with the package.
        """
        folder = find_run(folder)
        run = checkpoint.open_run(folder)
        saved = checkpoint.newest(folder)
        for problem in filter(None, (run.problem, *saved.problems)):
            warnings.warn(f"{problem}; using the newest intact checkpoint", DamageWarning, stacklevel=2)
        if saved.state.stage != checkpoint.DONE:
            text = f"{folder} is not finished (stage {saved.state.stage}): expect poor images until it is trained"
            warnings.warn(text, CapspoeWarning, stacklevel=2)
        model = cls.build(run.config, run.image)
        model.load_weights(saved.weights)
        model.stage = saved.state.stage
        return model.to(find_device(device)).eval()

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str = "cpu", **options: Any) -> "CapsulePoE":
        """Load a network from the Hugging Face Hub.

        Parameters
        ----------
        name : OWNER/NAME on the Hub, or a folder as `load` takes it
        device : see `find_device`
        **options : of `huggingface_hub.snapshot_download`, such as revision, token or local_files_only
        """
        return cls.load(hub.download(name, **options), device)

    def push_to_hub(
        self, name: str, run: str | Path | None = None, private: bool | None = None, **options: Any
    ) -> str:
        """Upload the network with its model card to the Hugging Face Hub; returns the address of the commit.

        Parameters
        ----------
        name : OWNER/NAME, created unless it exists
        run : a run folder, whose `evaluation.json` goes into the card
        private : whether a new repository is private
        **options : of `huggingface_hub.HfApi`, such as token
        """
        return hub.upload(self, None if run is None else Path(run), name, private, **options)

    def save(self, folder: str | Path) -> None:
        """Write the network as a finished run folder."""
        checkpoint.create(Path(folder), self.config, self.image)
        checkpoint.save(Path(folder), checkpoint.State(checkpoint.DONE), self.state_dict(), {})

    def chunks(self, images: Any) -> Iterator[Tensor]:
        """Images as tensors, a few at a time; warns if their polarity is not the network's."""
        inverted = 0
        total = 0
        for chunk in super().chunks(images):
            inverted += opposite(self, self.array(chunk))
            total += len(chunk)
            yield chunk
        if inverted > total / 2:
            text = f"{inverted} of {total} images seem to be the negatives of what the network was trained on"
            warnings.warn(f"{text}; if so, pass 1 - images", CapspoeWarning, stacklevel=4)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Set all weights, perhaps with a recognition network, after checking names, shapes, types and values."""
        if any(name.startswith("recognition.") for name in weights) and self.recognition is None:
            self.recognition = Recognition(self.image, self.top.upper[0]).requires_grad_(False)
        own = self.state_dict()
        fits = own.keys() == weights.keys()
        if not fits or any(own[k].shape != weights[k].shape or own[k].dtype != weights[k].dtype for k in own):
            raise damaged("the weights do not fit the settings in config.json")
        if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
            raise damaged("the weights contain NaN or infinite values")
        self.load_state_dict(weights)
        self._check_recognition()

    @torch.no_grad()
    def _check_recognition(self) -> None:
        """Refuse a recognition network that gives NaN, as one with a negative variance does."""
        if self.recognition is None:
            return
        height, width, colours = self.image
        self.recognition.eval()
        recognised = self.recognition(torch.ones(1, colours, height, width, device=self.device))
        if not bool(torch.isfinite(recognised.log_odds).all()):
            raise damaged("the weights of the recognition network give NaN")

    def explain(self, images: Any, k: int | None = 2, compose: str = "maximum", shift: float = 0.0) -> Explanation:
        """Find the k objects in each image; they may overlap, and be `shift` pixels off their usual place.

        With k None their number is found too. See `capspoe.infer.explain.explain`.
        """
        return explain(self, images, k, compose, Search(shift=shift))
