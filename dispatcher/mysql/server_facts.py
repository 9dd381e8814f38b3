"""Reads facts about a server.

Works on MySQL 5.6 to 9.7 and MariaDB 10.5 to 11.8. Variables are read as `@@GLOBAL.x`, because this form returns a
whole GTID set: SHOW VARIABLES cuts values at 1024 characters since MySQL 5.7. A first query asks which of the variables
exist, because not every server has all of them: MySQL 5.6 has no `binlog_row_metadata`, and MariaDB has no `gtid_mode`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import MARIADB_SERVER
from dispatcher.mysql.answers import (
    Row,
    ask,
    ask_one,
    gtid_text,
    log_file,
    log_offset,
    not_understood,
    number_value,
    optional_text,
    text_value,
    where_of,
)
from dispatcher.mysql.driver import Connection, greeted_version
from dispatcher.mysql.error_map import is_refusal
from dispatcher.mysql.grants import Grants, missing_privileges, parse_grants
from dispatcher.mysql.services import OWN, VARIABLES, Service, service_of

Flavour = Literal["mysql", "mariadb"]
DATABASES_MAX = 10_000

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
    "gtid_owned",  # before gtid_executed, see `_variables`
    "gtid_executed",
    "gtid_binlog_pos",
    "gtid_slave_pos",
    "log_slave_updates",
    "log_replica_updates",
    "binlog_storage_engine",
    "expire_logs_days",
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "lower_case_table_names",
    *(name for name in VARIABLES if name != "version"),
)
# The number of the thread that owns a GTID follows the GTID, and the UUID of the next source follows directly after the
# number.
_OWNER = re.compile(
    r"#[0-9]+?(?=([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:)|:|\s*,|\s*\Z)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class BinlogFile:
    name: str
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """A server at one moment. Variables that the server lacks are "" or False."""

    version: str
    flavour: Flavour
    server_uuid: str  # MariaDB has none: f"mariadb-{server_id}"
    server_id: int
    log_bin: bool
    binlog_format: str  # in upper case, like all symbolic values
    row_image: str
    row_metadata: str
    checksum: str
    gtid_mode: str  # "" on MariaDB, where GTIDs are always on
    gtid_executed: str  # MariaDB: gtid_binlog_pos
    gtid_owned: str  # as a set, without the numbers of threads; "" on MariaDB
    gtid_purged: str  # "" on MariaDB
    files: tuple[BinlogFile, ...]  # oldest first; () without a binlog
    file: str  # the file into which the next event goes
    offset: int
    expire_seconds: (
        int | None
    )  # None: never purged by age, or the service does not show the time to the account
    lower_case_table_names: int
    # log_slave_updates: the log also holds what the server has replicated from other servers
    logs_replicated: bool = False
    # the server has transactions that other servers have executed first
    has_replicated: bool = False
    service: Service = OWN
    # binlog_storage_engine of MariaDB 12.3 and newer; "" for a log in files
    log_engine: str = ""


def read_facts(connection: Connection) -> ServerFacts:
    """Return the server's facts. Raises `BinlogError`; GRANT_MISSING if the account lacks REPLICATION CLIENT."""
    variables = _variables(connection)
    without_log = _understood_facts(connection, variables)
    if not without_log.log_bin:
        return without_log
    if error := log_engine_finding(without_log):
        raise error
    try:
        file, offset, files = _log_status(connection, without_log.version)
    except BinlogError as error:
        if error.kind is not ErrorKind.GRANT_MISSING:
            raise
        # Raise the finding in place of the server's error, whose text depends on the version and contains no remedy.
        missing = next(missing_privileges(read_grants(connection), ()), error)
        raise missing from error
    facts = replace(without_log, file=file, offset=offset, files=files)
    if table := facts.service.retention_table:
        facts = replace(facts, expire_seconds=_kept_seconds(connection, table))
    return facts if facts.flavour == "mariadb" else replace(facts, gtid_purged=_purged(connection))


def read_variables(connection: Connection) -> ServerFacts:
    """Return the facts that follow from the server's variables, without the log's files and position. Needs no
    privilege."""
    return _understood_facts(connection, _variables(connection))


def _kept_seconds(connection: Connection, table: str) -> int | None:
    """Return how long a managed service keeps binlogs, if it does not purge binlogs by the server's variables; None if
    the server refuses to answer. NULL, or no row, means that the service purges binlogs as soon as it can."""
    query = f"SELECT value FROM {table} WHERE name = 'binlog retention hours'"
    try:
        return 3600 * sum(
            ask(connection, query, lambda row: number_value(optional_text(row[0]) or "0"))
        )
    except BinlogError as error:
        if not is_refusal(error):
            raise
        return None


