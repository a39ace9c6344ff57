"""CapsulePoE: a trained network that can be loaded, saved and sampled."""

import warnings
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from capspoe.config import Device
from capspoe.core.autoencoder import ConvAutoencoder
from capspoe.core.checks import check_choice
from capspoe.core.explain import Explanation, explain
from capspoe.core.network import Network
from capspoe.core.sampling import Samples, sample
from capspoe.errors import DamageWarning, InputError
from capspoe.run import checkpoint


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

    >>> model = CapsulePoE.load("runs/mnist")
    >>> on, hidden = model.encode(images)
    >>> new = model.sample(20, seed=1).images
    """

    stage: checkpoint.Stage = checkpoint.AUTOENCODER  # how far it is trained

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> "CapsulePoE":
        """Read a run folder, or a folder that `capspoe export` wrote, onto a device (see `find_device`).

        Takes the newest intact checkpoint, and warns if a newer one is damaged.
        """
        run = checkpoint.open_run(Path(folder))
        saved = checkpoint.newest(Path(folder))
        for problem in filter(None, (run.problem, *saved.problems)):
            warnings.warn(f"{problem}; using the newest intact checkpoint", DamageWarning, stacklevel=2)
        model = cls(run.config, run.image)
        model.load_weights(saved.weights)
        model.stage = saved.state.stage
        return model.to(find_device(device)).eval()

    def save(self, folder: str | Path) -> None:
        """Write the network as a finished run folder."""
        if not isinstance(self.autoencoder, ConvAutoencoder):
            raise InputError("a network of plain features has no run folder; pickle the estimator instead")
        checkpoint.create(Path(folder), self.config, self.image)
        checkpoint.save(Path(folder), checkpoint.State(checkpoint.DONE), self.state_dict(), {})

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Set all weights, after checking names, shapes, types and values."""
        own = self.state_dict()
        if set(own) != set(weights) or any(own[k].shape != weights[k].shape for k in own):
            raise checkpoint.damaged("the weights do not fit the settings in config.json")
        if any(own[k].dtype != weights[k].dtype for k in own):
            raise checkpoint.damaged("the weights have another dtype than the settings in config.json say")
        if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
            raise checkpoint.damaged("the weights contain NaN or infinite values")
        self.load_state_dict(weights)

    def sample(
        self,
        count: int,
        capsule: int | list[int] | None = None,
        prior: str | None = None,
        gibbs: int = 0,
        seed: int = 0,
        prior_scale: float | None = None,
    ) -> Samples:
        """Generate images; see `capspoe.core.sampling.sample`."""
        return sample(self, count, capsule, prior, gibbs, seed, prior_scale)

    def explain(self, images: Any, k: int | None = 2, compose: str = "maximum") -> Explanation:
        """The k objects in each image, which may overlap; see `capspoe.core.explain.explain`."""
        return explain(self, images, k, compose)
