"""What routing does in a capsule layer: controls, starved capsules, diversity of the weights, sign symmetry.

Routing may look busy and change nothing. Those who looked found that uniform or random weights often do as well (Paik
et al. 2019, Gu and Tresp 2019), that the weights hardly depend on the input and capsules starve (Mitterreiter et al.
2023), and that routing without a bias cannot tell an input from its negative (Peer et al. 2019). `audit_routing` runs
these checks on any `CapsuleLayer`.

The controls replace the weights of a layer that was trained with its own, and train nothing. A control that costs
nothing shows that the weights carry nothing; one that costs something may do so only because the layer was trained
with others.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from capspoe.errors import InputError
from capspoe.model.checks import check_seed, check_tensor
from capspoe.model.layer import CapsuleLayer
from capspoe.model.network import Network
from capspoe.model.routing import length, route

BATCH = 256
STARVED = 0.1  # a capsule starves with less than this fraction of an equal share
RIDGE = 0.01  # penalty of the classifier, in units of the mean variance of a pose's neuron


@dataclass(frozen=True)
class Control:
    """How a layer does with some routing weights.

    pose_change : mean of |z' - z| / |z|, where z are the pre-activations with the layer's own weights
    same_winner : share of inputs with the same most probable capsule as with the layer's own weights
    reconstruction : mean squared error of the input through the layer and back
    accuracy : of a linear classifier of the poses, trained on every other input; None without labels
    """

    pose_change: float
    same_winner: float
    reconstruction: float
    accuracy: float | None


@dataclass(frozen=True)
class RoutingAudit:
    """The result of `audit_routing`. Weights are relative: 1 is uniform.

    controls : by name, "routing" first, which has the layer's own weights
    entropy : of the weights over the axis of their softmax; 1 is uniform, 0 is one weight alone
    moved : mean of |r - 1|, how far routing moves a weight from uniform
    static_share : share of the weights' variance that is the same for all inputs: 1 means that routing does not
        depend on the input, and its weights could be multiplied into W
    mean_activation : (J,), mean |squash(z_j)| of each upper capsule
    use : (J,), mean P(on) of each upper capsule
    starved_upper : upper capsules whose use is below a tenth of the mean
    starved_lower : lower capsules whose weight, averaged over inputs and the upper capsules that are on, is below a
        tenth of uniform
    sign_asymmetry : mean of the difference between |z_j| of an input and of its negative, relative to the mean |z_j|;
        0 means that no capsule can tell them apart
    same_winner_of_negative : share of inputs whose negative has the same most probable capsule
    """

    controls: dict[str, Control]
    inputs: int
    entropy: float
    moved: float
    static_share: float
    mean_activation: tuple[float, ...]
    use: tuple[float, ...]
    starved_upper: tuple[int, ...]
    starved_lower: tuple[int, ...]
    sign_asymmetry: float
    same_winner_of_negative: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def summary(self) -> list[str]:
        """The findings, one sentence each."""
        own = self.controls["routing"]
        uniform = self.controls["uniform"]
        J = len(self.use)
        lines = [
            f"Routing moves a weight by {self.moved:.0%} of uniform on average; "
            f"{self.static_share:.0%} of that variance is the same for all inputs.",
            f"With uniform weights {uniform.same_winner:.1%} of the inputs keep their capsule, and the error of "
            f"reconstructions goes from {own.reconstruction:.4f} to {uniform.reconstruction:.4f}.",
            f"{len(self.starved_upper)} of {J} upper capsules starve, and {len(self.starved_lower)} lower ones.",
            f"The negative of an input changes |z| by {self.sign_asymmetry:.1%}, and keeps its capsule in "
            f"{self.same_winner_of_negative:.1%} of all cases.",
        ]
        if own.accuracy is not None and uniform.accuracy is not None:
            lines.append(
                f"A linear classifier of the poses has accuracy {own.accuracy:.3f}, and {uniform.accuracy:.3f} with "
                "uniform weights."
            )
        return lines


WeightsOf = Callable[[Tensor, Tensor], Tensor]  # from inputs (B, I, M) and own weights c (B, J, I) to other weights


def controls(layer: CapsuleLayer, rng: torch.Generator) -> dict[str, WeightsOf]:
    """Routing weights to compare with a layer's own."""
    axis = 2 if layer.normalize == "lower" else 1

    def negated(x: Tensor, c: Tensor) -> Tensor:
        """Agreement of the wrong sign: predictions that disagree gain weight."""
        return route(
            x - layer.mu, layer.W, layer.iterations, layer.normalize, layer.agreement, -layer.sharpness
        ).c.detach()

    def shuffled(x: Tensor, c: Tensor) -> Tensor:
        """The same weights among other lower capsules, in another order for each input."""
        order_BI = torch.rand((len(c), c.shape[2]), generator=rng).argsort(1).to(c.device)
        # All upper capsules are permuted alike, which keeps the sums over either axis.
        return c.gather(2, order_BI[:, None].expand_as(c))

    def another(x: Tensor, c: Tensor) -> Tensor:
        """The weights of the next input."""
        return c.roll(1, 0)

    def random(x: Tensor, c: Tensor) -> Tensor:
        """Normal logits with the standard deviation of the layer's own."""
        deviation = c.clamp_min(1e-30).log().var(axis).mean().sqrt()
        return torch.softmax(deviation * torch.randn(c.shape, generator=rng).to(c), axis)

    return {
        "routing": lambda x, c: c,
        "uniform": lambda x, c: torch.full_like(c, 1 / layer.fan),
        "another input's": another,
        "shuffled": shuffled,
        "random": random,
        "negated": negated,
    }


