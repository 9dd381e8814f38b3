"""What a server is, and what stands between it and replication: facts, findings, and the columns of
its tables.

Works on MySQL 5.6 to 9.7 and MariaDB 10.5 to 11.8. Variables are read as `@@GLOBAL.x`, where a GTID
set comes whole: SHOW VARIABLES cuts values at 1024 characters from MySQL 5.7 on. Which of them
exist is asked first, because the servers differ: MySQL 5.6 has no `binlog_row_metadata`, MariaDB no
`gtid_mode`.

`findings` says everything that is wrong at once, each with the statement that mends it. `examine`
does so for a server that may refuse even the questions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.source.mysql.answers import (
    Row,
    ask,
    ask_one,
    gtid_text,
    log_file,
    log_offset,
    not_understood,
    number,
    text,
    where_of,
)
from dispatcher.source.mysql.driver import Connection
from dispatcher.source.mysql.grants import Grants, parse_grants
from dispatcher.source.mysql.login import Endpoint, Tls, TlsMode, connect, endpoints_of

__all__ = [
    "BinlogFile",
    "Connection",
    "Endpoint",
    "Grants",
    "ServerFacts",
    "Tls",
    "TlsMode",
    "connect",
    "endpoints_of",
    "examine",
    "examine_hosts",
    "facts",
    "findings",
    "grants",
    "log_end",
    "table_columns",
]

Flavour = Literal["mysql", "mariadb"]
_APART = "another host's log is another history without GTIDs that say the same everywhere"

# As asked for with @@GLOBAL; version has no other form, but @@GLOBAL.version works everywhere too.
_VARIABLES = (
    "version",
    "server_id",
    "server_uuid",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_checksum",
    "gtid_mode",
    "gtid_executed",
    "gtid_purged",
    "gtid_binlog_pos",
    "gtid_strict_mode",
    "expire_logs_days",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "lower_case_table_names",
)


@dataclass(frozen=True, slots=True)
class BinlogFile:
    name: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """One server at one moment. Variables that a server lacks are "" or False."""

    version: str
    flavour: Flavour
    server_uuid: str  # MariaDB has none: f"mariadb-{server_id}"
    server_id: int
    log_bin: bool
    binlog_format: str  # upper case, as the other names of values
    row_image: str
    row_metadata: str
    checksum: str
    gtid_mode: str  # "" on MariaDB, where GTIDs are always on
    gtid_strict_mode: bool  # MariaDB
    gtid_executed: str  # MariaDB: gtid_binlog_pos
    gtid_purged: str
    files: tuple[BinlogFile, ...]  # oldest first; () without a binlog
    file: str  # where the next event goes
    offset: int
    expire_seconds: int | None  # None: never purged by age
    lower_case_table_names: int

    @property
    def new_words(self) -> bool:
        """Does it say source and replica, and no longer master and slave, in its statements?"""
        return _has_new_words(self.version)


def facts(connection: Connection) -> ServerFacts:
    """Ask for everything; raises `BinlogError`, GRANT_MISSING where REPLICATION CLIENT is."""
    variables = _variables(connection)
    without_log = _understood_facts(connection, variables)
    if not without_log.log_bin:
        return without_log
    try:
        file, offset, files = _log_status(connection, without_log.version)
    except BinlogError as error:
        if error.kind is not ErrorKind.GRANT_MISSING:
            raise
        # The server's text depends on its version; what `findings` says of it is one, and helps.
        missing = next(_grant_findings(without_log, grants(connection), ()), error)
        raise missing from error
    known = replace(without_log, file=file, offset=offset, files=files)
    return known if known.flavour == "mariadb" else replace(known, gtid_purged=_purged(connection))


def grants(connection: Connection) -> Grants:
    """What the connection's account may do, its active roles included."""
    return parse_grants(ask(connection, "SHOW GRANTS", lambda row: text(row[0])))


