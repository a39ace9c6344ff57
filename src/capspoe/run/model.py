"""CapsulePoE: a trained network that can be loaded, saved and sampled."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from capspoe.config import Config, Device
from capspoe.errors import CapspoeWarning, DamageWarning, InputError, RunError, damaged
from capspoe.infer.complete import DEFAULT as DEFAULT_SAMPLER
from capspoe.infer.complete import Completion, Sampler, complete
from capspoe.infer.explain import FITTED, Explanation, Search, explain
from capspoe.infer.likelihood import Scores, score
from capspoe.infer.polarity import opposite
from capspoe.infer.sample import Samples, sample
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

    # The reference shows the signatures below; the functions that they call document the parameters.

    def sample(
        self,
        count: int,
        capsule: int | list[int] | None = None,
        prior: str | None = None,
        gibbs: int = 0,
        seed: int = 0,
        prior_scale: float | None = None,
    ) -> Samples:
        """Generate images; the parameters are those of `capspoe.infer.sample.sample`."""
        return sample(self, count, capsule, prior, gibbs, seed, prior_scale)

    def complete(
        self, images: Any, mask: Any, count: int = 4, seed: int = 0, sampler: Sampler = DEFAULT_SAMPLER
    ) -> Completion:
        """Complete images several times each; the parameters are those of `capspoe.infer.complete.complete`."""
        return complete(self, images, mask, count, seed, sampler)

    def score(self, images: Any) -> Scores:
        """How likely each image's code and pixels are; see `capspoe.infer.likelihood.Scores`.

        It needs the gate and gaussian neurons, or binary neurons without the gate.
        """
        return score(self, images)

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
        """Write the network as a finished run folder, which must not hold a run yet."""
        folder = Path(folder)
        if checkpoint.exists(folder):
            raise RunError(f"{folder} holds a run already; save to another folder, or delete it first")
        checkpoint.create(folder, self.config, self.image)
        checkpoint.save(folder, checkpoint.State(checkpoint.DONE), self.state_dict(), {})

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

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As in PyTorch; weights of a recognition network make one, which an untrained network does not have."""
        self._prepare_recognition(state_dict)
        return super().load_state_dict(state_dict, strict, assign)

    def _prepare_recognition(self, weights: Mapping[str, Any]) -> None:
        # PyTorch would leave out the weights of a part that is None, and say that all keys matched.
        if any(name.startswith("recognition.") for name in weights) and self.recognition is None:
            recognition = Recognition(self.image, self.top.upper[0])
            self.recognition = recognition.to(self.device).train(self.training).requires_grad_(False)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Set all weights, perhaps with a recognition network, after checking names, shapes, types and values."""
        self._prepare_recognition(weights)
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

    def explain(
        self, images: Any, k: int | None = 2, compose: str = "maximum", shift: float = 0.0, fitted: bool = False
    ) -> Explanation:
        """Find the k objects in each image; they may overlap, and be `shift` pixels off their usual place.

        With k None their number is found too. `fitted` says that images were scaled until all their objects together
        had the usual size of one, as the commands do with pictures. See `capspoe.infer.explain.explain`.
        """
        enlargements = FITTED if fitted else Search.enlargements
        return explain(self, images, k, compose, Search(shift=shift, enlargements=enlargements))
