# mypy: allow-untyped-defs, no-check-untyped-defs
"""The negative phase and the gradient sums for the one capsule that is on: 1/J of the work.

Images are taken in the order of their winner, so that the winner's weights stay in the cache from one image to the
next. A capsule's gradient is summed by one thread, in the order of the batch.
"""

import numpy as np

from capspoe.kernels.routing import ONE, ZERO, aligned, collect, pack
from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import LANES, LOG2_E, exp2, load, maximum, splat, store


@compiled
def sigmoid(y_):
    """1 / (1 + exp(-y)), in place."""
    for at in range(0, len(y_), LANES):
        y = maximum(load(y_, at), splat(np.float32(-87)))  # e^87 is near float32's largest
        e = exp2(y * splat(np.float32(-LOG2_E)))
        store(y_, at, splat(ONE) / (splat(ONE) + e))


@compiled
def chain(lo, hi, order, w_JNMI, a_AMI, mu_MI, b_JN, on_B, h_BN, c_BJI, fan, uniform_BIM, x_BMI, z_BN):
    """For images order[lo:hi]: x = P(x | h) (less the mean code), then z from that x, both for the winner.

    a has one visible bias for all capsules (A = 1) or one for each (A = J). c_BJI is empty for uniform weights,
    uniform_BIM unless x is to be drawn.
    """
    N, M, I = w_JNMI.shape[1:]
    row, padded = (I + LANES - 1) // LANES * LANES, (N + 3) // 4 * 4
    w_, y_M = aligned(padded * M * row).reshape(1, -1), aligned(M * row).reshape(M, row)
    h_, sums_, r_I, packed = np.zeros(padded, np.float32), aligned(padded * LANES), np.ones(I, np.float32), -1
    for k in range(lo, hi):
        b = order[k]
        j = on_B[b]
        if j != packed:
            pack(0, 1, w_JNMI[j : j + 1], padded, 2, w_)
            packed = j
        h_[:N] = h_BN[b]
        for i in range(I if len(c_BJI) > 0 else 0):
            r_I[i] = fan * c_BJI[b, j, i]
        down(w_[0], h_, M, y_M)
        for m in range(M):
            x_I, y_, a_I, mu_I = x_BMI[b, m], y_M[m], a_AMI[j if len(a_AMI) > 1 else 0, m], mu_MI[m]
            for i in range(I):
                y_[i] = a_I[i] + r_I[i] * y_[i]
            sigmoid(y_)
            for i in range(I if len(uniform_BIM) > 0 else 0):
                y_[i] = ONE if uniform_BIM[b, i, m] < y_[i] else ZERO
            for i in range(I):
                x_I[i] = y_[i] - mu_I[i]
                y_[i] = r_I[i] * x_I[i]
        up(w_[0], y_M, M, padded, sums_)
        collect(sums_, 0, ONE, z_BN[b])
        z_BN[b] += b_JN[j]


@compiled
def down(w_, h_N, M, y_M):
    """y_im = sum_n w_inm h_n."""
    N = len(h_N)
    for v in range(y_M.shape[1] // LANES):
        for m in range(M):
            even = odd = splat(ZERO)
            for n in range(0, N, 2):
                w = ((v * N + n) * M + 2 * m) * LANES
                even = even + load(w_, w) * splat(h_N[n])
                odd = odd + load(w_, w + LANES) * splat(h_N[n + 1])
            store(y_M, m * y_M.shape[1] + v * LANES, even + odd)


@compiled
def up(w_, y_M, M, N, sums_):
    """sums_n = sum_im w_inm y_im, each still in LANES parts."""
    sums_[:] = 0.0
    for v in range(y_M.shape[1] // LANES):
        for n in range(0, N, 2):
            even, odd = load(sums_, n * LANES), load(sums_, (n + 1) * LANES)
            for m in range(M):
                w, y = ((v * N + n) * M + 2 * m) * LANES, load(y_M, m * y_M.shape[1] + v * LANES)
                even = even + load(w_, w) * y
                odd = odd + load(w_, w + LANES) * y
            store(sums_, n * LANES, even)
            store(sums_, (n + 1) * LANES, odd)


@compiled
def add_correlation(lo, hi, start, image_E, chain_E, h_EN, c_BJI, fan, xp_BMI, xm_BMI, out_JNMI):
    """For capsules lo to hi: out_j += sum over the entries start_j to start_{j+1} of r_ij h x, where x is that of the
    entry's image: the data, or the end of its chain. c_BJI is empty for uniform weights."""
    N, M, I = out_JNMI.shape[1:]
    for j in range(lo, hi):
        first, count = start[j], start[j + 1] - start[j]
        p_EI, padded = np.zeros((count + 3, I), np.float32), (count + 3) // 4 * 4
        h = np.zeros((padded, N), np.float32)
        h[:count] = h_EN[first : first + count]
        for m in range(M):
            for e in range(count):
                b = image_E[first + e]
                x, p = xm_BMI[b, m] if chain_E[first + e] else xp_BMI[b, m], p_EI[e]
                if len(c_BJI) > 0:
                    c = c_BJI[b, j]
                    for i in range(I):
                        p[i] = fan * c[i] * x[i]
                else:
                    p[:] = x
            for n in range(N):
                out = out_JNMI[j, n, m]
                for e in range(0, padded, 4):
                    h0, h1, h2, h3 = h[e, n], h[e + 1, n], h[e + 2, n], h[e + 3, n]
                    p0, p1, p2, p3 = p_EI[e], p_EI[e + 1], p_EI[e + 2], p_EI[e + 3]
                    for i in range(I):
                        out[i] += h0 * p0[i] + h1 * p1[i] + h2 * p2[i] + h3 * p3[i]


@compiled
def visible_change(lo, hi, on_B, xp_BK, xm_BK, mean_AK, square_K):
    """For the visible units lo to hi: the means over the batch of (x+ - x-)^2 and of x+ - x-, which is the gradient
    of the visible bias: of all capsules together (A = 1), or of each from the images it won (A = J)."""
    batch = len(xp_BK)
    square = square_K[lo:hi]
    mean_AK[:, lo:hi] = 0.0
    square[:] = 0.0
    for b in range(batch):
        xp, xm = xp_BK[b, lo:hi], xm_BK[b, lo:hi]
        mean = mean_AK[on_B[b] if len(mean_AK) > 1 else 0, lo:hi]
        for k in range(hi - lo):
            change = (xp[k] - xm[k]) / np.float32(batch)
            mean[k] += change
            square[k] += change * change * np.float32(batch)
