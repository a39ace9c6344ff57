r"""Routing by agreement between capsules (section 2.2 of the paper), in plain PyTorch.

Lower capsule i predicts upper capsule j as :math:`u_{ij} = W_{ij} x_i`. Routing finds how much each of these
predictions counts: predictions that agree with the weighted mean of all of them gain weight.

`reference` is the readable form. `route` runs it where `capspoe.kernels` has nothing faster: its kernels compute the
same sums, and their gradients, without storing the (B, J, I, N) predictions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.kernels import is_tracing, ops
from capspoe.model.checks import check_choice, check_count, check_finite, check_tensor, dtype_name

Normalize = Literal["lower", "upper"]


class Routing(NamedTuple):
    """The result of routing.

    c    (B, J, I): the routing weights
    z    (B, J, N): the weighted sums of the predictions
    """

    c: Float[Tensor, "B J I"]
    z: Float[Tensor, "B J N"]


def length(v: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest 1"]:
    """|v|, safe against overflow and underflow of the squares; its gradient at 0 is 0."""
    scale = v.detach().abs().amax(-1, keepdim=True).clamp_min(torch.finfo(v.dtype).tiny)
    return scale * torch.linalg.vector_norm(v / scale, dim=-1, keepdim=True)


def squash_length(z: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest"]:
    r"""P(j = on | x) = |squash(z_j)| = |z_j|^2 / (1 + |z_j|^2) (Eq. 7)."""
    n = length(z).squeeze(-1)
    # Each form overflows where it is not used, so each gets a length within its range.
    small = n.clamp_max(1)
    large = n.clamp_min(1)
    return torch.where(n <= 1, small.square() / (1 + small.square()), 1 / (1 + large.reciprocal().square()))


def unit(v: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest N"]:
    """v / |v|; where v is 0, both it and its gradient are 0."""
    scale = v.detach().abs().amax(-1, keepdim=True)
    tiny = torch.finfo(v.dtype).tiny
    v = v / torch.where(scale > 0, scale.clamp_min(tiny), torch.inf)  # its largest is 1, or all 0
    return v / torch.linalg.vector_norm(v, dim=-1, keepdim=True).clamp_min(0.5)


def squash(z: Float[Tensor, "*rest N"]) -> Float[Tensor, "*rest N"]:
    r"""squash(z) = |z|^2 / (1 + |z|^2) z / |z|: the direction stays, the length falls below 1 (Eq. 6)."""
    return squash_length(z)[..., None] * unit(z)


def cosine(u: Float[Tensor, "B J I N"], z: Float[Tensor, "B J N"]) -> Float[Tensor, "B J I"]:
    """This paper's agreement: the cosine of a prediction and squash(z), which has the direction of z."""
    return torch.einsum("bjin,bjn->bji", unit(u), unit(z))


def dot(u: Float[Tensor, "B J I N"], z: Float[Tensor, "B J N"]) -> Float[Tensor, "B J I"]:
    """The agreement of Sabour et al. 2017: the scalar product of a prediction and squash(z)."""
    return torch.einsum("bjin,bjn->bji", u, squash(z))


AgreementFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Agreement:
    """How well the predictions agree with their weighted sum.

    compute       function of the predictions u (B, J, I, N) and their weighted sums z (B, J, N), returns (B, J, I)
    angle_only    whether it depends on the angle between u and z alone. Then every vector agrees equally with itself,
                  and reverse routing from a single capsule is uniform.
    """

    compute: AgreementFunction
    angle_only: bool = False

    @property
    def name(self) -> str | None:
        """Its name in AGREEMENTS and in the settings of a run; None for a user's own."""
        for name, agreement in AGREEMENTS.items():
            if agreement == self:
                return name
        return None


AGREEMENTS = {
    "cosine": Agreement(cosine, angle_only=True),
    "dot": Agreement(dot),
}
AgreementLike = str | Agreement | AgreementFunction


def find_agreement(agreement: AgreementLike) -> Agreement:
    """The agreement of this name, or of this function."""
    if isinstance(agreement, Agreement):
        return agreement
    if callable(agreement):
        return Agreement(agreement)
    check_choice("agreement", agreement, tuple(AGREEMENTS))
    return AGREEMENTS[agreement]


