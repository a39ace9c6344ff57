# mypy: allow-untyped-defs, no-check-untyped-defs
"""Gradients of routing, with the predictions found again instead of stored.

The gradient of a prediction u_ij is a combination of a few vectors that do not depend on i, and of u_ij itself:

    g_ij = base_j + sum_k coefficient_ijk vector_jk [+ own_ij u_ij, for the cosine]

Two of these vectors come from each iteration t: the gradient of z_j, with coefficient c_ij, and the direction that
u_ij was compared with, whose coefficient is the gradient of the logit. `gradients_of_u` finds all of them, one image
at a time, back through the iterations. `spread` then forms g in registers, for gx_i = sum_j W_ij^T g_ij and
gW_ij = sum_b g_ij x_i^T. A thread has some lower capsules for itself there, so no sum is shared between threads.
"""

import math

import numpy as np

from capspoe.kernels import routing as forward
from capspoe.kernels.routing import GROUP, ONE, ZERO, fma, four, same, store_four, times_w
from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import LANES, LOG2_E, load, splat, store, total


@compiled
def through_direction(z_N, cosine, g_N):
    """From the gradient of d = z / |z| or d = squash(z) to that of z, in place."""
    square = dot = 0.0
    for n in range(len(z_N)):
        square += np.float64(z_N[n]) ** 2
        dot += np.float64(z_N[n]) * g_N[n]
    root, a, b = math.sqrt(square), 0.0, 0.0
    if square > 0 and cosine:
        a, b = 1 / root, -dot / (square * root)
    elif square > 0:
        a, b = root / (1 + square), (1 - square) / (1 + square) ** 2 / root * dot
    for n in range(len(z_N)):
        g_N[n] = np.float32(a * g_N[n] + b * z_N[n])


@compiled
def through_softmax(c_S, g_S, lower, logit_S):
    """logit += c (g - sum c g): the gradient of the logits from that of c."""
    S, row = g_S.shape
    sums = splat(ZERO)
    for at in range(0, row if lower else 0, LANES):
        sums = sums + load(c_S, at) * load(g_S, at)
    mean = splat(total(sums))
    for at in range(0, row, LANES):
        if not lower:
            mean = splat(ZERO)
            for s in range(S):
                mean = mean + load(c_S, s * row + at) * load(g_S, s * row + at)
        for s in range(S):
            k = s * row + at
            store(logit_S, k, load(logit_S, k) + load(c_S, k) * (load(g_S, k) - mean))


