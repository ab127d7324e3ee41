"""Loops over arrays, compiled by numba once a machine and kept on disk.

Signatures are given, not inferred: Arrow hands out read-only and writable memory alike, and each mix of the
two would compile anew. An argument declared ``READ_*`` takes both; every array is contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

INT = types.int64
BOOL = types.boolean
INTS = types.Array(types.int64, 1, "C")
LANES = types.Array(types.int64, 2, "C")
BOOLS = types.Array(types.boolean, 1, "C")
READ_INTS = types.Array(types.int64, 1, "C", readonly=True)
READ_INT32S = types.Array(types.int32, 1, "C", readonly=True)
READ_BYTES = types.Array(types.uint8, 1, "C", readonly=True)


def compiled(result: Any, *arguments: Any) -> Callable[[Function], Function]:
    """Compiles a function of exactly these types, when its module is imported."""
    return cast("Callable[[Function], Function]", njit(result(*arguments), cache=True))


def inlined(function: Function) -> Function:
    """A part of compiled functions of the same module (numba's cache does not look into others)."""
    return cast("Function", njit(inline="always")(function))


def _prefetch(typing: Any, array: Any, index: Any) -> Any:
    """``prefetch(array, index)`` has the processor fetch an element that will soon be read and written."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", (byte,), ir.FunctionType(ir.VoidType(), (byte, word, word, word))
        )
        element = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        writing, keep_near, is_data = word(1), word(3), word(1)
        builder.call(prefetch, (element, writing, keep_near, is_data))
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch = intrinsic(_prefetch)
