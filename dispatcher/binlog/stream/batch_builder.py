"""The receive buffer and the arrays: how events become batches, and what of them stays for the next one.

The half of the splitter that knows no event: `scan` reads events and lists them here.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import FormatDescription
from dispatcher.binlog.kernel.bytes import I64, U8, u32
from dispatcher.binlog.stream import reframe
from dispatcher.binlog.stream import splitter_kernel as k
from dispatcher.binlog.stream.batch import (
    CARRIED,
    CONTINUED,
    FRAME,
    KIND_MASK,
    OPEN,
    TABLE_MAP,
    TEXT,
    Batch,
    Closed,
    Events,
    Fault,
    Head,
    Transactions,
)
from dispatcher.binlog.stream.reframe import Unpacking
from dispatcher.binlog.stream.routes import ALL, Routes
from dispatcher.binlog.stream.xa_store import XaFault, XaRecorder, XaStore
from dispatcher.model.errors import BinlogError, ErrorKind

Out = list[Batch | Closed]


class Batching:
    """What `scan.Splitter` stands on; its constructor's arguments are explained there."""

    def __init__(self, routes: Routes, *, packets: bool, checksum: bool, buffer_bytes: int) -> None:
        self.routes = routes
        self.file = ""
        self.format: FormatDescription | None = None
        # Creation times, s since 1970, of the current file and of those that the last batches came from.
        self.created: dict[str, int] = {}
        self.ignored: Counter[str] = Counter()
        self.sources: list[str] = []
        self.heartbeats = 0
        # None: the rows of prepared transactions are of no use to anybody.
        self.prepared: XaStore | None = XaStore()
        self._head: Head | None = None  # of the file whose first transaction is still to come
        self._room_bytes = max(buffer_bytes, 1 << 14)
        self._buf: U8 = np.empty(self._room_bytes, dtype=np.uint8)
        self._fill = 0
        self._st: I64 = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self._st[k.CHECKED], self._st[k.PACKETS] = checksum, packets
        self._st[k.HEAD] = -1
        self._source_ids = np.zeros((k.SOURCES_MAX, 3), dtype=np.uint64)
        self._named: dict[str, int] = {}  # sources that only Python finds: with tags, and MariaDB's
        self._savepoints: dict[str, int] = {}  # of the open transaction, by name, to their numbers
        self._savepoints_of = self._savepoints_set = (
            0  # which transaction that is; how many there have been
        )
        self._ev = Events.empty(k.EVENTS_MAX + k.SLACK)
        self._tx = Transactions.empty(k.EVENTS_MAX + k.SLACK)
        self._maps = k.TableMaps(
            np.zeros(k.MAPS_MAX, dtype=np.int64), np.zeros(k.MAPS_MAX, dtype=np.int32)
        )
        self._first_event = self._first_tx = 0  # where the batch in the making begins in the arrays
        self._carried = 0  # how many of its events are carried ones
        self._batch_from = 0  # byte counted so far
        self._full = False
        self._work = 0  # what was done in Python since `split` was called
        self._failed: BinlogError | None = None  # damage behind what the last split() returned
        self._unpacking: Unpacking | None = None  # the compressed transaction that is looked into
        self._inside = False  # likewise, a small one
        self._keeping: XaRecorder | None = None  # the open XA transaction
        self._reserve = 0  # bytes at the end of the buffer that are not for the source, but for small ones' events
        self._scratch = 0  # where the next of these go

    # -- filling ---------------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        """Where the next bytes from the source belong; grown when an event does not fit."""
        end = len(self._buf) - self._reserve
        return memoryview(self._buf)[self._fill : end]  # type: ignore[arg-type]

    def wrote(self, size: int) -> None:
        self._fill += size

    @property
    def _in_payload(self) -> bool:
        return self._inside or self._unpacking is not None

    @property
    def offset(self) -> int:
        """The offset in `file` after the last event that was looked at."""
        return int(self._st[k.FILE_POS])

    @property
    def pending_bytes(self) -> int:
        """Bytes behind the last event that was looked at: the beginning of one that is not whole, if not `full`."""
        return self._fill - int(self._st[k.AT])

    def drop_rest(self) -> None:
        """Forget these bytes: the file ends here, whatever it was about to say."""
        self._fill = int(self._st[k.AT])

    @property
    def full(self) -> bool:
        """Has the next `split()` something to say without more bytes: more events, or an error?"""
        return self._full

    def compact(self) -> None:
        """Forget the events that were split, keep the rest of the bytes and what an open transaction carries."""
        st = self._st
        if st[k.AT] == self._batch_from and st[k.N_EVENTS] == self._carried and not st[k.N_TXS]:
            # Nothing was split. An event of many megabytes must not be moved with each of its pieces.
            pending = self._buf[st[k.AT] : self._fill]
            room = max(len(pending) + self._room_bytes // 2, self._event_bytes(pending))
            if st[k.AT] + room <= len(self._buf) - self._reserve:
                return
        carried = self._carry() if st[k.TX] != k.NO_TX else []
        kept = self._buf[st[k.AT] : self._fill].copy() if st[k.AT] < self._fill else self._buf[:0]
        front = sum(len(raw) for _, _, raw in carried)
        room = 0 if self._unpacking else max(self._room_bytes // 2, self._event_bytes(kept))
        need = front + len(kept) + room + (0 if self._unpacking else self._reserve)
        usual = self._room_bytes + self._reserve
        if need > len(self._buf) or len(self._buf) > 4 * max(need, usual):
            self._buf = np.empty(max(need, usual), dtype=np.uint8)
        at = 0
        head = -1
        for n, (kind, route, raw) in enumerate(carried):
            self._buf[at : at + len(raw)] = raw
            self._list(n, at, len(raw), kind | CARRIED, route)
            if head < 0 and kind in (TABLE_MAP, TEXT):
                head = n
            at += len(raw)
        self._buf[at : at + len(kept)] = kept
        self._fill = at + len(kept)
        if st[k.TX] != k.NO_TX:
            st[k.TX_FIRST], st[k.TX_FLAGS] = 0, CONTINUED
            if st[k.HEAD] >= 0:
                st[k.HEAD] = head
        st[k.AT], st[k.N_EVENTS], st[k.N_TXS] = at, len(carried), 0
        self._first_event = self._first_tx = 0
        self._carried = len(carried)
        self._batch_from = at

    def _carry(self) -> list[tuple[int, int, U8]]:
        """The frame events of the open transaction and the head of its open statement, with their bytes."""
        out = []
        for n in self._carried_events():
            off, size = int(self._ev.off[n]), int(self._ev.size[n])
            out.append(
                (
                    int(self._ev.kind[n]) & KIND_MASK,
                    int(self._ev.route[n]),
                    self._buf[off : off + size].copy(),
                )
            )
        return out

    def _carried_events(self) -> list[int]:
        """Which listed events of the open transaction a later batch may still need."""
        first, end, head = (int(self._st[i]) for i in (k.TX_FIRST, k.N_EVENTS, k.HEAD))
        kinds = self._ev.kind[first:end] & KIND_MASK
        needed = kinds == FRAME
        if head >= 0:
            needed[head - first :] |= (kinds[head - first :] == TABLE_MAP) | (
                kinds[head - first :] == TEXT
            )
        return [first + int(n) for n in np.flatnonzero(needed)]

    def _list(self, n: int, off: int, size: int, kind: int, route: int) -> None:
        self._ev.off[n], self._ev.size[n], self._ev.kind[n], self._ev.route[n] = (
            off,
            size,
            kind,
            route,
        )

    def _event_bytes(self, kept: U8) -> int:
        """How many bytes the event at the start of `kept` needs on the wire, as far as can be told."""
        if not self._st[k.PACKETS]:
            return int(u32(kept, 9)) if len(kept) >= 19 else 0
        if len(kept) < 24:
            return 0
        packet = int.from_bytes(kept[:3].tobytes(), "little")
        if packet < k.PACKET_MAX:
            return packet + 4
        size = int(u32(kept, 5 + 9))
        return size + 1 + 4 * ((size + 1) // k.PACKET_MAX + 1)

    def _flush(self, out: list[Batch | Closed], fault: Fault | None = None) -> None:
        """Close the batch in the making and begin another one behind it."""
        self._keep_listed()
        st = self._st
        hi, txs = int(st[k.N_EVENTS]), int(st[k.N_TXS])
        lo, first_tx = self._first_event, self._first_tx
        new = (
            not st[k.TX_FLAGS] & CONTINUED
        )  # without a GTID it may begin with nothing that is listed
        if st[k.TX] != k.NO_TX and (hi > lo + self._carried or fault is not None or new):
            self._list_transaction(txs, OPEN, int(st[k.FILE_POS]))
            txs += 1
        if self.format is not None:
            out.append(
                Batch(
                    self._buf, self.format, self.file, self.offset, int(st[k.TIMESTAMP]), self._ev.slice(lo, hi),
                    self._tx.slice(first_tx, txs, lo), self.sources, hi - lo - self._carried,
                    0 if self._in_payload else int(st[k.AT]) - self._batch_from, fault, self._head,
                )
            )  # fmt: skip
            if self._head and (self._head.previous is not None or txs > first_tx or fault):
                self._head = None
        elif hi > lo or fault:
            raise malformed("the log", "has events before its FORMAT_DESCRIPTION_EVENT").at(
                self._place()
            )
        if st[k.TX] != k.NO_TX:
            # Within one buffer the carried events need not move: the next batch lists them again.
            self._relist(hi)
        else:
            self._first_event, self._carried = hi, 0
        self._first_tx = txs
        st[k.N_TXS] = txs
        if not self._inside:
            self._batch_from = int(st[k.AT])

    def _relist(self, hi: int) -> None:
        st, ev = self._st, self._ev
        n, head = hi, -1
        for i in self._carried_events():
            kind = int(ev.kind[i]) & KIND_MASK
            if kind != FRAME and head < 0:
                head = n
            self._list(n, int(ev.off[i]), int(ev.size[i]), kind | CARRIED, int(ev.route[i]))
            n += 1
        st[k.TX_FIRST], st[k.TX_FLAGS], st[k.N_EVENTS] = hi, CONTINUED, n
        if st[k.HEAD] >= 0:
            st[k.HEAD] = head
        self._first_event, self._carried = hi, n - hi

    def _list_transaction(self, t: int, flags: int, end: int) -> None:
        st, tx = self._st, self._tx
        tx.first[t], tx.last[t], tx.flags[t] = (
            st[k.TX_FIRST],
            st[k.N_EVENTS],
            int(st[k.TX_FLAGS]) | flags,
        )
        tx.source[t], tx.gno[t], tx.commit_us[t], tx.end[t] = (
            st[k.SOURCE],
            st[k.GNO],
            st[k.COMMIT_US],
            end,
        )

    def _close_transaction(self, flags: int, end: int) -> None:
        st = self._st
        self._list_transaction(int(st[k.N_TXS]), flags, end)
        st[k.N_TXS] += 1
        st[k.TX], st[k.MAPS], st[k.HEAD] = k.NO_TX, 0, -1
        self._keeping = None

    def _open_transaction(self, state: int, source: int, gno: int, commit_us: int) -> None:
        st = self._st
        st[k.TX], st[k.SOURCE], st[k.GNO], st[k.COMMIT_US] = state, source, gno, commit_us
        st[k.TX_FIRST], st[k.TX_FLAGS], st[k.MAPS], st[k.HEAD] = st[k.N_EVENTS], 0, 0, -1
        st[k.OPENED] += 1

    # -- XA ---------------------------------------------------------------------------------------------------

    def _keep_listed(self) -> None:
        """Take the events of the open XA transaction, all but its GTID, out of the arrays, into what is kept of it."""
        keeping = self._keeping
        if keeping is None:
            return
        st, ev = self._st, self._ev
        first, hi = int(st[k.TX_FIRST]), int(st[k.N_EVENTS])
        kinds = ev.kind[first:hi] & KIND_MASK
        lo = first + int(np.count_nonzero(kinds == FRAME))
        for route in np.unique(ev.route[lo:hi][kinds[lo - first :] == TABLE_MAP]):
            keeping.tables |= dict.fromkeys(self.routes.targets[int(route)])
        events: U8 = np.empty(int(ev.size[lo:hi].sum()), dtype=np.uint8)
        checksum = int(st[k.CHECKED])
        size = reframe.unframe(self._buf, ev, lo, hi, events, checksum)
        keeping.add(events[:size])
        st[k.N_EVENTS], st[k.HEAD] = lo, -1

    # -- smaller parts ---------------------------------------------------------------------------------------

    def _append(self, kind: int, route: int) -> None:
        """List the event at st[k.OFF]."""
        st = self._st
        self._list(int(st[k.N_EVENTS]), int(st[k.OFF]), int(st[k.SIZE]), kind, route)
        st[k.N_EVENTS] += 1

    def _end_transaction(self, flags: int = 0) -> None:
        """The event at st[k.OFF] is the last one of its transaction."""
        log_pos = int(u32(self._buf, int(self._st[k.OFF]) + 13))
        self._close_transaction(
            flags, k.advance_position(self.offset, log_pos, int(self._st[k.SIZE]))
        )

    def _fault(
        self, kind: ErrorKind, what: str, out: Out, *, route: int = ALL, remedy: str | None = None
    ) -> None:
        if self._keeping:
            targets = self.routes.targets[route] if route >= 0 else None
            self._keeping.flaws.append(XaFault(kind, what, remedy, targets))
        error = BinlogError(kind, what, where=self._place(), remedy=remedy)
        self._flush(out, Fault(error, route))

    def _in_making(self) -> bool:
        """Does the batch in the making hold anything that was not carried?"""
        st = self._st
        return bool(
            st[k.N_EVENTS] > self._first_event + self._carried
            or st[k.N_TXS] > self._first_tx
            or st[k.AT] != self._batch_from
        )

    def _place(self) -> str:
        return f"{self.file or 'no file yet'}:{self.offset}"
