"""The two routing loops: softmax over the lower capsules, and over the upper ones."""

import math

import numpy as np

from capspoe.kernels.agreement import (
    IMAGES,
    LOG2_E,
    UNBOUNDED,
    agree,
    aligned,
    careful_agreement,
    collect,
    combine,
    image_stride,
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
    exponentiate_group,
    exponentiate_one,
)

CHUNK = 24  # vectors of predictions, 12 KB for capsules of 16
FAR_BELOW = np.float32(-1e30)  # the logit of a lane beyond the last capsule


@compiled
def one_pass(  # type: ignore[no-untyped-def]
    u_, u0, direction_, inverse_, q0, logits_, weight_, total_, sums_, N, V, backward
):
    """Logits, exponentials and weighted sum together, while a chunk of predictions is in the L1 cache.

    Every other pass runs backward: what it meets first is still there from the pass before.
    """
    total_[:] = 0.0
    sums_[:] = 0.0
    chunks = (V + CHUNK - 1) // CHUNK
    for chunk in range(chunks):
        first = (chunks - 1 - chunk if backward else chunk) * CHUNK
        end = min(V, first + CHUNK)
        v = first
        while v + GROUP <= end:
            at = v * LANES
            agree_group(u_, u0 + at * N, direction_, inverse_, q0 + at, logits_, at, N)
            exponentiate_group(logits_, np.float32(0), weight_, total_, at)
            v += GROUP
        while v < end:
            at = v * LANES
            agree_one(u_, u0 + at * N, direction_, inverse_, q0 + at, logits_, at, N)
            exponentiate_one(logits_, np.float32(0), weight_, total_, at)
            v += 1
        combine(u_, u0 + first * N * LANES, weight_, first * LANES, sums_, N, end - first)


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
    sums_[:] = 0.0
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
    w_ = aligned(N * M * V * LANES)
    stride = image_stride(N, V)
    u_ = aligned(IMAGES * stride)
    sums_ = aligned(IMAGES * N * LANES)
    one_sum_ = aligned(N * LANES)
    squares_ = aligned(IMAGES * V * LANES)
    inverse_ = aligned(IMAGES * V * LANES)
    inverse_[:] = 1.0
    logits_ = aligned(V * LANES)
    weight_ = aligned(V * LANES)
    direction_ = aligned(N * LANES)
    total_ = aligned(2 * LANES)
    extremes_ = aligned(2 * LANES)
    bounded = cosine and abs(sharpness) * (iterations - 1) < UNBOUNDED
    packed, total = -1, np.float32(0)
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
            u0, q0 = k * stride, k * V * LANES
            trusted = inverse_lengths(squares_, q0, inverse_, extremes_, V) if cosine else True
            logits_[:I] = 0.0
            logits_[I:] = FAR_BELOW
            for iteration in range(iterations - 1):
                set_direction(z_N, sharpness, cosine, scale, direction_)
                if bounded and trusted:
                    one_pass(
                        u_,
                        u0,
                        direction_,
                        inverse_,
                        q0,
                        logits_,
                        weight_,
                        total_,
                        one_sum_,
                        N,
                        V,
                        iteration % 2 == 1,
                    )
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
            entropy_BJ[first + k, j] = math.log(total) - total_[LANES:].sum() * inverse_total / LOG2_E


@compiled
def route_upper(  # type: ignore[no-untyped-def]
    lo, hi, x_, zero_, w_JP, iterations, cosine, sharpness, scale, c_BJI, z_BJN, entropy_BI, M
):
    """Groups lo to hi of images, all upper capsules together: their weights depend on each other."""
    batch, J, I = c_BJI.shape
    N = z_BJN.shape[2]
    V = (I + LANES - 1) // LANES
    one = image_stride(N, V)  # the predictions of one image for one capsule
    u_ = aligned(J * IMAGES * one).reshape(J, IMAGES * one)
    sums_ = aligned(J * IMAGES * N * LANES).reshape(J, IMAGES * N * LANES)
    squares_ = np.empty((J, IMAGES * V * LANES), np.float32)
    inverse_ = np.ones((J, IMAGES * V * LANES), np.float32)
    one_sum_ = aligned(N * LANES)
    logits_ = np.empty((J, V * LANES), np.float32)
    weight_ = np.empty((J, V * LANES), np.float32)
    shift = aligned(V * LANES)
    total = aligned(V * LANES)
    direction_ = aligned(N * LANES)
    unused_ = aligned(2 * LANES)
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
                    trusted[j] = inverse_lengths(squares_[j], q0, inverse_[j], unused_, V)
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
                    one_sum_[:] = 0.0
                    combine(u_[j], u0, weight_[j], 0, one_sum_, N, V)
                    collect(one_sum_, 0, np.float32(scale), z_BJN[first + k, j])
            c_BJI[first + k] = weight_[:, :I]
            for i in range(I):
                mean_logit = 0.0
                for j in range(J):
                    mean_logit += weight_[j, i] * (logits_[j, i] - shift[i])
                entropy_BI[first + k, i] = math.log(total[i]) - mean_logit / LOG2_E


@compiled
def pack_all_w(lo, hi, w_JNMI, w_JP):  # type: ignore[no-untyped-def]
    for j in range(lo, hi):
        pack_w(w_JNMI[j], w_JP[j])
