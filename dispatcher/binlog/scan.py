"""Packets to transactions: one kernel call per buffer.

`Splitter` owns the receive buffer. Bytes are written into it, `split()` turns all complete events into `Batch`es of
arrays (offset, size, kind, route per event; first event, GTID, commit time, end offset per transaction), the caller
routes them (`take`), and `compact()` makes room again. Nothing is decoded beyond headers, table maps and GTIDs.

Invariants
* An event is looked at once. Its checksum is verified if the FORMAT_DESCRIPTION in force says that it has one.
* A batch has one file and one FORMAT_DESCRIPTION; where either changes a new batch begins.
* A transaction may span batches. What a consumer might still need of it when the next batch comes (GTID, BEGIN, the
  table maps of a statement that is still open) is *carried*: copied to the front of the buffer and listed again,
  marked `CARRIED`, so that consumers copy it when the first row for them comes, and only then.
* What the kernel does not know goes to Python (`_special`), and what Python does not know becomes a fault: nothing
  is skipped that could hold data.

The rejected alternative was a callback or an object per event: at 7 M events a second there are 140 ns for each.

Sources: MySQL source, libs/mysql/binlog/event/*.h, sql/rpl_binlog_sender.cc; MariaDB sql/log_event.h.
"""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import numpy as np

from dispatcher.binlog import ddl, events
from dispatcher.binlog import frames as k
from dispatcher.binlog.arrays import (
    ABORTED,
    CARRIED,
    CONTINUED,
    DDL,
    FRAME,
    I64,
    KIND_MASK,
    OPEN,
    TABLE_MAP,
    TEXT,
    U8,
    Events,
    Transactions,
    u32,
)
from dispatcher.binlog.batch import Batch, Closed, Fault
from dispatcher.binlog.events import EventType, FormatDescription, type_name
from dispatcher.binlog.routes import ALL, NOBODY, Routes, Target
from dispatcher.model.errors import BinlogError, Kind

# Known, without rows, nothing to do.
_IGNORED = {
    EventType.STOP: "the server was shut down here",
    EventType.PREVIOUS_GTIDS: "the set is known from the position",
    EventType.TRANSACTION_CONTEXT: "group replication's certification data",
    EventType.VIEW_CHANGE: "group replication's membership",
    EventType.MARIADB_BINLOG_CHECKPOINT: "crash recovery of the server",
    EventType.MARIADB_GTID_LIST: "the set is known from the position",
    EventType.IGNORABLE: "filler",
    EventType.INTVAR: "for the statement that follows, which is judged by itself",
    EventType.RAND: "for the statement that follows",
    EventType.USER_VAR: "for the statement that follows",
}
_UNSUPPORTED = {
    EventType.TRANSACTION_PAYLOAD: "SET PERSIST binlog_transaction_compression=OFF on the server",
    EventType.PARTIAL_UPDATE_ROWS: "SET PERSIST binlog_row_value_options='' on the server",
    EventType.GTID_TAGGED: "do not use tagged GTIDs (gtid_next='AUTOMATIC:tag') yet",
    EventType.XA_PREPARE: "do not use XA transactions on the server yet",
    EventType.MARIADB_START_ENCRYPTION: "read the log through the server, which decrypts it",
}


