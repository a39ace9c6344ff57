"""Readings of the paper: what its text leaves open, as settings, and the training that each of them means.

A reading is a dict. `READING` has every entry with the value that the text suggests; `literal.py` tries the others.

    reconstruction   "together": all capsules reconstruct an image (Eq. 15). "alone": each for itself (Eq. 16)
    reverse          weights on the way down. "same": c_ij of the way up, as the paper says. "full": 1, as if they
                     were normalised over the one upper capsule that is on, which section 3.1 considers and declines
    visible_bias     "none", as in Eq. 9; "zero" or "mean": learned, as in Eq. 1, from 0 or the logit of the mean code
    hidden_bias      learned, as in Eq. 1
    hidden_states    "mean" or "drawn", in the chain
    visible_states   the same
    on               "all" capsules take part in an update; or "squash": each is drawn with |squash(z_j)| (Eq. 7); or
                     "one": one is drawn in proportion to it; or each is drawn with this probability (dropout of
                     capsules)
    gradient         "fixed": c is constant in the second step, as the paper says. "through": it is differentiated
    learning_rate, initial_std, weight_decay, iterations, sharpness, normalize
                     as in `capspoe train`
    epochs, images, seed
                     of training
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients
from capspoe.model.routing import squash_length
from capspoe.training.alone import CapsulePairs, CapsulesAlone
from capspoe.training.capsule_stage import CapsuleStage
from capspoe.training.cd import DROPOUT_STREAM, ContrastiveDivergence
from capspoe.training.fit import fit
from capspoe.training.stage import Schedule
from capspoe.training.update import Info, RoutedBatch, Update

Reading = dict[str, Any]
READING: Reading = {
    "reconstruction": "alone",
    "reverse": "same",
    "visible_bias": "none",
    "hidden_bias": False,
    "hidden_states": "mean",
    "visible_states": "mean",
    "on": "all",
    "gradient": "fixed",
    "learning_rate": 0.05,
    "initial_std": 0.05,
    "weight_decay": 1e-5,
    "iterations": 1,
    "sharpness": 1.0,
    "normalize": "lower",
    "epochs": 5,
    "images": 12_800,
    "seed": 0,
}
BATCH = 128
MOMENTUM = 0.9


class ReadingLayer(CapsuleLayer):
    """The paper's layer with the biases of a reading."""

    def __init__(self, lower: tuple[int, int], upper: tuple[int, int], reading: Reading, seed: int = 0) -> None:
        super().__init__(
            lower,
            upper,
            iterations=reading["iterations"],
            gate="none",
            neurons="binary",
            bias=True,
            centred=False,
            normalize=reading["normalize"],
            sharpness=reading["sharpness"],
            initial_std=reading["initial_std"],
            seed=seed,
        )
        self.starts_at_mean = reading["visible_bias"] == "mean"
        self.a.requires_grad_(reading["visible_bias"] != "none")
        self.b.requires_grad_(reading["hidden_bias"])

    def start_from(self, mean_code: Float[Tensor, "I M"], group_means: Float[Tensor, "J I M"] | None = None) -> None:
        if self.starts_at_mean:
            super().start_from(mean_code, group_means)


def drawn_on(on: str | float, z: Float[Tensor, "B J N"], noise: Noise) -> Float[Tensor, "B J"]:
    """1 for capsules that take part in an image's update, by the "on" of a reading."""
    if on == "one":
        return F.one_hot(noise.choose(DROPOUT_STREAM, squash_length(z)), z.shape[1]).to(z)
    if on == "squash":
        return (noise.uniform(DROPOUT_STREAM, z.shape[1]) < squash_length(z)).to(z)
    probability = 1.0 if on == "all" else float(on)
    return (noise.uniform(DROPOUT_STREAM, z.shape[1]) >= 1 - probability).to(z)


@dataclass(frozen=True)
class CapsulesDrawn(ContrastiveDivergence):
    """All capsules that are on reconstruct together. Which are on is drawn as a reading says."""

    on: str | float = "all"

    def kept(self, z: Float[Tensor, "B J N"], noise: Noise) -> Float[Tensor, "B J"]:
        return drawn_on(self.on, z, noise)


