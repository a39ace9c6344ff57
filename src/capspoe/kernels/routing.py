# mypy: allow-untyped-defs, no-check-untyped-defs
"""Routing by agreement without storing the predictions of more than four images.

Every sum over m or n is arithmetic between panels: GROUP images by LANES lower capsules (`panel.py`). I is cut into V
vectors of LANES capsules and N padded to an even number, with zeros. The capitals that end a name are its axes:

    Q groups of images     G images of a group     V vectors of lower capsules     L lanes of a vector     P = G L
    T iterations           S upper capsules that share a softmax: one if it is over the lower capsules, else all J

Loops copy arrays element by element: numba takes a second or two to compile an assignment between slices, because of
the message with which it would refuse different shapes.
"""

import math

import numpy as np

from capspoe.kernels.panel import GROUP, LANES, by_image, by_lane, exp2, load, maximum, rsqrt, splat, store, sum_lanes
from capspoe.kernels.threads import compiled

LOG2_E = math.log2(math.e)
BOUNDED = 60.0  # a power of 2 and its sum stay in range
SAFE = 1e15  # lengths from 1 / SAFE to SAFE have squares that are exact enough in float32
LARGEST = 1e38  # of float32
WIDTH = GROUP * LANES  # floats of a panel
ZERO = np.float32(0)
ONE = np.float32(1)
FAR_BELOW = np.float32(-1e30)  # the logit of a lane beyond the last capsule


@compiled
def panels(count):
    """Room for panels that start at a cache line, so that none straddles two."""
    room = np.empty(count * WIDTH + 16, np.float32)
    skip = (64 - room.ctypes.data % 64) % 64 // 4
    return room[skip : skip + count * WIDTH].reshape(count, WIDTH)