@torch.no_grad()
def audit_routing(
    layer: CapsuleLayer,
    x: Float[Tensor, "B I M"],
    labels: Int[np.ndarray, " B"] | None = None,
    seed: int = 0,
) -> RoutingAudit:
    """Compare a layer's routing with controls, and look for starved capsules, static weights and sign symmetry.

    Parameters
    ----------
    layer : a layer with two routing iterations or more; any gate, neurons, axis and agreement
    x : (B, I, M), inputs as the layer gets them; a thousand are plenty
    labels : (B,), classes of the inputs, for the accuracy of a linear classifier
    seed : of the random and the shuffled weights
    """
    check_seed(seed)
    check_tensor("x", x, {"B": None, "I": layer.lower[0], "M": layer.lower[1]}, like=layer.w_JNMI)
    if layer.iterations == 1:
        raise InputError("this layer has one routing iteration: its weights are uniform, there is nothing to audit")
    if len(x) < 2:
        raise InputError("an audit needs two inputs or more")
    if labels is not None and len(labels) != len(x):
        raise InputError(f"labels must have one entry for each of the {len(x)} inputs, not {len(labels)}")
    rng = torch.Generator().manual_seed(seed)
    c_BJI = routing_weights(layer, x)
    own = Outcome.of(layer, x, c_BJI)
    results = {}
    for name, weights in controls(layer, rng).items():
        other = own if name == "routing" else Outcome.of(layer, x, weights(x, c_BJI))
        results[name] = compare(own, other, x, labels)
    negative_x = 2 * layer.mu - x  # the negative of the centred input, which is what the layer routes
    negative = Outcome.of(layer, negative_x, routing_weights(layer, negative_x))
    return RoutingAudit(
        controls=results,
        inputs=len(x),
        **weight_statistics(layer, c_BJI, own.on),
        **capsule_use(own),
        sign_asymmetry=float((own.length - negative.length).abs().mean() / own.length.mean().clamp_min(1e-30)),
        same_winner_of_negative=share_equal(own.winner, negative.winner),
    )


def routing_weights(layer: CapsuleLayer, x: Float[Tensor, "B I M"]) -> Float[Tensor, "B J I"]:
    return torch.cat([layer(part).c for part in x.split(BATCH)])


