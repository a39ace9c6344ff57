# mypy: allow-untyped-defs, no-check-untyped-defs
"""A panel of float32 as a numba type: GROUP images by LANES lower capsules, held in registers.

An array of panels has an axis of GROUP * LANES at its end. `load(a, (v, n))` and `store(a, (v, n), panel)` read and
write a panel; `by_lane` and `by_image` repeat the LANES or GROUP floats they read. `sum_lanes` writes the sum of each
image, `add_products` adds a product, summed over the images. Between panels: + - * /, `maximum`, `rsqrt`, `exp2`.

Hand-written LLVM has to justify itself. Routing at the paper's size, one core of an AMD EPYC with AVX-512, in one
run: 69 us an image with such a type, 141 or more with numba loops, where LLVM keeps sums in memory, not registers.
Loops unrolled by hand take 86 to 101, for some sizes only, and are not vectorised at all where an index is signed.
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

GROUP = 4  # images that share one pass over the weights
LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8  # floats in a register

_WIDTH = GROUP * LANES
_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, _WIDTH), ir.VectorType(_INT, _WIDTH)
_CONTRACT = ("contract",)  # a product and a sum may become one fused multiply-add
_ESTIMATE = ("arcp", "afn", "contract", "reassoc", "nsz")  # 1 / sqrt by the machine's estimate and a Newton step
# 2^f on [-1/2, 1/2], fitted for relative error, which is below float32's own rounding
_EXP2 = (1.0, 0.69314718, 0.24022648, 0.055503324, 0.0096184378, 0.0013398877, 0.00015353321)
_ROUND = 1.5 * 2**23  # adding it leaves the whole part of a number in the low bits of the sum


class Panel(types.Type):
    """GROUP by LANES floats in registers."""


PANEL = Panel(f"Panel{GROUP}x{LANES}")


@register_model(Panel)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


def _define(emit: Callable[..., Any], result: Any = PANEL) -> Any:
    """The instructions `emit(builder, ...)` as a function for kernels.

    If it takes an array and the indices of all its axes but the last, `emit` gets a pointer and the indices.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if isinstance(kind := signature.args[0], types.Array):
            array = context.make_array(kind)(context, builder, values[0])
            indices = [*cgutils.unpack_tuple(builder, values[1]), context.get_constant(types.intp, 0)]
            pointer = cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=False)
            values = (pointer, *values[1:])
        made = emit(builder, *values)
        return made if result is PANEL else context.get_dummy_value()

    def define(typing: Any, *kinds: Any) -> Any:
        return result(*kinds), generate

    define.__signature__ = inspect.signature(emit)  # type: ignore[attr-defined]
    return intrinsic(define)


def _constant(value: float) -> Any:
    return ir.Constant(_FLOATS, [ir.Constant(_FLOAT, value)] * _WIDTH)


def _pick(b: Any, a: Any, lanes: list[int]) -> Any:
    """The vector of these lanes of a."""
    return b.shuffle_vector(a, ir.Constant(a.type, ir.Undefined), ir.Constant(ir.VectorType(_INT, len(lanes)), lanes))


def _at(b: Any, pointer: Any, count: int) -> Any:
    return b.bitcast(pointer, ir.VectorType(_FLOAT, count).as_pointer())


def _load(b: Any, pointer: Any, count: int = _WIDTH) -> Any:
    return b.load(_at(b, pointer, count), align=4)


def _add_products(b: Any, pointer: Any, at: Any, a: Any, other: Any) -> None:
    """Add the products, summed over the images, to LANES floats in memory."""
    total = _load(b, pointer, LANES)
    for g in range(GROUP):
        lanes = list(range(g * LANES, (g + 1) * LANES))
        product = b.fmul(_pick(b, a, lanes), _pick(b, other, lanes), flags=_CONTRACT)
        total = b.fadd(total, product, flags=_CONTRACT)
    b.store(total, _at(b, pointer, LANES), align=4)


def _maximum(b: Any, a: Any, other: Any) -> Any:
    return b.select(b.fcmp_ordered(">", a, other), a, other)


def _sum_lanes(b: Any, pointer: Any, at: Any, a: Any) -> None:
    """Write GROUP floats to memory: each image's upper half is added to its lower half until one lane is left."""
    for half in (LANES >> k for k in range(1, LANES.bit_length())):
        lower = [2 * half * g + lane for g in range(GROUP) for lane in range(half)]
        a = b.fadd(_pick(b, a, lower), _pick(b, a, [lane + half for lane in lower]))
    b.store(a, _at(b, pointer, GROUP), align=4)


def _rsqrt(b: Any, a: Any) -> Any:
    """1 / sqrt(a)."""
    sqrt = cgutils.get_or_insert_function(b.module, ir.FunctionType(_FLOATS, [_FLOATS]), f"llvm.sqrt.v{_WIDTH}f32")
    return b.fdiv(_constant(1.0), b.call(sqrt, [a], fastmath=_ESTIMATE), flags=_ESTIMATE)


def _exp2(b: Any, a: Any) -> Any:
    """2^a for a up to 127, and no less than 2^-126: whole part by the exponent's bits, the rest by a polynomial."""
    a = _maximum(b, a, _constant(-126.0))
    rounded = b.fadd(a, _constant(_ROUND))
    f = b.fsub(a, b.fsub(rounded, _constant(_ROUND)))
    p = _constant(_EXP2[-1])
    for coefficient in _EXP2[-2::-1]:
        p = b.fadd(b.fmul(p, f, flags=_CONTRACT), _constant(coefficient), flags=_CONTRACT)
    exponent = b.shl(b.bitcast(rounded, _INTS), ir.Constant(_INTS, [23] * _WIDTH))
    return b.bitcast(b.add(b.bitcast(p, _INTS), exponent), _FLOATS)


load = _define(lambda b, p, at: _load(b, p))
by_lane = _define(lambda b, p, at: _pick(b, _load(b, p, LANES), list(range(LANES)) * GROUP))
by_image = _define(lambda b, p, at: _pick(b, _load(b, p, GROUP), [k for k in range(GROUP) for _ in range(LANES)]))
store = _define(lambda b, p, at, a: b.store(a, _at(b, p, _WIDTH), align=4), types.void)
add_products, sum_lanes = _define(_add_products, types.void), _define(_sum_lanes, types.void)
splat = _define(lambda b, a: _pick(b, b.insert_element(_constant(0.0), a, ir.Constant(_INT, 0)), [0] * _WIDTH))
rsqrt, exp2, maximum = map(_define, (_rsqrt, _exp2, _maximum))


def _operator(symbol: Any, method: str) -> None:
    instruction = _define(lambda b, x, y: getattr(b, method)(x, y, flags=_CONTRACT))

    @overload(symbol, inline="always")
    def operation(a, b):
        return (lambda a, b: instruction(a, b)) if a is PANEL and b is PANEL else None


for _name in ("add", "sub", "mul", "truediv"):
    _operator(getattr(operator, _name), f"f{_name.removeprefix('true')}")
