"""Training on arrays in memory, with the loops of `stages`, and bit by bit. No file is left."""

import math
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from capspoe import contrastive
from capspoe.autoencoder import ConvAutoencoder
from capspoe.checkpoint import State
from capspoe.codes import code_batch
from capspoe.data.source import Failure, Source
from capspoe.journal import Journal
from capspoe.model import CapsulePoE
from capspoe.noise import Noise
from capspoe.optimizers import autoencoder_optimizer, capsule_optimizer, set_gradients
from capspoe.stages import (
    as_input,
    enough_to_tell,
    fit_prior,
    gate_temperature,
    mean_input,
    train_autoencoder,
    train_capsules,
    watch,
)

REMEMBERED = 4096  # codes that the prior of a network trained bit by bit is fitted to


class Pixels(Source):
    """Images in memory, uint8 (n, H, W, C), with the channels that they have."""

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        self.pixels = pixels
        height, width, channels = pixels.shape[1:]
        self.shape, self.labels, self.classes = (height, width, channels), None, None

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], list[Failure]]:
        return self.pixels[indices], []


def fit(model: CapsulePoE, rows: np.ndarray) -> None:
    """Both stages on pixels (n, H, W, C), or the second on codes (n, I, M) where there is no autoencoder."""
    with tempfile.TemporaryDirectory(prefix="capspoe-") as name:
        journal = Journal(Path(name), State("autoencoder", 0), math.inf, quiet=True)
        try:
            if isinstance(model.autoencoder, ConvAutoencoder):
                train_autoencoder(model, Pixels(rows), Path(name), journal, State("autoencoder", 0), {})
                rows = codes_of(model, rows)
            for depth in range(len(model.layers)):
                train_capsules(model, depth, rows, Path(name), journal, State(f"capsules-{depth}", 0), {})
        finally:
            journal.close()
    fit_prior(model, rows)


@torch.no_grad()
def codes_of(model: CapsulePoE, pixels: NDArray[np.uint8]) -> np.ndarray:
    """The codes of images, as float16 like those of a run."""
    codes = np.empty((len(pixels), *model.autoencoder.capsules), np.float16)
    for start in range(0, len(pixels), 512):
        x = as_input(pixels[start : start + 512], model.device)
        codes[start : start + 512] = model.autoencoder.encode(x).cpu().numpy()
    return codes


class Partial:
    """Training bit by bit: one pass over each bit, with learning rates that do not fall.

    The gate finds its own groups: its temperature falls over the first `anneal` of `least_steps` steps, however these
    are divided. The prior is fitted to the latest codes, by one Gaussian a capsule.
    """

    def __init__(self, model: CapsulePoE, trained: bool = False) -> None:
        """A network that is `trained` is carried on with: nothing of it is set to its start."""
        self.model, self.step = model, model.config.training.least_steps if trained else 0
        self.started = trained
        # The use of the capsules that the gate's bias keeps to; equal use while there is none yet.
        self.share = model.prior.use.clone() if trained else None
        self.codes = np.empty((0, *model.autoencoder.capsules), np.float16)
        self.optimizers = [capsule_optimizer(model, layer) for layer in model.stack]
        images = isinstance(model.autoencoder, ConvAutoencoder)
        self.autoencoder_optimizer = autoencoder_optimizer(model) if images else None

    def fit(self, rows: np.ndarray) -> None:
        """One pass over pixels (n, H, W, C), or over codes (n, I, M) where there is no autoencoder."""
        batch = self.model.config.training.batch
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            index = torch.arange(len(part), device=self.model.device)
            noise = Noise(self.model.config.training.seed, self.step, index)
            if self.autoencoder_optimizer:
                self._step_of_autoencoder(self.autoencoder_optimizer, part, noise)
            codes = self._coded(part)
            for depth in range(len(self.model.layers)):
                self._step_of_capsules(depth, codes, noise)
            self.started = True
            self.step += 1
        latest = self._coded(rows[-REMEMBERED:])
        self.codes = np.concatenate([self.codes, latest])[-REMEMBERED:]
        fit_prior(self.model, self.codes, components=1)

    def _coded(self, rows: np.ndarray) -> np.ndarray:
        return codes_of(self.model, rows) if self.autoencoder_optimizer else rows

    def _step_of_autoencoder(
        self, optimizer: torch.optim.Optimizer, pixels: np.ndarray, noise: Noise
    ) -> None:
        network = self.model.autoencoder
        optimizer.zero_grad(set_to_none=True)
        network.loss(as_input(pixels, self.model.device), noise).mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()

    def _step_of_capsules(self, depth: int, codes: np.ndarray, noise: Noise) -> None:
        model, t, layer = self.model, self.model.config.training, self.model.stack[depth]
        if not self.started:
            layer.start_from(mean_input(model, depth, codes))
        with torch.no_grad():
            x = model.lift(code_batch(codes, np.arange(len(codes)), model.device), depth)
        temperature = gate_temperature(self.step / max(t.least_steps, 1), t.temperature, t.anneal)
        gradient, info = contrastive.step(layer, x, noise, k=t.cd, temperature=temperature)
        set_gradients(layer, gradient)
        self.optimizers[depth].step()
        if layer.gated:
            layer.balance(info.use, t.balance, self.share)
        values = {"weight_norm": layer.w_JNMI.norm().item(), "use": info.use.tolist()}
        watch(layer, values, self.step + 1, enough_to_tell(layer, len(codes)))