def examine(
    connection: Connection, databases: Sequence[str] = (), *, several: bool = False
) -> list[BinlogError]:
    """All findings of a server; `databases` are those that consumers read. `several`: others are to stand in for it."""
    known = _understood_facts(connection, _variables(connection))
    found = findings(known, grants(connection), databases)
    if several and (error := several_hosts_finding(known)):
        found.append(error)
    return found


def several_hosts_finding(known: ServerFacts) -> BinlogError | None:
    """Why no other host can stand in for this one; None if one can."""
    if known.flavour == "mariadb":
        return _finding(f"{_APART}: positions of MariaDB are files and offsets", "name one host")
    if known.gtid_mode != "ON":
        remedy = "set gtid_mode=ON on all hosts, or name one"
        return _finding(f"gtid_mode={known.gtid_mode or 'OFF'}: {_APART}", remedy)
    return None


def examine_hosts(
    endpoints: Sequence[Endpoint], databases: Sequence[str] = ()
) -> list[tuple[str, BinlogError]]:
    """The findings of each of the servers that stand in for each other, with its label; one that cannot be asked
    included."""
    found: list[tuple[str, BinlogError]] = []
    for endpoint in endpoints:
        try:
            connection = connect(endpoint)
            try:
                errors = examine(connection, databases, several=len(endpoints) > 1)
            finally:
                connection.close()
        except BinlogError as error:
            errors = [error]
        found += [(endpoint.label, error) for error in errors]
    return found


def findings(
    facts: ServerFacts, grants: Grants, databases: Sequence[str] = ()
) -> list[BinlogError]:
    """What keeps this server from being replicated whole, all of it, worst first."""
    return [*_setting_findings(facts), *_grant_findings(facts, grants, databases)]


def _setting_findings(facts: ServerFacts) -> Iterator[BinlogError]:
    def change(variable: str, value: str) -> str:
        # SET PERSIST is MySQL 8.0's; elsewhere the option file has to remember.
        if facts.flavour == "mysql" and _version(facts.version) >= (8,):
            return f"SET PERSIST {variable} = {value}"
        return f"SET GLOBAL {variable} = {value}, and the same in the server's option file"

    if not facts.log_bin:
        yield _finding(
            "log_bin=OFF: the server writes no binlog", "start the server with --log-bin"
        )
    if facts.server_id == 0:
        yield _finding("server_id=0: the server refuses replicas", change("server_id", "1"))
    if facts.binlog_format != "ROW":
        yield _finding(
            f"binlog_format={facts.binlog_format}: statements instead of rows",
            f"{change('binlog_format', 'ROW')}; sessions that are open keep the old one",
        )
    if facts.row_image != "FULL":
        yield _finding(
            f"binlog_row_image={facts.row_image}: rows without all their columns",
            f"{change('binlog_row_image', 'FULL')}; sessions that are open keep the old one",
        )
    if facts.row_metadata not in ("FULL", ""):
        yield _finding(
            f"binlog_row_metadata={facts.row_metadata}: rows without their columns' names, which are then looked up;"
            " consumers that begin before a table was altered stop there",
            change("binlog_row_metadata", "FULL"),
        )


def _finding(what: str, remedy: str) -> BinlogError:
    return BinlogError(ErrorKind.SERVER_SETTING, what, remedy=remedy)


def _grant_findings(
    facts: ServerFacts, grants: Grants, databases: Sequence[str]
) -> Iterator[BinlogError]:
    def finding(privilege: str, on: str) -> BinlogError:
        return BinlogError(
            ErrorKind.GRANT_MISSING,
            f"the account lacks {privilege} on {on}",
            remedy=f"GRANT {privilege} ON {on} TO {grants.account or 'the account'}",
        )

    if not grants.has("REPLICATION SLAVE", "REPLICATION REPLICA"):
        yield finding("REPLICATION SLAVE", "*.*")
    # MariaDB renamed it in 10.5 and takes the old name in GRANT.
    if not grants.has("REPLICATION CLIENT", "BINLOG MONITOR", "SUPER"):
        yield finding("REPLICATION CLIENT", "*.*")
    ignore_case = facts.lower_case_table_names != 0
    for database in dict.fromkeys(databases):
        if not grants.may_select(database, ignore_case=ignore_case):
            yield finding("SELECT", f"{_quoted(database)}.*")


