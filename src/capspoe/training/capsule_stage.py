"""Stage 2: a capsule layer learns by contrastive divergence (section 3 of the paper), or by persistent chains."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from capspoe import distributed
from capspoe.errors import DivergedError
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients
from capspoe.training.cd import ContrastiveDivergence
from capspoe.training.codes import code_batch
from capspoe.training.optimizers import make_optimizer, optimizer_tensors, restore_optimizer, set_learning_rate
from capspoe.training.stage import Schedule, Stage, Step, Training
from capspoe.training.starts import LayerInputs, RandomStart, Start
from capspoe.training.targets import GateTargets, TargetFinder, gate_targets
from capspoe.training.update import Update

STREAM = 2  # of the order of the images; the layer's depth is added
LARGEST_WEIGHT = 100.0  # root mean square of the weights at which training has diverged


@dataclass(frozen=True)
class Annealing:
    """The gate's temperature where it has no targets: it falls to 1 by equal factors over a fraction of the stage."""

    temperature: float = 30.0
    fraction: float = 0.7

    def at(self, done: float) -> float:
        left = max(0.0, 1 - done / self.fraction) if self.fraction > 0 else 0.0
        return float(self.temperature**left)


@dataclass
class CapsuleStage(Stage):
    """Train one capsule layer on the codes.

    Parameters
    ----------
    depth : the layer, 0 at the bottom
    schedule : epochs and batches
    update : contrastive divergence, or persistent chains
    targets : finds the gate's targets; None anneals the gate instead
    follow_targets : whether the target is the capsule that is on. If not, targets only say where capsules start. Then
        the capsule is drawn from P(on | x), as in the mixture's likelihood
    learning_rate, momentum, weight_decay : of SGD; the learning rate falls linearly to 0, below the update's limit
    balance_rate : rate at which the gate's bias moves toward the targets' shares, or by the likelihood
    annealing : of the gate, without targets
    start : sets the parameters before the first step
    """

    depth: int
    schedule: Schedule
    update: Update = field(default_factory=ContrastiveDivergence)
    targets: TargetFinder | None = None
    learning_rate: float = 1e-3
    momentum: float = 0.9
    weight_decay: float = 1e-5
    balance_rate: float = 0.3
    annealing: Annealing = field(default_factory=Annealing)
    start: Start = field(default_factory=RandomStart)
    follow_targets: bool = True

    shown = ("reconstruction", "confidence")

    def __post_init__(self) -> None:
        self.name = f"capsules-{self.depth}"
        self.title = "2 capsules" if self.depth == 0 else f"2 capsules, layer {self.depth + 1}"
        self.found: GateTargets | None = None

    def steps(self, count: int) -> int:
        return self.schedule.steps(count)

    def begin(self, training: Training, first: int, state: dict[str, Tensor]) -> None:
        network = training.network
        layer = network.stack[self.depth]
        if message := self.schedule.extra_epochs(training.count):
            training.info(message)
        codes = training.codes  # here, where all processes are in step: they share the encoding
        state = dict(state)
        self.found = gate_targets(training, self.targets)
        if self.targets is not None and self.found is None:
            training.info("too few different images for spectral clustering: the gate anneals instead")
        self.update.restore(state)
        if first == 0:
            inputs = self.start.begin(LayerInputs(network, self.depth, codes, self.found))
            self.update.begin(inputs)
        if (largest := self.largest_rate(layer)) < self.learning_rate:
            training.info(
                f"the learning rate starts at {largest:.2g} instead of {self.learning_rate:g}: a higher one diverges "
                "with codes that vary this much"
            )
        biases = [layer.a, layer.b] if layer.bias else []
        self._ascent = make_optimizer(
            "sgd", [layer.w_JNMI], biases, self.learning_rate, self.weight_decay, self.momentum
        )
        restore_optimizer(self._ascent, state)

    def state(self) -> dict[str, Tensor]:
        return {**optimizer_tensors(self._ascent), **self.update.state()}

    def run(self, training: Training, first: int, last: int) -> Iterator[Step]:
        network = training.network
        layer = network.stack[self.depth]
        count = len(training.codes)
        for step, index in self.schedule.batches(count, STREAM + self.depth, first, last):
            shard = distributed.shard(index)
            noise = Noise(self.schedule.seed, step, torch.from_numpy(shard.images).to(network.device))
            with torch.no_grad():
                x = network.layer_input(code_batch(training.codes, shard.images, network.device), self.depth)
            yield Step(step + 1, shard.batch, self.train_step(layer, x, noise, shard, step / last))

    def train_step(
        self, layer: CapsuleLayer, x: Float[Tensor, "B I M"], noise: Noise, shard: distributed.Shard, done: float
    ) -> dict[str, Any]:
        """One update on a shard of a batch, when the fraction `done` of the stage is over; returns the metrics."""
        target = None
        temperature = self.annealing.at(done)
        if self.found is not None:
            temperature = 1.0
            if self.follow_targets:
                target = self.found.at(shard.images)
        decay = 1 - done
        try:
            set_learning_rate(self._ascent, min(decay * self.learning_rate, self.largest_rate(layer)))
            gradient, info = self.update.step(layer, x, noise, temperature, target)
        except torch.linalg.LinAlgError:
            raise DivergedError(
                f"training diverged at step {noise.step + 1}: the poses grow without bound; "
                "lower --learning-rate and run again (the last good checkpoint is kept)"
            ) from None
        mean = x.mean(0)
        square = x.square().mean()
        distributed.all_reduce_mean(shard.weight, *gradient, *info, mean, square, layer.mean_routing)
        set_gradients(layer, gradient)
        self._ascent.step()
        self.balance(layer, info.use, decay * self.balance_rate)
        metrics = {
            "reconstruction": info.reconstruction.item(),
            "baseline": (square - mean.square().mean()).item(),  # the error of always predicting the mean
            "confidence": info.confidence.item(),
            "routing_entropy": info.routing_entropy.item(),
            "weight_norm": layer.w_JNMI.norm().item(),
            "gradient_norm": gradient.w_JNMI.norm().item(),
            "temperature": temperature,
            "use": info.use.tolist(),
            **self.update.metrics(info),
        }
        # With targets a batch may well belong to one capsule.
        check_diverged(layer, metrics, noise.step + 1, 0 if self.found is not None else shard.batch)
        return metrics

    def largest_rate(self, layer: CapsuleLayer) -> float:
        """The learning rate up to which training is stable."""
        J = layer.upper[0]
        share = torch.full((J,), 1 / J) if self.found is None else self.found.share
        return self.update.largest_rate(share) / layer.gate.gradient_gain(J)

    def balance(self, layer: CapsuleLayer, use: Float[Tensor, " J"], rate: float) -> None:
        """Move the gate's bias."""
        if self.follow_targets or self.found is None:
            layer.balance(use, rate, None if self.found is None else self.found.share)
        elif (shares := self.update.shares(layer)) is not None:
            # The gradient of the log-likelihood: a capsule should be as probable as it is used.
            layer.balance(shares, rate, use)


