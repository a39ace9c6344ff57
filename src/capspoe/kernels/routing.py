# mypy: allow-untyped-defs, no-check-untyped-defs
"""Routing by agreement without storing the predictions of more than four images.

A vector holds LANES lower capsules i side by side, so that every sum over m or n is arithmetic between whole vectors.
I is cut into V vectors and N padded to a multiple of 4, with zeros. Names that end in `_` are flat arrays:

    x_ [v][m][image][lane], a group of four images     w_ [v][pair of neurons][m][neuron][lane], one upper capsule
    u_ [image][v][n][lane]                             logits_, c_ [v][lane]

The softmax over the lower capsules concerns one upper capsule, that over the upper capsules all of them. The loops
are the same for both: they run over S upper capsules that share a softmax, S = 1 or S = J.
"""

import math

import numpy as np

from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import LANES, LOG2_E, exp2, largest, load, maximum, rsqrt, splat, store, total

GROUP = 4  # images that share one pass over the weights
CHUNK = 16  # vectors whose predictions (16 KB for capsules of 16) stay in the L1 cache through an iteration
BOUNDED = 60.0  # logits below this need no maximum subtracted
SAFE = 1e30  # squared lengths from 1 / SAFE to SAFE are exact enough
TINY = np.float32(np.finfo(np.float32).tiny)
ZERO, ONE = np.float32(0), np.float32(1)
FAR_BELOW = np.float32(-1e30)  # the logit of a lane beyond the last capsule


@compiled
def aligned(size):
    """Floats that start at a cache line, so that no vector straddles two."""
    room = np.empty(size + 16, np.float32)
    skip = (64 - room.ctypes.data % 64) % 64 // 4
    return room[skip : skip + size]


@compiled
def centre(lo, hi, x_BIM, mu_IM, out_BMI, finite_B):
    """Images lo to hi less the mean code, turned so that loops run along i; and whether all is finite."""
    for b in range(lo, hi):
        check = ZERO
        for i in range(x_BIM.shape[1]):
            for m in range(x_BIM.shape[2]):
                value = x_BIM[b, i, m] - mu_IM[i, m]
                out_BMI[b, m, i] = value
                check += value * ZERO  # stays 0 unless something is not finite
        finite_B[b] = check == 0


