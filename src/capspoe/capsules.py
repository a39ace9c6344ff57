r"""A layer of capsules as an energy model: parameters, energy, free energy, conditionals, gate."""

import math
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.noise import Noise
from capspoe.routing import Agreement, Normalize, Routing, on_probability, reverse_route, route
from capspoe.validate import check_choice, check_count, check_tensor

Gate = Literal["winner", "none"]
Neurons = Literal["gaussian", "binary"]


class CapsuleLayer(nn.Module):
    r"""Lower capsules x (I of M neurons) and upper capsules h (J of N neurons), joined by an energy:

    .. math::
        E(x, h) = -\sum_{ij} c_{ij}\, h_j^T W_{ij} (x_i - \mu_i) - a^T x - \sum_j b_j^T h_j
                  \;[+ |h|^2 / 2 \text{ for gaussian neurons}]\;[- d_{on} \text{ with the gate}]

    The first term is the paper's (Eq. 8 and 9). With the routing weights c fixed it is a restricted Boltzmann
    machine whose weights are c_ij W_ij, so everything below is exact for the c at hand.

    Stored are w = W / I, as `w_JNMI`, and used with the relative weights r_ij = I c_ij, whose mean is 1: the
    same energy, and learning rates as for any RBM. (With normalize="upper" it is J instead of I.)

    a, b    biases (I, M) and (J, N); zero and not trained with bias=False, as in the paper
    mu      the mean code (I, M), subtracted when centred
    d       the gate's bias (J,): what keeps the capsules equally used

    gate="winner": exactly one capsule is on and h_j = 0 for the others, an implicit mixture of RBMs
    (Nair and Hinton 2008). gate="none": the paper's energy to the letter.

    Inside another network the layer is a module like any other: `squash(layer(x).z)` are its capsules, gradients
    flow through the routing (or, with `detach_routing`, take its weights as given), and torch.compile takes it whole.
    """

    def __init__(
        self,
        lower: tuple[int, int] = (576, 8),
        upper: tuple[int, int] = (20, 16),
        iterations: int = 3,
        gate: Gate = "winner",
        neurons: Neurons = "gaussian",
        bias: bool = True,
        centred: bool = True,
        normalize: Normalize = "lower",
        agreement: Agreement = "cosine",
        sharpness: float = 1.0,
        initial_std: float = 0.05,
        detach_routing: bool = False,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        for name, (count, neurons_each) in {"lower": lower, "upper": upper}.items():
            check_count(f"the number of {name} capsules", count)
            check_count(f"the number of neurons in a {name} capsule", neurons_each)
        check_count("iterations", iterations)
        check_choice("gate", gate, get_args(Gate))
        check_choice("neurons", neurons, get_args(Neurons))
        check_choice("normalize", normalize, ("lower", "upper"))
        check_choice("agreement", agreement, ("cosine", "dot"))
        if not (math.isfinite(sharpness) and math.isfinite(initial_std) and initial_std >= 0):
            raise InputError("sharpness and initial_std must be finite, and initial_std not negative")
        self.lower, self.upper = (int(lower[0]), int(lower[1])), (int(upper[0]), int(upper[1]))
        self.iterations, self.gate, self.neurons = iterations, gate, neurons
        self.normalize, self.agreement, self.sharpness = normalize, agreement, float(sharpness)
        self.bias, self.centred, self.detach_routing = bias, centred, detach_routing
        (I, M), (J, N) = self.lower, self.upper
        start = torch.randn((J, N, M, I), generator=torch.Generator().manual_seed(seed), dtype=dtype)
        self.w_JNMI = nn.Parameter(initial_std * start)
        self.a = nn.Parameter(torch.zeros(I, M, dtype=dtype), requires_grad=bias)
        self.b = nn.Parameter(torch.zeros(J, N, dtype=dtype), requires_grad=bias)
        self.d: Tensor
        self.mu: Tensor
        self.register_buffer("d", torch.zeros(J, dtype=dtype))
        self.register_buffer("mu", torch.zeros(I, M, dtype=dtype))

    @classmethod
    def rbm(cls, visible: int, hidden: int, **options: object) -> "CapsuleLayer":
        """The scalar product of experts of section 2.1 (Eq. 1): capsules of one neuron, nothing to route."""
        defaults: dict = {"iterations": 1, "gate": "none", "neurons": "binary", "centred": False}
        return cls((visible, 1), (hidden, 1), **(defaults | options))

    @property
    def W(self) -> Float[Tensor, "J I N M"]:
        """The paper's matrices: W[j, i] is W_ij."""
        return self.fan * self.w_JNMI.permute(0, 3, 1, 2)

    @property
    def gated(self) -> bool:
        """Whether exactly one capsule is on."""
        return self.gate != "none"

    @property
    def fan(self) -> int:
        """Over how many capsules the softmax runs, so that c = 1 / fan when nothing is routed."""
        return self.lower[0] if self.normalize == "lower" else self.upper[0]

    def extra_repr(self) -> str:
        (I, M), (J, N) = self.lower, self.upper
        return f"{I}x{M} -> {J}x{N}, iterations={self.iterations}, gate={self.gate}, neurons={self.neurons}"

    @torch.no_grad()
    def start_from(self, mean_code: Float[Tensor, "I M"]) -> None:
        """Centre on the mean code, and start the visible bias where the layer alone reproduces it."""
        check_tensor("mean_code", mean_code, {"I": self.lower[0], "M": self.lower[1]})
        mean = mean_code.to(self.mu)
        if self.centred:
            self.mu.copy_(mean)
        if self.bias:
            self.a.copy_(torch.logit(mean, eps=1e-4))

    # What the lower layer says of the upper one.

    def forward(self, x: Float[Tensor, "B I M"]) -> Routing:
        """Route x, then give the paper's c and the pre-activations z, biases included."""
        fast = kernels.chosen(x, self.w_JNMI, self.b)
        sizes = {"B": None, "I": self.lower[0], "M": self.lower[1]}
        check_tensor("x", x, sizes, like=self.w_JNMI, finite=not fast)
        if fast:
            routed = self.routed_by_kernels(kernels.centred(x, self.mu))
            return Routing(routed.c, routed.z)
        if self.iterations == 1:
            c = x.new_full((), 1 / self.fan).expand(x.shape[0], self.upper[0], self.lower[0])
            return Routing(c, self.preactivation(x, None))
        routing = route(
            x - self.mu,
            self.W,
            self.iterations,
            self.normalize,
            self.agreement,
            self.sharpness,
            self.detach_routing,
        )
        return Routing(routing.c, routing.z + self.b)

    def routed_by_kernels(self, x_BMI: Float[Tensor, "B M I"]) -> kernels.Routed:
        """c, z with its bias and the entropy of c, from the CPU kernels; x is centred."""
        return kernels.route_relative(
            x_BMI,
            self.w_JNMI,
            self.iterations,
            self.normalize,
            self.agreement,
            self.sharpness,
            float(self.fan),
            self.b,
        )

    def preactivation(
        self, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"] | None
    ) -> Float[Tensor, "B J N"]:
        """z_j = sum_i c_ij W_ij (x_i - mu_i) + b_j (Eq. 5) for fixed c; None stands for uniform weights."""
        if kernels.chosen(x, self.w_JNMI, self.b, c):
            r = None if c is None else self.fan * c
            return kernels.preactivation(kernels.centred(x, self.mu), self.w_JNMI, r) + self.b
        x = x - self.mu
        if c is None:
            return torch.einsum("jnmi,bim->bjn", self.w_JNMI, x) + self.b
        return torch.einsum("bji,jnmi,bim->bjn", self.fan * c, self.w_JNMI, x) + self.b

    def hidden_given_visible(self, z: Float[Tensor, "B J N"]) -> Float[Tensor, "B J N"]:
        """The mean of P(h_j | x, j on): sigmoid(z_j) for binary neurons (Eq. 14), z_j for gaussian ones."""
        return torch.sigmoid(z) if self.neurons == "binary" else z

    def sample_hidden(
        self, mean: Float[Tensor, "B J N"], noise: Noise, stream: int
    ) -> Float[Tensor, "B J N"]:
        """h ~ P(h | x), given its mean."""
        if self.neurons == "binary":
            return (noise.uniform(stream, *mean.shape[1:]) < mean).to(mean)
        return mean + noise.normal(stream, *mean.shape[1:])

    def on_given_visible(self, z: Float[Tensor, "B J N"], temperature: float = 1.0) -> Float[Tensor, "B J"]:
        """P(j on | x): softmax_j((F_j + d_j) / T) with the gate, |squash(z_j)| (Eq. 7) without it."""
        if not self.gated:
            return on_probability(z)
        return torch.softmax((self.evidence(z) + self.d) / temperature, dim=-1)

    # What the upper layer says of the lower one.

    def visible_given_hidden(
        self, h: Float[Tensor, "B J N"], c: Float[Tensor, "B J I"] | None
    ) -> Float[Tensor, "B I M"]:
        """P(x_i = 1 | h) = sigmoid(a_i + sum_j c_ij W_ij^T h_j) (Eq. 15) for fixed c; None for uniform."""
        if kernels.chosen(h, self.w_JNMI, self.a, c):
            r = None if c is None else self.fan * c
            return torch.sigmoid(self.a + kernels.reverse(h, self.w_JNMI, r))
        if c is None:
            return torch.sigmoid(self.a + torch.einsum("jnmi,bjn->bim", self.w_JNMI, h))
        return torch.sigmoid(self.a + torch.einsum("bji,jnmi,bjn->bim", self.fan * c, self.w_JNMI, h))

    def reverse(self, h: Float[Tensor, "B J N"]) -> Float[Tensor, "B J I"]:
        """The routing weights of the reverse pass, from the upper states alone (section 4.1)."""
        check_tensor("h", h, {"B": None, "J": self.upper[0], "N": self.upper[1]}, like=self.w_JNMI)
        return reverse_route(h, self.W, self.iterations, self.agreement, self.sharpness).c

    # Energies.

    def energy(
        self,
        x: Float[Tensor, "B I M"],
        h: Float[Tensor, "B J N"],
        c: Float[Tensor, "B J I"] | None,
        on: Int[Tensor, " B"] | None = None,
    ) -> Float[Tensor, " B"]:
        """E(x, h) for fixed c (Eq. 9). With the gate, `on` names the capsule that is on; h is 0 elsewhere."""
        energy = -(self.preactivation(x, c) * h).sum((1, 2)) - (self.a * x).sum((1, 2))
        if self.neurons == "gaussian":
            energy = energy + h.square().sum((1, 2)) / 2
        if self.gated:
            if on is None:
                raise InputError("on is needed: with the gate the energy depends on which capsule is on")
            energy = energy - self.d[on]
        return energy

    def evidence(self, z: Float[Tensor, "B J N"]) -> Float[Tensor, "B J"]:
        """F_j = log of the sum of exp(z_j . h_j) over the states of capsule j: what it has to say for itself.

        sum_n log(1 + exp(z_jn)) for binary neurons, |z_j|^2 / 2 for gaussian ones (up to a constant).
        """
        return F.softplus(z).sum(-1) if self.neurons == "binary" else z.square().sum(-1) / 2

    def free_energy(self, x: Float[Tensor, "B I M"], c: Float[Tensor, "B J I"] | None) -> Float[Tensor, " B"]:
        """-log P(x) - log Z for fixed c: the marginal of Eq. 13, whose product runs over j and n."""
        evidence_BJ = self.evidence(self.preactivation(x, c))
        total = torch.logsumexp(evidence_BJ + self.d, -1) if self.gated else evidence_BJ.sum(-1)
        return -total - (self.a * x).sum((1, 2))

    @torch.no_grad()
    def balance(
        self, use: Float[Tensor, " J"], rate: float, share: Float[Tensor, " J"] | None = None
    ) -> None:
        """Move the gate's bias toward a wanted use, equal unless said: d_j += q (1 - use_j / share_j)."""
        self.d.add_(rate * (1 - (self.upper[0] * use if share is None else use / share)))
        self.d.sub_(self.d.mean())
