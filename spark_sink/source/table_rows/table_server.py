"""The server whose rows are read: reports what the server has executed, describes its tables, and opens snapshots.

If rows are read for a position of the log, they must have the state at that position or a later state. A server may
send a transaction to replicas before the rows of this transaction are visible, so `wait_until_executed` waits until the
rows are visible. How it finds this out depends on the server. On MySQL with GTIDs, it waits until MySQL counts the
transactions as executed, which MySQL does after the rows are visible. On the MariaDB server that wrote the log, it
waits until the position of a consistent snapshot is not before the position of the log. On another MariaDB server, it
waits until `gtid_slave_pos` and the GTIDs of the server's own binlog at the snapshot contain the position of the log.
On MySQL without GTIDs, it waits until the server has begun another binlog file, because the server begins a file only
when all transactions of the previous file are committed.

Sources: MySQL source, sql/binlog.cc (process_commit_stage_queue, new_file_impl); MariaDB knowledge base, "START
TRANSACTION", "Enhancements for START TRANSACTION WITH CONSISTENT SNAPSHOT".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import DomainGtids, GtidSet
from dispatcher.model.position import Position, file_number, packed_seq
from dispatcher.mysql.answers import (
    Row,
    ask,
    ask_one,
    conversing,
    fetch,
    gtid_text,
    log_file,
    log_offset,
    optional_text,
    text_value,
)
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint
from dispatcher.mysql.server_facts import (
    ServerFacts,
    is_mariadb,
    read_facts,
    read_grants,
    says_replica,
    server_version,
    version_numbers,
)
from spark_sink.source.table_rows.chunks import Bound, bound_of, boundary_query
from spark_sink.source.table_rows.positions import is_mariadb_position, is_place, not_comparable
from spark_sink.source.table_rows.session import open_session
from spark_sink.source.table_rows.source_table import SourceTable, read_source_table
from spark_sink.source.table_rows.text_rows import quoted_name

_POLL_S = 0.1
_LAGS = (
    "copy from a server that lags less behind the one that the consumer reads, or raise"
    " copy.wait_seconds"
)
_SNAPSHOT = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


@dataclass(frozen=True, slots=True)
class TableServer:
    """A server whose rows are read. `endpoint` contains the database password. Spark sends the endpoint to the
    executors. `repr` does not show the password."""

    endpoint: Endpoint

    @property
    def label(self) -> str:
        return self.endpoint.label

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """Opens a session that only reads. Raises `BinlogError`."""
        connection = open_session(self.endpoint)
        try:
            yield connection
        finally:
            connection.close()

    def table(self, database: str, table: str) -> SourceTable:
        """Returns the description of a table. Raises the `BinlogError` of `read_source_table`."""
        with self.session() as connection:
            return read_source_table(connection, database, table)


def executed_position(connection: Connection) -> Position:
    """Return a position that covers every transaction whose rows were visible before the call. Its `seq` is computed as
    in the daemon's positions; its `epoch` is 0. Raises `BinlogError`."""
    facts = read_facts(connection)
    if not _has_gtids(facts):
        return _executed(facts)
    # On a replica, rows can be visible before their GTID is in the executed set, but not before it is in the received
    # set.
    executed = GtidSet.parse(facts.gtid_executed)
    for received in _received_gtids(connection, facts):
        executed = executed.union(received)
    return _executed(replace(facts, gtid_executed=str(executed)))


def snapshot_position(connection: Connection) -> Position:
    """Return the position that the server has executed. Transactions that a replica has received but not executed are
    not included. While a table is locked, this position contains a transaction that has changed the table if and only
    if the transaction's changes are visible. `seq` and `epoch` are as in `executed_position`. Raises `BinlogError`."""
    return _executed(read_facts(connection))


def _has_gtids(facts: ServerFacts) -> bool:
    return facts.flavour == "mysql" and facts.gtid_mode == "ON"


