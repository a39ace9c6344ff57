"""The two routing loops: softmax over the lower capsules, and over the upper ones."""

import math

import numpy as np

from capspoe.kernels.agreement import (
    IMAGES,
    UNBOUNDED,
    agree,
    careful_agreement,
    collect,
    combine,
    images_of,
    inverse_lengths,
    pack_w,
    predict,
    set_direction,
)
from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import (
    GROUP,
    LANES,
    agree_group,
    agree_one,
    combine_group,
    combine_one,
    exponentiate_group,
    exponentiate_one,
)

FAR_BELOW = np.float32(-1e30)  # the logit of a lane beyond the last capsule


@compiled
def one_pass(u_, u0, direction_, inverse_, q0, logits_, weight_, total_, sums_, N, V):  # type: ignore[no-untyped-def]
    """Logits, exponentials and weighted sum together, while a group of predictions is in the L1 cache."""
    total_[:] = 0.0
    sums_[: N * LANES] = 0.0
    v = 0
    while v + GROUP <= V:
        at, u_at = v * LANES, u0 + v * N * LANES
        agree_group(u_, u_at, direction_, inverse_, q0 + at, logits_, at, N)
        exponentiate_group(logits_, np.float32(0), weight_, total_, at)
        combine_group(u_, u_at, weight_, at, sums_, 0, N)
        v += GROUP
    while v < V:
        at, u_at = v * LANES, u0 + v * N * LANES
        agree_one(u_, u_at, direction_, inverse_, q0 + at, logits_, at, N)
        exponentiate_one(logits_, np.float32(0), weight_, total_, at)
        combine_one(u_, u_at, weight_, at, sums_, 0, N)
        v += 1


@compiled
def several_passes(  # type: ignore[no-untyped-def]
    u_, u0, direction_, squares_, inverse_, q0, trusted, logits_, weight_, total_, sums_, N, I, V
):
    """The same with care: lengths that need double precision, logits that need their maximum subtracted."""
    agree(u_, u0, direction_, inverse_, q0, logits_, 0, N, V)
    if not trusted:
        careful_agreement(u_, u0, direction_, squares_, q0, logits_, N, I)
    shift = logits_[0]
    for i in range(1, I):
        shift = max(shift, logits_[i])
    total_[:] = 0.0
    for v in range(V):
        exponentiate_one(logits_, shift, weight_, total_, v * LANES)
    combine(u_, u0, weight_, 0, sums_, N, V)


@compiled
def route_lower(  # type: ignore[no-untyped-def]
    lo, hi, x_, zero_, w_JNMI, iterations, cosine, sharpness, scale, c_BJI, z_BJN, entropy_BJ
):
    """Pairs lo to hi of (upper capsule, group of images): c, z and the entropy of c over i."""
    N, M, I = w_JNMI.shape[1:]
    batch = len(c_BJI)
    V = (I + LANES - 1) // LANES
    groups = batch // IMAGES + batch % IMAGES
    w_ = np.empty(N * M * V * LANES, np.float32)
    u_ = np.empty(IMAGES * V * N * LANES, np.float32)
    sums_ = np.empty(IMAGES * N * LANES, np.float32)
    one_sum_ = np.empty(N * LANES, np.float32)
    squares_ = np.empty(IMAGES * V * LANES, np.float32)
    inverse_ = np.ones(IMAGES * V * LANES, np.float32)
    logits_ = np.empty(V * LANES, np.float32)
    weight_ = np.empty(V * LANES, np.float32)
    direction_ = np.empty(N * LANES, np.float32)
    total_ = np.empty(2 * LANES, np.float32)
    bounded = cosine and abs(sharpness) * (iterations - 1) < UNBOUNDED
    packed = -1
    for task in range(lo, hi):
        j, group = task // groups, task % groups
        if j != packed:
            pack_w(w_JNMI[j], w_)
            packed = j
        first, images = images_of(group, batch)
        for k in range(images):
            squares_[k * V * LANES : (k + 1) * V * LANES] = zero_[first + k]
        predict(w_, x_, first * V * M * LANES, images, u_, sums_, squares_, M, N, V)
        for k in range(images):
            z_N = z_BJN[first + k, j]
            collect(sums_, k * N * LANES, np.float32(scale / I), z_N)
            u0, q0 = k * V * N * LANES, k * V * LANES
            trusted = inverse_lengths(squares_, q0, inverse_, V) if cosine else True
            logits_[:I] = 0.0
            logits_[I:] = FAR_BELOW
            for _ in range(iterations - 1):
                set_direction(z_N, sharpness, cosine, scale, direction_)
                if bounded and trusted:
                    one_pass(u_, u0, direction_, inverse_, q0, logits_, weight_, total_, one_sum_, N, V)
                else:
                    several_passes(
                        u_, u0, direction_, squares_, inverse_, q0, trusted, logits_, weight_, total_,
                        one_sum_, N, I, V,
                    )  # fmt: skip
                total = total_[:LANES].sum()
                collect(one_sum_, 0, np.float32(scale / total), z_N)
            inverse_total = np.float32(1) / total
            c_I = c_BJI[first + k, j]
            for i in range(I):
                c_I[i] = weight_[i] * inverse_total
            entropy_BJ[first + k, j] = math.log(total) - total_[LANES:].sum() * inverse_total


