# mypy: allow-untyped-defs, no-check-untyped-defs
"""Gradients of routing, with the predictions found again instead of stored.

The gradient of a prediction u_ij is a combination of a few vectors that do not depend on i, and of u_ij itself:

    g_ij = base_j + sum_k coefficient_ijk vector_jk [+ own_ij u_ij, for the cosine]

Two of these vectors come from each iteration t: the gradient of z_j, with coefficient c_ij, and the direction that
u_ij was compared with, whose coefficient is the gradient of the logit. `gradients_of_u` finds all of them, a group of
images at a time, back through the iterations. `spread` then forms g in registers, for gx_i = sum_j W_ij^T g_ij and
gW_ij = sum_b g_ij x_i^T. A thread has some lower capsules for itself there, so no sum is shared between threads.
The axes are those of `routing.py`, and K the vectors.
"""

import math

import numpy as np

from capspoe.kernels import routing as forward
from capspoe.kernels.panel import GROUP, LANES, add_products, by_image, by_lane, load, splat, store, sum_lanes
from capspoe.kernels.routing import CHUNK, LOG2_E, ZERO, panels, times_w
from capspoe.kernels.threads import compiled


@compiled
def through_directions(z_SNG, cosine, g_SNG):
    """From the gradient of d = z / |z| or d = squash(z) to that of z, in place."""
    S, N, _ = z_SNG.shape
    for s in range(S):
        for k in range(GROUP):
            square = dot = a = b = 0.0
            for n in range(N):
                square += np.float64(z_SNG[s, n, k]) ** 2
                dot += np.float64(z_SNG[s, n, k]) * g_SNG[s, n, k]
            root = math.sqrt(square)
            if square > 0 and cosine:
                a, b = 1 / root, -dot / (square * root)
            elif square > 0:
                a, b = root / (1 + square), (1 - square) / (1 + square) ** 2 / root * dot
            for n in range(N):
                g_SNG[s, n, k] = a * g_SNG[s, n, k] + b * z_SNG[s, n, k]


@compiled
def through_iteration(u_SVNP, inverse_SVP, ones_SVP, lower, factor, z_SNG, gz_SNG, c_SVP, logit_SVP, g_SVP, sums_SNP):
    """From the gradients of z and c (in g) to that of the logits, which adds to what later iterations gave.

    logit += c (g - sum c g), where g = gc + u gz. It leaves in g the coefficients of the direction, logit factor / |u|,
    and in sums the gradient of the direction, in one pass over u like `iterate`.
    """
    S, V, N = u_SVNP.shape[:3]
    mean, mean_G = splat(ZERO), np.empty(GROUP, np.float32)
    if lower:  # sum c u is z
        for v in range(V):
            mean = mean + load(c_SVP, (0, v)) * load(g_SVP, (0, v))
        sum_lanes(mean_G, (), mean)
        for n in range(N):
            mean_G += z_SNG[0, n] * gz_SNG[0, n]
        mean = by_image(mean_G, ())
    sums_SNP[:] = 0.0
    for lo in range(0, V, CHUNK):
        hi = min(V, lo + CHUNK)
        forward.agree(lo, hi, u_SVNP, gz_SNG, ones_SVP, g_SVP, g_SVP)
        for v in range(lo, hi):
            if not lower:
                mean = splat(ZERO)
                for s in range(S):
                    mean = mean + load(c_SVP, (s, v)) * load(g_SVP, (s, v))
            for s in range(S):
                logit = load(logit_SVP, (s, v)) + load(c_SVP, (s, v)) * (load(g_SVP, (s, v)) - mean)
                store(logit_SVP, (s, v), logit)
                store(g_SVP, (s, v), logit * load(inverse_SVP, (s, v)) * splat(np.float32(factor)))
        forward.combine(lo, hi, u_SVNP, g_SVP, sums_SNP)


