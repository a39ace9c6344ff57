r"""One update with persistent chains (Tieleman 2008) instead of chains that start at the data.

With gaussian neurons the visible units sum out, so a chain lives in the N dimensions of a capsule's pose and moves by
Hamiltonian Monte Carlo (`infer/chains.py`). It has nothing to do with the batch: the chains sample the model, and

.. math:: \Delta W_{ij} = r_{ij} (\langle x_i h_j \rangle_{data} - \langle P(x_i \mid h_j)\, h_j \rangle_{chains})

A chain has no image to route. So both phases use each capsule's mean routing weights: they must belong to one energy.

Chains between the capsules' densities and Gaussians help these chains to mix, and give log Z (`infer/tempering.py`).
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import damaged
from capspoe.infer.chains import PoseDensity, hmc
from capspoe.infer.likelihood import LogZ, log_weight
from capspoe.infer.tempering import LEVELS, Ladder
from capspoe.model.checks import check_count
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients, MeanRouting, WinnerRBM
from capspoe.training.starts import LayerInputs
from capspoe.training.update import Info, RoutedBatch, Update

LEAPS = 8  # leapfrog steps in each update; with 3 the chains do not mix
START_STREAM = 300  # of the chains' first states
BINARY_STREAM = 301  # of the units of a code that is scored
SCORED = 4  # every fourth image of a batch is scored, to save time
STABLE_RATE = 0.08  # learning rate times the variance of the poses; .1 was stable, .2 diverged (64x64 photographs)
POSE_IMAGES = 1000  # of each group, whose poses the chains start like
PREFIX = "ladder."  # of tensors in a checkpoint


class PersistentChains(Update):
    """C chains in each capsule, which move a little in every update.

    Parameters
    ----------
    layer : a layer with the gate and gaussian neurons
    chains : chains in each capsule
    gate_loss_weight : weight of the cross-entropy with which the gate learns its targets
    seed : seed of the first states

    Attributes
    ----------
    h_JCN : (J, C, N), the states of the chains; every checkpoint needs them
    ladder : the chains that temper them, once `begin` has been called
    log_z : estimates of log Z from both sides, with the ladder
    """

    def __init__(self, layer: CapsuleLayer, chains: int, gate_loss_weight: float = 1.0, seed: int = 0) -> None:
        check_count("chains", chains)
        PoseDensity.require(layer, "persistent chains")
        J, N = layer.upper
        noise = Noise.for_batch(J * chains, seed, dtype=layer.w_JNMI.dtype)
        self.h_JCN = noise.normal(START_STREAM, N).view(J, chains, N).to(layer.w_JNMI.device)
        self.gate_loss_weight = gate_loss_weight
        self.seed = seed
        self.ladder: Ladder | None = None
        self.log_z = LogZ(0.0, 0.0, ())

    @torch.no_grad()
    def begin(self, inputs: LayerInputs) -> None:
        """Start all chains like the poses of the data."""
        noise = Noise(self.seed, -1, self._index(), self.h_JCN.dtype)
        mean, covariance = pose_moments(inputs)
        self.ladder = Ladder.begin(mean, covariance, noise)
        self.h_JCN = self.ladder.h[-1].clone()

    @torch.no_grad()
    def step(
        self,
        layer: CapsuleLayer,
        x: Float[Tensor, "B I M"],
        noise: Noise,
        temperature: float = 1.0,
        target: Int[Tensor, " B"] | None = None,
    ) -> tuple[Gradients, Info]:
        """The gradient of the log likelihood, estimated from a batch and the chains (ascent direction)."""
        # Route, with W fixed. The gate sees each image's own routing weights.
        batch = RoutedBatch.of(layer, x, noise, temperature, target)
        on = batch.on
        assert on is not None  # the gate chooses one
        mean_routing = None if layer.iterations == 1 else layer.mean_routing
        rbm = WinnerRBM(layer, on, MeanRouting(mean_routing))

        # The positive phase.
        h_pos = rbm.hidden_mean(x)
        sums = rbm.sums()
        sums.add(x, h_pos, +1)
        if target is not None and self.gate_loss_weight:
            batch.add_gate_gradient(sums, layer, x, target, self.gate_loss_weight / temperature)

        # The negative phase.
        self.move(layer, noise)
        share = torch.bincount(on, minlength=layer.upper[0]).to(x) / len(x)
        negative = self.mean_gradients(layer, share)
        gradient = Gradients(*(plus - minus for plus, minus in zip(sums.total(), negative, strict=True)))

        # One step of the data's own chain, only to report how well a capsule reconstructs.
        x_neg = rbm.reconstruct(rbm.sample_hidden(h_pos, noise, 1)).x
        info = batch.diagnostics(layer, x - x_neg)
        if self.ladder is not None:
            info = info._replace(log_weight=mean_log_weight(layer, x, noise))
        # Last: until here all processes have the same mean weights, and so the same chains.
        layer.follow_routing(batch.c, on)
        return gradient, info

    def move(self, layer: CapsuleLayer, noise: Noise) -> None:
        """One transition of every chain; the same in all processes, whatever their shard of the batch."""
        own = Noise(noise.seed, noise.step, self._index(), noise.dtype)
        density = PoseDensity.of(layer)
        self.h_JCN = hmc(density, self.h_JCN, own, LEAPS).h
        if self.ladder is not None:
            self.h_JCN = self.ladder.step(density, self.h_JCN, own)
            self.log_z = LogZ.of(layer, self.ladder.lower, self.ladder.upper)

    def mean_gradients(self, layer: CapsuleLayer, share: Float[Tensor, " J"]) -> Gradients:
        """Averages of -dE/d(parameter) over each capsule's chains, times its share of the batch."""
        J, C, _ = self.h_JCN.shape
        share_J11 = share[:, None, None]
        # The visible units are summed out: x- = P(x | h).
        x_JCV = torch.sigmoid(PoseDensity.of(layer).logits(self.h_JCN)) - layer.mu.T.flatten()
        w_JNMI = torch.bmm(self.h_JCN.transpose(1, 2), x_JCV).view_as(layer.w_JNMI)
        return Gradients(
            w_JNMI=share_J11[..., None] / C * w_JNMI * layer.mean_routing[:, None, None],
            a=share_J11 * x_JCV.mean(1).view(J, *layer.lower[::-1]).transpose(1, 2),
            b=share[:, None] * self.h_JCN.mean(1),
        )

    def largest_rate(self, share: Float[Tensor, " J"]) -> float:
        """A step that the chains can follow: the wider a capsule's poses, the more a step moves its logits."""
        if self.ladder is None:
            return math.inf
        widest = torch.linalg.eigvalsh(self.ladder.covariance)[:, -1]
        return (STABLE_RATE / (share.to(widest) * widest).max()).item()

    def shares(self, layer: CapsuleLayer) -> Float[Tensor, " J"] | None:
        if self.ladder is None:
            return None
        return LogZ.shares(layer, (self.ladder.lower + self.ladder.upper) / 2)

    def metrics(self, info: Info) -> dict[str, float]:
        """The likelihood of the batch in nats per code, from both sides."""
        if self.ladder is None:
            return {}
        weight = info.log_weight.item()
        return {
            "log_likelihood_lower": weight - self.log_z.upper,
            "log_likelihood_upper": weight - self.log_z.lower,
        }

    def state(self) -> dict[str, Tensor]:
        tensors = {"chains": self.h_JCN}
        if self.ladder is not None:
            tensors |= {PREFIX + name: tensor for name, tensor in vars(self.ladder).items()}
        return tensors

    def restore(self, state: dict[str, Tensor]) -> None:
        chains = state.pop("chains", None)
        if chains is None:
            return
        J, C, N = self.h_JCN.shape
        shapes = {"h": (LEVELS, J, C, N), "mean": (J, N), "covariance": (J, N, N), "lower": (J,), "upper": (J,)}
        tensors = {name: state.pop(PREFIX + name, torch.empty(0)) for name in shapes}
        fits = all(tensors[name].shape == shape for name, shape in shapes.items()) and chains.shape == (J, C, N)
        if not fits or not all(bool(tensor.isfinite().all()) for tensor in (chains, *tensors.values())):
            raise damaged("the persistent chains do not fit the settings")
        self.h_JCN = chains.to(self.h_JCN)
        for name in ("h", "mean", "covariance"):
            tensors[name] = tensors[name].to(self.h_JCN)
        self.ladder = Ladder(**tensors)

    def _index(self) -> Int[Tensor, " JC"]:
        """Numbers of the chains, which their random numbers belong to."""
        J, C, _ = self.h_JCN.shape
        return torch.arange(J * C, device=self.h_JCN.device)


