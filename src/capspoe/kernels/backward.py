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
from capspoe.kernels.routing import LOG2_E, WIDTH, ZERO, panels
from capspoe.kernels.threads import compiled


@compiled
def through_directions(z_SNG, cosine, g_SNG):
    """From the gradient of d = z / |z| or d = squash(z) to that of z, in place."""
    S, N, _ = z_SNG.shape
    for s in range(S):
        for k in range(GROUP):
            square = 0.0
            dot = 0.0
            for n in range(N):
                square += np.float64(z_SNG[s, n, k]) ** 2
                dot += np.float64(z_SNG[s, n, k]) * g_SNG[s, n, k]
            root = math.sqrt(square)
            a = 0.0
            b = 0.0
            if square > 0 and cosine:
                a = 1 / root
                b = -dot / (square * root)
            elif square > 0:
                a = root / (1 + square)
                b = (1 - square) / (1 + square) ** 2 / root * dot
            for n in range(N):
                g_SNG[s, n, k] = a * g_SNG[s, n, k] + b * z_SNG[s, n, k]


@compiled
def through_softmax(c_SVP, g_SVP, lower, logit_SVP):
    """logit += c (g - sum c g): the gradient of the logits from that of c."""
    S, V, P = c_SVP.shape
    if lower:  # as in `softmax`
        S = V
        V = 1
        c_SVP = c_SVP.reshape(S, V, P)
        g_SVP = g_SVP.reshape(S, V, P)
        logit_SVP = logit_SVP.reshape(S, V, P)
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
    V = x_QVMP.shape[1]
    J, _, N = w_JVNML.shape[:3]
    K = 2 * (T - 1)
    S = 1 if lower else J
    room = forward.scratch(S, T, V, N, I)
    u_SVNP, inverse_SVP, logits_TSVP, z_TSNG, direction_SNG = room
    logit_SVP = panels(S * V).reshape(S, V, WIDTH)
    ones_SVP = panels(S * V).reshape(S, V, WIDTH)
    ones_SVP[:] = 1.0
    gz_SNG = np.empty((S, N, GROUP), np.float32)
    for task in range(lo, hi):
        j, q = forward.route_task(task, x_QVMP, w_JVNML, I, options, room, coefficient_QKJVP)
        copy(vector_QJKNG[q, j : j + S, T - 2], gz_SNG)
        logit_SVP[:] = 0.0
        for t in range(T - 1, 0, -1):
            forward.directions(z_TSNG[t - 1], cosine, 1.0, direction_SNG)
            copy(gz_SNG, vector_QJKNG[q, j : j + S, t - 1])
            copy(direction_SNG, vector_QJKNG[q, j : j + S, T - 2 + t])
            c_SVP = coefficient_QKJVP[q, t - 1, j : j + S]
            g_SVP = coefficient_QKJVP[q, T - 2 + t, j : j + S]
            forward.agree(u_SVNP, gz_SNG, ones_SVP, g_SVP, g_SVP)
            through_softmax(c_SVP, g_SVP, lower, logit_SVP)
            for s in range(S):
                for v in range(V):
                    logit = load(logit_SVP, (s, v))
                    inverse = load(inverse_SVP, (s, v))
                    store(g_SVP, (s, v), logit * inverse * splat(np.float32(sharpness)))
                    if cosine:  # the length of u: minus the cosine, by which the logit has grown
                        shrunk = load(logits_TSVP, (t - 1, s, v)) - load(logits_TSVP, (t, s, v))
                        own = shrunk * splat(np.float32(1 / LOG2_E)) * logit * inverse * inverse
                        at = (q, K, j + s, v)
                        store(coefficient_QKJVP, at, load(coefficient_QKJVP, at) + own)
            forward.combine(u_SVNP, g_SVP, 1.0, gz_SNG)
            through_directions(z_TSNG[t - 1], cosine, gz_SNG)
        # The weights of the first iteration are equal, so its part of the gradient is the same for every i.
        share = np.float32(I if lower else S)
        for s in range(S):
            for n in range(N):
                for g in range(GROUP):
                    vector_QJKNG[q, j + s, K, n, g] = gz_SNG[s, n, g] / share


@compiled
def copy(from_SNG, to_SNG):
    S, N, _ = from_SNG.shape
    for s in range(S):
        for n in range(N):
            for g in range(GROUP):
                to_SNG[s, n, g] = from_SNG[s, n, g]


@compiled
def spread(lo, hi, x_QVMP, w_JVNML, own, coefficient_QKJVP, vector_QJKNG, gx_BIM, gw_JNMI):
    """For vectors lo to hi of lower capsules: the gradients of x and w from the coefficients and vectors."""
    Q, _, M, _ = x_QVMP.shape
    J, K = vector_QJKNG.shape[1:3]
    B, I, _ = gx_BIM.shape
    even_N = w_JVNML.shape[2]
    N = gw_JNMI.shape[1]
    g_NP = panels(even_N)
    gx_QMP = panels(Q * M).reshape(Q, M, WIDTH)
    gw_MNL = panels(M * -(-even_N // GROUP)).reshape(M, -1, LANES)
    for v in range(lo, hi):
        first = v * LANES
        count = min(LANES, I - first)
        gx_QMP[:] = 0.0
        for j in range(J):
            gw_MNL[:] = 0.0
            for q in range(Q):
                for n in range(even_N):
                    g = by_image(vector_QJKNG, (q, j, K - 1, n))
                    for k in range(K - 1):
                        g = g + load(coefficient_QKJVP, (q, k, j, v)) * by_image(vector_QJKNG, (q, j, k, n))
                    if own:
                        u = splat(ZERO)
                        for m in range(M):
                            u = u + by_lane(w_JVNML, (j, v, n, m)) * load(x_QVMP, (q, v, m))
                        g = g + load(coefficient_QKJVP, (q, K - 1, j, v)) * u
                    store(g_NP, (n,), g)
                for m in range(M):
                    x = load(x_QVMP, (q, v, m))
                    gx = load(gx_QMP, (q, m))
                    for n in range(even_N):
                        g = load(g_NP, (n,))
                        add_products(gw_MNL, (m, n), g, x)
                        gx = gx + by_lane(w_JVNML, (j, v, n, m)) * g
                    store(gx_QMP, (q, m), gx)
            for n in range(N):
                for m in range(M):
                    for lane in range(count):
                        gw_JNMI[j, n, m, first + lane] = gw_MNL[m, n, lane]
        for b in range(B):
            q = b // GROUP
            g = b % GROUP
            for lane in range(count):
                for m in range(M):
                    gx_BIM[b, first + lane, m] = gx_QMP[q, m, g * LANES + lane]
