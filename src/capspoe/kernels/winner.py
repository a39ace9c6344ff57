"""The negative phase and the gradient sums for the one capsule that is on: 1/J of the work.

Images are taken in the order of their winner, so that the winner's weights stay in the cache from one image
to the next, and the gradient of a capsule is summed by one thread, in the order of the batch.
"""

import math

import numpy as np

from capspoe.kernels.agreement import aligned, collect
from capspoe.kernels.threads import compiled
from capspoe.kernels.vector import LANES, dots_four, dots_one, sigmoid

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


@compiled
def mixed(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return x ^ (x >> np.uint64(31))


@compiled
def uniform_at(seed, step, stream, image, position):  # type: ignore[no-untyped-def]
    """The number that capspoe.noise.Noise.uniform puts at `position` of an image's numbers."""
    key = mixed(_GOLDEN + np.uint64(seed))
    key = mixed(key + _GOLDEN + np.uint64(step))
    key = mixed(key + _GOLDEN + np.uint64(stream))
    key = mixed(key + (np.uint64(image) + np.uint64(1)) * _GOLDEN)
    bits = mixed(key + (np.uint64(position) + np.uint64(1)) * _GOLDEN)
    return (np.float32(bits >> np.uint64(41)) + np.float32(0.5)) * np.float32(1 / (1 << 23))


@compiled
def sample_winner(mean_BN, on_B, image_B, seed, step, stream, J, binary, h_BN):  # type: ignore[no-untyped-def]
    """h ~ P(h | x) for the winners, with the numbers that a draw for all J capsules would give them."""
    N = mean_BN.shape[1]
    for b in range(len(on_B)):
        for n in range(N):
            at = on_B[b] * N + n
            u = uniform_at(seed, step, stream, image_B[b], at)
            if binary:
                h_BN[b, n] = np.float32(1) if u < mean_BN[b, n] else np.float32(0)
            else:
                angle = uniform_at(seed, step, stream, image_B[b], J * N + at)
                radius = math.sqrt(np.float32(-2) * math.log(u))
                h_BN[b, n] = mean_BN[b, n] + radius * math.cos(np.float32(2 * math.pi) * angle)


@compiled
def chain(  # type: ignore[no-untyped-def]
    lo, hi, order, w_JNMI, a_MI, mu_MI, b_JN, on_B, h_BN, c_BJI, fan, uniform_BIM, x_BMI, z_BN
):
    """For images order[lo:hi]: x = P(x | h) (less the mean code), then z from that x, both for the winner.

    c_BJI is empty for uniform weights, uniform_BIM unless x is to be drawn.
    """
    N, M, I = w_JNMI.shape[1:]
    V = (I + LANES - 1) // LANES
    y, sums_ = aligned(V * LANES), aligned(N * LANES)
    r = np.ones(I, np.float32)
    for k in range(lo, hi):
        b = order[k]
        j = on_B[b]
        w_NMI, h = w_JNMI[j], h_BN[b]
        if len(c_BJI) > 0:
            for i in range(I):
                r[i] = fan * c_BJI[b, j, i]
        w_flat = w_NMI.reshape(N * M * I)
        sums_[:] = 0.0
        for m in range(M):
            y[:] = 0.0
            n = 0
            while n + 4 <= N:
                w0, w1, w2, w3 = w_NMI[n, m], w_NMI[n + 1, m], w_NMI[n + 2, m], w_NMI[n + 3, m]
                for i in range(I):
                    y[i] += h[n] * w0[i] + h[n + 1] * w1[i] + h[n + 2] * w2[i] + h[n + 3] * w3[i]
                n += 4
            while n < N:
                w0 = w_NMI[n, m]
                for i in range(I):
                    y[i] += h[n] * w0[i]
                n += 1
            for i in range(I):
                y[i] = a_MI[m, i] + r[i] * y[i]
            for v in range(V):
                sigmoid(y, v * LANES)
            if len(uniform_BIM) > 0:
                for i in range(I):
                    y[i] = np.float32(1) if uniform_BIM[b, i, m] < y[i] else np.float32(0)
            x = x_BMI[b, m]
            for i in range(I):
                x[i] = y[i] - mu_MI[m, i]
                y[i] = r[i] * x[i]
            n = 0
            while n < N:
                if n + 4 <= N:
                    dots_four(w_flat, (n * M + m) * I, M * I, y, sums_, n * LANES, I // LANES)
                    n += 4
                else:
                    dots_one(w_flat, (n * M + m) * I, M * I, y, sums_, n * LANES, I // LANES)
                    n += 1
            for n in range(N):
                for i in range(I // LANES * LANES, I):
                    sums_[n * LANES] += w_NMI[n, m, i] * y[i]
        collect(sums_, 0, np.float32(1), z_BN[b])
        for n in range(N):
            z_BN[b, n] += b_JN[j, n]


@compiled
def gradient(  # type: ignore[no-untyped-def]
    lo, hi, order, start, c_BJI, fan, hp_BN, hm_BN, xp_BMI, xm_BMI, out_JNMI, out_JN
):
    """For capsules lo to hi and the images they won: the means over the batch of r_ij (h+ x+ - h- x-), the
    gradient of the weights, and of h+ - h-, that of the hidden bias."""
    N, M, I = out_JNMI.shape[1:]
    batch = len(order)
    most = 0
    for j in range(lo, hi):
        most = max(most, start[j + 1] - start[j])
    p, q = np.empty((most, I), np.float32), np.empty((most, I), np.float32)
    for j in range(lo, hi):
        images = order[start[j] : start[j + 1]]
        out_JN[j] = 0.0
        for b in images:
            for n in range(N):
                out_JN[j, n] += (hp_BN[b, n] - hm_BN[b, n]) / batch
        for m in range(M):
            for k in range(len(images)):
                b = images[k]
                factor = np.float32(1 / batch)
                for i in range(I):
                    r = fan * c_BJI[b, j, i] * factor if len(c_BJI) > 0 else factor
                    p[k, i] = r * xp_BMI[b, m, i]
                    q[k, i] = r * xm_BMI[b, m, i]
            for n in range(N):
                out = out_JNMI[j, n, m]
                out[:] = 0.0
                k = 0
                while k + 2 <= len(images):
                    h0, g0 = hp_BN[images[k], n], hm_BN[images[k], n]
                    h1, g1 = hp_BN[images[k + 1], n], hm_BN[images[k + 1], n]
                    p0, q0, p1, q1 = p[k], q[k], p[k + 1], q[k + 1]
                    for i in range(I):
                        out[i] += h0 * p0[i] - g0 * q0[i] + h1 * p1[i] - g1 * q1[i]
                    k += 2
                if k < len(images):
                    h0, g0, p0, q0 = hp_BN[images[k], n], hm_BN[images[k], n], p[k], q[k]
                    for i in range(I):
                        out[i] += h0 * p0[i] - g0 * q0[i]


@compiled
def add_correlation(lo, hi, image_E, start, c_BJI, fan, h_EN, x_BMI, out_JNMI):  # type: ignore[no-untyped-def]
    """For capsules lo to hi: out_j += sum of r_ij h x over the entries start_j to start_{j+1}, each of one image."""
    N, M, I = out_JNMI.shape[1:]
    most = 0
    for j in range(lo, hi):
        most = max(most, start[j + 1] - start[j])
    p = np.empty((most, I), np.float32)
    for j in range(lo, hi):
        images, h = image_E[start[j] : start[j + 1]], h_EN[start[j] : start[j + 1]]
        for m in range(M):
            for k in range(len(images)):
                b = images[k]
                for i in range(I):
                    r = fan * c_BJI[b, j, i] if len(c_BJI) > 0 else np.float32(1)
                    p[k, i] = r * x_BMI[b, m, i]
            for n in range(N):
                out = out_JNMI[j, n, m]
                for k in range(len(images)):
                    h_k, p_k = h[k, n], p[k]
                    for i in range(I):
                        out[i] += h_k * p_k[i]


@compiled
def visible_change(lo, hi, xp_BK, xm_BK, mean_K, square_K):  # type: ignore[no-untyped-def]
    """For the visible units lo to hi: the means over the batch of x+ - x- and of its square."""
    batch = len(xp_BK)
    mean, square = mean_K[lo:hi], square_K[lo:hi]
    mean[:] = 0.0
    square[:] = 0.0
    for b in range(batch):
        xp, xm = xp_BK[b, lo:hi], xm_BK[b, lo:hi]
        for k in range(hi - lo):
            change = xp[k] - xm[k]
            mean[k] += change
            square[k] += change * change
    for k in range(hi - lo):
        mean[k] /= batch
        square[k] /= batch