def table_columns(connection: Connection, database: str, table: str) -> dict[str, Any]:
    """What the server says of a table.

    {"database", "table", "columns": [{"name", "mysql_type", "nullable", "charset"}], "key":
    [name]}; `key` is the primary key, else the first UNIQUE key whose columns are all NOT NULL,
    else []. Raises `BinlogError`, UNKNOWN_TABLE where there is no such table for this account.
    """
    columns = ask(
        connection,
        "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE,"
        # MariaDB's VECTOR is a VARBINARY in all but name, MySQL's is a type of its own.
        " IF(DATA_TYPE = 'vector' AND VERSION() LIKE '%%MariaDB%%', 'binary', CHARACTER_SET_NAME)"
        " FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
        " ORDER BY ORDINAL_POSITION",
        lambda row: (
            text(row[0]),
            text(row[1]),
            text(row[2]),
            None if row[3] is None else text(row[3]),
        ),
        (database, table),
    )
    if not columns:
        raise UserError(
            ErrorKind.UNKNOWN_TABLE,
            f"there is no table {database}.{table}, or the account has no SELECT on it",
        )
    not_null = {name for name, _, nullable, _ in columns if nullable != "YES"}
    return {
        "database": database,
        "table": table,
        "columns": [
            {
                "name": name,
                "mysql_type": mysql_type,
                "nullable": nullable == "YES",
                "charset": charset,
            }
            for name, mysql_type, nullable, charset in columns
        ],
        "key": _key(connection, database, table, not_null),
    }


def _key(connection: Connection, database: str, table: str, not_null: set[str]) -> list[str]:
    # SHOW INDEX keeps the server's order, in which it prefers keys itself;
    # information_schema.STATISTICS has none.
    query = f"SHOW INDEX FROM {_quoted(database)}.{_quoted(table)}"
    keys: dict[str, list[str | None]] = {}
    for non_unique, name, column, _ in ask(connection, query, index_row):
        if not non_unique:
            keys.setdefault(name, []).append(column)
    for name in sorted(keys, key=lambda name: name != "PRIMARY"):
        # A part without a column is an expression (MySQL 8.0), which identifies no row by its
        # columns.
        columns = [column for column in keys[name] if column is not None and column in not_null]
        if len(columns) == len(keys[name]):
            return columns
    return []


def index_row(row: Row) -> tuple[int, str, str | None, int]:
    """Of SHOW INDEX: not unique?, key, column (None: an expression), its prefix in characters (0: whole)."""
    column = None if row[4] is None else text(row[4])
    return number(row[1]), text(row[2]), column, 0 if row[7] is None else number(row[7])


def log_end(connection: Connection) -> tuple[str, int]:
    """File and offset where the server's next event goes. Raises `BinlogError`."""
    version = ask_one(connection, "SELECT VERSION()", lambda row: text(row[0]))
    file, offset, _ = _log_status(connection, version)
    return file, offset


def _variables(connection: Connection) -> dict[str, str]:
    def known(row: Row) -> str:
        name, _ = row
        if (lower := text(name).lower()) not in _VARIABLES:
            raise ValueError(f"variable {lower!r}, which was not asked for")
        return lower

    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    query = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"
    present = ask(connection, query, known)

    def values(row: Row) -> dict[str, str]:
        found = zip(present, row, strict=True)
        return {name: "" if value is None else text(value) for name, value in found}

    query = "SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in present)
    return ask_one(connection, query, values)


