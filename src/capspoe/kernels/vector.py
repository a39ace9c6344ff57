# mypy: allow-untyped-defs, no-check-untyped-defs
"""A SIMD vector of float32 as a numba type: `load`, `store`, `splat`, + - * /, `exp2` and a few more.

Numba leaves vectorising to LLVM, which gives up on loops with many arrays and keeps sums in memory where registers
would do. With this type a kernel says what stays in registers, and still reads like arithmetic.

LLVM by hand has to pay for itself. Routing at the paper's size, one core of an AMD EPYC with AVX-512, in one run:
69 us an image with this type, 141 or more with numba loops over slices, a factor of 2. Loops unrolled by hand with
constant offsets and unsigned indices take 86 to 101, for some sizes only; they are harder to read, and LLVM silently
stops vectorising them when one index is signed.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, models, overload, register_model

LANES = 16 if llvm.get_host_cpu_features().get("avx512f") else 8  # floats in a vector
LOG2_E = math.log2(math.e)

_FLOAT, _INT = ir.FloatType(), ir.IntType(32)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_CONTRACT = ("contract",)  # a product and a sum may become one fused multiply-add
_ESTIMATE = (
    "arcp",
    "afn",
    "contract",
    "reassoc",
    "nsz",
)  # 1 / sqrt by the machine's estimate and a Newton step
# 2^f on [-1/2, 1/2], fitted for relative error, which is below float32's own rounding
_EXP2 = (1.0, 0.69314718, 0.24022648, 0.055503324, 0.0096184378, 0.0013398877, 0.00015353321)
_ROUND = 1.5 * 2**23  # adding it leaves the whole part of a number in the low bits of the sum


class Vector(types.Type):
    """LANES floats in one register."""

    def __init__(self) -> None:
        super().__init__(f"Vector{LANES}")


VECTOR = Vector()


@register_model(Vector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _FLOATS)


def _define(emit: Callable[..., Any], result: Any, *arguments: Any) -> Any:
    """The code of an intrinsic: `emit(builder, *values)` makes the instructions."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if isinstance(signature.args[0], types.Array):  # array, position -> pointer
            data = context.make_array(signature.args[0])(context, builder, values[0]).data
            pointer = builder.bitcast(builder.gep(data, [values[1]]), _FLOATS.as_pointer())
            values = (pointer, *values[2:])
        made = emit(builder, *values)
        return made if result is not types.void else context.get_dummy_value()

    return result(*arguments), generate


def _of_one(emit: Callable[..., Any], result: Any = VECTOR) -> Any:
    return intrinsic(lambda typing, a: _define(emit, result, VECTOR))


def _of_two(emit: Callable[..., Any]) -> Any:
    return intrinsic(lambda typing, a, b: _define(emit, VECTOR, VECTOR, VECTOR))


def _constant(value: float) -> Any:
    return ir.Constant(_FLOATS, [ir.Constant(_FLOAT, value)] * LANES)


def _call(builder: Any, name: str, result: Any, *arguments: Any, flags: tuple[str, ...] = ()) -> Any:
    function_type = ir.FunctionType(result, [argument.type for argument in arguments])
    function = cgutils.get_or_insert_function(builder.module, function_type, f"llvm.{name}.v{LANES}f32")
    return builder.call(function, arguments, fastmath=flags)


@intrinsic
def load(typing, array, at):
    """The LANES floats from position `at` of an array's memory."""
    return _define(lambda b, pointer: b.load(pointer, align=4), VECTOR, array, types.intp)


@intrinsic
def store(typing, array, at, value):
    return _define(lambda b, p, v: b.store(v, p, align=4), types.void, array, types.intp, VECTOR)


@intrinsic
def splat(typing, number):
    """The same float in all lanes."""

    def emit(b: Any, value: Any) -> Any:
        empty = ir.Constant(_FLOATS, ir.Undefined)
        first = b.insert_element(empty, value, ir.Constant(_INT, 0))
        return b.shuffle_vector(first, empty, ir.Constant(_INTS, [0] * LANES))

    return _define(emit, VECTOR, types.float32)


def _total(b: Any, a: Any) -> Any:
    """The sum of the lanes, always in the same order."""
    return _call(b, "vector.reduce.fadd", _FLOAT, ir.Constant(_FLOAT, 0.0), a, flags=("reassoc",))


def _largest(b: Any, a: Any) -> Any:
    """The largest lane."""
    return _call(b, "vector.reduce.fmax", _FLOAT, a)


def _maximum(b: Any, a: Any, other: Any) -> Any:
    return b.select(b.fcmp_ordered(">", a, other), a, other)


def _rsqrt(b: Any, a: Any) -> Any:
    """1 / sqrt(a)."""
    return b.fdiv(_constant(1.0), _call(b, "sqrt", _FLOATS, a, flags=_ESTIMATE), flags=_ESTIMATE)


def _exp2(b: Any, a: Any) -> Any:
    """2^a for a up to 127, and no less than 2^-126: whole part by the exponent's bits, the rest by a polynomial."""
    a = _maximum(b, a, _constant(-126.0))
    rounded = b.fadd(a, _constant(_ROUND))
    f = b.fsub(a, b.fsub(rounded, _constant(_ROUND)))
    p = _constant(_EXP2[-1])
    for coefficient in _EXP2[-2::-1]:
        p = b.fadd(b.fmul(p, f, flags=_CONTRACT), _constant(coefficient), flags=_CONTRACT)
    exponent = b.shl(b.bitcast(rounded, _INTS), ir.Constant(_INTS, [23] * LANES))
    return b.bitcast(b.add(b.bitcast(p, _INTS), exponent), _FLOATS)


total, largest = _of_one(_total, types.float32), _of_one(_largest, types.float32)
rsqrt, exp2, maximum = _of_one(_rsqrt), _of_one(_exp2), _of_two(_maximum)


def _operator(symbol: Any, method: str) -> None:
    instruction = _of_two(lambda b, *values: getattr(b, method)(*values, flags=_CONTRACT))

    @overload(symbol, inline="always")
    def operation(a, b):
        return (lambda a, b: instruction(a, b)) if a is VECTOR and b is VECTOR else None


for _name in ("add", "sub", "mul", "truediv"):
    _operator(getattr(operator, _name), f"f{_name.removeprefix('true')}")
