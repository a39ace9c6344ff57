"""Training on arrays in memory: all at once, or batch by batch for `partial_fit`. Uses the loops of `loops.py`."""

from collections.abc import Callable

import numpy as np
import torch

from capspoe.core.autoencoder import ConvAutoencoder
from capspoe.core.network import Network
from capspoe.core.noise import Noise
from capspoe.data import ArrayDataset
from capspoe.training import loops
from capspoe.training.codes import codes_in_memory
from capspoe.training.fit_prior import fit_prior
from capspoe.training.loops import Step
from capspoe.training.optimizers import autoencoder_optimizer, capsule_optimizer
from capspoe.training.targets import GateTargets, find_groups, group_means, wanted

REMEMBERED = 4096  # latest codes that an incrementally trained prior is fitted to

OnStep = Callable[[str, Step, int], None]  # stage, step, steps in the stage


def fit(network: Network, rows: np.ndarray, on_step: OnStep | None = None) -> None:
    """Both stages on pixels (n, H, W, C), or the second on codes (n, I, M) where there is no autoencoder."""
    if isinstance(network.autoencoder, ConvAutoencoder):
        steps = loops.planned_steps(network.config.autoencoder_epochs, len(rows), network.config)
        optimizer = autoencoder_optimizer(network)
        for step in loops.autoencoder_steps(network, ArrayDataset(rows), optimizer, 0, steps):
            if on_step:
                on_step("autoencoder", step, steps)
        rows = codes_in_memory(network, rows)
    fit_capsules(network, rows, on_step)


def fit_capsules(network: Network, codes: np.ndarray, on_step: OnStep | None = None) -> None:
    """Every capsule layer on codes (n, I, M), then the prior."""
    steps = loops.planned_steps(network.config.epochs, len(codes), network.config)
    for depth, layer in enumerate(network.stack):
        groups = find_groups(network, codes) if layer is network.top and wanted(network) else None
        targets = None if groups is None else GateTargets.of(groups, network, len(codes))
        means = None if targets is None else group_means(targets, codes, network)
        layer.start_from(loops.mean_input(network, depth, codes), means)
        optimizer = capsule_optimizer(layer, network.config)
        for step in loops.capsule_steps(network, depth, codes, optimizer, 0, steps, targets):
            if on_step:
                on_step(f"capsules-{depth}", step, steps)
    fit_prior(network, codes)


class Incremental:
    """Training batch by batch: one pass over each, at constant learning rates.

    The gate anneals over the first `anneal_fraction` of `min_steps` steps. The prior is fitted to the latest codes,
    with one Gaussian for each capsule.
    """

    def __init__(self, network: Network, trained: bool = False) -> None:
        """With `trained`, continue a trained network instead of initialising it."""
        self.network, self.step = network, network.config.min_steps if trained else 0
        self.started = trained
        self.share = network.prior.use.clone() if trained else None  # the use to aim for; None: equal
        self.codes = np.empty((0, *network.autoencoder.capsules), np.float16)
        self.optimizers = [capsule_optimizer(layer, network.config) for layer in network.stack]
        images = isinstance(network.autoencoder, ConvAutoencoder)
        self.autoencoder_optimizer = autoencoder_optimizer(network) if images else None

    def fit(self, rows: np.ndarray) -> None:
        """One pass over pixels (n, H, W, C), or over codes (n, I, M) where there is no autoencoder."""
        config = self.network.config
        for start in range(0, len(rows), config.batch_size):
            batch = rows[start : start + config.batch_size]
            index = torch.arange(len(batch), device=self.network.device)
            noise = Noise(config.seed, self.step, index)
            if self.autoencoder_optimizer:
                loops.update_autoencoder(self.network, batch, noise, self.autoencoder_optimizer)
            codes = self._codes(batch)
            for depth in range(len(self.network.layers)):
                self._capsule_step(depth, codes, noise)
            self.started = True
            self.step += 1
        self.codes = np.concatenate([self.codes, self._codes(rows[-REMEMBERED:])])[-REMEMBERED:]
        fit_prior(self.network, self.codes, components=1)

    def _codes(self, rows: np.ndarray) -> np.ndarray:
        return codes_in_memory(self.network, rows) if self.autoencoder_optimizer else rows

    def _capsule_step(self, depth: int, codes: np.ndarray, noise: Noise) -> None:
        network, c, layer = self.network, self.network.config, self.network.stack[depth]
        if not self.started:
            layer.start_from(loops.mean_input(network, depth, codes))
        with torch.no_grad():
            x = network.layer_input(loops.code_batch(codes, np.arange(len(codes)), network.device), depth)
        temperature = loops.annealed(self.step / max(c.min_steps, 1), c)
        optimizer = self.optimizers[depth]
        metrics = loops.update_layer(layer, x, noise, c, optimizer, temperature, share=self.share)
        loops.check_diverged(layer, metrics, self.step + 1, len(codes))
