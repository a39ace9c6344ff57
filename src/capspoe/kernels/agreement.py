"""Routing by agreement without storing the predictions of more than four images for one capsule.

For capsule j and four images: the predictions u (an L2-sized buffer), then per image the iterations, each one
pass over u that finds the logits, their exponentials and the weighted sum together. A cosine is at most 1, so
the logits are bounded by the number of iterations and the softmax needs no maximum. The arithmetic of an
image does not depend on its neighbours in the batch, nor on the number of threads.

Layouts: I is cut into V vectors of 8, padded with zeros; names ending in `_` are laid out so.
"""

import math

import numpy as np

from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import (
    GROUP,
    LANES,
    WIDE,
    agree_group,
    agree_one,
    blank,
    combine_one,
    combine_wide,
    interleave_1,
    interleave_2,
    interleave_4,
    inverse_roots,
    predict_1x1,
    predict_1x4,
    predict_2x1,
    predict_2x4,
    repeat,
    totals,
    turn,
)

IMAGES = 4  # that share one pass over the weights
BLOCK = 8  # vectors of x for four images that stay in the L1 cache while all neurons pass
UNBOUNDED = 60.0  # logits that may grow beyond this need the maximum subtracted
LOG2_E = math.log2(math.e)  # logits are kept for powers of two
SAFE_LEAST, SAFE_MOST = 1e-30, 1e30  # squared lengths within float32's range, with room to spare


@compiled
def aligned(size):  # type: ignore[no-untyped-def]
    """Floats that start at a cache line, so that no vector straddles two."""
    room = np.empty(size + 16, np.float32)
    skip = (64 - room.ctypes.data % 64) % 64 // 4
    return room[skip : skip + size]


@compiled
def centre(lo, hi, x_BIM, mu_IM, out_BMI, finite_B):  # type: ignore[no-untyped-def]
    """Images lo to hi less the mean code, turned so that loops run along i; and whether all is finite."""
    I, M = mu_IM.shape
    x, mu, out = x_BIM.reshape(-1), mu_IM.reshape(-1), out_BMI.reshape(-1)
    check = aligned(LANES)
    for b in range(lo, hi):
        check[:] = 0.0
        turned = I // LANES * LANES if M == LANES else 0
        for i in range(0, turned, LANES):
            turn(x, (b * I + i) * M, mu, i * M, out, b * M * I + i, I, check)
        for i in range(turned, I):
            for m in range(M):
                value = x_BIM[b, i, m] - mu_IM[i, m]
                out_BMI[b, m, i] = value
                check[m % LANES] += value * np.float32(0)
        finite_B[b] = check.sum() == 0


@compiled
def pack_x(lo, hi, x_BMI, x_, zero_):  # type: ignore[no-untyped-def]
    """Groups lo to hi of four images (single ones at the end) as [vector][m][image][8].

    zero_ is 1 where a whole lower capsule is 0: its cosine is 0, found with no look at its length.
    """
    batch, M, I = x_BMI.shape
    V = (I + LANES - 1) // LANES
    x, zero = x_BMI.reshape(-1), zero_.reshape(-1)
    for group in range(lo, hi):
        first, images = images_of(group, batch)
        at = first * V * M * LANES
        interleave(x, first * M * I, images, M, I, x_, at)
        for v in range(V):
            for k in range(images):
                place = at + (v * M * images + k) * LANES
                blank(x_, place, images * LANES, zero, ((first + k) * V + v) * LANES, M)


@compiled
def interleave(source, first, rows, M, I, out, at):  # type: ignore[no-untyped-def]
    """`rows` (1, 2 or 4) arrays (M, I) that follow each other, as [vector][m][row][8] with zeros beyond I."""
    whole = I // LANES
    if rows == 4:
        interleave_4(source, first, M * I, I, out, at, M, whole)
    elif rows == 2:
        interleave_2(source, first, M * I, I, out, at, M, whole)
    else:
        interleave_1(source, first, M * I, I, out, at, M, whole)
    if whole * LANES == I:
        return
    for m in range(M):
        for row in range(rows):
            for lane in range(LANES):
                i = whole * LANES + lane
                value = source[first + (row * M + m) * I + i] if i < I else np.float32(0)
                out[at + ((whole * M + m) * rows + row) * LANES + lane] = value


@compiled
def images_of(group, batch):  # type: ignore[no-untyped-def]
    """The first image of a group and how many it has: fours, then single ones."""
    fours = batch // IMAGES
    if group < fours:
        return group * IMAGES, IMAGES
    return fours * IMAGES + (group - fours), 1


@compiled
def pack_w(w_NMI, w_):  # type: ignore[no-untyped-def]
    """One capsule's weights as [pair of neurons][vector][m][neuron of the pair][8]."""
    N, M, I = w_NMI.shape
    V = (I + LANES - 1) // LANES
    w = w_NMI.reshape(-1)
    for n in range(0, N, 2):
        interleave(w, n * M * I, min(2, N - n), M, I, w_, n * M * V * LANES)