def _log_status(connection: Connection, version: str) -> tuple[str, int, tuple[BinlogFile, ...]]:
    query = f"SHOW {'BINARY LOG' if _has_new_words(version) else 'MASTER'} STATUS"
    status = ask(connection, query, lambda row: (log_file(row[0]), log_offset(row[1])))
    # The list second: a file that the log moves on to in between is the newest in it.
    files = ask(
        connection,
        "SHOW BINARY LOGS",
        lambda row: BinlogFile(log_file(row[0]), log_offset(row[1])),
    )
    if not status:
        raise BinlogError(ErrorKind.SERVER_SETTING, "the server does not say where its binlog ends")
    return *status[0], tuple(files)


def _purged(connection: Connection) -> str:
    """Asked for after the list of files: the server adds to it before it lets others read the list without a file that
    it purges (MYSQL_BIN_LOG::purge_logs holds LOCK_index for both), so it has all of each file that is not listed."""
    return ask_one(
        connection,
        "SELECT @@GLOBAL.gtid_purged",
        lambda row: gtid_text(text(row[0]), mariadb=False),
    )


def _understood_facts(connection: Connection, variables: Mapping[str, str]) -> ServerFacts:
    try:
        return _facts(variables)
    except ValueError as error:
        raise not_understood("SELECT @@GLOBAL...", str(error), where_of(connection)) from error


def _facts(variables: Mapping[str, str]) -> ServerFacts:
    """What the variables say; nothing of the log's files. Raises ValueError."""

    def get(name: str, default: str = "") -> str:
        return variables.get(name, default)

    version = get("version")
    if not re.match(r"[0-9]{1,3}\.[0-9]{1,3}", version):
        raise ValueError(f"{version[:100]!r} instead of a version")
    mariadb = "mariadb" in version.lower()
    server_id = number(get("server_id", "0"))
    server_uuid = f"mariadb-{server_id}" if mariadb else get("server_uuid")
    if not re.fullmatch(r"[!-~]{0,64}", server_uuid):
        raise ValueError(f"{server_uuid[:100]!r} instead of a server uuid")
    executed = get("gtid_binlog_pos" if mariadb else "gtid_executed")
    return ServerFacts(
        version=version,
        flavour="mariadb" if mariadb else "mysql",
        server_uuid=server_uuid,
        server_id=server_id,
        log_bin=_is_on(variables, "log_bin"),
        # Servers that know rows only have neither variable.
        binlog_format=get("binlog_format", "ROW").upper(),
        row_image=get("binlog_row_image", "FULL").upper(),
        row_metadata=get("binlog_row_metadata").upper(),
        checksum=get("binlog_checksum", "NONE").upper(),
        gtid_mode=get("gtid_mode").upper(),
        gtid_strict_mode=_is_on(variables, "gtid_strict_mode"),
        gtid_executed=gtid_text(executed, mariadb=mariadb),
        gtid_purged="" if mariadb else gtid_text(get("gtid_purged"), mariadb=False),
        files=(),
        file="",
        offset=0,
        expire_seconds=_expire_seconds(variables),
        lower_case_table_names=number(get("lower_case_table_names", "0")),
    )


def _expire_seconds(variables: Mapping[str, str]) -> int | None:
    if not _is_on(variables, "binlog_expire_logs_auto_purge", "ON"):
        return None
    # Both exist in MySQL 8.0 and MariaDB 10.6; the seconds are the finer, MariaDB keeps the two in
    # step.
    seconds = number(variables.get("binlog_expire_logs_seconds") or "0")
    days = variables.get("expire_logs_days") or "0"
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", days):
        raise ValueError(f"{days[:100]!r} instead of a number of days")
    return seconds or round(float(days) * 86400) or None


def _is_on(variables: Mapping[str, str], name: str, default: str = "OFF") -> bool:
    return variables.get(name, default).upper() in ("ON", "1")


def _has_new_words(version: str) -> bool:
    return "mariadb" not in version.lower() and _version(version) >= (8, 2)


def _version(text: str) -> tuple[int, ...]:
    """ "8.4.3-log" -> (8, 4, 3)."""
    numbers = []
    for part in text.partition("-")[0].split("."):
        if not re.fullmatch("[0-9]{1,9}", part):
            break
        numbers.append(int(part))
    return tuple(numbers)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