def depth_of(stage: str) -> int | None:
    """The layer that a stage of this name trains; None for other stages."""
    number = stage.removeprefix("capsules-")
    return int(number) if number != stage and number.isdecimal() else None


def set_gradients(layer: CapsuleLayer, ascent: Gradients) -> None:
    """Give the optimizer, which descends, the gradients of contrastive divergence, which ascend."""
    gain = layer.gate.gradient_gain(layer.upper[0])
    for parameter, gradient in zip((layer.w_JNMI, layer.a, layer.b), ascent, strict=True):
        parameter.grad = -gain * gradient if parameter.requires_grad else None


def check_diverged(layer: CapsuleLayer, metrics: dict[str, Any], step: int, images: int) -> None:
    """Stop if training has diverged or collapsed, before a checkpoint is overwritten."""
    scale = math.sqrt(layer.w_JNMI.numel())
    if not metrics["weight_norm"] <= LARGEST_WEIGHT * scale:  # NaN as well
        raise DivergedError(
            f"training diverged at step {step}: the weights have grown to {metrics['weight_norm'] / scale:.0f} on "
            "average; lower --learning-rate and run again (the last good checkpoint is kept)"
        )
    if layer.gate.collapsed(metrics["use"], images):
        raise DivergedError(
            f"training collapsed at step {step}: capsule {int(np.argmax(metrics['use']))} takes all images; raise "
            "--balance-rate or --gate-temperature, or lower --learning-rate, and run again "
            "(the last good checkpoint is kept)"
        )