@compiled
def image_stride(N, V):  # type: ignore[no-untyped-def]
    """Floats from one image's predictions to the next: never near a multiple of 4 KB, which the L1 cache
    would have to hold in the same few places."""
    return (V * N * LANES + 1023) // 1024 * 1024 + 272


@compiled
def predict(w_, x_, x0, images, u_, sums_, squares_, M, N, V):  # type: ignore[no-untyped-def]
    """All predictions of `images` images for one capsule, their sums over i, and squares_ += |u_ij|^2."""
    sums_[: images * N * LANES] = 0.0
    stride = image_stride(N, V)
    for v0 in range(0, V, BLOCK):
        count = min(BLOCK, V - v0)
        x_at = x0 + v0 * M * images * LANES
        for n in range(0, N, 2):
            pair = 2 if n + 1 < N else 1
            w_at = (n * V + v0 * pair) * M * LANES
            u_at, s_at, q_at = (v0 * N + n) * LANES, n * LANES, v0 * LANES
            if images == IMAGES:
                if pair == 2:
                    predict_2x4(
                        w_, w_at, x_, x_at, u_, u_at, sums_, s_at, squares_, q_at, M, N, V, stride, count
                    )
                else:
                    predict_1x4(
                        w_, w_at, x_, x_at, u_, u_at, sums_, s_at, squares_, q_at, M, N, V, stride, count
                    )
            elif pair == 2:
                predict_2x1(w_, w_at, x_, x_at, u_, u_at, sums_, s_at, squares_, q_at, M, N, V, stride, count)
            else:
                predict_1x1(w_, w_at, x_, x_at, u_, u_at, sums_, s_at, squares_, q_at, M, N, V, stride, count)


@compiled
def collect(sums_, s0, factor, z_N):  # type: ignore[no-untyped-def]
    """z = factor times the sums, each over its eight lanes."""
    totals(sums_, s0, factor, z_N, len(z_N))


@compiled
def set_direction(z_N, sharpness, cosine, scale, direction_):  # type: ignore[no-untyped-def]
    """What each prediction is multiplied with: sharpness times the unit vector of z, or squash(z)."""
    square = 0.0
    for n in range(len(z_N)):
        square += np.float64(z_N[n]) ** 2
    root = math.sqrt(square)
    factor = 0.0
    if square > 0:
        factor = sharpness / root if cosine else scale * sharpness * root / (1 + square)
    factor *= LOG2_E
    for n in range(len(z_N)):
        direction_[n * LANES] = np.float32(z_N[n] * factor)
    repeat(direction_, len(z_N))


@compiled
def inverse_lengths(squares_, q0, inverse_, extremes_, V):  # type: ignore[no-untyped-def]
    """inverse_ = 1 / |u|; False if some length is outside the range in which its square can be trusted."""
    inverse_roots(squares_, q0, inverse_, extremes_, V)
    if extremes_[:LANES].min() >= SAFE_LEAST and extremes_[LANES:].max() <= SAFE_MOST:
        return True
    for i in range(q0, q0 + V * LANES):
        if not SAFE_LEAST <= squares_[i] <= SAFE_MOST:
            inverse_[i] = 0.0
    return False


@compiled
def careful_agreement(u_, u0, direction_, squares_, q0, logits_, N, I):  # type: ignore[no-untyped-def]
    """Add the cosines whose squared lengths cannot be trusted, found in double precision."""
    for i in range(I):
        if not SAFE_LEAST <= squares_[q0 + i] <= SAFE_MOST:
            at = u0 + i // LANES * N * LANES + i % LANES
            square, product = 0.0, 0.0
            for n in range(N):
                value = np.float64(u_[at + n * LANES])
                square += value * value
                product += value * direction_[n * LANES]
            logits_[i] += np.float32(product / math.sqrt(square)) if square > 0 else np.float32(0)


@compiled
def agree(u_, u0, direction_, scale_, q0, logits_, l0, N, V):  # type: ignore[no-untyped-def]
    """logits_ += scale_ (u . direction), everywhere."""
    v = 0
    while v + GROUP <= V:
        agree_group(u_, u0 + v * N * LANES, direction_, scale_, q0 + v * LANES, logits_, l0 + v * LANES, N)
        v += GROUP
    while v < V:
        agree_one(u_, u0 + v * N * LANES, direction_, scale_, q0 + v * LANES, logits_, l0 + v * LANES, N)
        v += 1


@compiled
def combine(u_, u0, weight_, q0, sums_, N, count):  # type: ignore[no-untyped-def]
    """sums_ += sum over i of weight u."""
    n = 0
    while n + WIDE <= N:
        combine_wide(u_, u0 + n * LANES, weight_, q0, sums_, n * LANES, N, count)
        n += WIDE
    while n < N:
        combine_one(u_, u0 + n * LANES, weight_, q0, sums_, n * LANES, N, count)
        n += 1
