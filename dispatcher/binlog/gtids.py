"""GTID events to their texts, many at once: a log of small transactions has as many of them as rows.

MySQL (and ANONYMOUS, which has none): flags u8, source 16 bytes, number i64. MariaDB: sequence u64, domain u32; the
server id is the header's.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dispatcher.binlog.arrays import I32, I64, U8
from dispatcher.binlog.arrow import varying
from dispatcher.binlog.integers import Int, little
from dispatcher.binlog.jit import njit

_TEXT_MAX = 64  # a UUID (36), ':', 20 digits; or 10 + 10 + 20 digits and two '-'


@njit
def put_number(out: U8, o: Int, value: Int) -> Int:
    """Write a number in decimal digits, from offset `o` on; returns the offset behind it."""
    rest = np.uint64(value)
    digits = 1
    while rest >= np.uint64(10):
        rest //= np.uint64(10)
        digits += 1
    rest = np.uint64(value)
    for k in range(digits - 1, -1, -1):
        out[o + k] = np.uint8(48 + rest % np.uint64(10))
        rest //= np.uint64(10)
    return o + digits


@njit
def gtid_texts(
    buf: U8,
    at: I64,
    offsets: I32,
    out: U8,
) -> None:
    """Texts of the GTID events at the offsets `at`; "" for an anonymous one and where `at` is -1."""
    o = np.int64(0)
    for i in range(len(at)):
        p = at[i]
        if p >= 0 and buf[p + 4] != 34:
            body = p + 19
            if buf[p + 4] == 162:
                o = put_number(out, o, little(buf, body + 8, 4))
                out[o] = 45
                o = put_number(out, o + 1, little(buf, p + 5, 4))
                out[o] = 45
                o = put_number(out, o + 1, little(buf, body, 8))
            else:
                for k in range(16):
                    if k == 4 or k == 6 or k == 8 or k == 10:
                        out[o] = 45
                        o += 1
                    byte = np.int64(buf[body + 1 + k])
                    high, low = byte >> 4, byte & 15
                    out[o] = 48 + high if high < 10 else 87 + high
                    out[o + 1] = 48 + low if low < 10 else 87 + low
                    o += 2
                out[o] = 58
                o = put_number(out, o + 1, little(buf, body + 17, 8))
        offsets[i + 1] = o


def texts_of(buf: U8, at: I64) -> pa.Array:
    """A string array: `uuid:number`, MariaDB's `domain-server-sequence`, "" where a transaction has none."""
    offsets = np.zeros(len(at) + 1, dtype=np.int32)
    out = np.empty(len(at) * _TEXT_MAX, dtype=np.uint8)
    gtid_texts(buf, np.ascontiguousarray(at), offsets, out)
    return varying(pa.string(), offsets, out[: offsets[-1]].copy())