class Splitter:
    """Receive buffer and kernel of one connection (`packets=True`) or one binlog file (`packets=False`).

    `checksum`: do the events before the first FORMAT_DESCRIPTION end in a checksum (the session's setting)?
    """

    def __init__(self, routes: Routes, *, packets: bool, checksum: bool, buffer_bytes: int) -> None:
        self.routes = routes
        self.file = ""
        self.format: FormatDescription | None = None
        self.created: dict[str, int] = {}  # creation time of the current file, s since 1970
        self.ignored: Counter[str] = Counter()
        self.sources: list[str] = []
        self.heartbeats = 0
        self._room_bytes = max(buffer_bytes, 1 << 14)
        self._buf: U8 = np.empty(self._room_bytes, dtype=np.uint8)
        self._fill = 0
        self._st: I64 = np.zeros(k.STATE_SIZE, dtype=np.int64)
        self._st[k.CHECKED], self._st[k.PACKETS] = checksum, packets
        self._st[k.HEAD] = -1
        self._source_ids = np.zeros((k.SOURCES_MAX, 2), dtype=np.uint64)
        self._ev = Events.empty(k.EVENTS_MAX + k.SLACK)
        self._tx = Transactions.empty(k.EVENTS_MAX + k.SLACK)
        self._maps = k.TableMaps(
            np.zeros(k.MAPS_MAX, dtype=np.int64), np.zeros(k.MAPS_MAX, dtype=np.int32)
        )
        self._first_event = self._first_tx = 0  # where the batch in the making begins in the arrays
        self._carried = 0  # how many of its events are carried ones
        self._batch_from = 0  # byte counted so far
        self._full = False
        self._failed: BinlogError | None = None  # damage behind what the last split() returned

    # -- filling ---------------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        """Where the next bytes from the source belong; grown when an event does not fit."""
        return memoryview(self._buf)[self._fill :]  # type: ignore[arg-type]

    def wrote(self, size: int) -> None:
        self._fill += size

    def feed(self, data: bytes) -> list[Batch | Closed]:
        """Append bytes and split them: for files and tests, where nothing is gained by reading in place."""
        out: list[Batch | Closed] = []
        view = memoryview(data)
        while view:
            room = self.room()
            size = min(len(room), len(view))
            room[:size] = view[:size]
            self.wrote(size)
            view = view[size:]
            while True:
                batches = self.split()
                out += [batch.own() if isinstance(batch, Batch) else batch for batch in batches]
                self.compact()
                if not self._full:
                    break
        return out

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

    # -- splitting -------------------------------------------------------------------------------------------

    def split(self) -> list[Batch | Closed]:
        """All complete events in the buffer as batches, in order. `compact()` must follow before the next call.

        Raises BinlogError for bytes that are damaged or not understood at all (the connection must be closed);
        an event that only some consumers must stop at is the `fault` of its batch instead. What stands before the
        damage is returned first; the next call raises.
        """
        if self._failed:
            raise self._failed
        out: list[Batch | Closed] = []
        st = self._st
        before = st[k.AT]
        st[k.END] = self._fill
        self._full = False
        try:
            while self._go_on(out):
                pass
        except BinlogError as error:
            self._failed = error if error.where else error.at(self._place())
            self._full = True
            if st[k.AT] == before or self.format is None:
                raise self._failed from None
        if st[k.AT] != before:
            self._flush(out)
        return out

    def _go_on(self, out: list[Batch | Closed]) -> bool:
        """One call of the kernel and what it came back for; False at the end of what can be split."""
        st = self._st
        code = self._run()
        if code == k.LARGE:
            return self._join_large(out)
        if code == k.NEW_TABLE:
            self._new_table()
        elif code == k.NEW_SOURCE:
            off = int(st[k.OFF]) + 20
            self._new_source(bytes(self._buf[off : off + 16]))
        elif code == k.PYTHON:
            self._special(out)
        elif code == k.PACKET:
            off, size = int(st[k.OFF]), int(st[k.SIZE])
            self._flush(out)
            out.append(Closed(bytes(self._buf[off : off + size])))
            st[k.AT] = st[k.NEXT]
            return False
        elif code in (k.MORE, k.FULL):
            self._full = code == k.FULL
            return False
        else:
            raise self._bad_event(code)
        return True

    def _run(self) -> int:
        routes = self.routes
        names = k.Names(
            routes.slots, routes.names, routes.spans, self._source_ids, len(self.sources)
        )
        return k.split(self._buf, self._st, self._ev, self._tx, self._maps, names)

    def compact(self) -> None:
        """Forget the events that were split, keep the rest of the bytes and what an open transaction carries."""
        st = self._st
        if st[k.AT] == self._batch_from and st[k.N_EVENTS] == self._carried and not st[k.N_TXS]:
            # Nothing was split. An event of many megabytes must not be moved with each of its pieces.
            pending = self._buf[st[k.AT] : self._fill]
            room = max(len(pending) + self._room_bytes // 2, self._event_bytes(pending))
            if st[k.AT] + room <= len(self._buf):
                return
        carried = self._carry() if st[k.TX] != k.NO_TX else []
        kept = self._buf[st[k.AT] : self._fill].copy() if st[k.AT] < self._fill else self._buf[:0]
        front = sum(len(raw) for _, _, raw in carried)
        need = front + len(kept) + max(self._room_bytes // 2, self._event_bytes(kept))
        if need > len(self._buf) or len(self._buf) > 4 * max(need, self._room_bytes):
            self._buf = np.empty(max(need, self._room_bytes), dtype=np.uint8)
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
        st = self._st
        hi, txs = int(st[k.N_EVENTS]), int(st[k.N_TXS])
        lo, first_tx = self._first_event, self._first_tx
        if st[k.TX] != k.NO_TX and (hi > lo + self._carried or fault is not None):
            self._list_transaction(txs, OPEN, int(st[k.FILE_POS]))
            txs += 1
        if self.format is not None:
            out.append(
                Batch(
                    self._buf, self.format, self.file, self.offset, int(st[k.TIMESTAMP]), self._ev.cut(lo, hi),
                    self._tx.cut(first_tx, txs, lo), self.sources, hi - lo - self._carried,
                    int(st[k.AT]) - self._batch_from, fault,
                )
            )  # fmt: skip
        elif hi > lo or fault:
            raise events.malformed("the log", "has events before its FORMAT_DESCRIPTION_EVENT").at(
                self._place()
            )
        if st[k.TX] != k.NO_TX:
            # Within one buffer the carried events need not move: the next batch lists them again.
            self._relist(hi)
        else:
            self._first_event, self._carried = hi, 0
        self._first_tx = txs
        st[k.N_TXS] = txs
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

    def _open_transaction(self, state: int, source: int, gno: int, commit_s: int) -> None:
        st = self._st
        st[k.TX], st[k.SOURCE], st[k.GNO], st[k.COMMIT_US] = (
            state,
            source,
            gno,
            commit_s * 1_000_000,
        )
        st[k.TX_FIRST], st[k.TX_FLAGS], st[k.MAPS], st[k.HEAD] = st[k.N_EVENTS], 0, 0, -1

    # -- what comes rarely -----------------------------------------------------------------------------------

    def _new_table(self) -> None:
        st = self._st
        at, size = int(st[k.OFF]), int(st[k.SIZE])
        table = at + size + 2
        self.routes.table(
            self._buf[at : at + size].tobytes(),
            self._buf[table : table + int(self._buf[table - 1])].tobytes(),
        )

    def _new_source(self, raw: bytes, name: str | None = None) -> int:
        if len(self.sources) >= k.SOURCES_MAX:
            raise BinlogError(
                Kind.UNSUPPORTED_EVENT,
                f"more than {k.SOURCES_MAX} sources of GTIDs",
                where=self._place(),
            )
        self._source_ids[len(self.sources)] = np.frombuffer(raw, dtype=np.uint64)
        self.sources.append(name or str(UUID(bytes=raw)))
        return len(self.sources) - 1

    def _join_large(self, out: list[Batch | Closed]) -> bool:
        """Close the gaps that packet headers leave in an event of 16 MiB and more; False until all of it is here."""
        st = self._st
        at = int(st[k.AT])
        have = self._fill - at
        if have < 24:
            return False
        size = int(u32(self._buf, at + 5 + 9))
        wire = size + 1 + 4 * ((size + 1) // k.PACKET_MAX + 1)
        if have < wire:
            return False
        source, target, left = at, at + 4, size + 1
        while True:
            n = int.from_bytes(self._buf[source : source + 3].tobytes(), "little")
            if n > left or n != min(left, k.PACKET_MAX):
                raise events.malformed(
                    "a packet", f"of {n} bytes continues an event that lacks {left}"
                ).at(self._place())
            self._buf[target : target + n] = self._buf[source + 4 : source + 4 + n].copy()
            source, target, left = source + 4 + n, target + n, left - n
            if n < k.PACKET_MAX:
                break
        # Look at this one event as if it stood in a file, then go on behind its packets.
        end = int(st[k.END])
        st[k.AT], st[k.END], st[k.PACKETS] = at + 5, at + 5 + size, 0
        try:
            while int(st[k.AT]) < at + 5 + size:
                code = self._run()
                if code == k.NEW_TABLE:
                    self._new_table()
                elif code == k.PYTHON:
                    self._special(out)
                elif code not in (k.MORE, k.FULL):  # full with this event: the loop ends behind it
                    raise self._bad_event(code)
        finally:
            st[k.PACKETS], st[k.END] = 1, end
        st[k.AT] = at + wire
        return True

    def _special(self, out: list[Batch | Closed]) -> None:
        """The event at st[k.OFF], which the kernel left to Python. Ends with the kernel's state behind it."""
        st = self._st
        off, size = int(st[k.OFF]), int(st[k.SIZE])
        event = self._buf[off : off + size].tobytes()
        code = event[4]
        flags = int.from_bytes(event[17:19], "little")
        log_pos = int.from_bytes(event[13:17], "little")
        body = event[19 : len(event) - 4 * int(st[k.CHECKED])]
        if code == EventType.FORMAT_DESCRIPTION:
            self._format_description(event, log_pos, out)
        elif code == EventType.ROTATE:
            self._flush(out)
            self.file, position = events.parse_rotate(body)
            if not flags & events.FLAG_ARTIFICIAL:
                self.ignored["ROTATE_EVENT"] += 1
            st[k.FILE_POS] = position
            st[k.AT] = st[k.NEXT]
            self._flush(out)
            return
        elif code in (EventType.HEARTBEAT, EventType.HEARTBEAT_V2):
            self.heartbeats += 1
        elif code == EventType.QUERY:
            self._query(body, off, size, out)
        elif code == EventType.MARIADB_GTID:
            self._mariadb_gtid(event, body, out)
        elif code in _IGNORED or flags & events.FLAG_IGNORABLE:
            self.ignored[type_name(code)] += 1
        else:
            remedy = _UNSUPPORTED.get(EventType(code)) if code in list(EventType) else None
            what = type_name(code)
            if code == EventType.INCIDENT:
                remedy = "the server says that its log lacks changes here: copy the tables afresh"
            self._fault(
                BinlogError(Kind.UNSUPPORTED_EVENT, what, where=self._place(), remedy=remedy),
                ALL,
                out,
            )
        st[k.AT] = st[k.NEXT]
        if not flags & events.FLAG_ARTIFICIAL and code not in (
            EventType.HEARTBEAT,
            EventType.HEARTBEAT_V2,
        ):
            if log_pos:  # a FORMAT_DESCRIPTION that is repeated for a dump from the middle has none
                st[k.FILE_POS] = k.advance_position(self.offset, log_pos, size)
            elif code != EventType.FORMAT_DESCRIPTION:
                st[k.FILE_POS] += size

    def _format_description(self, event: bytes, log_pos: int, out: list[Batch | Closed]) -> None:
        st = self._st
        if st[k.TX] != k.NO_TX and log_pos:
            # The file before ended without the commit: its server crashed, and the transaction never was.
            self._close_transaction(ABORTED, self.offset)
        self._flush(out)
        self.format = events.parse_format_description(event)
        self.created = {self.file: self.format.created}
        st[k.CHECKED] = self.format.checksum
        st[k.AT] = st[k.NEXT]
        self._batch_from = int(st[k.AT])

    def _mariadb_gtid(self, event: bytes, body: bytes, out: list[Batch | Closed]) -> None:
        """MariaDB's GTID event also is the BEGIN, unless it says that one statement follows and nothing else."""
        if len(body) < 13:
            raise events.malformed("MARIADB_GTID_EVENT", f"has a body of {len(body)} bytes").at(
                self._place()
            )
        if self._st[k.TX] != k.NO_TX:
            raise events.malformed("MARIADB_GTID_EVENT", "stands inside a transaction")
        server = int.from_bytes(event[5:9], "little")
        domain, flags = int.from_bytes(body[8:12], "little"), body[12]
        if flags & 0xC0:  # FL_PREPARED_XA, FL_COMPLETED_XA
            remedy = _UNSUPPORTED[EventType.XA_PREPARE]
            self._fault(
                BinlogError(Kind.UNSUPPORTED_EVENT, "XA", where=self._place(), remedy=remedy),
                ALL,
                out,
            )
        name = f"{domain}-{server}"
        raw = domain.to_bytes(8, "little") + server.to_bytes(8, "little")
        source = self.sources.index(name) if name in self.sources else self._new_source(raw, name)
        state = k.TX_STARTED if flags & 1 else k.TX_BEGUN  # FL_STANDALONE
        self._open_transaction(
            state, source, int.from_bytes(body[:8], "little"), int.from_bytes(event[:4], "little")
        )
        self._append(FRAME, ALL)

    def _query(self, body: bytes, off: int, size: int, out: list[Batch | Closed]) -> None:
        """A QUERY_EVENT that is neither BEGIN nor COMMIT to the letter: a DDL, or the rarer frames."""
        st = self._st
        query = events.parse_query(body)
        kind = ddl.classify(query.query)
        in_begun = st[k.TX] == k.TX_BEGUN
        if st[k.TX] == k.NO_TX:
            self._open_transaction(k.TX_STARTED, -1, 0, int(u32(self._buf, off)))
        if kind is ddl.QueryKind.BEGIN and not in_begun:
            st[k.TX] = k.TX_BEGUN
            self._append(FRAME, ALL)
        elif kind in (ddl.QueryKind.COMMIT, ddl.QueryKind.ROLLBACK) and in_begun:
            # A group that ends in ROLLBACK holds rows of tables that cannot be rolled back: they did happen.
            self._append(FRAME, ALL)
            self._end_transaction(size)
        elif kind is ddl.QueryKind.SAVEPOINT:
            self.ignored["SAVEPOINT"] += 1
        elif kind in (ddl.QueryKind.DML, ddl.QueryKind.XA):
            what, fault_kind, remedy = (
                f"the statement {query.query[:60]!r}",
                Kind.STATEMENT_FORMAT,
                None,
            )
            route = ALL
            if kind is ddl.QueryKind.XA:
                fault_kind, remedy = Kind.UNSUPPORTED_EVENT, _UNSUPPORTED[EventType.XA_PREPARE]
            elif query.updated_databases:
                route = self.routes.ddl((database, None) for database in query.updated_databases)
            self._fault(
                BinlogError(fault_kind, what, where=self._place(), remedy=remedy), route, out
            )
            if not in_begun:
                self._end_transaction(size)
        else:
            route = self._targets(query)
            if route != NOBODY:
                self._append(DDL, route)
            if not in_begun:
                self._end_transaction(size)

    def _targets(self, query: events.Query) -> int:
        """The route of a DDL: what the server says is updated and what the statement names; if neither, all."""
        parsed = ddl.parse(query.query, query.database)
        targets: list[Target] = [
            *parsed.tables,
            *((database, None) for database in parsed.databases),
        ]
        named = {database for database, _ in targets}
        targets += [
            (database, None) for database in query.updated_databases or () if database not in named
        ]
        if not targets and not parsed.parsed:
            self.ignored["unparsed statement"] += 1
            return ALL
        return self.routes.ddl(targets)

    def _append(self, kind: int, route: int) -> None:
        st = self._st
        self._list(int(st[k.N_EVENTS]), int(st[k.OFF]), int(st[k.SIZE]), kind, route)
        st[k.N_EVENTS] += 1

    def _end_transaction(self, size: int) -> None:
        log_pos = int(u32(self._buf, int(self._st[k.OFF]) + 13))
        self._close_transaction(0, k.advance_position(self.offset, log_pos, size))

    def _fault(self, error: BinlogError, route: int, out: list[Batch | Closed]) -> None:
        self._flush(out, Fault(error, route))

    def _bad_event(self, code: int) -> BinlogError:
        st = self._st
        off = int(st[k.OFF])
        name = type_name(int(self._buf[off + 4])) if off + 4 < self._fill else "an event"
        if code == k.CHECKSUM:
            return BinlogError(Kind.CHECKSUM_MISMATCH, name, where=self._place())
        return events.malformed(
            name, k.WHY[int(st[k.REASON])] if code == k.MALFORMED else "is not one"
        ).at(self._place())

    def _place(self) -> str:
        return f"{self.file or 'no file yet'}:{self.offset}"
