"""Vectors of eight floats for numba, written as LLVM instructions.

Numba leaves vectorising to LLVM, which keeps sums in memory where registers would do and gives up on loops
with many arrays. These few building blocks say exactly which sums stay in registers. LLVM still chooses the
instructions: AVX, AVX-512 or NEON, whatever the machine has.

All arrays are flat float32; a position counts floats. A `group` is a run of eight-float vectors that share
one pass over the neurons, enough of them that no multiply-add waits for the one before.
"""

import math
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba.core import cgutils

from capspoe.kernels.lanes import INTS, LANES, Lanes, block

_ROOT_FLAGS = ("arcp", "afn", "contract", "reassoc", "nsz")  # a quick estimate, then one Newton step


def _predict(neurons: int, images: int) -> Any:
    """u_ij = W_ij x_i for a few neurons n of a capsule and a few images at once.

    Each load of W serves all the images, each load of x all the neurons; the sums over m stay in registers.
    On the way out, also what costs another pass otherwise: sum_i u_ij, and |u_ij|^2.
    w [vector][m][neuron], x [vector][m][image], u [image][vector][N], images `image_u`
    floats apart; sums [image][N], squares [image][V]
    """

    def predict(
        lanes: Lanes,
        w: Any,
        w0: Any,
        x: Any,
        x0: Any,
        u: Any,
        u0: Any,
        sums: Any,
        s0: Any,
        squares: Any,
        q0: Any,
        M: Any,
        N: Any,
        V: Any,
        image_u: Any,
        count: Any,
    ) -> None:
        b = lanes.builder
        w, x, u = lanes.at(w, w0), lanes.at(x, x0), lanes.at(u, u0)
        sums, squares = lanes.at(sums, s0), lanes.at(squares, q0)
        eight = ir.Constant(ir.IntType(64), LANES)
        with cgutils.for_range(b, count) as v_loop:
            v = v_loop.index
            w_v = lanes.at(w, b.mul(b.mul(v, M), ir.Constant(v.type, neurons * LANES)))
            x_v = lanes.at(x, b.mul(b.mul(v, M), ir.Constant(v.type, images * LANES)))
            acc = [[lanes.variable(lanes.constant(0.0)) for _ in range(neurons)] for _ in range(images)]
            with cgutils.for_range(b, M) as m_loop:
                m = m_loop.index
                w_m = lanes.at(w_v, b.mul(m, ir.Constant(m.type, neurons * LANES)))
                x_m = lanes.at(x_v, b.mul(m, ir.Constant(m.type, images * LANES)))
                w_lanes = [lanes.load(lanes.at(w_m, n * LANES)) for n in range(neurons)]
                for image in range(images):
                    x_lanes = lanes.load(lanes.at(x_m, image * LANES))
                    for n in range(neurons):
                        lanes.add_to(acc[image][n], w_lanes[n], x_lanes)
            for image in range(images):
                nth = ir.Constant(v.type, image)
                u_v = lanes.at(u, b.add(b.mul(nth, image_u), b.mul(b.mul(v, N), eight)))
                s_v = lanes.at(sums, b.mul(b.mul(nth, N), eight))
                q_v = lanes.at(squares, b.mul(b.add(b.mul(nth, V), v), eight))
                square = lanes.load(q_v)
                for n in range(neurons):
                    value = b.load(acc[image][n])
                    lanes.store(value, lanes.at(u_v, n * LANES))
                    s_n = lanes.at(s_v, n * LANES)
                    lanes.store(b.fadd(lanes.load(s_n), value), s_n)
                    square = lanes.fma(value, value, square)
                lanes.store(square, q_v)

    predict.__name__ = f"predict_{neurons}x{images}"
    return block(predict)


def _agree(group: int) -> Any:
    """logits += (u . direction) scale: `direction` [N] holds each number eight times."""

    def agree(
        lanes: Lanes, u: Any, u0: Any, direction: Any, scale: Any, q0: Any, logits: Any, l0: Any, N: Any
    ) -> None:
        b = lanes.builder
        u, scale, logits = lanes.at(u, u0), lanes.at(scale, q0), lanes.at(logits, l0)
        acc = [lanes.variable(lanes.constant(0.0)) for _ in range(group)]
        with cgutils.for_range(b, N) as loop:
            n = b.mul(loop.index, ir.Constant(loop.index.type, LANES))
            d = lanes.load(lanes.at(direction, n))
            for g in range(group):
                at = b.add(n, b.mul(N, ir.Constant(N.type, g * LANES)))
                lanes.add_to(acc[g], lanes.load(lanes.at(u, at)), d)
        for g in range(group):
            place = lanes.at(logits, g * LANES)
            old = lanes.load(place)
            lanes.store(lanes.fma(b.load(acc[g]), lanes.load(lanes.at(scale, g * LANES)), old), place)

    agree.__name__ = f"agree_{group}"
    return block(agree)


