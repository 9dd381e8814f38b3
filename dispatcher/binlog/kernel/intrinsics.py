"""Machine instructions that numba does not offer: unaligned loads, a prefetch, a block copy, arrays at an address.

A slice assignment in a kernel takes about 40 ns before it copies the first byte, and a loop copies one byte at a time.
`llvm.memcpy` copies 80 bytes in 5 ns, and 8 KB at memory speed. The compiled functions do not check bounds; their
callers must have checked the bounds. With NUMBA_DISABLE_JIT=1 kernels run as Python, for a fuzzer or a debugger, and
the loads and the copy check their arguments. An IndexError in them means that the compiled kernel would read or write
outside an array.

A kernel that works for many consumers gets addresses instead of arrays: numba changes the reference count of each array
in a list, which costs more than the kernel's work. The caller that passes an address must keep the array alive.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.numpy_support import carray
from numpy.typing import NDArray

from dispatcher.binlog.kernel.jit import INTERPRETED

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]


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


def _inside(buf: U8, at: int, size: int) -> int:
    if at < 0 or size < 0 or at + size > len(buf):
        raise IndexError(f"bytes {at} to {at + size} of {len(buf)}")
    return at


def _prefetch(_typing: Any, buf: Any, _at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        name = "llvm.prefetch.p0i8"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        # Arguments: for reading (0), keep in all caches (3), data cache (1).
        builder.call(
            function, [pointer, ir.Constant(i32, 0), ir.Constant(i32, 3), ir.Constant(i32, 1)]
        )
        return context.get_dummy_value()

    return types.void(buf, types.int64), generate


def _prefetch_interpreted(buf: U8, at: Any) -> None:
    """Do nothing. An address outside the array is allowed."""


def _load32_interpreted(buf: U8, at: Any) -> np.uint32:
    at = _inside(buf, int(at), 4)
    return np.uint32(int.from_bytes(buf[at : at + 4].tobytes(), sys.byteorder))


def _load64_interpreted(buf: U8, at: Any) -> np.uint64:
    at = _inside(buf, int(at), 8)
    return np.uint64(int.from_bytes(buf[at : at + 8].tobytes(), sys.byteorder))


def _copy_interpreted(out: U8, to: Any, buf: U8, start: Any, size: Any) -> None:
    size = int(size)
    to, start = _inside(out, int(to), size), _inside(buf, int(start), size)
    out[to : to + size] = buf[start : start + size]


def _choice(compiled: Any, interpreted: Any) -> Any:
    return interpreted if INTERPRETED else intrinsic(compiled)


load32 = cast(Callable[[U8, np.uint64], np.uint32], _choice(_load32, _load32_interpreted))
"""load32(buf, at) returns four bytes of `buf` from offset `at` as an integer in the machine's byte order."""

load64 = cast(Callable[[U8, np.uint64], np.uint64], _choice(_load64, _load64_interpreted))
"""load64(buf, at) returns eight bytes in the same way."""

prefetch = cast(Callable[[U8, int], None], _choice(_prefetch, _prefetch_interpreted))
"""prefetch(buf, at) loads the cache line of the byte at `at` without waiting. `at` may lie outside `buf`."""

copy = cast(Callable[[U8, int, U8, int, int], None], _choice(_copy, _copy_interpreted))
"""copy(out, to, buf, start, size) copies bytes of `buf` from `start` on to `out` at `to`. The ranges must not
overlap."""


def _array_at(item: Any) -> Any:
    """numba's own `carray` is a function that returns an array, which needs reference counts."""

    def array_at(_typing: Any, address: Any, _count: Any) -> Any:
        array_type = types.Array(item, 1, "C")

        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            from numba.np import arrayobj  # noqa: PLC0415 - only compiling needs it

            made = context.make_array(array_type)(context, builder)
            kind = context.get_data_type(item)
            size = context.get_constant(types.intp, context.get_abi_sizeof(kind))
            arrayobj.populate_array(  # type: ignore[no-untyped-call]
                made,
                data=builder.inttoptr(arguments[0], kind.as_pointer()),
                shape=[arguments[1]],
                strides=[size],
                itemsize=size,
                meminfo=None,
            )
            return made._getvalue()  # noqa: SLF001 - as numba's own intrinsics do

        return array_type(address, types.intp), generate

    return array_at


def _array_at_interpreted(item: Any) -> Any:
    def array_at(address: Any, count: Any) -> Any:
        return carray(ctypes.c_void_p(int(address)), int(count), item)

    return array_at


bytes_at = cast(
    Callable[[int, int], U8], _choice(_array_at(types.uint8), _array_at_interpreted(np.uint8))
)
"""bytes_at(address, size) returns the bytes at an address as an array."""

integers_at = cast(
    Callable[[int, int], I64], _choice(_array_at(types.int64), _array_at_interpreted(np.int64))
)
"""integers_at(address, count) returns the integers of 64 bits at an address as an array."""