@compiled
def pack(lo, hi, rows_BKI, out_QGVKL):
    """Groups lo to hi of rows, cut into V vectors of LANES floats."""
    B, K, I = rows_BKI.shape
    _, G, V, _, _ = out_QGVKL.shape
    for b in range(lo * G, min(B, hi * G)):
        for v in range(V):
            for k in range(K):
                for lane in range(min(LANES, I - v * LANES)):
                    out_QGVKL[b // G, b % G, v, k, lane] = rows_BKI[b, k, v * LANES + lane]


@compiled
def scratch(S, T, V, N, I):
    """Room for a task: u, its inverse lengths, logits and z of each iteration, directions. The first logits are 0."""
    u_SVNP = panels(S * V * N).reshape(S, V, N, WIDTH)
    inverse_SVP = panels(S * V).reshape(S, V, WIDTH)
    logits_TSVP = panels(T * S * V).reshape(T, S, V, WIDTH)
    for s in range(S):
        for v in range(V):
            for g in range(GROUP):
                for lane in range(LANES):
                    logit = ZERO if v * LANES + lane < I else FAR_BELOW
                    logits_TSVP[0, s, v, g * LANES + lane] = logit
    z_TSNG = np.empty((T, S, N, GROUP), np.float32)
    direction_SNG = np.empty((S, N, GROUP), np.float32)
    return u_SVNP, inverse_SVP, logits_TSVP, z_TSNG, direction_SNG


@compiled
def predict(x_QVMP, q, w_SVNML, u_SVNP, squares_SVP):
    """u_ij = W_ij x_i and |u_ij|^2: two neurons are eight sums in registers, and a weight serves four images."""
    S, V, N = u_SVNP.shape[:3]
    for s in range(S):
        for v in range(V):
            square = splat(ZERO)
            for n in range(0, N, 2):
                a = splat(ZERO)
                b = splat(ZERO)
                for m in range(x_QVMP.shape[2]):
                    x = load(x_QVMP, (q, v, m))
                    a = a + by_lane(w_SVNML, (s, v, n, m)) * x
                    b = b + by_lane(w_SVNML, (s, v, n + 1, m)) * x
                store(u_SVNP, (s, v, n), a)
                store(u_SVNP, (s, v, n + 1), b)
                square = square + a * a + b * b
            store(squares_SVP, (s, v), square)


@compiled
def largest(panel_1P, start, stop):
    """The largest of the floats from start to stop. A loop compiles in a fraction of the time of NumPy's `max`."""
    value = panel_1P[0, start]
    for p in range(start + 1, stop):
        value = max(value, panel_1P[0, p])
    return value


@compiled
def invert_lengths(u_SVNP, I, squares_SVP):
    """1 / |u_ij| from |u_ij|^2, in place; 0 where u_ij is 0. Squares out of float32's range are found again."""
    S, V, N, P = u_SVNP.shape
    # Lanes beyond the last capsule get an ordinary length, so that they do not count as extreme.
    for s in range(S):
        for g in range(GROUP):
            for lane in range(I - (V - 1) * LANES, LANES):
                squares_SVP[s, V - 1, g * LANES + lane] = ONE
    extreme = splat(ONE)
    for s in range(S):
        for v in range(V):
            square = load(squares_SVP, (s, v))
            extreme = maximum(extreme, maximum(square, splat(ONE) / square))
            store(squares_SVP, (s, v), rsqrt(square))
    extreme_1P = panels(1)
    store(extreme_1P, (0,), extreme)
    if largest(extreme_1P, 0, P) > SAFE**2:
        for s in range(S):
            for v in range(V):
                for p in range(P):
                    if not 1 / SAFE < squares_SVP[s, v, p] < SAFE:
                        exact = 0.0
                        for n in range(N):
                            exact += np.float64(u_SVNP[s, v, n, p]) ** 2
                        length = math.sqrt(exact)
                        squares_SVP[s, v, p] = min(1 / length, LARGEST) if length > 0 else 0.0


@compiled
def agree(u_SVNP, direction_SNG, inverse_SVP, old_SVP, new_SVP):
    """new = old + inverse sum_n u direction."""
    S, V, N = u_SVNP.shape[:3]
    for s in range(S):
        for v in range(V):
            a = splat(ZERO)
            for n in range(N):
                a = a + load(u_SVNP, (s, v, n)) * by_image(direction_SNG, (s, n))
            store(new_SVP, (s, v), load(old_SVP, (s, v)) + a * load(inverse_SVP, (s, v)))


@compiled
def combine(u_SVNP, weight_SVP, factor, z_SNG):
    """z = factor times the sum over the lower capsules of weight u, of two neurons at a time in registers."""
    S, V, N = u_SVNP.shape[:3]
    for s in range(S):
        for n in range(0, N, 2):
            a = splat(ZERO)
            b = splat(ZERO)
            for v in range(V):
                weight = load(weight_SVP, (s, v))
                a = a + weight * load(u_SVNP, (s, v, n))
                b = b + weight * load(u_SVNP, (s, v, n + 1))
            sum_lanes(z_SNG, (s, n), a * splat(np.float32(factor)))
            sum_lanes(z_SNG, (s, n + 1), b * splat(np.float32(factor)))


@compiled
def directions(z_SNG, cosine, factor, out_SNG):
    """factor times the unit vectors of z, or times squash(z)."""
    S, N, _ = z_SNG.shape
    for s in range(S):
        for g in range(GROUP):
            square = 0.0
            size = 0.0
            for n in range(N):
                square += np.float64(z_SNG[s, n, g]) ** 2
            if square > 0:
                root = math.sqrt(square)
                size = factor / root if cosine else factor * root / (1 + square)
            for n in range(N):
                out_SNG[s, n, g] = z_SNG[s, n, g] * size


@compiled
def softmax(logits_SVP, lower, bounded, c_SVP):
    """c = softmax over S, or over the vectors and lanes of lower capsules; `bounded` logits need no maximum."""
    S, V, P = logits_SVP.shape
    if lower:  # then S is 1, and the vectors take its place
        S = V
        V = 1
        logits_SVP = logits_SVP.reshape(S, V, P)
        c_SVP = c_SVP.reshape(S, V, P)
    one_1P = panels(1)
    one_G = np.empty(GROUP, np.float32)
    for v in range(V):
        shift = splat(ZERO if bounded else FAR_BELOW)
        amount = splat(ZERO)
        for s in range(0 if bounded else S):
            shift = maximum(shift, load(logits_SVP, (s, v)))
        if lower and not bounded:
            store(one_1P, (0,), shift)
            for g in range(GROUP):
                one_G[g] = largest(one_1P, g * LANES, (g + 1) * LANES)
            shift = by_image(one_G, ())
        for s in range(S):
            e = exp2(load(logits_SVP, (s, v)) - shift)
            store(c_SVP, (s, v), e)
            amount = amount + e
        if lower:
            sum_lanes(one_G, (), amount)
            amount = by_image(one_G, ())
        share = splat(ONE) / amount
        for s in range(S):
            store(c_SVP, (s, v), load(c_SVP, (s, v)) * share)


@compiled
def route_task(task, x_QVMP, w_JVNML, I, options, room, c_QKJVP):
    """Logits (for powers of 2), c and z of each iteration, of a group of images and S upper capsules.

    In the first iteration c is 1 / I or 1 / J; c_QKJVP begins with the second. Returns the (first) j and the group.
    """
    T, lower, cosine, sharpness, scale = options
    u_SVNP, inverse_SVP, logits_TSVP, z_TSNG, direction_SNG = room
    S = len(u_SVNP)
    if lower:
        j = task // len(x_QVMP)
        q = task % len(x_QVMP)
    else:
        j = 0
        q = task
    predict(x_QVMP, q, w_JVNML[j : j + S], u_SVNP, inverse_SVP)
    if cosine:
        invert_lengths(u_SVNP, I, inverse_SVP)
    else:
        inverse_SVP[:] = 1.0
    c_KJVP = c_QKJVP[q % len(c_QKJVP)]
    c_KJVP[0, j : j + S] = 1.0
    combine(u_SVNP, c_KJVP[0, j : j + S], scale / (I if lower else S), z_TSNG[0])
    for t in range(1, T):
        c_SVP = c_KJVP[t - 1, j : j + S]
        directions(z_TSNG[t - 1], cosine, sharpness * LOG2_E * (1 if cosine else scale), direction_SNG)
        agree(u_SVNP, direction_SNG, inverse_SVP, logits_TSVP[t - 1], logits_TSVP[t])
        softmax(logits_TSVP[t], lower, cosine and abs(sharpness) * (T - 1) < BOUNDED, c_SVP)
        combine(u_SVNP, c_SVP, scale, z_TSNG[t])
    return j, q


@compiled
def route(lo, hi, x_QVMP, w_JVNML, options, c_BJI, z_BJN):
    """Tasks lo to hi: c and z. A task is a group of images, and an upper capsule if the softmax is over the lower."""
    T, lower, _, _, _ = options
    B, J, I = c_BJI.shape
    N = z_BJN.shape[2]
    V = x_QVMP.shape[1]
    S = 1 if lower else J
    room = scratch(S, T, V, w_JVNML.shape[2], I)
    c_QKJVP = panels((T - 1) * J * V).reshape(1, T - 1, J, V, WIDTH)
    z_SNG = room[3][T - 1]
    for task in range(lo, hi):
        j, q = route_task(task, x_QVMP, w_JVNML, I, options, room, c_QKJVP)
        for b in range(q * GROUP, min(B, (q + 1) * GROUP)):
            g = b - q * GROUP
            for s in range(S):
                for n in range(N):
                    z_BJN[b, j + s, n] = z_SNG[s, n, g]
                for v in range(V):
                    for lane in range(min(LANES, I - v * LANES)):
                        c_BJI[b, j + s, v * LANES + lane] = c_QKJVP[0, T - 2, j + s, v, g * LANES + lane]