class Differentiated(Update):
    """The update of a reading by automatic differentiation, for what the program's own updates do not have.

    Its loss is E(x, h) - E(x', h'), where every capsule has an x' of its own if it reconstructs alone. Capsules that
    are off hold 0 in both.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading

    def step(
        self,
        layer: CapsuleLayer,
        x: Float[Tensor, "B I M"],
        noise: Noise,
        temperature: float = 1.0,
        target: Int[Tensor, " B"] | None = None,
    ) -> tuple[Gradients, Info]:
        through = self.reading["gradient"] == "through"
        w = layer.w_JNMI.detach().requires_grad_()
        a = layer.a.detach().requires_grad_()
        b = layer.b.detach().requires_grad_()
        with torch.set_grad_enabled(through):
            c, z = layer(x)
        with torch.enable_grad():
            r_BJ1I = layer.fan * c[:, :, None]
        on_BJ1 = drawn_on(self.reading["on"], z.detach(), noise)[:, :, None]
        x_BJMI = x.transpose(1, 2)[:, None].expand(-1, layer.upper[0], -1, -1)
        h_pos = on_BJ1 * layer.hidden_mean(z.detach())
        with torch.no_grad():
            x_neg, h_neg = self.chain(layer, h_pos, on_BJ1, r_BJ1I, noise)

        def minus_energy(x_BJMI: Tensor, h: Tensor) -> Tensor:
            z = torch.einsum("bjmi,jnmi->bjn", r_BJ1I * x_BJMI, w)
            return (h * (z + b)).sum((1, 2)) + (a.T * x_BJMI.mean(1)).sum((1, 2))

        with torch.enable_grad():
            ascent = (minus_energy(x_BJMI, h_pos) - minus_energy(x_neg, h_neg)).mean()
        gradients = list(torch.autograd.grad(ascent, (w, a, b), retain_graph=through))
        if self.reading["reverse"] == "full":
            gradients[0] /= layer.fan  # so that the learning rate is that of W, whatever the number of lower capsules
        if through:
            # What W changes by way of c.
            (by_routing,) = torch.autograd.grad(ascent, layer.w_JNMI)
            gradients[0] = gradients[0] + by_routing
        batch = RoutedBatch(c.detach(), z.detach(), layer.on_probability(z.detach(), x), None)
        info = batch.diagnostics(layer, torch.zeros_like(x))
        return Gradients(*gradients), info._replace(reconstruction=(x_BJMI - x_neg).square().mean())

    def chain(
        self, layer: CapsuleLayer, mean: Tensor, on_BJ1: Tensor, r_BJ1I: Tensor, noise: Noise
    ) -> tuple[Float[Tensor, "B J M I"], Float[Tensor, "B J N"]]:
        """One step: each capsule's x' and the means of its h'."""
        h = mean
        if self.reading["hidden_states"] == "drawn":
            h = layer.sample_hidden(mean, noise, 1)
        logits_BJMI = r_BJ1I * torch.einsum("bjn,jnmi->bjmi", h, layer.w_JNMI)
        if self.reading["reverse"] == "full":
            logits_BJMI *= layer.fan / r_BJ1I  # W = fan w
        if self.reading["reconstruction"] == "together":
            logits_BJMI = logits_BJMI.sum(1, keepdim=True).expand_as(logits_BJMI)
        x = torch.sigmoid(logits_BJMI + layer.a.T)
        if self.reading["visible_states"] == "drawn":
            x = (noise.uniform(2, *x.shape[1:]) < x).to(x)
        z = torch.einsum("bjmi,jnmi->bjn", r_BJ1I * x, layer.w_JNMI) + layer.b
        return x, on_BJ1 * layer.hidden_mean(z)


def update(reading: Reading) -> Update:
    """The program's own update where it has one."""
    states = {
        "sample_hidden": reading["hidden_states"] == "drawn",
        "sample_visible": reading["visible_states"] == "drawn",
    }
    together = reading["reconstruction"] == "together"
    if reading["gradient"] != "fixed" or (reading["on"] != "all" and not together):
        return Differentiated(reading)
    if together:
        return CapsulesDrawn(on=reading["on"], **states)
    kind = {"same": CapsulesAlone, "full": CapsulePairs}[reading["reverse"]]
    return kind(**states)


def train(network: Network, codes: np.ndarray, reading: Reading) -> Network:
    """A network with the same codec and capsules that were trained by a reading."""
    layer = ReadingLayer(network.codec.capsules, network.top.upper, reading, reading["seed"])
    stage = CapsuleStage(
        0,
        Schedule(reading["epochs"], BATCH, seed=reading["seed"]),
        update(reading),
        learning_rate=reading["learning_rate"],
        momentum=MOMENTUM,
        weight_decay=reading["weight_decay"],
    )
    trained = Network(network.codec, [layer])
    fit(trained, None, [stage], codes=codes[: reading["images"]])
    return trained
