"""Training on arrays in memory, by the loops of `loops.py`."""

from collections.abc import Callable

import numpy as np

from capspoe.data import ArrayDataset
from capspoe.model.autoencoder import ConvAutoencoder
from capspoe.model.network import Network
from capspoe.train import loops
from capspoe.train.codes import codes_in_memory
from capspoe.train.fit_prior import fit_prior
from capspoe.train.loops import Step
from capspoe.train.optimizers import autoencoder_optimizer, capsule_optimizer
from capspoe.train.targets import GateTargets, find_groups, group_means, wanted

OnStep = Callable[[str, Step, int], None]  # stage, step, steps in the stage


def fit(network: Network, rows: np.ndarray, on_step: OnStep = lambda *_: None) -> None:
    """Both stages on pixels (n, H, W, C), or the second on codes (n, I, M) where there is no autoencoder."""
    if isinstance(network.codec, ConvAutoencoder):
        steps = loops.planned_steps(network.config.autoencoder_epochs, len(rows), network.config)
        optimizer = autoencoder_optimizer(network)
        for step in loops.autoencoder_steps(network, ArrayDataset(rows), optimizer, 0, steps):
            on_step("autoencoder", step, steps)
        rows = codes_in_memory(network, rows)
    fit_capsules(network, rows, on_step)


def fit_capsules(network: Network, codes: np.ndarray, on_step: OnStep = lambda *_: None) -> None:
    """Every capsule layer on codes (n, I, M), then the prior."""
    steps = loops.planned_steps(network.config.epochs, len(codes), network.config)
    for depth, layer in enumerate(network.stack):
        groups = find_groups(network, codes) if layer is network.top and wanted(network) else None
        targets = None if groups is None else GateTargets.of(groups, network, len(codes))
        means = None if targets is None else group_means(targets, codes, network)
        layer.start_from(loops.mean_input(network, depth, codes), means)
        optimizer = capsule_optimizer(layer, network.config)
        for step in loops.capsule_steps(network, depth, codes, optimizer, 0, steps, targets):
            on_step(f"capsules-{depth}", step, steps)
    fit_prior(network, codes)
