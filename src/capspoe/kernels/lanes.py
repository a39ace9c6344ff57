"""Eight floats at a time, as LLVM instructions that numba functions can contain."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8
_FLOAT = ir.FloatType()
_INT = ir.IntType(32)
_VECTOR = ir.VectorType(_FLOAT, LANES)
INTS = ir.VectorType(_INT, LANES)

# 2^f on [-1/2, 1/2], fitted for relative error, which is below float32's own rounding
_ROUND = 1.5 * 2**23
_EXP2 = (1.0, 0.69314718, 0.24022648, 0.055503324, 0.0096184378, 0.0013398877, 0.00015353321)


class Lanes:
    """The instructions, on whole vectors."""

    def __init__(self, context: Any, builder: Any) -> None:
        self.context, self.builder = context, builder

    def pointer(self, array_type: Any, array: Any, position: Any) -> Any:
        data = self.context.make_array(array_type)(self.context, self.builder, array).data
        return self.builder.gep(data, [position])

    def at(self, pointer: Any, position: Any) -> Any:
        if isinstance(position, int):
            position = ir.Constant(ir.IntType(64), position)
        return self.builder.gep(pointer, [position])

    def load(self, pointer: Any) -> Any:
        return self.builder.load(self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def store(self, value: Any, pointer: Any) -> None:
        self.builder.store(value, self.builder.bitcast(pointer, _VECTOR.as_pointer()), align=4)

    def constant(self, value: float) -> Any:
        return ir.Constant(_VECTOR, [ir.Constant(_FLOAT, value)] * LANES)

    def variable(self, start: Any) -> Any:
        """A value that changes in a loop; LLVM turns it into a register."""
        place = cgutils.alloca_once(self.builder, _VECTOR)
        self.builder.store(start, place)
        return place

    def splat(self, scalar: Any) -> Any:
        empty = ir.Constant(_VECTOR, ir.Undefined)
        first = self.builder.insert_element(empty, scalar, ir.Constant(_INT, 0))
        return self.builder.shuffle_vector(first, empty, ir.Constant(INTS, [0] * LANES))

    def call(self, name: str, *arguments: Any, flags: tuple[str, ...] = ()) -> Any:
        function_type = ir.FunctionType(_VECTOR, [_VECTOR] * len(arguments))
        function = cgutils.get_or_insert_function(self.builder.module, function_type, f"llvm.{name}.v8f32")
        return self.builder.call(function, arguments, fastmath=flags)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        return self.call("fmuladd", a, b, c)

    def add_to(self, place: Any, a: Any, b: Any) -> None:
        self.builder.store(self.fma(a, b, self.builder.load(place)), place)

    def at_least(self, x: Any, least: float) -> Any:
        bound = self.constant(least)
        return self.builder.select(self.builder.fcmp_ordered(">", x, bound), x, bound)

    def exp2(self, y: Any) -> Any:
        """2^y for y up to 127, and no less than 2^-126: the whole part by the exponent's bits, the rest by a
        polynomial. Adding _ROUND leaves the whole part in the low bits of the sum."""
        b = self.builder
        y = self.at_least(y, -126.0)
        rounded = b.fadd(y, self.constant(_ROUND))
        f = b.fsub(y, b.fsub(rounded, self.constant(_ROUND)))
        p = self.constant(_EXP2[-1])
        for coefficient in _EXP2[-2::-1]:
            p = self.fma(p, f, self.constant(coefficient))
        exponent = b.shl(b.bitcast(rounded, INTS), ir.Constant(INTS, [23] * LANES))
        return b.bitcast(b.add(b.bitcast(p, INTS), exponent), _VECTOR)


def block(emit: Callable[..., None]) -> Any:
    """Make `emit(lanes, *arguments)` callable from numba; arrays arrive as pointers to their first float."""

    def typing(typingctx: Any, *arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            lanes = Lanes(context, builder)
            zero = ir.Constant(ir.IntType(64), 0)
            ready = []
            for kind, value in zip(signature.args, values, strict=True):
                if isinstance(kind, types.Array):
                    ready.append(lanes.pointer(kind, value, zero))
                elif isinstance(kind, types.Integer):
                    ready.append(context.cast(builder, value, kind, types.int64))
                else:
                    ready.append(context.cast(builder, value, kind, types.float32))
            emit(lanes, *ready)
            return context.get_dummy_value()

        return types.void(*arguments), generate

    # numba reads the number of arguments from the signature
    names = ", ".join(emit.__code__.co_varnames[1 : emit.__code__.co_argcount])
    scope: dict[str, Any] = {"typing": typing}
    exec(f"def {emit.__name__}(typingctx, {names}):\n    return typing(typingctx, {names})", scope)
    return intrinsic(scope[emit.__name__])
