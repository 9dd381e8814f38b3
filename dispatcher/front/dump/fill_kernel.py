"""The kernel that writes empty transactions: copies of a template that differ in a few bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dispatcher.binlog.kernel.bytes import I64, U8, Int, put32
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit


class Template(NamedTuple):
    """The packets of an empty transaction. Copies differ in the packets' sequence numbers, the GTID's number and the
    GTID event's checksum.

    `packets`: the bytes of the packets; `starts`: the offset of each packet in `packets`; `event`: the offset of the
    GTID event; `checksum`: the offset of the GTID event's checksum, 0 = no checksum. `number`, `number_size`, `varied`:
    see `made_events.EmptyTransaction`.
    """

    packets: U8
    starts: I64
    event: int
    checksum: int
    number: int
    number_size: int
    varied: int


SEQUENCE, INTERVAL, NUMBER = range(3)
STATE_SIZE = 3


@njit
def fill(out: U8, at: Int, template: Template, starts: I64, ends: I64, st: I64) -> Int:
    """Write the empty transactions of the numbers [starts[i], ends[i]) to `out`, as many as fit, beginning at offset
    `at`.

    Returns the offset after the last transaction in `out`. If all transactions are written, st[INTERVAL] is
    len(starts). Otherwise the next call continues at interval st[INTERVAL] with number st[NUMBER]; 0 = the first number
    of the interval.
    """
    size = len(template.packets)
    while st[INTERVAL] < len(starts):
        i = st[INTERVAL]
        first = st[NUMBER] or starts[i]
        count = min(ends[i] - first, (len(out) - at) // size)
        for number in range(first, first + count):
            copy(out, at, template.packets, 0, size)
            for k in range(len(template.starts)):
                out[at + template.starts[k] + 3] = st[SEQUENCE] & 0xFF
                st[SEQUENCE] += 1
            value = np.uint64(number)
            if template.varied:
                value = value << np.uint64(1)  # numbers are signed: the lowest bit is the sign
                if template.number_size < 9:
                    bits = np.uint64(template.number_size)
                    value = value << bits | ((np.uint64(1) << (bits - np.uint64(1))) - np.uint64(1))
            to = at + template.number
            if template.number_size == 9:
                out[to] = 0xFF
                to += 1
            for k in range(min(template.number_size, 8)):
                out[to + k] = np.uint8((value >> np.uint64(8 * k)) & np.uint64(0xFF))
            if template.checksum:
                put32(
                    out,
                    at + template.checksum,
                    crc32(out, at + template.event, at + template.checksum),
                )
            at += size
        if first + count < ends[i]:
            st[NUMBER] = first + count
            break
        st[INTERVAL], st[NUMBER] = i + 1, 0
    return at