@compiled
def gradients_of_u(lo, hi, x_, w_, M, options, gc_BJI, gz_BJN, coefficient_G, vector_GJKN):
    """Tasks lo to hi (see `route`): coefficients [group][v][j][k][image][lane] and vectors [group][j][k][image][n].

    After the last vector comes the base, after the last coefficient, for the cosine, that of u itself. gc_BJI is
    empty where c has no gradient.
    """
    T, lower, cosine, sharpness, scale = options
    batch, (J, I), K, N = len(gz_BJN), gc_BJI.shape[1:], 2 * (T - 1), vector_GJKN.shape[-1]
    room = forward.scratch(1 if lower else J, T, N, I)
    u_S, stride, _, _, inverse_S, logits_TS, c_TS, z_TSN, one_S, gz_SN, _ = room
    (S, row), each = inverse_S.shape, (K + cosine) * GROUP * LANES  # floats for one v and j
    g_S, ones_S, d_SN = (
        np.empty((S, row), np.float32),
        np.ones((S, row), np.float32),
        np.empty((S, N), np.float32),
    )
    logit_S, weight_S = np.empty((S, row), np.float32), np.empty((S, row), np.float32)
    for task in range(lo, hi):
        j, g = forward.predict_task(task, x_, w_, M, lower, room)
        coefficient_, vector_JKN = coefficient_G[g], vector_GJKN[g]
        for k in range(min(GROUP, batch - g * GROUP)):
            b, u0 = g * GROUP + k, k * stride
            forward.iterate(k, I, options, room)
            logit_S[:], g_S[:], gz_SN[:] = 0.0, 0.0, 0.0
            gz_SN[:, : gz_BJN.shape[2]] = gz_BJN[b, j : j + S]
            if len(gc_BJI) > 0:
                g_S[:, :I] = gc_BJI[b, j : j + S]
            for t in range(T - 1, 0, -1):
                for s in range(S):
                    gz_SN[s] *= np.float32(scale)
                    vector_JKN[j + s, 2 * t - 2, k] = gz_SN[s]
                    forward.direction(z_TSN[t - 1, s], cosine, 1.0, d_SN[s])
                    vector_JKN[j + s, 2 * t - 1, k] = d_SN[s]
                forward.agree(u_S, u0, gz_SN, ones_S, 0, row // LANES, g_S, g_S)
                through_softmax(c_TS[t], g_S, lower, logit_S)
                old_S, new_S, c_S = logits_TS[t - 1], logits_TS[t], c_TS[t]
                for s in range(S):
                    for v in range(row // LANES):
                        at = s * row + v * LANES
                        to = (v * J + j + s) * each + ((2 * t - 2) * GROUP + k) * LANES
                        logit, inverse = load(logit_S, at), load(inverse_S, at)
                        e = logit * inverse * splat(np.float32(sharpness if cosine else sharpness * scale))
                        store(weight_S, at, e)
                        store(coefficient_, to, load(c_S, at))
                        store(coefficient_, to + GROUP * LANES, e)
                        if cosine:  # the length of u: minus the cosine, by which the logit has grown
                            to += (K - 2 * t + 2) * GROUP * LANES
                            growth = (load(old_S, at) - load(new_S, at)) * splat(np.float32(1 / LOG2_E))
                            later = load(coefficient_, to) if t < T - 1 else splat(ZERO)
                            store(coefficient_, to, later + growth * logit * inverse * inverse)
                one_S[:] = 0.0
                forward.combine(u_S, u0, weight_S, N, 0, row // LANES, one_S)
                g_S[:] = 0.0
                for s in range(S):
                    forward.collect(one_S[s], 0, 1.0, gz_SN[s])
                    through_direction(z_TSN[t - 1, s], cosine, gz_SN[s])
            for s in range(S):
                vector_JKN[j + s, K, k] = np.float32(scale / (I if lower else S)) * gz_SN[s]


@compiled
def spread(lo, hi, x_G, w_J, M, own, coefficient_G, vector_GJKN, gx_G, gw_J):
    """For vectors lo to hi of lower capsules: gx and gw, laid out as x and w, from the coefficients and vectors."""
    G, J, K, _, N = vector_GJKN.shape
    K, size_x, size_w = K - 1, M * GROUP * LANES, N * M * LANES  # floats for one v
    for v in range(lo, hi):
        gx_G[:, v * size_x : (v + 1) * size_x] = 0.0
        gw_J[:, v * size_w : (v + 1) * size_w] = 0.0
        for j in range(J):
            w_, gw_ = w_J[j], gw_J[j]
            for g in range(G):
                x_, gx_, q_, p_ = x_G[g], gx_G[g], coefficient_G[g], vector_GJKN[g, j].reshape(-1)
                q0 = (v * J + j) * (K + own) * GROUP * LANES
                for n in range(0, N, 2):
                    a = b = same(splat(ZERO))
                    if own:
                        q = four(q_, q0 + K * GROUP * LANES, LANES)
                        u, t = times_w(w_, x_, v, n, M, N)
                        a, b = fma(a, q, u), fma(b, q, t)
                    for k in range(K + 1):
                        q = four(q_, q0 + k * GROUP * LANES, LANES) if k < K else same(splat(ONE))
                        p = k * GROUP * N + n
                        a, b = fma(a, q, scalars(p_, p, N)), fma(b, q, scalars(p_, p + 1, N))
                    w, x = v * size_w + n * M * LANES, v * size_x
                    for _ in range(M):
                        x_m, w0, w1 = four(x_, x, LANES), load(w_, w), load(w_, w + LANES)
                        store(gw_, w, load(gw_, w) + inner(a, x_m))
                        store(gw_, w + LANES, load(gw_, w + LANES) + inner(b, x_m))
                        store_four(gx_, x, LANES, fma(fma(four(gx_, x, LANES), same(w0), a), same(w1), b))
                        w, x = w + 2 * LANES, x + GROUP * LANES


@compiled
def scalars(p_, p, apart):
    return splat(p_[p]), splat(p_[p + apart]), splat(p_[p + 2 * apart]), splat(p_[p + 3 * apart])


@compiled
def inner(x, y):
    return (x[0] * y[0] + x[1] * y[1]) + (x[2] * y[2] + x[3] * y[3])


@compiled
def unpack_w(lo, hi, w_J, w_JNMI):
    """The weights of capsules lo to hi out of the layout of the kernels."""
    N, M, I = w_JNMI.shape[1:]
    size = w_J.shape[1] // ((I + LANES - 1) // LANES)  # of one v
    for j in range(lo, hi):
        for v in range((I + LANES - 1) // LANES):
            for n in range(N):
                for m in range(M):
                    at = v * size + (n // 2 * M + m) * 2 * LANES + n % 2 * LANES
                    for lane in range(min(LANES, I - v * LANES)):
                        w_JNMI[j, n, m, v * LANES + lane] = w_J[j, at + lane]
