r"""Routing by agreement between capsules (section 2.2 of the paper), in plain PyTorch.

Lower capsule i predicts upper capsule j as :math:`u_{ij} = W_{ij} x_i`. Routing finds how much each of these
predictions counts: predictions that agree with the weighted mean of all of them gain weight.

`reference` is the readable form. `route` runs it where `capspoe.kernels` has nothing faster: its kernels compute the
same sums, and their gradients, without storing the (B, J, I, N) predictions.
"""

from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from capspoe import kernels
from capspoe.errors import InputError
from capspoe.kernels import is_tracing, ops
from capspoe.model.checks import check_choice, check_count, check_tensor, dtype_name

Normalize = Literal["lower", "upper"]
Agreement = Literal["cosine", "dot"]


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
    small, large = n.clamp_max(1), n.clamp_min(1)
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


def agree(u: Float[Tensor, "B J I N"], z: Float[Tensor, "B J N"], kind: Agreement) -> Float[Tensor, "B J I"]:
    """Agreement of each prediction with the squashed sum: their cosine, or Sabour's scalar product."""
    if kind == "cosine":
        return torch.einsum("bjin,bjn->bji", unit(u), unit(z))  # squash(z) has the direction of z
    return torch.einsum("bjin,bjn->bji", u, squash(z))


def route(
    x: Float[Tensor, "B I M"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    normalize: Normalize = "lower",
    agreement: Agreement = "cosine",
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
    agreement : "cosine" is this paper's, "dot" Sabour's
    sharpness : factor on the agreement
    detach_routing : take the weights c as constants in the backward pass, as contrastive divergence does. Needs less
        memory; by default gradients flow through all iterations.
    """
    check_routing_arguments(x, W, iterations, normalize, agreement, finite=False)
    options = (iterations, normalize, agreement, float(sharpness), detach_routing)
    if iterations > 1 and kernels.select(x, W, differentiable=True):
        return Routing(*ops.route(x, W.permute(0, 2, 3, 1), *options))
    check_routing_arguments(x, W, iterations, normalize, agreement)
    if iterations == 1:  # no prediction is needed by itself
        share = 1 / W.shape[1 if normalize == "lower" else 0]
        c, z = x.new_full((), share).expand(len(x), *W.shape[:2]), share * torch.einsum("bim,jinm->bjn", x, W)
    else:
        c, z = kernels.compiled_on_gpu(reference, x)(x, W, *options)
    if not is_tracing() and not bool(torch.isfinite(z).all()):
        raise InputError(f"x and W are too large: their product leaves the range of {dtype_name(z)}")
    return Routing(c, z)


def reference(
    x: Float[Tensor, "B I M"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    normalize: Normalize = "lower",
    agreement: Agreement = "cosine",
    sharpness: float = 1.0,
    detach_routing: bool = False,
) -> tuple[Float[Tensor, "B J I"], Float[Tensor, "B J N"]]:
    """c and z of `route` in plain PyTorch, unchecked."""
    axis = 2 if normalize == "lower" else 1
    u_BJIN = torch.einsum("jinm,bim->bjin", W, x)  # u_ij = W_ij x_i, the predictions
    routed_BJIN = u_BJIN.detach() if detach_routing else u_BJIN
    logits_BJI = u_BJIN.new_zeros(u_BJIN.shape[:3])
    for _ in range(iterations - 1):
        z_BJN = torch.einsum("bji,bjin->bjn", torch.softmax(logits_BJI, dim=axis), routed_BJIN)
        logits_BJI = logits_BJI + sharpness * agree(routed_BJIN, z_BJN, agreement)
    c_BJI = torch.softmax(logits_BJI, dim=axis)
    return c_BJI, torch.einsum("bji,bjin->bjn", c_BJI, u_BJIN)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, w_JNMI, *ctx.options = inputs
    detach_routing = ctx.options[-1]
    if detach_routing:
        ctx.mark_non_differentiable(output[0])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w_JNMI, output[0] if detach_routing else None)


def _gradients(ctx: Any, gc: Tensor | None, gz: Tensor | None) -> tuple[Any, ...]:
    """Gradients of capspoe::route: by the kernel, or by the reference where they are to be differentiated again."""
    x, w_JNMI, c = ctx.saved_tensors
    gz = x.new_zeros(len(x), *w_JNMI.shape[:2]) if gz is None else gz
    if torch.is_grad_enabled():
        gc = x.new_zeros(len(x), len(w_JNMI), x.shape[1]) if gc is None else gc
        _, pull, *_ = torch.func.vjp(lambda x, w: reference(x, w.permute(0, 3, 1, 2), *ctx.options), x, w_JNMI)
        found = pull((gc, gz))
    else:
        found = ops.route_backward(gc, gz, x, w_JNMI, c, *ctx.options[:-1])
    return *found, None, None, None, None, None


torch.library.register_autograd("capspoe::route", _gradients, setup_context=_save)


def reverse_route(
    h: Float[Tensor, "B J N"],
    W: Float[Tensor, "J I N M"],
    iterations: int = 3,
    agreement: Agreement = "cosine",
    sharpness: float = 1.0,
) -> Routing:
    r"""Route downwards: z_i = sum_j c_ij W_ij^T h_j, still with sum_i c_ij = 1 (section 4.1).

    The same procedure with the layers exchanged: c is (B, J, I) and z is (B, I, M). With a single capsule on, each
    lower capsule has one prediction, which agrees with itself (cosine 1), so c is uniform. With agreement="dot" it
    is not.
    """
    c_BIJ, z_BIM = route(h, W.permute(1, 0, 3, 2), iterations, "upper", agreement, sharpness)
    return Routing(c_BIJ.transpose(1, 2), z_BIM)


def check_routing_arguments(
    x: Tensor, W: Tensor, iterations: int, normalize: str, agreement: str, finite: bool = True
) -> None:
    check_tensor("x", x, {"B": None, "I": None, "M": None}, finite=finite)
    check_tensor("W", W, {"J": None, "I": x.shape[1], "N": None, "M": x.shape[2]}, like=x, finite=finite)
    check_count("iterations", iterations)
    check_choice("normalize", normalize, ("lower", "upper"))
    check_choice("agreement", agreement, ("cosine", "dot"))
