"""The events that the kernel leaves to Python: what comes once a file, once a DDL, or never on most servers.

Each is read, and then one of four things: it is listed for the consumers (`_append`), it opens or ends a transaction,
it is counted as ignored by name, or it becomes a fault for those whom it could concern. There is no fifth.

What was rolled back. Rows stand in the log before it is known whether they stay: MariaDB, and MySQL where a
transaction made or dropped a temporary table, write a transaction that was rolled back with all its rows and ROLLBACK
as its end, and rows that were undone with ROLLBACK TO behind them. In row format such a group holds rows of
transactional tables only: every server since 5.5 writes changes of other tables at once, as groups of their own that
end with COMMIT (sql/binlog.cc, use_trans_cache; tested on four servers). So ROLLBACK undoes the whole group, and
ROLLBACK TO what stands behind its savepoint.

XA has a module of its own (`xa`), and so has what stands in the place of an event (`inside`).

Sources: MySQL source, sql/log_event.cc, sql/binlog.cc; MariaDB, sql/log_event_server.cc.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import numpy as np

from dispatcher.binlog.event import control, header, mariadb_compressed, transaction_payload
from dispatcher.binlog.event.cursor import malformed
from dispatcher.binlog.event.gtid import (
    COMPLETED_XA,
    PREPARED_XA,
    STANDALONE,
    parse_gtid_event,
    parse_mariadb_gtid,
    parse_previous,
)
from dispatcher.binlog.event.query import Query, parse_query
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.kernel.bytes import u32
from dispatcher.binlog.sql.statement import (
    ROUTING_BOUNDS,
    QueryKind,
    classify,
    first_word,
    parse_statement,
    savepoint,
)
from dispatcher.binlog.stream import splitter_kernel as k
from dispatcher.binlog.stream.batch import (
    ABORTED,
    DDL,
    FRAME,
    ROLLBACK_TO,
    ROLLED_BACK,
    SAVEPOINT,
    Head,
)
from dispatcher.binlog.stream.batch_builder import Out
from dispatcher.binlog.stream.routes import ALL, NO_ROUTE, Target
from dispatcher.binlog.stream.xa import Xa
from dispatcher.binlog.stream.xa_store import EmbeddedTransaction
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind
from dispatcher.model.gtid import GNO_MAX

# Known, without rows, nothing to do.
_IGNORED = {
    EventType.STOP: "the server was shut down here",
    EventType.TRANSACTION_CONTEXT: "group replication's certification data",
    EventType.VIEW_CHANGE: "group replication's membership",
    EventType.MARIADB_BINLOG_CHECKPOINT: "crash recovery of the server",
    EventType.IGNORABLE: "filler",
    EventType.INTVAR: "for the statement that follows, which is judged by itself",
    EventType.RAND: "for the statement that follows",
    EventType.USER_VAR: "for the statement that follows",
    EventType.BEGIN_LOAD_QUERY: "the file of the LOAD DATA statement that follows",
    EventType.APPEND_BLOCK: "the file of the LOAD DATA statement that follows",
    EventType.DELETE_FILE: "that statement failed",
}
_BEFORE_RELEASE = (
    f"the log is one of MySQL 5.1 before its release; move the consumer behind it: {SEEK}"
)
_REMEDIES = {
    EventType.INCIDENT: "the server says that its log lacks changes here: copy the tables afresh, then"
    f" move the consumer to the copy's position: {SEEK}",
    EventType.MARIADB_START_ENCRYPTION: "read the log through the server, which decrypts it",
    EventType.PRE_GA_WRITE_ROWS: _BEFORE_RELEASE,
    EventType.PRE_GA_UPDATE_ROWS: _BEFORE_RELEASE,
    EventType.PRE_GA_DELETE_ROWS: _BEFORE_RELEASE,
}
# LOAD DATA as a statement, in the form of servers before 5.0.3.
_OLD_LOADS = (EventType.LOAD, EventType.NEW_LOAD, EventType.CREATE_FILE, EventType.EXEC_LOAD)
# What a compressed transaction may hold beside what the kernel knows.
_IN_PAYLOAD = (
    *(EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED, EventType.XA_PREPARE, EventType.XID),
    *(EventType.ROWS_QUERY, EventType.IGNORABLE),
)
_TABLES_OF_ROUTE_MAX = 256
_HEARTBEATS = (EventType.HEARTBEAT, EventType.HEARTBEAT_V2)
# How long Python takes to read an event, in units of about 40 µs. A new file also makes batches, which the rules take
# one by one; a statement is parsed.
_WORK = {EventType.ROTATE: 16, EventType.FORMAT_DESCRIPTION: 16}
_CHEAP = {*_IGNORED, *_HEARTBEATS, EventType.MARIADB_GTID, EventType.GTID_TAGGED}


def work_of(code: int) -> int:
    if code in _CHEAP:
        return 1
    return _WORK.get(code, 8)  # type: ignore[call-overload, no-any-return]


class Rare(Xa):
    """The part of the splitter that knows events; what runs the kernel is the last one."""

    def _special(self, out: Out) -> bool:
        """The event at st[k.OFF], which the kernel left to Python. Ends with the kernel's state behind it, or returns
        False where the event must wait for `compact()`."""
        st = self._st
        off, size, code = int(st[k.OFF]), int(st[k.SIZE]), int(self._buf[int(st[k.OFF]) + 4])
        self._work += work_of(code)
        if code == EventType.TRANSACTION_PAYLOAD:
            return self._read_inside(self._payload(off, size), out)
        event = self._buf[off : off + size].tobytes()
        flags, log_pos = (
            int.from_bytes(event[17:19], "little"),
            int.from_bytes(event[13:17], "little"),
        )
        body = event[19 : len(event) - 4 * int(st[k.CHECKED])]
        if self._in_payload and code not in _IN_PAYLOAD and not flags & header.FLAG_IGNORABLE:
            raise malformed(transaction_payload.NAME, f"holds a {type_name(code)}")
        if code == EventType.ROTATE:
            end = k.advance_position(self.offset, log_pos, size)
            self._rotate(body, 0 if flags & header.FLAG_ARTIFICIAL else end, out)
            return True
        if code == EventType.FORMAT_DESCRIPTION:
            self._format_description(event, log_pos, out)
        elif code in _HEARTBEATS:
            self.heartbeats += 1
        else:
            inner = self._read(code, event, body, flags, out)
            if inner is not None:
                return self._read_inside(inner, out)
        st[k.AT] = st[k.NEXT]
        if not flags & header.FLAG_ARTIFICIAL and code not in _HEARTBEATS:
            if log_pos:  # a FORMAT_DESCRIPTION that is repeated for a dump from the middle has none
                st[k.FILE_POS] = k.advance_position(self.offset, log_pos, size)
            elif code != EventType.FORMAT_DESCRIPTION:
                st[k.FILE_POS] += size
        return True

    def _read(
        self, code: int, event: bytes, body: bytes, flags: int, out: Out
    ) -> EmbeddedTransaction | None:
        """An event that is none of the file's frame; returns what is to be read in its place, if it is that."""
        if code == EventType.QUERY:
            return self._query(event, body, out)
        if code == EventType.MARIADB_QUERY_COMPRESSED:
            return self._query(event, mariadb_compressed.plain_body(code, body), out)
        if code == EventType.XA_PREPARE:
            return self._xa_prepare(event, body, out)
        if code == EventType.XID and self._keeping:
            return self._at_once(self._keeping, type_name(code), event, out)
        if code == EventType.GTID_TAGGED:
            self._gtid_tagged(event, body)
        elif code == EventType.MARIADB_GTID:
            self._mariadb_gtid(event, body)
        elif code in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
            self._previous(code, body)
        elif code == EventType.EXECUTE_LOAD_QUERY:
            query = control.parse_load_query(body).query
            self._statement_fault("LOAD DATA", query, out)
        elif code in _OLD_LOADS:
            self._fault(
                ErrorKind.STATEMENT_FORMAT, f"{type_name(code)} (LOAD DATA as a statement)", out
            )
        elif code in _IGNORED or flags & header.FLAG_IGNORABLE or self._decrypted(code):
            self.ignored[type_name(code)] += 1
        else:
            what = type_name(code)
            if code == EventType.INCIDENT:
                what += f" ({control.parse_incident(body).message})"
            known = EventType(code) if code in list(EventType) else EventType.UNKNOWN
            self._fault(ErrorKind.UNSUPPORTED_EVENT, what, out, remedy=_REMEDIES.get(known))
        return None

    def _decrypted(self, code: int) -> bool:
        """A server that sends its encrypted file sends it decrypted, this event included."""
        return code == EventType.MARIADB_START_ENCRYPTION and bool(self._st[k.PACKETS])

    # -- files -----------------------------------------------------------------------------------------------

    def _rotate(self, body: bytes, end: int, out: Out) -> None:
        """`end`: offset behind the event in its file, 0 for one that the server made for the dump."""
        st = self._st
        self._flush(out)
        before = self.file
        self.file, position = header.parse_rotate(body)
        if end:
            self.ignored["ROTATE_EVENT"] += 1
        if self.format is not None and self.file != before:
            self._head = Head(before, end)
        st[k.FILE_POS] = position
        st[k.AT] = st[k.NEXT]
        self._flush(out)

    def _format_description(self, event: bytes, log_pos: int, out: Out) -> None:
        st = self._st
        if st[k.TX] != k.NO_TX and log_pos:
            # The file before ended without the commit: its server crashed, and the transaction never was.
            self._close_transaction(ABORTED, self.offset)
        self._flush(out)
        if log_pos and self._head is None:
            self._head = Head("", 0)
        self.format = header.parse_format_description(event)
        self.created[self.file] = self.format.created
        st[k.CHECKED] = self.format.checksum
        st[k.AT] = st[k.NEXT]
        self._batch_from = int(st[k.AT])

    def _previous(self, code: int, body: bytes) -> None:
        """What the file says that it follows: the rules compare it with what was read."""
        self.ignored[type_name(code)] += 1
        if self._head is not None and self._st[k.TX] == k.NO_TX:
            self._head = replace(self._head, previous=parse_previous(code, body))

    # -- GTIDs -----------------------------------------------------------------------------------------------

    def _new_source(self, raw: bytes, name: str | None = None) -> int:
        """Note a source of GTIDs. Those with a name of their own are not found by the kernel."""
        if len(self.sources) >= k.SOURCES_MAX:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_EVENT, f"more than {k.SOURCES_MAX} sources of GTIDs", where=self._place()
            )  # fmt: skip
        n = len(self.sources)
        if name is None:
            self._source_ids[n, :2] = np.frombuffer(raw, dtype=np.uint64)
            self._source_ids[n, 2] = 1
        self.sources.append(name or str(UUID(bytes=raw)))
        return n

    def _named_source(self, name: str) -> int:
        if name not in self._named:
            self._named[name] = self._new_source(b"", name)
        return self._named[name]

    def _gtid_tagged(self, event: bytes, body: bytes) -> None:
        if self._st[k.TX] != k.NO_TX:
            raise malformed("GTID_TAGGED_EVENT", "stands inside a transaction")
        gtid = parse_gtid_event(EventType.GTID_TAGGED, body)
        commit_us = gtid.immediate_commit_us or int.from_bytes(event[:4], "little") * 1_000_000
        self._open_transaction(k.TX_STARTED, self._named_source(gtid.name), gtid.gno, commit_us)
        self._append(FRAME, ALL)

    def _mariadb_gtid(self, event: bytes, body: bytes) -> None:
        """MariaDB's GTID event also is the BEGIN, unless it says that one statement follows and nothing else.

        One that prepares an XA transaction begins it; one that completes it stands before XA COMMIT or ROLLBACK.
        """
        st = self._st
        if st[k.TX] != k.NO_TX:
            raise malformed(type_name(EventType.MARIADB_GTID), "stands inside a transaction")
        gtid = parse_mariadb_gtid(body, int.from_bytes(event[5:9], "little"))
        if gtid.sequence >= GNO_MAX:
            raise malformed(type_name(EventType.MARIADB_GTID), f"has the number {gtid.sequence}")
        alone = gtid.flags & (STANDALONE | COMPLETED_XA)
        commit_us = int.from_bytes(event[:4], "little") * 1_000_000
        self._open_transaction(
            k.TX_STARTED if alone else k.TX_BEGUN, self._named_source(gtid.name), gtid.sequence, commit_us
        )  # fmt: skip
        self._append(FRAME, ALL)
        if gtid.flags & (PREPARED_XA | COMPLETED_XA):
            self._plain_gtid(gtid)
        if gtid.flags & PREPARED_XA:
            log_pos = int.from_bytes(event[13:17], "little")
            self._keep(k.advance_position(self.offset, log_pos, len(event)), b"")

    # -- statements ------------------------------------------------------------------------------------------

    def _query(self, event: bytes, body: bytes, out: Out) -> EmbeddedTransaction | None:
        """A QUERY_EVENT that is neither BEGIN nor COMMIT to the letter: a DDL, or the rarer frames."""
        st, query = self._st, parse_query(body)
        text = query.query
        kind = classify(text)
        in_begun = st[k.TX] >= k.TX_BEGUN
        if st[k.TX] == k.NO_TX:
            seconds = int(u32(self._buf, int(st[k.OFF])))
            self._open_transaction(k.TX_STARTED, -1, 0, seconds * 1_000_000)
        if kind is QueryKind.BEGIN and not in_begun:
            st[k.TX] = k.TX_BEGUN
            self._append(FRAME, ALL)
        elif kind is QueryKind.XA:
            return self._xa(text, event, body, out)
        elif kind is QueryKind.COMMIT and self._keeping:
            return self._at_once(self._keeping, "COMMIT of an XA transaction", event, out)
        elif kind is QueryKind.COMMIT and in_begun:
            self._append(FRAME, ALL)
            self._end_transaction()
        elif kind is QueryKind.ROLLBACK and in_begun:
            self._append(FRAME, ALL)
            self.ignored["transaction rolled back"] += 1
            self._end_transaction(ROLLED_BACK)
        elif kind is QueryKind.SAVEPOINT:
            self._savepoint(text, out)
        elif kind is QueryKind.DML:
            self._statement_fault(first_word(text), query, out)
            if not in_begun:
                self._end_transaction()
        else:
            route = self._targets(query, text)
            if route != NO_ROUTE:
                self._append(DDL, route)
            if not in_begun:
                self._end_transaction()
        return None

    def _statement_fault(self, verb: str, query: Query, out: Out) -> None:
        """Data as a statement, for those whose databases it updates. Its text may hold values, so its verb is told."""
        route = ALL
        if query.updated_databases:
            route = self.routes.ddl((database, None) for database in query.updated_databases)
        what = f"{verb} as a statement, in database {query.database!r}"
        self._fault(ErrorKind.STATEMENT_FORMAT, what, out, route=route)

    def _savepoint(self, text: str, out: Out) -> None:
        """SAVEPOINT, ROLLBACK TO, RELEASE: consumers' logs remember the first and return to it with the second."""
        verb, name = savepoint(text)
        self.ignored["SAVEPOINT"] += 1
        if self._savepoints_of != self._st[k.OPENED]:
            self._savepoints_of = int(self._st[k.OPENED])
            self._savepoints.clear()
        if verb == "SAVEPOINT":
            self._savepoints_set += 1
            self._savepoints[name] = self._savepoints_set & 0x7FFFFFFF
            self._append(SAVEPOINT, self._savepoints[name])
        elif verb == "ROLLBACK":
            if name in self._savepoints:
                self._append(ROLLBACK_TO, self._savepoints[name])
            else:
                self._fault(
                    ErrorKind.UNSUPPORTED_EVENT, "ROLLBACK TO a savepoint that was not set", out
                )

    def _targets(self, query: Query, text: str) -> int:
        """The route of a DDL: what the server says is updated and what the statement names; if neither, all."""
        parsed = parse_statement(text, query.database, query.status.sql_mode, ROUTING_BOUNDS)
        targets: list[Target] = [
            *parsed.tables,
            *((database, None) for database in parsed.databases),
        ]
        if len(targets) > _TABLES_OF_ROUTE_MAX:  # a route is kept for as long as the process runs
            targets = [(database, None) for database in {database for database, _ in targets}]
        named = {database for database, _ in targets}
        targets += [
            (database, None) for database in query.updated_databases or () if database not in named
        ]
        if not targets and not parsed.parsed:
            self.ignored["unparsed statement"] += 1
            return ALL
        return self.routes.ddl(targets)
