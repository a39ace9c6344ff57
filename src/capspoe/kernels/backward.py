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
from capspoe.kernels.panel import GROUP, by_image, by_lane, load, splat, store, sum_images, sum_lanes
from capspoe.kernels.routing import LOG2_E, ZERO, panels, times_w
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
    S, V, _ = g_SVP.shape
    sums, sums_G = splat(ZERO), np.empty(GROUP, np.float32)
    for v in range(V if lower else 0):
        sums = sums + load(c_SVP, (0, v)) * load(g_SVP, (0, v))
    sum_lanes(sums_G, (), sums)
    mean = by_image(sums_G, ())
    for v in range(V):
        if not lower:
            mean = splat(ZERO)
            for s in range(S):
                mean = mean + load(c_SVP, (s, v)) * load(g_SVP, (s, v))
        for s in range(S):
            change = load(c_SVP, (s, v)) * (load(g_SVP, (s, v)) - mean)
            store(logit_SVP, (s, v), load(logit_SVP, (s, v)) + change)


@compiled
def gradients_of_u(lo, hi, x_QVMP, w_JVNML, I, options, gc_QVJP, gz_QJNG, coefficient_QVJKP, vector_QJKNG):
    """Tasks lo to hi (see `route`): coefficients and vectors.

    After the last vector comes the base, after the last coefficient, for the cosine, that of u itself. gc is empty
    where c has no gradient.
    """
    T, lower, cosine, sharpness, scale = options
    V, (J, _, N), K = x_QVMP.shape[1], w_JVNML.shape[:3], 2 * (T - 1)
    S = 1 if lower else J
    room = forward.scratch(S, T, V, N, I)
    u_SVNP, sums_SNP, inverse_SVP, logits_TSVP, c_TSVP, z_TSNG, direction_SNG = room
    g_SVP, logit_SVP, weight_SVP, ones_SVP = panels((S, V)), panels((S, V)), panels((S, V)), panels((S, V))
    gz_SNG = np.empty((S, N, GROUP), np.float32)
    ones_SVP[:] = 1.0
    factor = splat(np.float32(sharpness if cosine else sharpness * scale))
    for task in range(lo, hi):
        j, q = forward.route_task(task, x_QVMP, w_JVNML, I, options, room)
        g_SVP[:], gz_SNG[:], logit_SVP[:] = 0.0, gz_QJNG[q, j : j + S], 0.0
        for v in range(V if len(gc_QVJP) > 0 else 0):
            g_SVP[:, v] = gc_QVJP[q, v, j : j + S]
        for t in range(T - 1, 0, -1):
            gz_SNG *= np.float32(scale)
            forward.directions(z_TSNG[t - 1], cosine, 1.0, direction_SNG)
            vector_QJKNG[q, j : j + S, 2 * t - 2] = gz_SNG
            vector_QJKNG[q, j : j + S, 2 * t - 1] = direction_SNG
            forward.agree(u_SVNP, gz_SNG, ones_SVP, g_SVP, g_SVP)
            through_softmax(c_TSVP[t], g_SVP, lower, logit_SVP)
            for s in range(S):
                for v in range(V):
                    logit, inverse = load(logit_SVP, (s, v)), load(inverse_SVP, (s, v))
                    store(weight_SVP, (s, v), logit * inverse * factor)
                    store(coefficient_QVJKP, (q, v, j + s, 2 * t - 2), load(c_TSVP, (t, s, v)))
                    store(coefficient_QVJKP, (q, v, j + s, 2 * t - 1), load(weight_SVP, (s, v)))
                    if cosine:  # the length of u: minus the cosine, by which the logit has grown
                        shrunk = load(logits_TSVP, (t - 1, s, v)) - load(logits_TSVP, (t, s, v))
                        own = shrunk * splat(np.float32(1 / LOG2_E)) * logit * inverse * inverse
                        at = (q, v, j + s, K)
                        store(coefficient_QVJKP, at, load(coefficient_QVJKP, at) + own)
            forward.combine(u_SVNP, weight_SVP, sums_SNP)
            forward.collect(sums_SNP, 1.0, gz_SNG)
            g_SVP[:] = 0.0
            through_directions(z_TSNG[t - 1], cosine, gz_SNG)
        vector_QJKNG[q, j : j + S, K] = np.float32(scale / (I if lower else S)) * gz_SNG


@compiled
def spread(lo, hi, x_QVMP, w_JVNML, own, coefficient_QVJKP, vector_QJKNG, gx_QVMP, gw_JVNML):
    """For vectors lo to hi of lower capsules: gx and gw, laid out as x and w, from the coefficients and vectors."""
    Q, J, K, N = vector_QJKNG.shape[:4]
    K -= 1
    for v in range(lo, hi):
        gx_QVMP[:, v], gw_JVNML[:, v] = 0.0, 0.0
        for j in range(J):
            for q in range(Q):
                x_VMP = x_QVMP[q]
                for n in range(0, N, 2):
                    a, b = by_image(vector_QJKNG, (q, j, K, n)), by_image(vector_QJKNG, (q, j, K, n + 1))
                    for k in range(K):
                        c = load(coefficient_QVJKP, (q, v, j, k))
                        a = a + c * by_image(vector_QJKNG, (q, j, k, n))
                        b = b + c * by_image(vector_QJKNG, (q, j, k, n + 1))
                    if own:
                        c, (u0, u1) = load(coefficient_QVJKP, (q, v, j, K)), times_w(w_JVNML, x_VMP, j, v, n)
                        a, b = a + c * u0, b + c * u1
                    for m in range(x_VMP.shape[1]):
                        x, w0, w1 = (
                            load(x_VMP, (v, m)),
                            by_lane(w_JVNML, (j, v, n, m)),
                            by_lane(w_JVNML, (j, v, n + 1, m)),
                        )
                        sum_images(gw_JVNML, (j, v, n, m), a * x)
                        sum_images(gw_JVNML, (j, v, n + 1, m), b * x)
                        store(gx_QVMP, (q, v, m), load(gx_QVMP, (q, v, m)) + w0 * a + w1 * b)
