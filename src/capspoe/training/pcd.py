r"""One update with persistent chains (Tieleman 2008) instead of chains that start at the data.

With gaussian neurons the visible units sum out, so a chain lives in the N dimensions of a capsule's pose and moves by
Hamiltonian Monte Carlo (`infer/chains.py`). It has nothing to do with the batch: the chains sample the model, and

.. math:: \Delta W_{ij} = r_{ij} (\langle x_i h_j \rangle_{data} - \langle P(x_i \mid h_j)\, h_j \rangle_{chains})

A chain has no image to route. So both phases use each capsule's mean routing weights: they must belong to one energy.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from capspoe.errors import damaged
from capspoe.infer.chains import PoseDensity, hmc
from capspoe.model.checks import check_count
from capspoe.model.layer import CapsuleLayer
from capspoe.model.noise import Noise
from capspoe.model.routed import Gradients, MeanRouting, WinnerRBM
from capspoe.training.update import Info, RoutedBatch, Update

LEAPS = 8  # leapfrog steps in each update; with 3 the chains do not mix
START_STREAM = 300  # of the chains' first states


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
    """

    def __init__(self, layer: CapsuleLayer, chains: int, gate_loss_weight: float = 1.0, seed: int = 0) -> None:
        check_count("chains", chains)
        PoseDensity.require(layer, "persistent chains")
        J, N = layer.upper
        noise = Noise.for_batch(J * chains, seed, dtype=layer.w_JNMI.dtype)
        self.h_JCN = noise.normal(START_STREAM, N).view(J, chains, N).to(layer.w_JNMI.device)
        self.gate_loss_weight = gate_loss_weight

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
        # Last: until here all processes have the same mean weights, and so the same chains.
        layer.follow_routing(batch.c, on)
        return gradient, batch.diagnostics(layer, x - x_neg)

    def state(self) -> dict[str, Tensor]:
        return {"chains": self.h_JCN}

    def restore(self, state: dict[str, Tensor]) -> None:
        chains = state.pop("chains", None)
        if chains is None:
            return
        if chains.shape != self.h_JCN.shape or not bool(torch.isfinite(chains).all()):
            raise damaged("the persistent chains do not fit the settings")
        self.h_JCN = chains.to(self.h_JCN)

    def move(self, layer: CapsuleLayer, noise: Noise) -> None:
        """One transition of every chain; the same in all processes, whatever their shard of the batch."""
        J, C, _ = self.h_JCN.shape
        own = Noise(noise.seed, noise.step, torch.arange(J * C, device=self.h_JCN.device), noise.dtype)
        self.h_JCN = hmc(PoseDensity.of(layer), self.h_JCN, own, LEAPS).h

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