def _executed(facts: ServerFacts) -> Position:
    if _has_gtids(facts):
        executed = GtidSet.parse(facts.gtid_executed)
        return Position(
            facts.server_uuid, str(executed), facts.file, facts.offset, len(executed), 0
        )
    packed = packed_seq(facts.file, facts.offset)
    gtids = facts.gtid_executed if facts.flavour == "mariadb" else ""
    return Position(facts.server_uuid, gtids, facts.file, facts.offset, packed, 0)


def _received_gtids(connection: Connection, facts: ServerFacts) -> list[GtidSet]:
    rows = replica_status(connection, facts.version)
    texts = [text_value(row.get("Retrieved_Gtid_Set") or "") for row in rows]
    return [GtidSet.parse(text) for text in texts if text]


def replica_status(connection: Connection, version: str) -> list[dict[str, str | bytes | None]]:
    """Return the rows of SHOW REPLICA STATUS by column; [] if the server is no replica. Raises `BinlogError`."""
    statement = f"SHOW {'REPLICA' if says_replica(version) else 'SLAVE'} STATUS"
    with conversing(connection, statement), connection.cursor() as cursor:
        cursor.execute(statement)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


# -- waiting ---------------------------------------------------------------------------------------------------


def wait_until_executed(
    connection: Connection,
    position: Position,
    *,
    timeout_s: float,
    stopping: Callable[[], bool] = lambda: False,
    remedy: str = _LAGS,
) -> bool:
    """Wait until the server's rows contain all changes up to `position`. Returns False if `stopping` ended the wait.
    `remedy`: the remedy in the error if the wait takes too long.

    Raises `BinlogError`: SERVER_SETTING if the server cannot report what it has executed, RANGE_UNAVAILABLE after
    `timeout_s`.
    """
    facts = read_facts(connection)
    has_executed = _question(connection, facts, position)
    deadline = time.monotonic() + timeout_s
    while not has_executed():
        if stopping():
            return False
        if time.monotonic() > deadline:
            raise BinlogError(
                ErrorKind.RANGE_UNAVAILABLE,
                f"the server has not executed the position of the log within {timeout_s:.0f} s",
                where=server_name(connection),
                remedy=remedy,
            )
        time.sleep(_POLL_S)
    return True


def _question(connection: Connection, facts: ServerFacts, position: Position) -> Callable[[], bool]:
    """Return a function that asks the server whether it has executed the position."""
    same = facts.server_uuid == position.server
    if is_mariadb_position(position) != (facts.flavour == "mariadb"):
        raise not_comparable(position.server, facts.server_uuid)
    if facts.flavour == "mariadb":
        if same and position.file and is_place(position):
            return lambda: _snapshot_place(connection) >= _place(position)
        if not position.gtid:
            raise not_comparable(position.server, facts.server_uuid)
        wanted = DomainGtids.parse(position.gtid)
        return lambda: _mariadb_executed(connection, facts).contains(wanted)
    if position.gtid and facts.gtid_mode == "ON":
        statement = "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)"
        return lambda: ask_one(
            connection, statement, lambda row: text_value(row[0]) == "1", (position.gtid,)
        )
    if not same or not facts.log_bin:
        raise not_comparable(position.server, facts.server_uuid)
    return lambda: _rotated(connection, position)


def _place(position: Position) -> tuple[int, int]:
    return file_number(position.file), position.offset


def _snapshot_place(connection: Connection) -> tuple[int, int]:
    """Return the place in the binlog up to which MariaDB's rows are visible now."""
    fetch(connection, _SNAPSHOT)
    try:
        file, offset = _snapshot_file(connection)
    finally:
        fetch(connection, "ROLLBACK")
    return file_number(file), offset


def _snapshot_file(connection: Connection) -> tuple[str, int]:
    rows = ask(
        connection,
        "SHOW STATUS LIKE 'binlog_snapshot_%'",
        lambda row: (text_value(row[0]).lower(), text_value(row[1])),
    )
    values = dict(rows)
    file = log_file(values.get("binlog_snapshot_file", ""))
    return file, log_offset(values.get("binlog_snapshot_position", "0"))