def _combine(neurons: int) -> Any:
    """sums [N] += weight u, over `count` vectors, for a few neurons whose sums stay in registers."""

    def combine(
        lanes: Lanes, u: Any, u0: Any, weight: Any, q0: Any, sums: Any, s0: Any, N: Any, count: Any
    ) -> None:
        b = lanes.builder
        u, weight, sums = lanes.at(u, u0), lanes.at(weight, q0), lanes.at(sums, s0)
        acc = [lanes.variable(lanes.load(lanes.at(sums, n * LANES))) for n in range(neurons)]
        with cgutils.for_range(b, count) as loop:
            v = b.mul(loop.index, ir.Constant(loop.index.type, LANES))
            value, u_v = lanes.load(lanes.at(weight, v)), lanes.at(u, b.mul(v, N))
            for n in range(neurons):
                lanes.add_to(acc[n], value, lanes.load(lanes.at(u_v, n * LANES)))
        for n in range(neurons):
            lanes.store(b.load(acc[n]), lanes.at(sums, n * LANES))

    combine.__name__ = f"combine_{neurons}"
    return block(combine)


def _dots(rows: int) -> Any:
    """sums [row] += w x, over `count` vectors: scalar products of x with a few rows of w, `stride` apart."""

    def dots(lanes: Lanes, w: Any, w0: Any, stride: Any, x: Any, sums: Any, s0: Any, count: Any) -> None:
        b = lanes.builder
        sums = lanes.at(sums, s0)
        start = [lanes.at(w, b.add(w0, b.mul(stride, ir.Constant(stride.type, k)))) for k in range(rows)]
        acc = [lanes.variable(lanes.load(lanes.at(sums, k * LANES))) for k in range(rows)]
        with cgutils.for_range(b, count) as loop:
            v = b.mul(loop.index, ir.Constant(loop.index.type, LANES))
            value = lanes.load(lanes.at(x, v))
            for k in range(rows):
                lanes.add_to(acc[k], value, lanes.load(lanes.at(start[k], v)))
        for k in range(rows):
            lanes.store(b.load(acc[k]), lanes.at(sums, k * LANES))

    dots.__name__ = f"dots_{rows}"
    return block(dots)


def _exponentiate(group: int) -> Any:
    """weight = 2^(logit - shift); total[0] += weight, total[1] += weight (logit - shift): the entropy."""

    def exponentiate(lanes: Lanes, logits: Any, shift: Any, weight: Any, total: Any, q0: Any) -> None:
        b = lanes.builder
        shifts = lanes.splat(shift)
        sums = [lanes.load(lanes.at(total, k * LANES)) for k in range(2)]
        for g in range(group):
            at = b.add(q0, ir.Constant(q0.type, g * LANES))
            x = b.fsub(lanes.load(lanes.at(logits, at)), shifts)
            e = lanes.exp2(x)
            lanes.store(e, lanes.at(weight, at))
            sums = [b.fadd(sums[0], e), lanes.fma(e, x, sums[1])]
        for k in range(2):
            lanes.store(sums[k], lanes.at(total, k * LANES))

    exponentiate.__name__ = f"exponentiate_{group}"
    return block(exponentiate)


def _inverse_roots(lanes: Lanes, x: Any, x0: Any, out: Any, extremes: Any, count: Any) -> None:
    """out = 1 / sqrt(x); extremes: the least and the largest x of each lane."""
    b = lanes.builder
    least, most = lanes.variable(lanes.constant(math.inf)), lanes.variable(lanes.constant(0.0))
    x, out = lanes.at(x, x0), lanes.at(out, x0)
    with cgutils.for_range(b, count) as loop:
        v = b.mul(loop.index, ir.Constant(loop.index.type, LANES))
        value, low, high = lanes.load(lanes.at(x, v)), b.load(least), b.load(most)
        b.store(b.select(b.fcmp_ordered("<", value, low), value, low), least)
        b.store(b.select(b.fcmp_ordered(">", value, high), value, high), most)
        root = lanes.call("sqrt", value, flags=_ROOT_FLAGS)
        lanes.store(b.fdiv(lanes.constant(1.0), root, flags=_ROOT_FLAGS), lanes.at(out, v))
    lanes.store(b.load(least), extremes)
    lanes.store(b.load(most), lanes.at(extremes, LANES))


def _sigmoid(lanes: Lanes, x: Any, x0: Any) -> None:
    """x = 1 / (1 + exp(-x)), in place."""
    b = lanes.builder
    place = lanes.at(x, x0)
    bounded = lanes.at_least(lanes.load(place), -87.0)  # e^87 is near float32's largest
    e = lanes.exp2(b.fmul(bounded, lanes.constant(-math.log2(math.e))))
    one = lanes.constant(1.0)
    lanes.store(b.fdiv(one, b.fadd(one, e)), place)


