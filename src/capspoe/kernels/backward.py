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
from capspoe.kernels.routing import LOG2_E, ZERO, panels
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
def through_softmax(c_SVP, g_SVP, lower, logit_SVP):
    """logit += c (g - sum c g): the gradient of the logits from that of c."""
    S, V, P = c_SVP.shape
    if lower:  # as in `softmax`
        S, V = V, 1
        c_SVP, g_SVP, logit_SVP = c_SVP.reshape(S, V, P), g_SVP.reshape(S, V, P), logit_SVP.reshape(S, V, P)
    mean_G = np.empty(GROUP, np.float32)
    for v in range(V):
        mean = splat(ZERO)
        for s in range(S):
            mean = mean + load(c_SVP, (s, v)) * load(g_SVP, (s, v))
        if lower:
            sum_lanes(mean_G, (), mean)
            mean = by_image(mean_G, ())
        for s in range(S):
            change = load(c_SVP, (s, v)) * (load(g_SVP, (s, v)) - mean)
            store(logit_SVP, (s, v), load(logit_SVP, (s, v)) + change)


@compiled
def gradients_of_u(lo, hi, x_QVMP, w_JVNML, I, options, coefficient_QKJVP, vector_QJKNG):
    """Tasks lo to hi (see `route`): coefficients and vectors, first T - 1 for z, then T - 1 for the directions.

    After the last vector comes the base, after the last coefficient, for the cosine, that of u itself. At first there
    are only the gradients of z, as the vector T - 2, and of c, as the coefficient K - 1, and the rest is 0.
    """
    T, lower, cosine, sharpness, _ = options
    V, (J, _, N), K = x_QVMP.shape[1], w_JVNML.shape[:3], 2 * (T - 1)
    S = 1 if lower else J
    room = forward.scratch(S, T, V, N, I)
    u_SVNP, inverse_SVP, logits_TSVP, z_TSNG, direction_SNG = room
    logit_SVP, ones_SVP, gz_SNG = panels((S, V)), panels((S, V)), np.empty((S, N, GROUP), np.float32)
    ones_SVP[:] = 1.0
    for task in range(lo, hi):
        j, q = forward.route_task(task, x_QVMP, w_JVNML, I, options, room, coefficient_QKJVP)
        gz_SNG[:], logit_SVP[:] = vector_QJKNG[q, j : j + S, T - 2], 0.0
        for t in range(T - 1, 0, -1):
            forward.directions(z_TSNG[t - 1], cosine, 1.0, direction_SNG)
            vector_QJKNG[q, j : j + S, t - 1] = gz_SNG
            vector_QJKNG[q, j : j + S, T - 2 + t] = direction_SNG
            c_SVP, g_SVP = coefficient_QKJVP[q, t - 1, j : j + S], coefficient_QKJVP[q, T - 2 + t, j : j + S]
            forward.agree(u_SVNP, gz_SNG, ones_SVP, g_SVP, g_SVP)
            through_softmax(c_SVP, g_SVP, lower, logit_SVP)
            for s in range(S):
                for v in range(V):
                    logit, inverse = load(logit_SVP, (s, v)), load(inverse_SVP, (s, v))
                    store(g_SVP, (s, v), logit * inverse * splat(np.float32(sharpness)))
                    if cosine:  # the length of u: minus the cosine, by which the logit has grown
                        shrunk = load(logits_TSVP, (t - 1, s, v)) - load(logits_TSVP, (t, s, v))
                        own, at = shrunk * splat(np.float32(1 / LOG2_E)) * logit * inverse * inverse, (q, K, j + s, v)
                        store(coefficient_QKJVP, at, load(coefficient_QKJVP, at) + own)
            forward.combine(u_SVNP, g_SVP, 1.0, gz_SNG)
            through_directions(z_TSNG[t - 1], cosine, gz_SNG)
        vector_QJKNG[q, j : j + S, K] = gz_SNG / np.float32(I if lower else S)


@compiled
def spread(lo, hi, x_QVMP, w_JVNML, own, coefficient_QKJVP, vector_QJKNG, gx_BIM, gw_JNMI):
    """For vectors lo to hi of lower capsules: the gradients of x and w from the coefficients and vectors."""
    (Q, _, M), (J, K), (B, I), N = x_QVMP.shape[:3], vector_QJKNG.shape[1:3], gx_BIM.shape[:2], w_JVNML.shape[2]
    g_NP, gx_QMP, gw_MNL = panels((N,)), panels((Q, M)), panels((M, -(-N // GROUP))).reshape(M, -1, LANES)
    for v in range(lo, hi):
        first, count = v * LANES, min(LANES, I - v * LANES)
        gx_QMP[:] = 0.0
        for j in range(J):
            gw_MNL[:] = 0.0
            for q in range(Q):
                for n in range(N):
                    g, u = by_image(vector_QJKNG, (q, j, K - 1, n)), splat(ZERO)
                    for k in range(K - 1):
                        g = g + load(coefficient_QKJVP, (q, k, j, v)) * by_image(vector_QJKNG, (q, j, k, n))
                    if own:
                        for m in range(M):
                            u = u + by_lane(w_JVNML, (j, v, n, m)) * load(x_QVMP, (q, v, m))
                        g = g + load(coefficient_QKJVP, (q, K - 1, j, v)) * u
                    store(g_NP, (n,), g)
                for m in range(M):
                    x, gx = load(x_QVMP, (q, v, m)), load(gx_QMP, (q, m))
                    for n in range(N):
                        g = load(g_NP, (n,))
                        add_products(gw_MNL, (m, n), g, x)
                        gx = gx + by_lane(w_JVNML, (j, v, n, m)) * g
                    store(gx_QMP, (q, m), gx)
            gw_JNMI[j, :, :, first : first + count] = gw_MNL.transpose(1, 0, 2)[: gw_JNMI.shape[1], :, :count]
        gx_QMGL = gx_QMP.reshape(Q, M, GROUP, LANES)
        for b in range(B):
            gx_BIM[b, first : first + count] = gx_QMGL[b // GROUP, :, b % GROUP, :count].T
