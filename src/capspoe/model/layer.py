r"""A layer of capsules as an energy model: parameters, energy, free energy and conditionals."""

import math
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.model.checks import check_choice, check_count, check_tensor
from capspoe.model.gates import GATES, on_weights
from capspoe.model.neurons import NEURONS
from capspoe.model.noise import Noise
from capspoe.model.routing import AgreementLike, Normalize, Routing, find_agreement, reverse_route, route

MARGIN = 1e-4  # mean codes are kept this far from 0 and 1
ROUTING_RATE = 0.02  # of the running mean of the routing weights, per batch


class CapsuleLayer(nn.Module):
    r"""Lower capsules x (I of M neurons) and upper capsules h (J of N neurons), joined by an energy:

    .. math::
        E(x, h) = -\sum_{ij} c_{ij}\, h_j^T W_{ij} (x_i - \mu_i) - a^T x - \sum_j b_j^T h_j
                  \;[+ |h|^2 / 2 \text{ for gaussian neurons}]

    With the gate, capsule j being on, a^T x becomes a_j^T (x - \mu) + d_j: every capsule has a visible bias of its
    own, as every component has in a mixture of RBMs (Nair and Hinton 2008).

    The first term is the paper's (Eq. 8 and 9). With the routing weights c fixed it is a restricted Boltzmann
    machine with weights c_ij W_ij, so everything below is exact for the c at hand.

    The layer stores w = W / I as `w_JNMI` and uses the relative weights r_ij = I c_ij, whose mean is 1: the same
    energy, with the learning rates of an ordinary RBM. (With normalize="upper" it is J instead of I.)

    Inside another network this is a module like any other: `squash(layer(x).z)` are its capsules, gradients flow
    through the routing, and torch.compile takes it whole.

    Parameters
    ----------
    lower, upper : (capsules, neurons in each)
    iterations : routing iterations; 1 means uniform weights
    gate : "winner", exactly one capsule is on (an implicit mixture of RBMs); "none", the paper's energy as written
    neurons : kind of upper neurons, "gaussian" or "binary"
    bias : whether to learn the biases a, (I, M) or with the gate (J, I, M), and b (J, N); the paper has none. "upper"
        learns b alone: a belongs to the energy, and gets no gradient in a network that only calls the layer
    centred : whether to subtract the mean code mu (I, M)
    normalize, agreement, sharpness, detach_routing : see `capspoe.route`
    initial_std : standard deviation of the initial w
    seed : seed of the initial w; by default they follow `torch.manual_seed`

    Attributes
    ----------
    w_JNMI, a, b : parameters
    W : the paper's matrices (J, I, N, M), as `capspoe.route` takes them, computed from w_JNMI
    mu, d : buffers, the mean code and the gate's bias (J,)
    """

    d: Tensor
    mu: Tensor
    mean_routing: Tensor

    def __init__(
        self,
        lower: tuple[int, int] = (576, 8),
        upper: tuple[int, int] = (20, 16),
        iterations: int = 3,
        gate: str = "winner",
        neurons: str = "gaussian",
        bias: bool | Literal["upper"] = True,
        centred: bool = True,
        normalize: Normalize = "lower",
        agreement: AgreementLike = "cosine",
        sharpness: float = 1.0,
        initial_std: float = 0.05,
        detach_routing: bool = False,
        seed: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        for name, (count, neurons_each) in {"lower": lower, "upper": upper}.items():
            check_count(f"the number of {name} capsules", count)
            check_count(f"the number of neurons in a {name} capsule", neurons_each)
        check_count("iterations", iterations)
        check_choice("gate", gate, tuple(GATES))
        check_choice("neurons", neurons, tuple(NEURONS))
        check_choice("normalize", normalize, ("lower", "upper"))
        if not (math.isfinite(sharpness) and math.isfinite(initial_std) and initial_std >= 0):
            raise InputError("sharpness and initial_std must be finite, and initial_std not negative")
        self.lower = (int(lower[0]), int(lower[1]))
        self.upper = (int(upper[0]), int(upper[1]))
        self.iterations = iterations
        self.gate = GATES[gate]
        self.neurons = NEURONS[neurons]
        self.normalize = normalize
        self.agreement = find_agreement(agreement)
        self.sharpness = float(sharpness)
        self.bias = bias
        self.centred = centred
        self.detach_routing = detach_routing
        (I, M), (J, N) = self.lower, self.upper
        rng = None if seed is None else torch.Generator().manual_seed(seed)
        start = torch.randn((J, N, M, I), generator=rng, dtype=dtype)
        self.w_JNMI = nn.Parameter(initial_std * start)
        bias_shape = self.gate.bias.shape(J, self.lower)
        self.a = nn.Parameter(torch.zeros(bias_shape, dtype=dtype), requires_grad=bias is True)
        self.b = nn.Parameter(torch.zeros(J, N, dtype=dtype), requires_grad=bool(bias))
        self.register_buffer("d", torch.zeros(J, dtype=dtype))
        self.register_buffer("mu", torch.zeros(I, M, dtype=dtype))
        self.register_buffer("mean_routing", torch.ones(J, I, dtype=dtype))

    @classmethod
    def rbm(cls, visible: int, hidden: int, **options: Any) -> "CapsuleLayer":
        """The scalar product of experts of section 2.1 (Eq. 1): capsules of one neuron, nothing to route."""
        defaults: dict[str, Any] = {"iterations": 1, "gate": "none", "neurons": "binary", "centred": False}
        return cls((visible, 1), (hidden, 1), **(defaults | options))

    @property
    def W(self) -> Float[Tensor, "J I N M"]:
        """The paper's matrices: W[j, i] is W_ij."""
        return self.fan * self.w_JNMI.permute(0, 3, 1, 2)

    @property
    def fan(self) -> int:
        """Number of capsules that the softmax runs over: uniform weights are c = 1 / fan."""
        return self.lower[0] if self.normalize == "lower" else self.upper[0]

    def extra_repr(self) -> str:
        (I, M), (J, N) = self.lower, self.upper
        gate, neurons = self.gate.name, self.neurons.name
        return f"{I}x{M} -> {J}x{N}, iterations={self.iterations}, gate={gate}, neurons={neurons}"

    @torch.no_grad()
    def start_from(self, mean_code: Float[Tensor, "I M"], group_means: Float[Tensor, "J I M"] | None = None) -> None:
        """Centre on the mean code, and set the visible bias so that the layer alone reproduces it.

        With `group_means`, the mean codes of the gate's targets, every capsule starts as its group: a mixture of
        independent units.
        """
        check_tensor("mean_code", mean_code, {"I": self.lower[0], "M": self.lower[1]})
        mean = mean_code.to(self.mu)
        if self.centred:
            self.mu.copy_(mean)
        if self.bias:
            start = mean if group_means is None else group_means.to(self.mu)
            self.a.copy_(torch.logit(start, eps=MARGIN))
        if self.bias and group_means is not None:
            self.d.copy_((self.a * self.mu - F.softplus(self.a)).sum((1, 2)))
            self.d.sub_(self.d.mean())

    def relative(self, c: Float[Tensor, "B J I"] | None) -> Float[Tensor, "B J I"] | None:
        """r = fan c, or None where the weights are uniform (r = 1): always so with one iteration."""
        return None if c is None or self.iterations == 1 else self.fan * c

    # Up: from the lower layer to the upper one.

    def forward(self, x: Float[Tensor, "B I M"]) -> Routing:
        """Route x; return the paper's c and the pre-activations z, biases included."""
        sizes = {"B": None, "I": self.lower[0], "M": self.lower[1]}
        check_tensor("x", x, sizes, like=self.w_JNMI, finite=self.iterations == 1)
        if self.iterations == 1:
            c = x.new_full((), 1 / self.fan).expand(x.shape[0], self.upper[0], self.lower[0])
            return Routing(c, self.preactivation(x, None))
        centred = x - self.mu
        name = self.agreement.name
        if name and (fused := kernels.select(centred, self.w_JNMI, self.b, agreement=name)):
            options = kernels.RoutingOptions(self.iterations, self.normalize, name, self.sharpness)
            return Routing(*fused.route_relative(centred, self.w_JNMI, options, float(self.fan), self.b))
        routing = route(
            centred, self.W, self.iterations, self.normalize, self.agreement, self.sharpness, self.detach_routing
        )
        return Routing(routing.c, routing.z + self.b)

    @torch.no_grad()
    def follow_routing(self, c: Float[Tensor, "B J I"], on: Int[Tensor, " B"]) -> None:
        """Move every capsule's mean relative routing weights toward those of its images in the batch."""
        if self.iterations > 1:
            own_BJ = F.one_hot(on, self.upper[0]).to(c)
            change = torch.einsum("bj,bji->ji", own_BJ, self.fan * c - self.mean_routing) / len(c)
            self.mean_routing.add_(change, alpha=ROUTING_RATE * self.upper[0])

    def preactivation(self, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"] | None) -> Float[Tensor, "B J N"]:
        """z_j = sum_i c_ij W_ij (x_i - mu_i) + b_j (Eq. 5) for fixed c; None means uniform weights."""
        x = x - self.mu
        w = self.w_JNMI
        r = self.relative(c)
        if r is None:
            return torch.einsum("jnmi,bim->bjn", w, x) + self.b
        # One upper capsule after the other, in this order: no (B, J, I, M) is stored.
        z_J = [torch.einsum("bi,bim,nmi->bn", r[:, j], x, w[j]) for j in range(self.upper[0])]
        return torch.stack(z_J, 1) + self.b

    def hidden_mean(self, z: Float[Tensor, "B J N"]) -> Float[Tensor, "B J N"]:
        """E[h_j | x, j on]: sigmoid(z_j) for binary neurons (Eq. 14), z_j for gaussian ones."""
        return self.neurons.mean(z)

    def sample_hidden(self, mean: Float[Tensor, "B J N"], noise: Noise, stream: int) -> Float[Tensor, "B J N"]:
        """h ~ P(h | x), given its mean."""
        return self.neurons.sample(mean, noise, stream)

    def on_probability(
        self, z: Float[Tensor, "B J N"], x: Float[Tensor, "B I M"], temperature: float = 1.0
    ) -> Float[Tensor, "B J"]:
        """P(j on | x), by the gate."""
        return self.gate.on_probability(z, self.log_evidence(z, x), self.d, temperature)

    # Down: from the upper layer to the lower one.

    def visible_mean(
        self, h: Float[Tensor, "B J N"], c: Float[Tensor, "B J I"] | None, on: Tensor | None = None
    ) -> Float[Tensor, "B I M"]:
        """P(x_i = 1 | h) = sigmoid(a_i + sum_j c_ij W_ij^T h_j) (Eq. 15) for fixed c; None means uniform.

        `on` is the capsule whose visible bias counts, (B,), or the weight of each, (B, J); by default those that are
        not 0.
        """
        w = self.w_JNMI
        r = self.relative(c)
        a = self.gate.bias.logits(self.a, on_weights(h, on))
        if r is None:
            return torch.sigmoid(a + torch.einsum("jnmi,bjn->bim", w, h))
        y = a.expand(h.shape[0], -1, -1)
        for j in range(self.upper[0]):
            y = y + torch.einsum("nmi,bn,bi->bim", w[j], h[:, j], r[:, j])
        return torch.sigmoid(y)

    def reverse(self, h: Float[Tensor, "B J N"]) -> Float[Tensor, "B J I"] | None:
        """Routing weights of the reverse pass, from the upper states alone (section 4.1); None means uniform.

        They are uniform by construction with one iteration, and when a single capsule is on (see `reverse_route`).
        """
        check_tensor("h", h, {"B": None, "J": self.upper[0], "N": self.upper[1]}, like=self.w_JNMI)
        if self.iterations == 1 or (self.agreement.angle_only and self._single_on(h)):
            return None
        return reverse_route(h, self.W, self.iterations, self.agreement, self.sharpness).c

    def _single_on(self, h: Float[Tensor, "B J N"]) -> bool:
        """Whether at most one capsule is on in every image: by the gate, or as far as the values can be seen."""
        if self.gate.one_on:
            return True
        if kernels.is_tracing(h):
            return False
        on_BJ = (h != 0).any(-1)
        return bool((on_BJ.sum(-1) <= 1).all())

    # Energies.

    def energy(
        self,
        x: Float[Tensor, "B I M"],
        h: Float[Tensor, "B J N"],
        c: Float[Tensor, "B J I"] | None,
        on: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """E(x, h) for fixed c (Eq. 9). With the gate, `on` is the capsule that is on; h is 0 elsewhere."""
        joint = (self.preactivation(x, c) * h).sum((1, 2))
        visible = self.gate.bias.energy(self.a, x, self.mu, on)
        return self.neurons.energy(h).sum((1, 2)) - joint + visible + self.gate.energy(self.d, on)

    def log_evidence(self, z: Float[Tensor, "B J N"], x: Float[Tensor, "B I M"]) -> Float[Tensor, "B J"]:
        """F_j = log of the sum of exp(z_j . h_j - E_0(h_j)) over capsule j's states; with the gate + a_j'(x - mu).

        The sum is sum_n log(1 + exp(z_jn)) for binary neurons, |z_j|^2 / 2 for gaussian ones (up to a constant).
        """
        return self.neurons.log_partition(z).sum(-1) + self.gate.bias.evidence(self.a, x, self.mu)

    def free_energy(self, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"] | None) -> Float[Tensor, " B"]:
        """-log P(x) - log Z for fixed c: the marginal of Eq. 13, whose product runs over j and n."""
        log_evidence = self.log_evidence(self.preactivation(x, c), x)
        return -self.gate.total_evidence(log_evidence, self.d) - self.gate.bias.shared_evidence(self.a, x)

    @torch.no_grad()
    def balance(self, use: Float[Tensor, " J"], rate: float, share: Float[Tensor, " J"] | None = None) -> None:
        """Move the gate's bias d toward a target use of the capsules (default: equal)."""
        self.gate.balance(self.d, use, rate, share)