def pose_moments(inputs: LayerInputs) -> tuple[Float[Tensor, "J N"], Float[Tensor, "J N N"]]:
    """Mean and covariance of each group's poses h ~ P(h | x)."""
    layer = inputs.layer
    eye = torch.eye(layer.upper[1]).to(layer.b)
    means = []
    covariances = []
    for j, x_nIM in enumerate(inputs.groups(POSE_IMAGES)):
        if len(x_nIM) == 0:
            # No image has this capsule as its most probable one.
            means.append(torch.zeros_like(layer.b[j]))
            covariances.append(eye)
            continue
        z_nN = torch.einsum("nmi,bim->bn", layer.w_JNMI[j], x_nIM - layer.mu) + layer.b[j]
        offset = z_nN - z_nN.mean(0)
        means.append(z_nN.mean(0))
        covariances.append(offset.T @ offset / len(offset) + eye)
    return torch.stack(means), torch.stack(covariances)


def mean_log_weight(layer: CapsuleLayer, x: Float[Tensor, "B I M"], noise: Noise) -> Float[Tensor, ""]:
    """Mean of log P(x) + log Z over some images of a batch, with the units of their codes drawn."""
    scored = (noise.index % SCORED == 0).nonzero()[:, 0]
    if len(scored) == 0:
        scored = torch.zeros(1, dtype=torch.int64, device=x.device)
    own = Noise(noise.seed, noise.step, noise.index[scored], noise.dtype)
    drawn = (own.uniform(BINARY_STREAM, *layer.lower) < x[scored]).to(x)
    return log_weight(layer, drawn).mean()
