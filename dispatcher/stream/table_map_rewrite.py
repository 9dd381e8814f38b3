"""Replaces TABLE_MAPs of a batch by enriched TABLE_MAPs: the kernels of `dispatch.tables.enrichment`.

Route, table id and size identify a TABLE_MAP: in one run of a server a table id never stands for two definitions, and
two settings of `binlog_row_metadata` give different sizes. So the kernel finds an event's replacement by these three
numbers. Python reads a TABLE_MAP only if the kernel does not know the event's three numbers.

A replacement is stored as a *tail*: the body after table id and flags. Only the tail, and the header's size field,
change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from dispatcher.binlog.event.header import HEADER_SIZE, SIZE_AT
from dispatcher.binlog.kernel.bytes import I32, I64, U8, u16, u32
from dispatcher.binlog.kernel.crc import crc32
from dispatcher.binlog.kernel.intrinsics import copy
from dispatcher.binlog.kernel.jit import njit
from dispatcher.binlog.table_map.wire import POST_HEADER_SIZE
from dispatcher.stream.batch import DDL, KIND_MASK, TABLE_MAP, Batch, Events

KEEP = -1  # used in place of a tail's number if the event stays unchanged
_HEAD = HEADER_SIZE + POST_HEADER_SIZE


@dataclass(slots=True)
class TableIdCache:
    """For each route: table id (-1 = none) and size of the newest TABLE_MAP that Python read, and the number of its
    tail."""

    ids: I64 = field(default_factory=lambda: np.full(64, -1, dtype=np.int64))
    sizes: I64 = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    tails: I32 = field(default_factory=lambda: np.full(64, KEEP, dtype=np.int32))

    def grow(self, routes: int) -> None:
        while len(self.ids) < routes:
            self.ids = np.concatenate((self.ids, np.full_like(self.ids, -1)))
            self.sizes = np.concatenate((self.sizes, np.zeros_like(self.sizes)))
            self.tails = np.concatenate((self.tails, np.full_like(self.tails, KEEP)))

    def remember(self, route: int, table_id: int, size: int, tail: int) -> None:
        self.ids[route], self.sizes[route], self.tails[route] = table_id, size, tail

    def forget(self) -> None:
        self.ids[:] = -1


@dataclass(slots=True)
class MetadataSuffixes:
    """The tails, back to back: tail n is data[starts[n]:starts[n + 1]]."""

    data: U8 = field(default_factory=lambda: np.zeros(1 << 12, dtype=np.uint8))
    starts: I64 = field(default_factory=lambda: np.zeros(64, dtype=np.int64))
    count: int = 0

    def add(self, body: bytes) -> int:
        """Add the tail of a TABLE_MAP whose body is `body`; returns the tail's number."""
        tail = np.frombuffer(body, dtype=np.uint8)[POST_HEADER_SIZE:]
        start = int(self.starts[self.count])
        while start + len(tail) > len(self.data):
            self.data = np.concatenate((self.data, np.zeros_like(self.data)))
        if self.count + 2 > len(self.starts):
            self.starts = np.concatenate((self.starts, np.zeros_like(self.starts)))
        self.data[start : start + len(tail)] = tail
        self.count += 1
        self.starts[self.count] = start + len(tail)
        return self.count - 1

    def clear(self) -> None:
        self.count = 0


@njit
def next_unresolved(  # noqa: PLR0913 - kernels take arrays one by one, see `split_packets`
    buf: U8, ev: Events, route_mask: U8, ids: I64, sizes: I64, tails: I32, out: I32, start: int
) -> int:
    """Return the index of the next event that Python must read: a statement, or a new TABLE_MAP of a route in the mask.
    Write the tail's number of each event before it into `out`."""
    ev_off, ev_size, ev_kind, ev_route = ev.off, ev.size, ev.kind, ev.route
    for i in range(start, len(ev_off)):
        out[i] = KEEP
        kind = ev_kind[i] & KIND_MASK
        if kind == DDL:
            return i
        if kind == TABLE_MAP:
            route = ev_route[i]
            if route_mask[route]:
                at = ev_off[i] + HEADER_SIZE
                if ids[route] == read_table_id(buf, at) and sizes[route] == ev_size[i]:
                    out[i] = tails[route]
                else:
                    return i
    return len(ev_off)


@njit
def read_table_id(buf: U8, at: int) -> int:
    return u32(buf, at) | u16(buf, at + 4) << 32


@njit
def rewrite(  # noqa: PLR0913 - as above
    buf: U8, ev: Events, which: I32, data: U8, starts: I64, out: U8, at: int, checksum: int
) -> None:
    """Write each event that gets a new tail into `out`, beginning at offset `at`, and set the event's offset and size
    in `ev`."""
    ev_off, ev_size = ev.off, ev.size
    for i in range(len(ev_off)):
        tail = which[i]
        if tail < 0:
            continue
        start = starts[tail]
        length = starts[tail + 1] - start
        size = _HEAD + length + (4 if checksum else 0)
        copy(out, at, buf, ev_off[i], _HEAD)
        copy(out, at + _HEAD, data, start, length)
        for n in range(4):
            out[at + SIZE_AT + n] = (size >> (8 * n)) & 0xFF
        if checksum:
            crc = crc32(out, at, at + size - 4)
            for n in range(4):
                out[at + size - 4 + n] = (crc >> (8 * n)) & 0xFF
        ev_off[i], ev_size[i] = at, size
        at += size


def replace_table_maps(batch: Batch, which: I32, tails: MetadataSuffixes) -> Batch:
    """Return a batch whose TABLE_MAPs have the tails `which` (one number per event), or `batch` itself if all are KEEP.

    The new batch has its own buffer and its own offsets and sizes, because those of `batch` belong to the splitter.
    """
    named = which[which >= 0]
    if not len(named):
        return batch
    low = int(batch.ev.off.min())
    high = int((batch.ev.off + batch.ev.size).max())
    lengths = tails.starts[named + 1] - tails.starts[named]
    checksum = int(batch.format.checksum)
    more = int(lengths.sum()) + len(named) * (_HEAD + 4 * checksum)
    out = np.empty(high - low + more, dtype=np.uint8)
    out[: high - low] = batch.buf[low:high]
    ev = Events(batch.ev.off - low, batch.ev.size.copy(), batch.ev.kind, batch.ev.route)
    rewrite(out, ev, which, tails.data, tails.starts, out, high - low, checksum)
    return replace(batch, buf=out, ev=ev)