@dataclass(frozen=True)
class Outcome:
    """What a layer makes of its inputs with some routing weights."""

    z: Float[Tensor, "B J N"]
    on: Float[Tensor, "B J"]
    x: Float[Tensor, "B I M"]  # the reconstruction

    @classmethod
    def of(cls, layer: CapsuleLayer, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"]) -> "Outcome":
        parts = [cls._of_batch(layer, *batch) for batch in zip(x.split(BATCH), c.split(BATCH), strict=True)]
        return cls(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    @staticmethod
    def _of_batch(layer: CapsuleLayer, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        z = layer.preactivation(x, c)
        on = layer.on_probability(z, x)
        winner = on.argmax(1)
        h = layer.gate.mask(layer.hidden_mean(z), winner)
        return z, on, layer.visible_mean(h, c, winner if layer.gate.one_on else None)

    @property
    def winner(self) -> Int[Tensor, " B"]:
        return self.on.argmax(1)

    @property
    def length(self) -> Float[Tensor, "B J"]:
        return length(self.z).squeeze(-1)


def compare(own: Outcome, other: Outcome, x: Float[Tensor, "B I M"], labels: np.ndarray | None) -> Control:
    change = torch.linalg.vector_norm(other.z - own.z, dim=-1)
    return Control(
        pose_change=float((change / own.length.clamp_min(1e-30)).mean()),
        same_winner=share_equal(own.winner, other.winner),
        reconstruction=float((other.x - x).square().mean()),
        accuracy=None if labels is None else ridge_accuracy(other.z.flatten(1), torch.as_tensor(labels)),
    )


def share_equal(one: Tensor, other: Tensor) -> float:
    return float((one == other).float().mean())


def weight_statistics(layer: CapsuleLayer, c: Float[Tensor, "B J I"], on: Float[Tensor, "B J"]) -> dict[str, Any]:
    """How uneven the weights are, whether they depend on the input, and which lower capsules get none."""
    axis = 2 if layer.normalize == "lower" else 1
    r_BJI = layer.fan * c
    # The mean of r is 1, so its variance splits into that of the means over inputs and that over inputs.
    variance = (r_BJI - 1).square().mean()
    static = (r_BJI.mean(0) - 1).square().mean()
    entropy = torch.special.entr(c).sum(axis).mean() / np.log(max(layer.fan, 2))
    weight_I = torch.einsum("bj,bji->i", on, r_BJI) / on.sum().clamp_min(1e-30)
    return {
        "entropy": float(entropy),
        "moved": float((r_BJI - 1).abs().mean()),
        "static_share": float(static / variance) if variance > 0 else 1.0,
        "starved_lower": below(weight_I, STARVED),
    }


def capsule_use(own: Outcome) -> dict[str, Any]:
    squared = own.length.square()
    use = own.on.mean(0)
    return {
        "mean_activation": tuple((squared / (1 + squared)).mean(0).tolist()),
        "use": tuple(use.tolist()),
        "starved_upper": below(use, STARVED * float(use.mean())),
    }


def below(values: Tensor, limit: float) -> tuple[int, ...]:
    return tuple((values < limit).nonzero().flatten().tolist())


def ridge_accuracy(features: Float[Tensor, "n d"], labels: Int[Tensor, " n"]) -> float:
    """Accuracy of ridge regression to one-hot classes: trained on even inputs, tested on odd ones."""
    features = features.double()
    features = features - features[::2].mean(0)
    train, test = features[::2], features[1::2]
    classes = F.one_hot(labels.long()).to(train)
    penalty = RIDGE * len(train) * train.square().mean().clamp_min(1e-30)
    gram = train.T @ train + penalty * torch.eye(train.shape[1], dtype=train.dtype, device=train.device)
    weights = torch.linalg.solve(gram, train.T @ (classes[::2] - classes[::2].mean(0)))
    predicted = (test @ weights + classes[::2].mean(0)).argmax(1)
    return share_equal(predicted.cpu(), labels[1::2].cpu())


@torch.no_grad()
def audit_network(
    network: Network, images: Any, labels: Int[np.ndarray, " B"] | None = None, seed: int = 0
) -> list[RoutingAudit]:
    """`audit_routing` of every layer of a network that routes, bottom first.

    Parameters
    ----------
    network : the network
    images : as `Network.encode` takes them
    labels, seed : see `audit_routing`
    """
    if all(layer.iterations == 1 for layer in network.stack):
        raise InputError("this network does not route: it was trained with one routing iteration")
    codes = torch.cat(list(_codes(network, images)))
    audits = []
    for depth, layer in enumerate(network.stack):
        if layer.iterations > 1:
            x = torch.cat([network.layer_input(part, depth) for part in codes.split(BATCH)])
            audits.append(audit_routing(layer, x, labels, seed))
    return audits


def _codes(network: Network, images: Any) -> Iterator[Tensor]:
    for chunk in network.chunks(images):
        yield network.codec.encode(chunk)
