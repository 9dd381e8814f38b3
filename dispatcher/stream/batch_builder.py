"""Builds a batch: the arrays that the kernel fills, and the events that the next batch lists again.

A transaction may span batches. Its *carried* events are those that consumers' logs may still have to copy when the next
batch comes: GTID, BEGIN, and the text and table maps of an open statement. The next batch lists them again, with the
flag `CARRIED`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.header import LOG_POS_AT, FormatDescription
from dispatcher.binlog.kernel.bytes import I64, U8, u32
from dispatcher.binlog.sql.lexer import Name
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.stream import reframe
from dispatcher.stream import splitter_kernel as k
from dispatcher.stream.batch import (
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
from dispatcher.stream.receive_buffer import ReceiveBuffer
from dispatcher.stream.routes import ALL, Routes
from dispatcher.stream.xa_recording import XaRecording
from dispatcher.stream.xa_store import XaFault

Batches = list[Batch | Closed]


class _Carried(NamedTuple):
    kind: int
    route: int
    raw: U8


class BatchBuilder:
    """Collects events and transactions in the kernel's arrays and closes them as batches. To *list* an event or a
    transaction is to add it to these arrays.

    `state`: the state of the kernel (see `splitter_kernel`). `embedded`: True while events come from an embedded
    transaction. `Batch.bytes` does not count the bytes of these events: it counts the bytes of the event that they
    replace. `recording`: collects the rows of the open XA transaction.
    """

    def __init__(
        self, buffer: ReceiveBuffer, routes: Routes, *, packets: bool, checksum: bool
    ) -> None:
        self.routes = routes
        self.file = ""
        self.format: FormatDescription | None = None
        self.head: Head | None = None  # see `Batch.head`
        self.sources: list[str] = []
        # Creation times, in seconds since 1970, of the current file and of the files of the last batches.
        self.created: dict[str, int] = {}
        self.ignored: Counter[str] = Counter()
        self.events = Events.empty(k.EVENTS_MAX + k.SLACK)
        self.transactions = Transactions.empty(k.EVENTS_MAX + k.SLACK)
        self.state: I64 = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self.state[k.CHECKED], self.state[k.PACKETS] = checksum, packets
        self.state[k.HEAD] = self.state[k.JOINED] = -1
        self.embedded = False
        self.recording: XaRecording | None = None
        self.counted_to = 0  # offset in the buffer up to which bytes were counted in batches
        self._buffer = buffer
        self._first_event = self._first_transaction = 0  # where this batch begins in the arrays
        self._n_carried = 0  # how many events of this batch are carried

    # -- where the log is --------------------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """The offset in `file` after the last event that was read."""
        return int(self.state[k.FILE_POS])

    def place(self) -> str:
        return f"{self.file or 'no file yet'}:{self.offset}"

    def keep_created(self) -> None:
        """Drop the creation times of all files but the current one."""
        for file in self.created.keys() - {self.file}:
            del self.created[file]

    # -- events and transactions -------------------------------------------------------------------------------

    def append(self, kind: int, route: int) -> None:
        """List the event for which the kernel returned."""
        st = self.state
        self._list(int(st[k.N_EVENTS]), int(st[k.OFF]), int(st[k.SIZE]), kind, route)
        st[k.N_EVENTS] += 1

    def open_transaction(self, state: int, source: int, gno: int, commit_us: int) -> None:
        k.open_transaction(self.state, state, source, gno, commit_us)

    def end_transaction(self, flags: int = 0) -> None:
        """List the open transaction, which ends with the event for which the kernel returned."""
        st = self.state
        log_pos = int(u32(self._buffer.bytes, int(st[k.OFF]) + LOG_POS_AT))
        self.close_transaction(flags, k.advance_position(self.offset, log_pos, int(st[k.SIZE])))

    def close_transaction(self, flags: int, end: int) -> None:
        """List the open transaction, which ends at offset `end` of the file."""
        st = self.state
        self._list_transaction(int(st[k.N_TXS]), flags, end)
        st[k.N_TXS] += 1
        st[k.TX], st[k.MAPS], st[k.HEAD] = k.NO_TX, 0, -1
        self.recording = None

    def fault(
        self,
        kind: ErrorKind,
        what: str,
        out: Batches,
        *,
        route: int = ALL,
        remedy: str | None = None,
        altered: tuple[Name, ...] | None = None,
    ) -> None:
        """Close the batch with a fault for the consumers of `route`. `altered`: see `Fault`. If an XA transaction is
        open, its recording stores the fault, and `xa_faults` repeats the fault at the commit."""
        if self.recording:
            targets = self.routes.targets[route] if route >= 0 else None
            self.recording.faults.append(XaFault(kind, what, remedy, targets))
        error = BinlogError(kind, what, where=self.place(), remedy=remedy)
        self.flush(out, Fault(error, route, altered))

    def xa_faults(self, faults: Iterable[XaFault], out: Batches) -> None:
        """Repeat the faults of a prepared transaction at its commit."""
        for fault in faults:
            route = ALL if fault.targets is None else self.routes.ddl(fault.targets)
            # An XA transaction cannot contain DDL.
            altered = () if fault.kind is ErrorKind.STATEMENT_FORMAT else None
            self.fault(
                fault.kind, fault.what, out, route=route, remedy=fault.remedy, altered=altered
            )

    # -- batches -----------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """True if anything except the carried events was read into the batch that is being built."""
        st = self.state
        return bool(
            st[k.N_EVENTS] > self._first_event + self._n_carried
            or st[k.N_TXS] > self._first_transaction
            or st[k.AT] != self.counted_to
        )

    @property
    def nothing_split(self) -> bool:
        """True if nothing was read since `restart`."""
        st = self.state
        return bool(
            st[k.AT] == self.counted_to and st[k.N_EVENTS] == self._n_carried and not st[k.N_TXS]
        )

    def flush(self, out: Batches, fault: Fault | None = None) -> None:
        """Close the batch that is being built, and begin the next batch after it."""
        self.record_listed()
        st = self.state
        hi, txs = int(st[k.N_EVENTS]), int(st[k.N_TXS])
        lo, first_tx = self._first_event, self._first_transaction
        # A transaction without a GTID may have begun although none of its events is listed.
        begun = not st[k.TX_FLAGS] & CONTINUED
        if st[k.TX] != k.NO_TX and (hi > lo + self._n_carried or fault is not None or begun):
            self._list_transaction(txs, OPEN, self.offset)
            txs += 1
        if self.format is not None:
            out.append(
                Batch(
                    self._buffer.bytes, self.format, self.file, self.offset, int(st[k.TIMESTAMP]),
                    self.events.slice(lo, hi), self.transactions.slice(first_tx, txs, lo), self.sources,
                    hi - lo - self._n_carried, 0 if self.embedded else int(st[k.AT]) - self.counted_to, fault,
                    self.head, self.routes.lower_case_table_names,
                )
            )  # fmt: skip
            if self.head and (self.head.previous is not None or txs > first_tx or fault):
                self.head = None
        elif hi > lo or fault:
            raise malformed("the log", "has events before its FORMAT_DESCRIPTION_EVENT").at(
                self.place()
            )
        self._first_transaction = st[k.N_TXS] = txs
        self.counted_to = int(st[k.AT])
        if st[k.TX] == k.NO_TX:
            self._first_event, self._n_carried = hi, 0
            return
        # The next batch has the same buffer, so the carried events stay in place and are listed again.
        carried = self._carried_events()
        for n, i in enumerate(carried, hi):
            self._list(n, *self._listed(i))
        self._begin_carried(hi, len(carried))

    def carried(self) -> list[_Carried]:
        """The events that the open transaction carries, with copies of their bytes."""
        if self.state[k.TX] == k.NO_TX:
            return []
        out = []
        for n in self._carried_events():
            off, size, kind, route = self._listed(n)
            out.append(_Carried(kind, route, self._buffer.bytes[off : off + size].copy()))
        return out

    def restart(self, carried: list[_Carried], at: int) -> None:
        """Begin a batch that lists only the carried events, which are at the front of the buffer. The kernel continues
        at offset `at`."""
        st = self.state
        off = 0
        for n, event in enumerate(carried):
            self._list(n, off, len(event.raw), event.kind, event.route)
            off += len(event.raw)
        st[k.JOINED] = at if st[k.JOINED] == st[k.AT] else -1
        st[k.AT], st[k.N_EVENTS], st[k.N_TXS] = at, len(carried), 0
        self._first_event = self._first_transaction = 0
        self._n_carried = len(carried)
        self.counted_to = at
        if st[k.TX] != k.NO_TX:
            self._begin_carried(0, len(carried))

    def move_carried(self, chunk: U8) -> U8:
        """Return a new buffer with the batch's carried events and then `chunk`. The kernel continues where `chunk`
        begins."""
        st, ev, old = self.state, self.events, self._buffer.bytes
        lo, hi = self._first_event, int(st[k.N_EVENTS])
        raws = [old[int(ev.off[n]) : int(ev.off[n] + ev.size[n])] for n in range(lo, hi)]
        ends = np.cumsum(ev.size[lo:hi])
        ev.off[lo:hi] = ends - ev.size[lo:hi]
        st[k.AT] = self.counted_to = int(ends[-1]) if raws else 0
        return np.concatenate((*raws, chunk))

    def record_listed(self) -> None:
        """Move the listed events of the open XA transaction to its recording, except its GTID event."""
        if self.recording is None:
            return
        st, ev = self.state, self.events
        first, hi = int(st[k.TX_FIRST]), int(st[k.N_EVENTS])
        kinds = ev.kind[first:hi] & KIND_MASK
        lo = first + int(np.count_nonzero(kinds == FRAME))
        for route in np.unique(ev.route[lo:hi][kinds[lo - first :] == TABLE_MAP]):
            self.recording.tables |= dict.fromkeys(self.routes.targets[int(route)])
        events: U8 = np.empty(int(ev.size[lo:hi].sum()), dtype=np.uint8)
        size = reframe.unframe(self._buffer.bytes, ev, lo, hi, events, int(st[k.CHECKED]))
        self.recording.add(events[:size])
        st[k.N_EVENTS], st[k.HEAD] = lo, -1

    def _carried_events(self) -> list[int]:
        """Indexes of the events that the next batch lists again: the open transaction's frame events, and the text and
        table maps of its open statement."""
        first, end, head = (int(self.state[i]) for i in (k.TX_FIRST, k.N_EVENTS, k.HEAD))
        kinds = self.events.kind[first:end] & KIND_MASK
        needed = kinds == FRAME
        if head >= 0:
            in_head = kinds[head - first :]
            needed[head - first :] |= (in_head == TABLE_MAP) | (in_head == TEXT)
        return [first + int(n) for n in np.flatnonzero(needed)]

    def _begin_carried(self, first: int, n: int) -> None:
        """Begin the part of the open transaction that belongs to the next batch. Its carried events are the `n` listed
        events that begin at index `first`."""
        st = self.state
        st[k.TX_FIRST], st[k.TX_FLAGS], st[k.N_EVENTS] = first, CONTINUED, first + n
        kinds = self.events.kind[first : first + n]
        if st[k.HEAD] >= 0:
            head = np.flatnonzero(kinds != FRAME)
            st[k.HEAD] = first + int(head[0]) if len(head) else -1
        kinds |= CARRIED
        self._first_event, self._n_carried = first, n

    def _listed(self, n: int) -> tuple[int, int, int, int]:
        """Offset, size, kind without flags, and route of a listed event."""
        ev = self.events
        return int(ev.off[n]), int(ev.size[n]), int(ev.kind[n]) & KIND_MASK, int(ev.route[n])

    def _list(self, n: int, off: int, size: int, kind: int, route: int) -> None:
        ev = self.events
        ev.off[n], ev.size[n], ev.kind[n], ev.route[n] = off, size, kind, route

    def _list_transaction(self, t: int, flags: int, end: int) -> None:
        st, tx = self.state, self.transactions
        tx.first[t], tx.last[t] = st[k.TX_FIRST], st[k.N_EVENTS]
        tx.flags[t] = int(st[k.TX_FLAGS]) | flags
        tx.source[t], tx.gno[t], tx.commit_us[t] = st[k.SOURCE], st[k.GNO], st[k.COMMIT_US]
        tx.end[t] = end