@compiled
def route_upper(  # type: ignore[no-untyped-def]
    lo, hi, x_, zero_, w_JP, iterations, cosine, sharpness, scale, c_BJI, z_BJN, entropy_BI, M
):
    """Groups lo to hi of images, all upper capsules together: their weights depend on each other."""
    batch, J, I = c_BJI.shape
    N = z_BJN.shape[2]
    V = (I + LANES - 1) // LANES
    one = V * N * LANES  # the predictions of one image for one capsule
    u_ = np.empty((J, IMAGES * one), np.float32)
    sums_ = np.empty((J, IMAGES * N * LANES), np.float32)
    squares_ = np.empty((J, IMAGES * V * LANES), np.float32)
    inverse_ = np.ones((J, IMAGES * V * LANES), np.float32)
    one_sum_ = np.empty(N * LANES, np.float32)
    logits_ = np.empty((J, V * LANES), np.float32)
    weight_ = np.empty((J, V * LANES), np.float32)
    shift = np.empty(V * LANES, np.float32)
    total = np.empty(V * LANES, np.float32)
    direction_ = np.empty(N * LANES, np.float32)
    unused_ = np.empty(2 * LANES, np.float32)
    trusted = np.ones(J, np.bool_)
    for group in range(lo, hi):
        first, images = images_of(group, batch)
        for j in range(J):
            for k in range(images):
                squares_[j, k * V * LANES : (k + 1) * V * LANES] = zero_[first + k]
            predict(w_JP[j], x_, first * V * M * LANES, images, u_[j], sums_[j], squares_[j], M, N, V)
        for k in range(images):
            u0, q0 = k * one, k * V * LANES
            for j in range(J):
                collect(sums_[j], k * N * LANES, np.float32(scale / J), z_BJN[first + k, j])
                if cosine:
                    trusted[j] = inverse_lengths(squares_[j], q0, inverse_[j], V)
            logits_[:] = 0.0
            for _ in range(iterations - 1):
                shift[:] = -np.inf
                total[:] = 0.0
                for j in range(J):
                    set_direction(z_BJN[first + k, j], sharpness, cosine, scale, direction_)
                    agree(u_[j], u0, direction_, inverse_[j], q0, logits_[j], 0, N, V)
                    if not trusted[j]:
                        careful_agreement(u_[j], u0, direction_, squares_[j], q0, logits_[j], N, I)
                    for i in range(V * LANES):
                        shift[i] = max(shift[i], logits_[j, i])
                for j in range(J):
                    for i in range(V * LANES):
                        weight_[j, i] = logits_[j, i] - shift[i]
                    for v in range(V):
                        exponentiate_one(weight_[j], np.float32(0), weight_[j], unused_, v * LANES)
                    for i in range(V * LANES):
                        total[i] += weight_[j, i]
                for j in range(J):
                    for i in range(V * LANES):
                        weight_[j, i] /= total[i]
                    combine(u_[j], u0, weight_[j], 0, one_sum_, N, V)
                    collect(one_sum_, 0, np.float32(scale), z_BJN[first + k, j])
            c_BJI[first + k] = weight_[:, :I]
            for i in range(I):
                mean_logit = 0.0
                for j in range(J):
                    mean_logit += weight_[j, i] * (logits_[j, i] - shift[i])
                entropy_BI[first + k, i] = math.log(total[i]) - mean_logit


@compiled
def pack_all_w(lo, hi, w_JNMI, w_JP):  # type: ignore[no-untyped-def]
    for j in range(lo, hi):
        pack_w(w_JNMI[j], w_JP[j])