def refuse_service(connection: Connection) -> None:
    """Raise `BinlogError` if the server's greeting names a service that the daemon cannot read. Such a service may not
    understand the questions of the other functions."""
    service = service_of({"version": greeted_version(connection)})
    if service.refusal:
        raise BinlogError(
            ErrorKind.SERVER_SETTING,
            f"{service.name}: {service.refusal}",
            remedy=f"see docs/servers/{service.page}",
        )


def visible_databases(connection: Connection) -> frozenset[str] | None:
    """Return the databases that the account may see; None if there are more than `DATABASES_MAX`.

    An account without SHOW DATABASES and without other privileges on *.* sees only the databases on which it has a
    privilege. The option skip_show_database does not affect information_schema.SCHEMATA.
    """
    query = f"SELECT SCHEMA_NAME FROM information_schema.SCHEMATA LIMIT {DATABASES_MAX + 1}"
    names = ask(connection, query, lambda row: text_value(row[0]))
    return frozenset(names) if 0 < len(names) <= DATABASES_MAX else None


def read_grants(connection: Connection) -> Grants:
    """Return the privileges of the connection's account, including those of its active roles."""
    return parse_grants(ask(connection, "SHOW GRANTS", lambda row: text_value(row[0])))


def log_engine_finding(facts: ServerFacts) -> BinlogError | None:
    """Return the finding about a log that the server keeps in InnoDB: a dump of it has no files and offsets (MariaDB
    documentation, "InnoDB-Based Binary Log")."""
    if not facts.log_engine:
        return None
    return BinlogError(
        ErrorKind.SERVER_SETTING,
        f"binlog_storage_engine={facts.log_engine}: the server's log has no files and offsets",
        remedy="start the server without binlog_storage_engine; it then begins a log in files",
    )


def log_end(connection: Connection) -> tuple[str, int]:
    """Return the file and offset at which the server will write its next event. Raises `BinlogError`."""
    file, offset, _ = _log_status(connection, server_version(connection))
    return file, offset


def server_version(connection: Connection) -> str:
    return ask_one(connection, "SELECT VERSION()", lambda row: text_value(row[0]))


def lower_case_table_names(connection: Connection) -> int:
    return ask_one(
        connection,
        "SELECT @@GLOBAL.lower_case_table_names",
        lambda row: number_value(text_value(row[0])),
    )


def is_mariadb(version: str) -> bool:
    return "mariadb" in version.lower()


def _variables(connection: Connection) -> dict[str, str]:
    def variable(row: Row) -> str:
        name, _ = row
        if (lower := text_value(name).lower()) not in _VARIABLES:
            raise ValueError(f"variable {lower!r}, which was not asked for")
        return lower

    refuse_service(connection)
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    query = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"
    # A commit moves its GTID from gtid_owned to gtid_executed under one lock. gtid_owned is read first, so that a GTID
    # that moves between the two reads is in both values rather than in neither.
    present = sorted(ask(connection, query, variable), key=_VARIABLES.index)

    def values(row: Row) -> dict[str, str]:
        return {name: optional_text(value) or "" for name, value in zip(present, row, strict=True)}

    query = "SELECT " + ", ".join(f"@@GLOBAL.{name}" for name in present)
    return ask_one(connection, query, values)


def _log_status(connection: Connection, version: str) -> tuple[str, int, tuple[BinlogFile, ...]]:
    query = f"SHOW {'BINARY LOG' if says_replica(version) else 'MASTER'} STATUS"
    status = ask(connection, query, lambda row: (log_file(row[0]), log_offset(row[1])))
    # The list is read after the status: if the log rotates between the two statements, the list has the new file, too.
    files = ask(
        connection,
        "SHOW BINARY LOGS",
        lambda row: BinlogFile(log_file(row[0]), log_offset(row[1])),
    )
    if not status:
        raise BinlogError(ErrorKind.SERVER_SETTING, "the server does not say where its binlog ends")
    return *status[0], tuple(files)


def _purged(connection: Connection) -> str:
    """Return gtid_purged. Call it after the list of files was read.

    The server adds a file's GTIDs to gtid_purged before others can read a list without that file
    (MYSQL_BIN_LOG::purge_logs holds LOCK_index for both), so gtid_purged covers every file that is not listed.
    """
    return ask_one(
        connection,
        "SELECT @@GLOBAL.gtid_purged",
        lambda row: gtid_text(text_value(row[0]), mariadb=False),
    )