@compiled
def gradients_of_u(lo, hi, x_QVMP, w_JVNML, I, options, gc_QJVP, gz_QJNG, coefficient_QKJVP, vector_QJKNG):
    """Tasks lo to hi (see `route`): coefficients and vectors, first those of z, then those of the directions.

    After the last vector comes the base, after the last coefficient, for the cosine, that of u itself. gc is empty
    where c has no gradient.
    """
    T, lower, cosine, sharpness, _ = options
    V, (J, _, N), K = x_QVMP.shape[1], w_JVNML.shape[:3], 2 * (T - 1)
    S = 1 if lower else J
    room = forward.scratch(S, T, V, N, I)
    u_SVNP, sums_SNP, inverse_SVP, logits_TSVP, z_TSNG, direction_SNG = room
    logit_SVP, ones_SVP, gz_SNG = panels((S, V)), panels((S, V)), np.empty((S, N, GROUP), np.float32)
    ones_SVP[:] = 1.0
    for task in range(lo, hi):
        j, q = forward.place(task, len(x_QVMP), lower)
        forward.route_task(x_QVMP, q, w_JVNML[j : j + S], I, options, room, j, coefficient_QKJVP[q])
        gz_SNG[:], logit_SVP[:], coefficient_QKJVP[q, T - 1 :, j : j + S] = gz_QJNG[q, j : j + S], 0.0, 0.0
        if len(gc_QJVP) > 0:
            coefficient_QKJVP[q, K - 1, j : j + S] = gc_QJVP[q, j : j + S]
        for t in range(T - 1, 0, -1):
            forward.directions(z_TSNG[t - 1], cosine, 1.0, direction_SNG)
            vector_QJKNG[q, j : j + S, t - 1] = gz_SNG
            vector_QJKNG[q, j : j + S, T - 2 + t] = direction_SNG
            c_SVP, g_SVP = coefficient_QKJVP[q, t - 1, j : j + S], coefficient_QKJVP[q, T - 2 + t, j : j + S]
            through_iteration(
                u_SVNP, inverse_SVP, ones_SVP, lower, sharpness, z_TSNG[t], gz_SNG, c_SVP, logit_SVP, g_SVP, sums_SNP
            )
            for s in range(S if cosine else 0):
                for v in range(V):  # the length of u: minus the cosine, by which the logit has grown
                    shrunk = load(logits_TSVP, (t - 1, s, v)) - load(logits_TSVP, (t, s, v))
                    inverse, at = load(inverse_SVP, (s, v)), (q, K, j + s, v)
                    own = shrunk * splat(np.float32(1 / LOG2_E)) * load(logit_SVP, (s, v)) * inverse * inverse
                    store(coefficient_QKJVP, at, load(coefficient_QKJVP, at) + own)
            forward.collect(sums_SNP, 1.0, gz_SNG)
            through_directions(z_TSNG[t - 1], cosine, gz_SNG)
        vector_QJKNG[q, j : j + S, K] = gz_SNG / np.float32(I if lower else S)


@compiled
def spread(lo, hi, x_QVMP, w_JVNML, own, coefficient_QKJVP, vector_QJKNG, gx_BIM, gw_JNMI):
    """For vectors lo to hi of lower capsules: the gradients of x and w from the coefficients and vectors."""
    (Q, _, M, P), (J, K), (B, I), N = x_QVMP.shape, vector_QJKNG.shape[1:3], gx_BIM.shape[:2], w_JVNML.shape[2]
    gx_QMP, gw_NML = panels((Q, M)), np.empty((N, M, LANES), np.float32)
    K -= 1
    for v in range(lo, hi):
        gx_QMP[:] = 0.0
        for j in range(J):
            gw_NML[:] = 0.0
            for q in range(Q):
                for n in range(0, N, 2):
                    a, b = by_image(vector_QJKNG, (q, j, K, n)), by_image(vector_QJKNG, (q, j, K, n + 1))
                    for k in range(K):
                        c = load(coefficient_QKJVP, (q, k, j, v))
                        a = a + c * by_image(vector_QJKNG, (q, j, k, n))
                        b = b + c * by_image(vector_QJKNG, (q, j, k, n + 1))
                    if own:
                        c, (u0, u1) = load(coefficient_QKJVP, (q, K, j, v)), times_w(w_JVNML, x_QVMP, j, q, v, n)
                        a, b = a + c * u0, b + c * u1
                    for m in range(M):
                        x, at = load(x_QVMP, (q, v, m)), (q, m)
                        add_products(gw_NML, (n, m), a, x)
                        add_products(gw_NML, (n + 1, m), b, x)
                        w0, w1 = by_lane(w_JVNML, (j, v, n, m)), by_lane(w_JVNML, (j, v, n + 1, m))
                        store(gx_QMP, at, load(gx_QMP, at) + w0 * a + w1 * b)
            for n in range(gw_JNMI.shape[1]):
                for m in range(M):
                    for lane in range(min(LANES, I - v * LANES)):
                        gw_JNMI[j, n, m, v * LANES + lane] = gw_NML[n, m, lane]
        for b in range(B):
            for lane in range(min(LANES, I - v * LANES)):
                for m in range(M):
                    gx_BIM[b, v * LANES + lane, m] = gx_QMP[b // GROUP, m, b % GROUP * LANES + lane]
