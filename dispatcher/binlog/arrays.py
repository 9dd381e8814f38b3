"""The arrays that describe a batch, their constants, and the smallest pieces that kernels share."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dispatcher.binlog.jit import part
from dispatcher.binlog.memory import load32, load64

U8 = NDArray[np.uint8]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]

# Kinds of events, as far as routing cares.
FRAME = 0  # GTID, BEGIN, XID, COMMIT: goes wherever its transaction goes
TABLE_MAP = 1
ROWS = 2
ROWS_END = 3  # rows with STMT_END_F
TEXT = 4  # the statement's SQL text
DDL = 5
SAVEPOINT = 6  # its route is the savepoint's number in its transaction
ROLLBACK_TO = 7  # likewise: what stands behind that savepoint did not happen
CARRIED = 0x40  # flag: listed in an earlier batch already
KIND_MASK = 0x3F

# Flags of a transaction in a batch.
CONTINUED = 1  # began in an earlier batch
OPEN = 2  # does not end in this one
ABORTED = 4  # the log ends without its commit (the server crashed): what was taken of it must go
ROLLED_BACK = (
    8  # it ends, with ROLLBACK: what was taken of it must go, and it counts as one without anything
)


class Events(NamedTuple):
    """One entry per event: offset in the buffer, size with header and checksum, kind, route."""

    off: I64
    size: I64
    kind: U8
    route: I32

    @classmethod
    def empty(cls, n: int) -> Events:
        return cls(
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n, np.uint8),
            np.empty(n, np.int32),
        )

    def cut(self, lo: int, hi: int) -> Events:
        return Events(self.off[lo:hi], self.size[lo:hi], self.kind[lo:hi], self.route[lo:hi])

    def only(self, which: NDArray[np.bool_]) -> Events:
        return Events(self.off[which], self.size[which], self.kind[which], self.route[which])

    def copy(self) -> Events:
        return Events(self.off.copy(), self.size.copy(), self.kind.copy(), self.route.copy())


class Transactions(NamedTuple):
    """One entry per transaction: its events [first, last), flags, the GTID's source (index, -1 = none) and number, the
    offset in the file after it, and its commit time in microseconds since 1970 UTC."""

    first: I32
    last: I32
    flags: U8
    source: I32
    gno: I64
    end: I64
    commit_us: I64

    @classmethod
    def empty(cls, n: int) -> Transactions:
        return cls(
            np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.uint8), np.empty(n, np.int32),
            np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64),
        )  # fmt: skip

    def cut(self, lo: int, hi: int, first_event: int) -> Transactions:
        """Entries [lo, hi), with event indexes counted from `first_event`."""
        return Transactions(
            self.first[lo:hi] - np.int32(first_event), self.last[lo:hi] - np.int32(first_event), self.flags[lo:hi],
            self.source[lo:hi], self.gno[lo:hi], self.end[lo:hi], self.commit_us[lo:hi],
        )  # fmt: skip

    def only(self, which: NDArray[np.bool_]) -> Transactions:
        return Transactions(
            self.first[which], self.last[which], self.flags[which], self.source[which], self.gno[which],
            self.end[which], self.commit_us[which],
        )  # fmt: skip

    def copy(self) -> Transactions:
        return Transactions(
            self.first.copy(), self.last.copy(), self.flags.copy(), self.source.copy(), self.gno.copy(),
            self.end.copy(), self.commit_us.copy(),
        )  # fmt: skip


@part
def u16(buf: U8, at: int) -> int:
    return int(buf[np.uint64(at)]) | int(buf[np.uint64(at + 1)]) << 8


@part
def u32(buf: U8, at: int) -> int:
    return int(load32(buf, np.uint64(at)))


@part
def u64(buf: U8, at: int) -> int:
    """Eight bytes as a signed integer, which is what the state of kernels is made of."""
    return int(np.int64(load64(buf, np.uint64(at))))
