"""CRC32 by carry-less multiplication: folds 64 bytes per step on processors with the instruction PCLMULQDQ.

A CRC is a remainder of polynomials, so a block of bytes can be replaced by a shorter block with the same remainder.
`fold` reduces a message to 16 bytes with the same remainder, and `crc` computes the CRC of these bytes with tables. The
combination is about five times faster than tables alone. `AVAILABLE` is False if the processor lacks the instruction,
if numba compiles for another processor, or if kernels are not compiled. If it is False, `fold` must not be called.

Source: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009; the constants
are x^(512+32), x^(512-32), x^(128+32) and x^(128-32) modulo the polynomial, bit-reflected.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from dispatcher.binlog.kernel.jit import INTERPRETED

_BY_64 = (0x154442BD4, 0x1C6E41596)
_BY_16 = (0x1751997D0, 0x0CCAA009E)

_I8, _I64 = ir.IntType(8), ir.IntType(64)
_BLOCK = ir.VectorType(_I64, 2)


def _available() -> bool:
    if INTERPRETED or os.environ.get("NUMBA_CPU_NAME") or os.environ.get("NUMBA_CPU_FEATURES"):
        return False
    features = llvmlite.binding.get_host_cpu_features()
    return bool(features.get("pclmul") and features.get("sse4.1"))


AVAILABLE = _available()


class _Folding:
    """Generates the LLVM instructions of one call of `fold`."""

    def __init__(self, builder: Any, start: Any) -> None:
        self._builder = builder
        self._start = start
        function_type = ir.FunctionType(_BLOCK, [_BLOCK, _BLOCK, _I8])
        module = builder.module
        name = "llvm.x86.pclmulqdq"
        self._multiply = module.globals.get(name) or ir.Function(module, function_type, name)

    def load(self, at: Any, index: int) -> Any:
        """Load 16 bytes: block number `index`, counted from offset `at`."""
        builder = self._builder
        pointer = builder.gep(self._start, [builder.add(at, ir.Constant(_I64, 16 * index))])
        value = builder.load(builder.bitcast(pointer, _BLOCK.as_pointer()))
        value.align = 1
        return value

    def fold(self, block: Any, by: tuple[int, int], onto: Any) -> Any:
        """Multiply `block` by the constants for the distance to `onto`, and add (XOR) the product to `onto`."""
        builder = self._builder
        factors = ir.Constant(_BLOCK, [ir.Constant(_I64, n) for n in by])
        low = builder.call(self._multiply, [block, factors, ir.Constant(_I8, 0x00)])
        high = builder.call(self._multiply, [block, factors, ir.Constant(_I8, 0x11)])
        return builder.xor(builder.xor(low, high), onto)


def _merge(_typing: Any, buf: Any, _start: Any, _size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        bytes_ = builder.bitcast(array.data, _I8.as_pointer())
        folding = _Folding(builder, builder.gep(bytes_, [arguments[1]]))
        size = arguments[2]
        zero, sixty_four = ir.Constant(_I64, 0), ir.Constant(_I64, 64)
        first = [folding.load(zero, i) for i in range(4)]
        # The CRC's initial value is all ones, which has the same effect as inverting the first four bytes.
        ones = ir.Constant(_BLOCK, [ir.Constant(_I64, 0xFFFFFFFF), zero])
        first[0] = builder.xor(first[0], ones)

        before = builder.block
        loop, after = builder.append_basic_block("fold64"), builder.append_basic_block("folded64")
        builder.cbranch(builder.icmp_unsigned(">=", size, ir.Constant(_I64, 128)), loop, after)
        builder.position_at_end(loop)
        at = builder.phi(_I64)
        blocks = [builder.phi(_BLOCK) for _ in range(4)]
        folded = [folding.fold(blocks[i], _BY_64, folding.load(at, i)) for i in range(4)]
        following = builder.add(at, sixty_four)
        at.add_incoming(sixty_four, before)
        at.add_incoming(following, loop)
        for i in range(4):
            blocks[i].add_incoming(first[i], before)
            blocks[i].add_incoming(folded[i], loop)
        more = builder.icmp_unsigned("<=", builder.add(following, sixty_four), size)
        builder.cbranch(more, loop, after)

        builder.position_at_end(after)
        done = builder.phi(_I64)
        done.add_incoming(sixty_four, before)
        done.add_incoming(following, loop)
        rest = [builder.phi(_BLOCK) for _ in range(4)]
        for i in range(4):
            rest[i].add_incoming(first[i], before)
            rest[i].add_incoming(folded[i], loop)
        one = rest[0]
        for i in range(1, 4):
            one = folding.fold(one, _BY_16, rest[i])
        result = _fold_rest(builder, folding, one, done, size)
        low = builder.extract_element(result, ir.Constant(ir.IntType(32), 0))
        high = builder.extract_element(result, ir.Constant(ir.IntType(32), 1))
        return context.make_tuple(builder, signature.return_type, [low, high])

    words = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]
    return words(buf, types.int64, types.int64), generate


def _fold_rest(builder: Any, folding: _Folding, block: Any, done: Any, size: Any) -> Any:
    """Fold the blocks of 16 bytes that remain after the steps of 64 bytes."""
    before = builder.block
    sixteen = ir.Constant(_I64, 16)
    loop, after = builder.append_basic_block("fold16"), builder.append_basic_block("folded16")
    builder.cbranch(builder.icmp_unsigned("<=", builder.add(done, sixteen), size), loop, after)
    builder.position_at_end(loop)
    at, value = builder.phi(_I64), builder.phi(_BLOCK)
    folded = folding.fold(value, _BY_16, folding.load(at, 0))
    following = builder.add(at, sixteen)
    at.add_incoming(done, before)
    at.add_incoming(following, loop)
    value.add_incoming(block, before)
    value.add_incoming(folded, loop)
    builder.cbranch(builder.icmp_unsigned("<=", builder.add(following, sixteen), size), loop, after)
    builder.position_at_end(after)
    result = builder.phi(_BLOCK)
    result.add_incoming(block, before)
    result.add_incoming(folded, loop)
    return result


fold = cast(Callable[[NDArray[np.uint8], int, int], tuple[np.uint64, np.uint64]], intrinsic(_merge))
"""fold(buf, start, size) returns two little-endian words. The 16 bytes of these words have the same CRC as the first
`size // 16 * 16` bytes of `buf` from `start` on. The words include the CRC's initial value. `size` must be at least
64."""
