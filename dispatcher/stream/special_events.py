"""Reads the events that the kernel leaves to Python. Some of them occur once per file, some once per statement, and the
others never on most servers.

Each such event is listed for the consumers, opens or ends a transaction, is ignored and counted by name, or becomes a
fault for the consumers that it may concern. No event is skipped silently.

The log may hold the rows of transactions that were rolled back. MariaDB writes such a transaction with all its rows and
a ROLLBACK at its end. If a ROLLBACK TO has undone a part of a transaction, MariaDB writes the undone rows, too, and the
ROLLBACK TO after them. MySQL does the same if the transaction created or dropped a temporary table. In row format such
a transaction holds only rows of transactional tables: every server since 5.5 writes changes of other tables at once, as
separate groups that end with COMMIT (sql/binlog.cc, use_trans_cache; tested on four servers). So ROLLBACK undoes the
whole transaction, and ROLLBACK TO undoes everything after its savepoint.

Sources: MySQL source, sql/log_event.cc, sql/binlog.cc; MariaDB, sql/log_event_server.cc.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

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
from dispatcher.binlog.event.header import EventHeader
from dispatcher.binlog.event.query import Query, parse_query
from dispatcher.binlog.event.types import HEARTBEATS, EventType, type_name
from dispatcher.binlog.sql.changed_table import changed_table
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.lexer import Name
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.query_event import kind_and_tables, logged_statement
from dispatcher.binlog.sql.statement import (
    ROUTING_BOUNDS,
    ParsedStatement,
    QueryKind,
    first_word,
    parse_statement,
    savepoint,
)
from dispatcher.model.errors import POLICY, SEEK, BinlogError, ErrorKind
from dispatcher.model.gtid import GNO_MAX
from dispatcher.model.names import folded_name
from dispatcher.stream import splitter_kernel as k
from dispatcher.stream.batch import (
    ABORTED,
    DDL,
    FRAME,
    ROLLBACK_TO,
    ROLLED_BACK,
    SAVEPOINT,
    Head,
)
from dispatcher.stream.batch_builder import BatchBuilder, Batches
from dispatcher.stream.embedded import EmbeddedTransaction
from dispatcher.stream.receive_buffer import ReceiveBuffer
from dispatcher.stream.routes import ALL, NO_ROUTE, Target
from dispatcher.stream.xa_recorder import XaRecorder

# Known events without rows, and why they can be ignored.
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
    f"the log is one of MySQL 5.1 before its release; move the consumer past it: {SEEK}"
)
_REMEDIES = {
    EventType.INCIDENT: "the server says that its log lacks changes here: copy the tables afresh, then"
    f" move the consumer to the copy's position: {SEEK}",
    EventType.MARIADB_PARTIAL_ROW_DATA: "raise binlog_row_event_fragment_threshold on the server above the size of its"
    f" largest rows event, copy the table afresh, then move the consumer to the copy's position: {SEEK}",
    EventType.MARIADB_START_ENCRYPTION: "read the log through the server, which decrypts it",
    EventType.PRE_GA_WRITE_ROWS: _BEFORE_RELEASE,
    EventType.PRE_GA_UPDATE_ROWS: _BEFORE_RELEASE,
    EventType.PRE_GA_DELETE_ROWS: _BEFORE_RELEASE,
}
_MARIADB_STATEMENT = (
    "set binlog_format=ROW on the server and for every session. If the statement changes a table with"
    " transaction-precise system versioning (its row times are BIGINT UNSIGNED), MariaDB logs it as a statement,"
    " whatever binlog_format is: give the table row times of the type TIMESTAMP(6), by SET SESSION"
    " system_versioning_alter_history = KEEP, ALTER TABLE ... DROP SYSTEM VERSIONING, DROP COLUMN (both row times),"
    f" and ALTER TABLE ... ADD SYSTEM VERSIONING. Then move the consumer past the statement: {SEEK}"
)
_ELSEWHERE = (
    "the log does not say which databases the statement changed. If no trigger, view, MERGE table or stored function"
    " that statements on tables of {0!r} use changes other databases, add {0!r} to ignore_statements_in: such"
    " statements then concern only the consumers that read {0!r}. Otherwise "
)
# LOAD DATA as a statement, in the form of servers before 5.0.3.
_OLD_LOADS = (EventType.LOAD, EventType.NEW_LOAD, EventType.CREATE_FILE, EventType.EXEC_LOAD)
# The events that a compressed transaction may hold, beside those that the kernel reads.
_IN_PAYLOAD = (
    *(EventType.QUERY, EventType.MARIADB_QUERY_COMPRESSED, EventType.XA_PREPARE, EventType.XID),
    *(EventType.ROWS_QUERY, EventType.IGNORABLE),
)
_TABLES_OF_ROUTE_MAX = 256
# How long Python takes to read an event, in units of about 40 µs. An event that begins a file costs more, because it
# also ends a batch, and the rules process each batch separately. A statement costs more, because it is parsed.
_WORK = {EventType.ROTATE: 16, EventType.FORMAT_DESCRIPTION: 16}
_CHEAP = {*_IGNORED, *HEARTBEATS, EventType.MARIADB_GTID, EventType.GTID_TAGGED}


def work_of(code: int) -> int:
    if code in _CHEAP:
        return 1
    return _WORK.get(code, 8)  # type: ignore[call-overload, no-any-return]


class SpecialEvents:
    """Reads one event at a time into the batch that is being built.

    `source_ids`: the GTID sources that have a UUID, for the kernel.
    """

    def __init__(self, buffer: ReceiveBuffer, builder: BatchBuilder, xa: XaRecorder) -> None:
        self.source_ids: NDArray[np.uint64] = np.zeros((k.SOURCES_MAX, 3), dtype=np.uint64)
        self._buffer = buffer
        self._builder = builder
        self._xa = xa
        self._named: dict[str, int] = {}  # maps names of sources that have no UUID to their indexes
        # Maps the names of the open transaction's savepoints to numbers.
        self._savepoints: dict[str, int] = {}
        self._savepoints_of = 0  # number of the transaction that set `_savepoints`
        self._savepoints_set = 0  # how many savepoints all transactions have set

    def read(self, out: Batches) -> EmbeddedTransaction | None:
        """Process the event for which the kernel returned, and let the kernel continue after this event.

        If an embedded transaction replaces the event, return that transaction. The kernel's position is then still the
        beginning of the event.
        """
        builder, st = self._builder, self._builder.state
        off, size = int(st[k.OFF]), int(st[k.SIZE])
        raw = self._buffer.bytes[off : off + size].tobytes()
        event, body = EventHeader.read(raw), raw[header.HEADER_SIZE : int(st[k.STOP]) - off]
        ignorable = event.flags & header.FLAG_IGNORABLE
        if builder.embedded and event.type not in _IN_PAYLOAD and not ignorable:
            raise malformed(transaction_payload.NAME, f"holds a {type_name(event.type)}")
        if event.type == EventType.ROTATE:
            self._rotate(event, body, out)
            return None
        if event.type == EventType.FORMAT_DESCRIPTION:
            self._format_description(event, raw, out)
        elif event.type not in HEARTBEATS:
            transaction = self._read(event, body, out)
            if transaction is not None:
                return transaction
        st[k.AT] = st[k.NEXT]
        if not event.flags & header.FLAG_ARTIFICIAL and event.type not in HEARTBEATS:
            if (
                event.log_pos
            ):  # 0 in a FORMAT_DESCRIPTION that is repeated for a dump from the middle of a file
                st[k.FILE_POS] = k.advance_position(builder.offset, event.log_pos, size)
            elif event.type != EventType.FORMAT_DESCRIPTION:
                st[k.FILE_POS] += size
        return None

    def new_source(self, raw: bytes, name: str | None = None) -> int:
        """Add a source of GTIDs, and return its index. The kernel looks up a source by its UUID (`raw`); only Python
        looks up a source by its `name`."""
        builder = self._builder
        n = len(builder.sources)
        if n >= k.SOURCES_MAX:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_EVENT, f"more than {k.SOURCES_MAX} sources of GTIDs", where=builder.place()
            )  # fmt: skip
        if name is None:
            self.source_ids[n, :2] = np.frombuffer(raw, dtype=np.uint64)
            self.source_ids[n, 2] = 1
        builder.sources.append(name or str(UUID(bytes=raw)))
        return n

    def _read(self, event: EventHeader, body: bytes, out: Batches) -> EmbeddedTransaction | None:
        """Read any event except ROTATE, FORMAT_DESCRIPTION and heartbeats."""
        builder, code = self._builder, event.type
        name = type_name(code)
        if code == EventType.QUERY:
            return self._query(event, body, out)
        if code == EventType.MARIADB_QUERY_COMPRESSED:
            return self._query(event, mariadb_compressed.plain_body(code, body), out)
        if code == EventType.XA_PREPARE:
            return self._xa.prepare(event, body, out)
        if code == EventType.XID and builder.recording:
            return self._xa.commit(builder.recording, name, event, out)
        if code == EventType.GTID_TAGGED:
            self._gtid_tagged(event, body)
        elif code == EventType.MARIADB_GTID:
            self._mariadb_gtid(event, body)
        elif code in (EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST):
            builder.ignored[name] += 1
            self._previous_gtids(event, body)
        elif code == EventType.EXECUTE_LOAD_QUERY:
            query = control.parse_load_query(body).query
            self._statement_fault("LOAD DATA", self._logged(query, event), query, out)
        elif code in _OLD_LOADS:
            builder.fault(
                ErrorKind.STATEMENT_FORMAT, f"{name} (LOAD DATA as a statement)", out, altered=()
            )
        elif code in _IGNORED or event.flags & header.FLAG_IGNORABLE or self._decrypted(code):
            builder.ignored[name] += 1
        else:
            if code == EventType.INCIDENT:
                name += f" ({control.parse_incident(body).message})"
            known = EventType(code) if code in list(EventType) else EventType.UNKNOWN
            builder.fault(ErrorKind.UNSUPPORTED_EVENT, name, out, remedy=_REMEDIES.get(known))
        return None

    def _decrypted(self, code: int) -> bool:
        """True if the event announces encryption in a dump: the server sends this event, but decrypts the events that
        follow it."""
        return code == EventType.MARIADB_START_ENCRYPTION and bool(self._builder.state[k.PACKETS])

    # -- files -------------------------------------------------------------------------------------------------

    def _rotate(self, event: EventHeader, body: bytes, out: Batches) -> None:
        builder, st = self._builder, self._builder.state
        builder.flush(out)
        before, end = builder.file, 0
        if not event.flags & header.FLAG_ARTIFICIAL:
            end = k.advance_position(builder.offset, event.log_pos, event.size)
            builder.ignored["ROTATE_EVENT"] += 1
        builder.file, st[k.FILE_POS] = header.parse_rotate(body)
        if builder.format is not None and builder.file != before:
            builder.head = Head(before, end)
        st[k.AT] = st[k.NEXT]
        builder.flush(out)

    def _format_description(self, event: EventHeader, raw: bytes, out: Batches) -> None:
        builder, st = self._builder, self._builder.state
        if st[k.TX] != k.NO_TX and event.log_pos:
            # The previous file ended without the commit: the server crashed, and the transaction was not executed.
            builder.close_transaction(ABORTED, builder.offset)
        builder.flush(out)
        if event.log_pos and builder.head is None:
            builder.head = Head("", 0)
        builder.format = header.parse_format_description(raw)
        builder.created[builder.file] = builder.format.created
        st[k.CHECKED] = builder.format.checksum
        builder.counted_to = int(st[k.NEXT])

    def _previous_gtids(self, event: EventHeader, body: bytes) -> None:
        """Record the GTIDs that were executed before this file, as the file lists them. The rules compare these GTIDs
        with the GTIDs that the daemon has read. In a dump by GTID, MariaDB also makes such an event where the dump
        begins to send; the daemon ignores this one."""
        builder = self._builder
        made = event.flags & header.FLAG_ARTIFICIAL
        if builder.head is not None and builder.state[k.TX] == k.NO_TX and not made:
            builder.head = replace(builder.head, previous=parse_previous(event.type, body))

    # -- GTIDs -------------------------------------------------------------------------------------------------

    def _open_transaction(
        self, event: EventHeader, state: int, name: str, gno: int, us: int | None
    ) -> None:
        """Open a transaction with a GTID whose source the kernel does not know, and list its GTID event.

        `us`: the commit time in microseconds since 1970 UTC; None if the event has only its timestamp.
        """
        if self._builder.state[k.TX] != k.NO_TX:
            raise malformed(type_name(event.type), "occurs inside a transaction")
        if name not in self._named:
            self._named[name] = self.new_source(b"", name)
        self._builder.open_transaction(
            state, self._named[name], gno, us or event.timestamp * 1_000_000
        )
        self._builder.append(FRAME, ALL)

    def _gtid_tagged(self, event: EventHeader, body: bytes) -> None:
        gtid = parse_gtid_event(EventType.GTID_TAGGED, body)
        self._open_transaction(event, k.TX_STARTED, gtid.name, gtid.gno, gtid.immediate_commit_us)

    def _mariadb_gtid(self, event: EventHeader, body: bytes) -> None:
        """Read MariaDB's GTID event. This event is also the BEGIN, unless its flags say that only one statement
        follows.

        With PREPARED_XA the event begins an XA transaction; with COMPLETED_XA it stands before XA COMMIT or XA
        ROLLBACK.
        """
        gtid = parse_mariadb_gtid(body, event.server_id)
        if gtid.sequence >= GNO_MAX:
            raise malformed(type_name(event.type), f"has the number {gtid.sequence}")
        alone = gtid.flags & (STANDALONE | COMPLETED_XA)
        self._open_transaction(
            event, k.TX_STARTED if alone else k.TX_BEGUN, gtid.name, gtid.sequence, None
        )
        if gtid.flags & (PREPARED_XA | COMPLETED_XA):
            self._xa.clear_mariadb_flags(gtid)
        if gtid.flags & PREPARED_XA:
            offset = k.advance_position(self._builder.offset, event.log_pos, event.size)
            self._xa.start(offset, b"")

    # -- statements --------------------------------------------------------------------------------------------

    def _query(self, event: EventHeader, body: bytes, out: Batches) -> EmbeddedTransaction | None:
        """Read a QUERY event that the kernel leaves to Python: any statement except a plain BEGIN or COMMIT."""
        builder, st, query = self._builder, self._builder.state, parse_query(body)
        statement = self._logged(query, event)
        text, (kind, parsed) = statement.text, kind_and_tables(statement)
        begun = st[k.TX] >= k.TX_BEGUN
        if st[k.TX] == k.NO_TX:
            builder.open_transaction(k.TX_STARTED, -1, 0, event.timestamp * 1_000_000)
        if kind is QueryKind.BEGIN and not begun:
            st[k.TX] = k.TX_BEGUN
            builder.append(FRAME, ALL)
        elif kind is QueryKind.XA:
            return self._xa.statement(text, event, body, out)
        elif kind is QueryKind.COMMIT and builder.recording:
            return self._xa.commit(builder.recording, "COMMIT of an XA transaction", event, out)
        elif kind is QueryKind.COMMIT and begun:
            builder.append(FRAME, ALL)
            builder.end_transaction()
        elif kind is QueryKind.ROLLBACK and begun:
            builder.append(FRAME, ALL)
            builder.ignored["transaction rolled back"] += 1
            builder.end_transaction(ROLLED_BACK)
        elif kind is QueryKind.SAVEPOINT:
            self._savepoint(text, out)
        else:
            if kind is QueryKind.DML:
                verb = first_word(text)
                verb = "CREATE TABLE ... SELECT" if verb == "CREATE" else verb
                self._statement_fault(verb, statement, query, out)
            elif (route := self._ddl_route(statement, query, parsed)) != NO_ROUTE:
                builder.append(DDL, route)
            if not begun:
                builder.end_transaction()
        return None

    def _logged(self, query: Query, event: EventHeader) -> LoggedStatement:
        lower_case = self._builder.routes.lower_case_table_names
        return logged_statement(query, event.flags, self._server(), lower_case)

    def _statement_fault(
        self, verb: str, statement: LoggedStatement, query: Query, out: Batches
    ) -> None:
        """Add a fault for the consumers of the tables that a statement may change. These are, by the first rule that
        applies: the table's database, if it is one of `ignore_statements_in`; the databases that the event lists as
        updated (MySQL also lists databases that the statement only reads); the table that the text names, if no other
        table can change; all tables. The message contains the verb and the table, but not the text, which may contain
        values of rows."""
        routes = self._builder.routes
        changed = changed_table(statement)
        own = None if changed is None else changed.table[0]
        if own is not None and routes.ignores_statements_in(own):
            route = routes.ddl([(own, None)])
        elif query.updated_databases:
            route = routes.ddl((database, None) for database in query.updated_databases)
        elif changed is not None and changed.exact:
            route = routes.ddl([changed.table])
        else:
            route = ALL
        what = f"{verb} as a statement, in database {query.database!r}"
        mariadb = self._server().mariadb
        remedy = _MARIADB_STATEMENT if mariadb else POLICY[ErrorKind.STATEMENT_FORMAT].remedy
        if changed is not None:
            what = f"{verb} as a statement, on table {'.'.join(changed.table)!r}"
            if route == ALL or set(query.updated_databases or ()) - {own}:
                remedy = _ELSEWHERE.format(own) + remedy
        # Of the statements that change data, only CREATE TABLE ... SELECT alters a table.
        altered: tuple[Name, ...] | None = ()
        if first_word(statement.text) == "CREATE":
            altered = None if changed is None else (changed.table,)
        self._builder.fault(
            ErrorKind.STATEMENT_FORMAT, what, out, route=route, remedy=remedy, altered=altered
        )

    def _savepoint(self, text: str, out: Batches) -> None:
        """Read SAVEPOINT, ROLLBACK TO or RELEASE. A consumer's log records its state at a SAVEPOINT, and returns to
        this state at ROLLBACK TO."""
        builder = self._builder
        verb, name = savepoint(text)
        builder.ignored["SAVEPOINT"] += 1
        if self._savepoints_of != builder.state[k.OPENED]:
            self._savepoints_of = int(builder.state[k.OPENED])
            self._savepoints.clear()
        if verb == "SAVEPOINT":
            self._savepoints_set += 1
            self._savepoints[name] = self._savepoints_set & 0x7FFFFFFF
            builder.append(SAVEPOINT, self._savepoints[name])
        elif verb == "ROLLBACK" and name in self._savepoints:
            builder.append(ROLLBACK_TO, self._savepoints[name])
        elif verb == "ROLLBACK":
            what = "ROLLBACK TO a savepoint that was not set"
            builder.fault(ErrorKind.UNSUPPORTED_EVENT, what, out)

    def _server(self) -> ServerVersion:
        """The version of the server that wrote the events; before the first FORMAT_DESCRIPTION, the version of a new
        server."""
        format_ = self._builder.format
        return ServerVersion() if format_ is None else ServerVersion.of(format_)

    def _ddl_route(
        self, statement: LoggedStatement, query: Query, parsed: ParsedStatement | None
    ) -> int:
        """Returns the route for the tables and databases that a DDL's text names and the databases that the event lists
        as updated. For a text in doubt, returns the route for all tables of the databases that the event lists, or
        `ALL` if it lists none."""
        parsed = parsed or parse_statement(statement, ROUTING_BOUNDS)
        targets: list[Target] = [*parsed.tables, *((name, None) for name in parsed.databases)]
        if len(targets) > _TABLES_OF_ROUTE_MAX:  # a route is kept for as long as the process runs
            targets = [(database, None) for database in {database for database, _ in targets}]
        if parsed.doubt and not query.updated_databases:
            self._builder.ignored["unparsed statement"] += 1
            return ALL
        value = statement.facts.lower_case_table_names
        named = set() if parsed.doubt else {database for database, _ in targets}
        updated = (folded_name(database, value) for database in query.updated_databases or ())
        targets += [(database, None) for database in updated if database not in named]
        return self._builder.routes.ddl(targets)