def _interleave(rows: int) -> Any:
    """out [vector][m][row] = source [row][m][vector] for `count` vectors: rows `apart` floats apart, m by `line`."""

    def interleave(
        lanes: Lanes, source: Any, s0: Any, apart: Any, line: Any, out: Any, o0: Any, M: Any, count: Any
    ) -> None:
        b = lanes.builder
        source, out = lanes.at(source, s0), lanes.at(out, o0)
        starts = [lanes.at(source, b.mul(apart, ir.Constant(apart.type, k))) for k in range(rows)]
        with cgutils.for_range(b, count) as v_loop, cgutils.for_range(b, M) as m_loop:
            v, m = v_loop.index, m_loop.index
            at = b.add(b.mul(m, line), b.mul(v, ir.Constant(v.type, LANES)))
            to = lanes.at(out, b.mul(b.add(b.mul(v, M), m), ir.Constant(v.type, rows * LANES)))
            for k in range(rows):
                lanes.store(lanes.load(lanes.at(starts[k], at)), lanes.at(to, k * LANES))

    interleave.__name__ = f"interleave_{rows}"
    return block(interleave)


def _blank(lanes: Lanes, x: Any, x0: Any, stride: Any, zero: Any, z0: Any, M: Any) -> None:
    """zero = 1 where all of M vectors, `stride` floats apart, are 0, and 0 elsewhere."""
    b = lanes.builder
    x, blank = lanes.at(x, x0), lanes.variable(lanes.constant(1.0))
    nothing = lanes.constant(0.0)
    with cgutils.for_range(b, M) as loop:
        value = lanes.load(lanes.at(x, b.mul(loop.index, stride)))
        b.store(b.select(b.fcmp_ordered("==", value, nothing), b.load(blank), nothing), blank)
    lanes.store(b.load(blank), lanes.at(zero, z0))


def _totals(lanes: Lanes, sums: Any, s0: Any, factor: Any, out: Any, count: Any) -> None:
    """out = factor times the sum of each of `count` vectors."""
    b = lanes.builder
    sums = lanes.at(sums, s0)
    with cgutils.for_range(b, count) as loop:
        value = lanes.load(lanes.at(sums, b.mul(loop.index, ir.Constant(loop.index.type, LANES))))
        for k in (4, 2, 1):
            others = ir.Constant(INTS, [lane ^ k for lane in range(LANES)])
            value = b.fadd(value, b.shuffle_vector(value, value, others))
        first = b.extract_element(value, ir.Constant(ir.IntType(32), 0))
        b.store(b.fmul(first, factor), lanes.at(out, loop.index))


def _repeat(lanes: Lanes, x: Any, count: Any) -> None:
    """Each of `count` vectors becomes eight times its first float."""
    b = lanes.builder
    with cgutils.for_range(b, count) as loop:
        place = lanes.at(x, b.mul(loop.index, ir.Constant(loop.index.type, LANES)))
        lanes.store(lanes.splat(b.load(place)), place)


def _turn(
    lanes: Lanes, x: Any, x0: Any, mu: Any, mu0: Any, out: Any, o0: Any, stride: Any, check: Any
) -> None:
    """out = (x - mu) transposed, for eight lower capsules of eight neurons; rows of out are `stride` apart.

    check += 0 (x - mu), which stays 0 unless something is not finite.
    """
    b = lanes.builder
    rows = [
        b.fsub(lanes.load(lanes.at(x, b.add(x0, k))), lanes.load(lanes.at(mu, b.add(mu0, k))))
        for k in (ir.Constant(x0.type, LANES * r) for r in range(LANES))
    ]
    finite = lanes.load(check)
    for row in rows:
        finite = lanes.fma(row, lanes.constant(0.0), finite)
    lanes.store(finite, check)
    for k in (1, 2, 4):  # swap the off-diagonal blocks of size k
        upper = [lane if not lane & k else LANES + (lane ^ k) for lane in range(LANES)]
        lower = [lane | k if not lane & k else LANES + lane for lane in range(LANES)]
        for r in range(LANES):
            if not r & k:
                pair = rows[r], rows[r | k]
                rows[r] = b.shuffle_vector(*pair, ir.Constant(INTS, upper))
                rows[r | k] = b.shuffle_vector(*pair, ir.Constant(INTS, lower))
    for r, row in enumerate(rows):
        lanes.store(row, lanes.at(out, b.add(o0, b.mul(stride, ir.Constant(stride.type, r)))))


GROUP, WIDE = 6, 8
predict_2x4, predict_1x4 = _predict(2, 4), _predict(1, 4)
predict_2x1, predict_1x1 = _predict(2, 1), _predict(1, 1)
agree_group, agree_one = _agree(GROUP), _agree(1)
combine_wide, combine_one = _combine(WIDE), _combine(1)
dots_four, dots_one = _dots(4), _dots(1)
exponentiate_group, exponentiate_one = _exponentiate(GROUP), _exponentiate(1)
inverse_roots, sigmoid = block(_inverse_roots), block(_sigmoid)
interleave_4, interleave_2, interleave_1 = _interleave(4), _interleave(2), _interleave(1)
blank, turn = block(_blank), block(_turn)
totals, repeat = block(_totals), block(_repeat)