def _understood_facts(connection: Connection, variables: Mapping[str, str]) -> ServerFacts:
    try:
        return _facts(variables)
    except ValueError as error:
        raise not_understood("SELECT @@GLOBAL...", str(error), where_of(connection)) from error


def _facts(variables: Mapping[str, str]) -> ServerFacts:
    """Return the facts that follow from the variables, without the log's files. Raises ValueError."""

    def get(name: str, default: str = "") -> str:
        return variables.get(name, default)

    version = get("version")
    if not re.match(r"[0-9]{1,3}\.[0-9]{1,3}", version):
        raise ValueError(f"{version[:100]!r} instead of a version")
    mariadb = is_mariadb(version)
    server_id = number_value(get("server_id", "0"))
    server_uuid = f"{MARIADB_SERVER}{server_id}" if mariadb else get("server_uuid")
    if not re.fullmatch(r"[!-~]{0,64}", server_uuid):
        raise ValueError(f"{server_uuid[:100]!r} instead of a server uuid")
    executed = get("gtid_binlog_pos" if mariadb else "gtid_executed")
    return ServerFacts(
        version=version,
        flavour="mariadb" if mariadb else "mysql",
        server_uuid=server_uuid,
        server_id=server_id,
        log_bin=_is_on(variables, "log_bin"),
        # A server without these variables writes only rows, with full images.
        binlog_format=get("binlog_format", "ROW").upper(),
        row_image=get("binlog_row_image", "FULL").upper(),
        row_metadata=get("binlog_row_metadata").upper(),
        checksum=get("binlog_checksum", "NONE").upper(),
        gtid_mode=get("gtid_mode").upper(),
        gtid_executed=gtid_text(executed, mariadb=mariadb),
        gtid_owned=gtid_text(_without_owners(get("gtid_owned")), mariadb=False),
        gtid_purged="",
        files=(),
        file="",
        offset=0,
        expire_seconds=_expire_seconds(variables),
        lower_case_table_names=number_value(get("lower_case_table_names", "0")),
        logs_replicated=_is_on(variables, "log_slave_updates")
        or _is_on(variables, "log_replica_updates"),
        has_replicated=_has_replicated(variables, mariadb=mariadb),
        service=service_of(variables),
        log_engine=get("binlog_storage_engine"),
    )


def _has_replicated(variables: Mapping[str, str], *, mariadb: bool) -> bool:
    """True if the server's GTIDs show that it has transactions of other servers. Needs no privilege, unlike SHOW
    REPLICA STATUS."""
    if mariadb:
        return variables.get("gtid_slave_pos", "") != ""
    own, executed = variables.get("server_uuid", ""), variables.get("gtid_executed", "")
    return any(source != own for source in GtidSet.parse(executed).sources())


def _without_owners(owned: str) -> str:
    """Return the GTID set in a value of gtid_owned, such as "uuid:7#12:5#14uuid:1#15" (Owned_gtids::to_string in
    rpl_gtid_owned.cc), where a thread's number follows each "#"."""
    return _OWNER.sub(lambda owner: "," if owner[1] else "", owned)


def _expire_seconds(variables: Mapping[str, str]) -> int | None:
    if not _is_on(variables, "binlog_expire_logs_auto_purge", "ON"):
        return None
    # MySQL 8.0 and MariaDB 10.6 have both variables. Seconds are more precise, and MariaDB keeps the two consistent.
    seconds = number_value(variables.get("binlog_expire_logs_seconds") or "0")
    days = variables.get("expire_logs_days") or "0"
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", days):
        raise ValueError(f"{days[:100]!r} instead of a number of days")
    return seconds or round(float(days) * 86400) or None


def _is_on(variables: Mapping[str, str], name: str, default: str = "OFF") -> bool:
    return variables.get(name, default).upper() in ("ON", "1")


def says_replica(version: str) -> bool:
    """True if the server's statements use the words source and replica instead of master and slave."""
    return not is_mariadb(version) and version_numbers(version) >= (8, 2)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: "8.4.3-log" -> (8, 4, 3)."""
    numbers = []
    for part in version.partition("-")[0].split("."):
        if not re.fullmatch("[0-9]{1,9}", part):
            break
        numbers.append(int(part))
    return tuple(numbers)
