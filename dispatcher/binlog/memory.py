"""Machine instructions that numba does not offer: an unaligned load, a block copy.

A slice assignment in a kernel costs some 40 ns before the first byte is copied, and a loop over bytes copies one byte
a time; `llvm.memcpy` copies 80 bytes in 5 ns and 8 KB at memory speed. Nothing is checked here: callers have checked
their bounds, and give offsets that lie inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

U8 = NDArray[np.uint8]


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, at: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(builder.bitcast(data, ir.IntType(8).as_pointer()), [at])


def _load(bits: int, result: Any) -> Any:
    def load(_typing: Any, buf: Any, _at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
            value = builder.load(builder.bitcast(pointer, ir.IntType(bits).as_pointer()))
            value.align = 1
            return value

        return result(buf, types.uint64), generate

    return load


def _load64(typing: Any, buf: Any, at: Any) -> Any:
    return _load(64, types.uint64)(typing, buf, at)


def _copy(_typing: Any, out: Any, _to: Any, buf: Any, _start: Any, _size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        target = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        source = _pointer(context, builder, signature.args[2], arguments[2], arguments[3])
        one = ir.Constant(ir.IntType(64), 1)
        cgutils.raw_memcpy(builder, target, source, arguments[4], one)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(out, types.int64, buf, types.int64, types.int64), generate


def _load32(typing: Any, buf: Any, at: Any) -> Any:
    return _load(32, types.uint32)(typing, buf, at)


load32 = cast(Callable[[U8, np.uint64], np.uint32], intrinsic(_load32))
"""load32(buf, at): four bytes of `buf` from offset `at`, as the machine orders them."""

load64 = cast(Callable[[U8, np.uint64], np.uint64], intrinsic(_load64))
"""load64(buf, at): eight bytes of `buf` from offset `at`, likewise."""

copy = cast(Callable[[U8, int, U8, int, int], None], intrinsic(_copy))
"""copy(out, to, buf, start, size): bytes of `buf` from `start` to `out` at `to`. They must not overlap."""