@compiled
def pack(lo, hi, rows_PRMI, N, Q, out_):
    """out_[r] = N rows as [v][group of Q rows][m][row][lane]; what is missing is 0.

    These are the neurons R of capsule r in pairs, or, if R = 1, images 4 r to 4 r + 3.
    """
    P, R, M, I = rows_PRMI.shape
    s0, s1, s2, s3 = rows_PRMI.strides
    for r in range(lo, hi):
        at = 0
        for v in range((I + LANES - 1) // LANES):
            for first in range(0, N, Q):
                for m in range(M):
                    for n in range(first, first + Q):
                        p, q = (r * N + n, 0) if Q == GROUP else (r, n)
                        count = min(LANES, I - v * LANES) if p < P and q < R else 0
                        if s3 == 4 and count == LANES:
                            whole = load(rows_PRMI, (p * s0 + q * s1 + m * s2) // 4 + v * LANES)
                            store(out_, r * out_.shape[1] + at, whole)
                        else:
                            for lane in range(count):
                                out_[r, at + lane] = rows_PRMI[p, q, m, v * LANES + lane]
                            for lane in range(count, LANES):
                                out_[r, at + lane] = 0.0
                        at += LANES


@compiled
def four(a_, at, apart):
    """Four vectors, mostly those of a group of images."""
    return load(a_, at), load(a_, at + apart), load(a_, at + 2 * apart), load(a_, at + 3 * apart)


@compiled
def store_four(a_, at, apart, a):
    store(a_, at, a[0])
    store(a_, at + apart, a[1])
    store(a_, at + 2 * apart, a[2])
    store(a_, at + 3 * apart, a[3])


@compiled
def same(a):
    return a, a, a, a


@compiled
def fma(a, x, y):
    """a + x y, of four vectors each."""
    return a[0] + x[0] * y[0], a[1] + x[1] * y[1], a[2] + x[2] * y[2], a[3] + x[3] * y[3]


@compiled
def times_w(w_, x_, v, n, M, N):
    """sum_m w x of four images, for the neurons n and n + 1: eight sums in registers, a weight serves four images."""
    a = b = same(splat(ZERO))
    w, x = (v * N + n) * M * LANES, v * M * GROUP * LANES
    for _ in range(M):
        x_m = four(x_, x, LANES)
        a, b = fma(a, same(load(w_, w)), x_m), fma(b, same(load(w_, w + LANES)), x_m)
        w, x = w + 2 * LANES, x + GROUP * LANES
    return a, b


@compiled
def predict(w_, x_, M, N, V, u_, stride, sums_, squares_):
    """u_ij = W_ij x_i of four images for one j; on the way sum_i u_ij and |u_ij|^2, which cost a pass otherwise."""
    sums_[:] = 0.0
    one, image = same(splat(ONE)), N * LANES
    for v in range(V):
        square = same(splat(ZERO))
        for n in range(0, N, 2):
            a, b = times_w(w_, x_, v, n, M, N)
            u, s = (v * N + n) * LANES, n * LANES
            store_four(u_, u, stride, a)
            store_four(u_, u + LANES, stride, b)
            store_four(sums_, s, image, fma(four(sums_, s, image), one, a))
            store_four(sums_, s + LANES, image, fma(four(sums_, s + LANES, image), one, b))
            square = fma(fma(square, a, a), b, b)
        store_four(squares_, v * LANES, V * LANES, square)


@compiled
def inverse_lengths(u_, u0, squares_, I, N, inverse_):
    """1 / |u_ij|, and 0 where u_ij is 0, also where the squares leave the range of float32."""
    squares_[I:] = 1.0
    extreme = splat(ZERO)
    for at in range(0, len(squares_), LANES):
        square = load(squares_, at)
        extreme = maximum(extreme, maximum(square, splat(ONE) / square))
        store(inverse_, at, rsqrt(square))
    if largest(extreme) <= SAFE:
        return
    for at in range(0, len(squares_), LANES):
        most = square = splat(ZERO)
        for n in range(N):
            u = load(u_, u0 + at * N + n * LANES)
            most = maximum(most, maximum(u, splat(ZERO) - u))
        inverse = splat(ONE) / maximum(most, splat(TINY))
        for n in range(N):
            u = load(u_, u0 + at * N + n * LANES) * inverse
            square = square + u * u  # at least 1; less for subnormal numbers, which `unit` shortens as well; or 0
        root = rsqrt(maximum(square, splat(np.float32(0.25))))
        store(inverse_, at, inverse * (square * root * root * root))


@compiled
def agree(u_S, u0, direction_SN, inverse_S, first, end, old_S, new_S):
    """new = old + inverse sum_n u direction, for vectors first to end of lower capsules."""
    S, N = direction_SN.shape
    for s in range(S):
        for v in range(first, end):
            u, sums = s * u_S.shape[1] + u0 + v * N * LANES, same(splat(ZERO))
            for n in range(0, N, 4):
                d0, d1 = splat(direction_SN[s, n]), splat(direction_SN[s, n + 1])
                d2, d3 = splat(direction_SN[s, n + 2]), splat(direction_SN[s, n + 3])
                sums = fma(sums, four(u_S, u + n * LANES, LANES), (d0, d1, d2, d3))
            at = s * new_S.shape[1] + v * LANES
            product = (sums[0] + sums[1]) + (sums[2] + sums[3])
            store(new_S, at, load(old_S, at) + product * load(inverse_S, at))


@compiled
def combine(u_S, u0, weight_S, N, first, end, sums_S):
    """sums += sum over vectors first to end of weight u; the sums of four neurons stay in registers."""
    for s in range(len(u_S)):
        for n in range(0, N, 4):
            sums = four(sums_S, (s * N + n) * LANES, LANES)
            for v in range(first, end):
                weight = load(weight_S, s * weight_S.shape[1] + v * LANES)
                sums = fma(sums, same(weight), four(u_S, s * u_S.shape[1] + u0 + (v * N + n) * LANES, LANES))
            store_four(sums_S, (s * N + n) * LANES, LANES, sums)


@compiled
def collect(sums_, s0, factor, z_N):
    """z = factor times the sums, each over its lanes."""
    for n in range(len(z_N)):
        z_N[n] = np.float32(factor) * total(load(sums_, s0 + n * LANES))


@compiled
def direction(z_N, cosine, factor, out_N):
    """factor times the unit vector of z, or times squash(z)."""
    square = 0.0
    for n in range(len(z_N)):
        square += np.float64(z_N[n]) ** 2
    root = math.sqrt(square)
    size = 0.0
    if square > 0:
        size = factor / root if cosine else factor * root / (1 + square)
    for n in range(len(z_N)):
        out_N[n] = np.float32(z_N[n] * size)


@compiled
def softmax_lower(logits_, first, end, whole, c_, amount_):
    """c = 2^(logit - shift), to be divided by its sum, which amount_[0] collects. The shift is the largest logit if
    the `whole` is at hand, else 0."""
    shift = ZERO
    if whole:
        most = load(logits_, 0)
        for v in range(1, end):
            most = maximum(most, load(logits_, v * LANES))
        shift = largest(most)
    amount = splat(ZERO)
    for v in range(first, end):
        e = exp2(load(logits_, v * LANES) - splat(shift))
        store(c_, v * LANES, e)
        amount = amount + e
    amount_[0] += total(amount)


@compiled
def softmax_upper(logits_S, first, end, c_S):
    """c = softmax over the upper capsules, for vectors first to end."""
    row = logits_S.shape[1]
    for v in range(first * LANES, end * LANES, LANES):
        shift, amount = splat(FAR_BELOW), splat(ZERO)
        for at in range(v, logits_S.size, row):
            shift = maximum(shift, load(logits_S, at))
        for at in range(v, logits_S.size, row):
            e = exp2(load(logits_S, at) - shift)
            store(c_S, at, e)
            amount = amount + e
        amount = splat(ONE) / amount
        for at in range(v, logits_S.size, row):
            store(c_S, at, load(c_S, at) * amount)


@compiled
def scratch(S, T, N, I):
    """Room for S upper capsules and a group of images: u, floats from one image to the next, sums, squares. For one
    image: inverse lengths, logits, c, z of each iteration, sums, directions, the softmax's sum."""
    row = (I + LANES - 1) // LANES * LANES
    stride = (
        row * N + 1023
    ) // 1024 * 1024 + 272  # not near a multiple of 4 KB, which the L1 cache maps to one place
    inverse_S, logits_TS = np.ones((S, row), np.float32), np.zeros((T, S, row), np.float32)
    logits_TS[0, :, I:] = FAR_BELOW
    return (
        aligned(S * GROUP * stride).reshape(S, -1), stride, aligned(S * GROUP * N * LANES).reshape(S, -1),
        aligned(S * GROUP * row).reshape(S, -1), inverse_S, logits_TS, aligned(T * S * row).reshape(T, S, row),
        np.empty((T, S, N), np.float32), aligned(S * N * LANES).reshape(S, -1), np.empty((S, N), np.float32),
        np.empty(1, np.float32),
    )  # fmt: skip


@compiled
def iterate(k, I, options, room):
    """All iterations of image k: logits (for powers of 2), c and z of each; c of the first is 1 / fan everywhere.

    An iteration is one pass over the predictions: agreement, softmax and weighted sum of a chunk while it is in the
    L1 cache. Only the softmax over the lower capsules of unbounded logits needs all of them at once.
    """
    T, lower, cosine, sharpness, scale = options
    u_S, stride, sums_S, squares_S, inverse_S, logits_TS, c_TS, z_TSN, one_S, direction_SN, amount_ = room
    S, N = direction_SN.shape
    row = inverse_S.shape[1]
    V, u0 = row // LANES, k * stride
    whole = lower and not (cosine and abs(sharpness) * (T - 1) < BOUNDED)
    step = V if whole else CHUNK
    for s in range(S):
        collect(sums_S[s], k * N * LANES, scale / (I if lower else S), z_TSN[0, s])
        if cosine:
            inverse_lengths(u_S[s], u0, squares_S[s, k * row : (k + 1) * row], I, N, inverse_S[s])
    for t in range(1, T):
        one_S[:] = 0.0
        amount_[0] = 0.0
        for s in range(S):
            direction(z_TSN[t - 1, s], cosine, sharpness * LOG2_E * (1 if cosine else scale), direction_SN[s])
        for first in range(0, V, step):
            end = min(V, first + step)
            agree(u_S, u0, direction_SN, inverse_S, first, end, logits_TS[t - 1], logits_TS[t])
            if lower:
                softmax_lower(logits_TS[t], first, end, whole, c_TS[t], amount_)
            else:
                softmax_upper(logits_TS[t], first, end, c_TS[t])
            combine(u_S, u0, c_TS[t], N, first, end, one_S)
        share = 1 / np.float64(amount_[0]) if lower else 1.0
        for s in range(S):
            collect(one_S[s], 0, scale * share, z_TSN[t, s])
        for at in range(t * S * row, t * S * row + row if lower else 0, LANES):
            store(c_TS, at, load(c_TS, at) * splat(np.float32(share)))


@compiled
def predict_task(task, x_, w_, M, lower, room):
    """The predictions of a task: a group of images, and one upper capsule if the softmax is over the lower ones, else
    all. Returns the (first) upper capsule and the group."""
    u_S, stride, sums_S, squares_S = room[:4]
    j, g = (task // len(x_), task % len(x_)) if lower else (0, task)
    for s in range(len(u_S)):
        V = squares_S.shape[1] // GROUP // LANES
        predict(w_[j + s], x_[g], M, room[9].shape[1], V, u_S[s], stride, sums_S[s], squares_S[s])
    return j, g


@compiled
def route(lo, hi, x_, w_, M, options, c_BJI, z_BJN):
    """Tasks lo to hi: c and z."""
    T, lower = options[:2]
    (batch, J, I), N = c_BJI.shape, z_BJN.shape[2]
    room = scratch(1 if lower else J, T, (N + 3) // 4 * 4, I)
    c_TS, z_TSN = room[6:8]
    for task in range(lo, hi):
        j, g = predict_task(task, x_, w_, M, lower, room)
        for k in range(min(GROUP, batch - g * GROUP)):
            b = g * GROUP + k
            iterate(k, I, options, room)
            for s in range(z_TSN.shape[1]):
                from_I, to_I = c_TS[T - 1, s], c_BJI[b, j + s]
                for i in range(I):
                    to_I[i] = from_I[i]
                z_BJN[b, j + s] = z_TSN[T - 1, s, :N]