def _mariadb_executed(connection: Connection, facts: ServerFacts) -> DomainGtids:
    """Return the GTIDs whose rows a MariaDB server shows. These are the GTIDs that it has executed as a replica (it
    commits `gtid_slave_pos` together with the rows), and the GTIDs in its own binlog up to the place of a snapshot."""
    text = ask_one(
        connection,
        "SELECT @@GLOBAL.gtid_slave_pos",
        lambda row: gtid_text(optional_text(row[0]) or "", mariadb=True),
    )
    executed = DomainGtids.parse(text)
    if not facts.log_bin:
        return executed
    fetch(connection, _SNAPSHOT)
    try:
        file, offset = _snapshot_file(connection)
    finally:
        fetch(connection, "ROLLBACK")
    return executed.union(DomainGtids.parse(_gtids_at(connection, file, offset)))


def _rotated(connection: Connection, position: Position) -> bool:
    facts = read_facts(connection)
    current = file_number(facts.file)
    if current > file_number(position.file) or _place(position) <= (current, 4):
        return True
    if read_grants(connection).has("RELOAD"):
        fetch(connection, "FLUSH BINARY LOGS")
        return False
    raise BinlogError(
        ErrorKind.GRANT_MISSING,
        "without GTIDs a copy needs a new binlog file, and the account lacks the privilege to begin a file",
        where=server_name(connection),
        remedy="GRANT RELOAD ON *.* TO the account, or set gtid_mode=ON on the server, or run FLUSH BINARY LOGS there",
    )


# -- snapshots -------------------------------------------------------------------------------------------------


@contextmanager
def snapshot_at(server: TableServer, deadline: float) -> Iterator[tuple[Connection, Position]]:
    """Opens a session whose transaction shows all tables in their state at one position. Yields the session and this
    position. Locks nothing.

    `deadline`: a time of `time.monotonic` after which no new attempt begins. If the server commits transactions all the
    time, many attempts may be needed. Raises `BinlogError`.
    """
    with server.session() as connection:
        facts = read_facts(connection)
        if not facts.log_bin:
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                "log_bin=OFF: the server writes no binlog, so its rows have no position",
                where=server.label,
                remedy="name the server that the consumer reads, or a replica with log_replica_updates",
            )
        if facts.flavour == "mariadb":
            fetch(connection, _SNAPSHOT)
            file, offset = _snapshot_file(connection)
            yield (
                connection,
                Position(facts.server_uuid, "", file, offset, packed_seq(file, offset), 0),
            )
            return
        place, committing = _log_place(connection, facts), _is_committing(connection)
        while True:
            fetch(connection, _SNAPSHOT)
            behind = _log_place(connection, facts)
            if behind == place and not committing:
                break
            fetch(connection, "ROLLBACK")
            if time.monotonic() > deadline:
                raise BinlogError(
                    ErrorKind.RANGE_UNAVAILABLE,
                    "transactions commit all the time, or a commit hangs, so no snapshot has a known position",
                    where=server.label,
                    remedy="try again when the server has less to do",
                )
            place, committing = _log_place(connection, facts), _is_committing(connection)
        yield connection, place


def with_gtids(connection: Connection, position: Position) -> Position:
    """Return a position of this MariaDB server, with the GTIDs at the position's file and offset. Raises
    `BinlogError`."""
    return replace(position, gtid=_gtids_at(connection, position.file, position.offset))


def _gtids_at(connection: Connection, file: str, offset: int) -> str:
    return ask_one(
        connection,
        "SELECT BINLOG_GTID_POS(%s, %s)",
        lambda row: gtid_text(optional_text(row[0]) or "", mariadb=True),
        (file, offset),
    )


def _is_committing(connection: Connection) -> bool:
    """True if the log may have a transaction whose rows no session sees yet, such as one that waits for a
    semisynchronous replica. MySQL without GTIDs does not show this."""
    return ask_one(connection, "SELECT @@GLOBAL.gtid_owned", lambda row: text_value(row[0]) != "")