def route(
    x: Float[Tensor, "B I M"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    normalize: Normalize = "lower",
    agreement: AgreementLike = "cosine",
    sharpness: float = 1.0,
    detach_routing: bool = False,
) -> Routing:
    r"""Route the lower capsules x to the upper ones, through the matrices W[j, i] = W_ij.

    The logits start at 0. Each iteration takes c = softmax of the logits, z_j = sum_i c_ij u_ij (Eq. 5), and
    raises each logit by `sharpness` times the agreement of u_ij with squash(z_j).

    Parameters
    ----------
    x : (B, I, M), the lower capsules
    W : (J, I, N, M), the matrices
    iterations : number of iterations; one gives uniform weights
    normalize : "lower" is this paper's softmax over the lower capsules, sum_i c_ij = 1: every upper capsule takes a
        weighted mean. "upper" is the softmax of Sabour et al. 2017, sum_j c_ij = 1: every lower capsule divides its
        vote among the upper ones.
    agreement : "cosine" is this paper's, "dot" Sabour's; or a function of the predictions u (B, J, I, N) and their
        weighted sums z (B, J, N) that returns (B, J, I), which runs in plain PyTorch
    sharpness : factor on the agreement
    detach_routing : take the weights c as constants in the backward pass, as contrastive divergence does. Needs less
        memory; by default gradients flow through all iterations.
    """
    chosen = find_agreement(agreement)
    check_tensor("x", x, {"B": None, "I": None, "M": None}, finite=False)
    check_tensor("W", W, {"J": None, "I": x.shape[1], "N": None, "M": x.shape[2]}, like=x, finite=False)
    check_count("iterations", iterations)
    check_choice("normalize", normalize, ("lower", "upper"))
    if iterations > 1 and kernels.select(x, W, agreement=chosen.name, differentiable=True):
        # The kernels themselves notice values that are not finite, from their results.
        w_JNMI = W.permute(0, 2, 3, 1)
        return Routing(*ops.route(x, w_JNMI, iterations, normalize, chosen.name, float(sharpness), detach_routing))
    check_finite("x", x)
    check_finite("W", W)
    if iterations == 1:
        c, z = uniform(x, W, normalize)
    else:
        function = kernels.compiled_on_gpu(reference, x, W)
        c, z = function(x, W, iterations, normalize, chosen, float(sharpness), detach_routing)
    if not is_tracing(z) and not bool(torch.isfinite(z).all()):
        raise InputError(f"x and W are too large: their product leaves the range of {dtype_name(z)}")
    return Routing(c, z)


def uniform(
    x: Float[Tensor, "B I M"], W: Float[Tensor, "J I N M"], normalize: Normalize
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """c and z of the first iteration, whose weights are equal: no prediction is needed by itself."""
    J, I, _, _ = W.shape
    share = 1 / (I if normalize == "lower" else J)
    c_BJI = x.new_full((), share).expand(len(x), J, I)
    return c_BJI, share * torch.einsum("bim,jinm->bjn", x, W)


def reference(
    x: Float[Tensor, "B I M"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    normalize: Normalize = "lower",
    agreement: AgreementLike = "cosine",
    sharpness: float = 1.0,
    detach_routing: bool = False,
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """c and z of `route` in plain PyTorch, unchecked."""
    agree = find_agreement(agreement).compute
    axis = 2 if normalize == "lower" else 1
    u_BJIN = torch.einsum("jinm,bim->bjin", W, x)  # u_ij = W_ij x_i, the predictions
    routed_BJIN = u_BJIN.detach() if detach_routing else u_BJIN
    logits_BJI = u_BJIN.new_zeros(u_BJIN.shape[:3])
    for _ in range(iterations - 1):
        z_BJN = torch.einsum("bji,bjin->bjn", torch.softmax(logits_BJI, dim=axis), routed_BJIN)
        agreement_BJI = agree(routed_BJIN, z_BJN)
        if agreement_BJI.shape != logits_BJI.shape:
            # Another shape might broadcast, and mean something else.
            B, J, I = logits_BJI.shape
            raise InputError(f"the agreement must have shape ({B}, {J}, {I}), not {tuple(agreement_BJI.shape)}")
        logits_BJI = logits_BJI + sharpness * agreement_BJI
    c_BJI = torch.softmax(logits_BJI, dim=axis)
    return c_BJI, torch.einsum("bji,bjin->bjn", c_BJI, u_BJIN)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what `_gradients` needs: the weights c only where they are constants."""
    x, w_JNMI, *ctx.options = inputs
    c, _ = output
    detach_routing = ctx.options[-1]
    if detach_routing:
        ctx.mark_non_differentiable(c)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w_JNMI, c if detach_routing else None)


def _gradients(ctx: Any, gc: Tensor | None, gz: Tensor | None) -> tuple[Any, ...]:
    """Gradients of capspoe::route: by the kernel, or by the reference where they are to be differentiated again."""
    x, w_JNMI, c = ctx.saved_tensors
    B, I, _ = x.shape
    J, N, _, _ = w_JNMI.shape
    if gz is None:
        gz = x.new_zeros(B, J, N)
    if torch.is_grad_enabled():
        if gc is None:
            gc = x.new_zeros(B, J, I)

        def routed(x: Tensor, w_JNMI: Tensor) -> tuple[Tensor, Tensor]:
            return reference(x, w_JNMI.permute(0, 3, 1, 2), *ctx.options)

        pull_back = torch.func.vjp(routed, x, w_JNMI)[1]
        gx, gw = pull_back((gc, gz))
    else:
        *options, _ = ctx.options
        gx, gw = ops.route_backward(gc, gz, x, w_JNMI, c, *options)
    # The options have no gradient.
    return gx, gw, None, None, None, None, None


torch.library.register_autograd("capspoe::route", _gradients, setup_context=_save)


def reverse_route(
    h: Float[Tensor, "B J N"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    agreement: AgreementLike = "cosine",
    sharpness: float = 1.0,
) -> Routing:
    r"""Route downwards: z_i = sum_j c_ij W_ij^T h_j, still with sum_i c_ij = 1 (section 4.1).

    The same procedure with the layers exchanged: c is (B, J, I) and z is (B, I, M). With a single capsule on, each
    lower capsule has one prediction, which agrees with itself. So c is uniform for the cosine, which is then 1
    everywhere, and for any other agreement that depends on the angle alone. With agreement="dot" it is not.
    """
    c_BIJ, z_BIM = route(h, W.permute(1, 0, 3, 2), iterations, "upper", agreement, sharpness)
    return Routing(c_BIJ.transpose(1, 2), z_BIM)