def _log_place(connection: Connection, facts: ServerFacts) -> Position:
    """Return the end of MySQL's binlog, with the executed set at this moment."""
    statement = f"SHOW {'BINARY LOG' if says_replica(facts.version) else 'MASTER'} STATUS"

    def position(row: Row) -> Position:
        file, offset = log_file(row[0]), log_offset(row[1])
        if facts.gtid_mode != "ON":
            return Position(facts.server_uuid, "", file, offset, packed_seq(file, offset), 0)
        executed = GtidSet.parse(gtid_text(optional_text(row[4]) or "", mariadb=False))
        return Position(facts.server_uuid, str(executed), file, offset, len(executed), 0)

    return ask_one(connection, statement, position)


# -- tables without a key --------------------------------------------------------------------------------------


@contextmanager
def locked_snapshot(
    server: TableServer, source: SourceTable
) -> Iterator[tuple[Connection, Position]]:
    """Opens a session whose transaction shows a table in exactly its state at one position. Yields the session and this
    position.

    A second session locks the table while the transaction begins, so no transaction that has changed the table is open
    at this time. So each transaction that changed the table is in both the snapshot and the position, or in neither.
    Raises `BinlogError`, GRANT_MISSING without LOCK TABLES.
    """
    if source.engine.upper() not in ("INNODB", "ROCKSDB", "MYROCKS", "TOKUDB"):
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"table {source.label} has no key, and its engine {source.engine} has no snapshots",
            remedy="give the table a primary key, or convert it to InnoDB, or leave it out",
        )
    with server.session() as reader:
        with server.session() as locker:
            _lock(locker, source)
            fetch(reader, _SNAPSHOT)
            position = snapshot_position(locker)
            fetch(locker, "UNLOCK TABLES")
        yield reader, position


def _lock(connection: Connection, source: SourceTable) -> None:
    fetch(connection, "SET SESSION lock_wait_timeout = 10")
    name = f"{quoted_name(source.database)}.{quoted_name(source.table)}"
    version = server_version(connection)
    # MySQL before 5.7.5 grants a read lock while transactions that have changed the table are open, and these
    # transactions can then commit.
    waits = is_mariadb(version) or version_numbers(version) >= (5, 7, 5)
    if not waits:
        # The statement affects only this session, which only locks the table.
        fetch(connection, "SET SESSION TRANSACTION READ WRITE")
    try:
        fetch(connection, f"LOCK TABLES {name} {'READ' if waits else 'WRITE'}")
    except BinlogError as error:
        if error.kind not in (ErrorKind.ACCESS_DENIED, ErrorKind.GRANT_MISSING):
            raise
        raise BinlogError(
            ErrorKind.GRANT_MISSING,
            f"table {source.label} has no primary key and no unique key on NOT NULL columns, so it is copied in one"
            " snapshot. The table must be locked when the snapshot begins, but the account may not lock it",
            where=server_name(connection),
            remedy="GRANT LOCK TABLES ON the table's database TO the account, or give the table a primary key",
        ) from error


def server_name(connection: Connection) -> str:
    return str(getattr(connection, "where", ""))


def boundary_row(connection: Connection, query: str) -> list[str] | None:
    """Return the texts of the one row that a query returns; None if it returns no row. Raises `BinlogError`."""

    def texts(row: Row) -> list[str]:
        return [text_value(value) for value in row]

    rows = ask(connection, query, texts)
    return rows[0] if rows else None


def next_bound(
    connection: Connection,
    source: SourceTable,
    lower: Bound | None,
    rows: int,
    upper: Bound | None = None,
) -> Bound | None:
    """Return the key of the row that is `rows` rows after `lower`; None if there is no such row before `upper`.

    Also None if no index has the order of the key, for instance if the only index is over prefixes of columns or over a
    hash: the server would sort all rows for each bound, and the bound could be longer than `max_allowed_packet`. In
    this case, all rows after `lower` are one range. Raises `BinlogError`.
    """
    if not source.key_name:
        return None
    texts = boundary_row(connection, boundary_query(source, lower, rows, upper))
    return None if texts is None else bound_of(source, texts)
