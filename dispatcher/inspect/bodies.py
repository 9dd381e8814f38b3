"""Parses the bodies of events to `Fields`, with a parser for each event type. Caches the fields of bodies that repeat.

A log of small transactions repeats the same few bodies many times (BEGIN, table maps). Each of these bodies is parsed
once. The cache is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from dispatcher.binlog.event import control, mariadb_compressed
from dispatcher.binlog.event import gtid as gtid_events
from dispatcher.binlog.event import transaction_payload as payloads
from dispatcher.binlog.event.file import parse_format
from dispatcher.binlog.event.header import (
    FLAG_IGNORABLE,
    GTID_CLOCK_AT,
    GTID_NUMBER_AT,
    GTID_SOURCE_AT,
    HEADER_SIZE,
    EventHeader,
    FormatDescription,
    parse_rotate,
)
from dispatcher.binlog.event.query import Query, parse_query
from dispatcher.binlog.event.record import parse_record
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.query_event import logged_kind, logged_statement
from dispatcher.binlog.sql.statement import QueryKind
from dispatcher.inspect.entry import ROWS, Fields, error_text, seconds_text, time_text
from dispatcher.inspect.tables import DUMMY_ID, Tables, rows_table_id, table_fields
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.printable import printable

K = EventType
# These are plain integers, because looking up an enumeration member would double the time for most events.
_FORMAT_DESCRIPTION, _TABLE_MAP, _GTID = int(K.FORMAT_DESCRIPTION), int(K.TABLE_MAP), int(K.GTID)
_CACHED_MAX = 4096
_CACHED_BYTES_MAX = 512
_CACHED_TYPES = frozenset((K.QUERY, K.MARIADB_BINLOG_CHECKPOINT))
_PRE_GA = (K.PRE_GA_WRITE_ROWS, K.PRE_GA_UPDATE_ROWS, K.PRE_GA_DELETE_ROWS)
_EMPTY = frozenset((K.STOP, K.SLAVE))
# A line of a statement that begins with `#` looks like a line of the output. So a space is inserted before the `#`.
_COMMENT_LINE = re.compile(r"^#", re.MULTILINE)
_DUMMY = Fields(note="no rows: this event only ends a statement")
_NO_TABLE = Fields(
    error="no TABLE_MAP_EVENT for this table precedes the event in the range; start at the transaction's beginning"
)
_MARIADB_FLAGS = (
    (gtid_events.STANDALONE, "standalone"), (0x04, "transactional"), (0x08, "allow_parallel"), (0x10, "waited"),
    (gtid_events.DDL, "ddl"), (gtid_events.PREPARED_XA, "prepared_xa"), (gtid_events.COMPLETED_XA, "completed_xa"),
)  # fmt: skip


class BodyParser:
    """Parses bodies in the order of the log. `tables`: the current table map of each table id."""

    def __init__(self) -> None:
        self.tables = Tables()
        self._cached: dict[tuple[int, bytes], Fields] = {}

    def parse(self, kind: int, raw: bytes, tail: int, flags: int, log: FormatDescription) -> Fields:
        """Returns the fields of an event, with `error` if its body cannot be read.

        `raw`: the whole event; `tail`: the number of bytes of the checksum at its end.
        """
        if kind in ROWS:
            return self._rows(raw, log)
        try:
            if kind == _FORMAT_DESCRIPTION:
                self.tables.clear()
                # The server's version decides which /*!...*/ comments of a statement are executed.
                self._cached.clear()
                return _format(parse_format(raw))
            body = raw[HEADER_SIZE : len(raw) - tail]
            if kind == _TABLE_MAP:
                table = self.tables.map(body, log)
                if table.map_fields is None:
                    table.map_fields = table_fields(table)
                return table.map_fields
            if len(body) > _CACHED_BYTES_MAX or kind not in _CACHED_TYPES:
                return _parse(kind, raw, body, flags, log)
            key = (kind, body)
            if (fields := self._cached.get(key)) is None:
                fields = _parse(kind, raw, body, flags, log)
                if len(self._cached) >= _CACHED_MAX:
                    self._cached.clear()
                self._cached[key] = fields
            return fields
        except BinlogError as error:
            return Fields(error=error_text(error))

    def repeated(self, kind: int, body: bytes) -> Fields | None:
        """Returns the cached fields of a TABLE_MAP or QUERY that was just parsed; None if its body is not cached."""
        if kind == _TABLE_MAP:
            table = self.tables.cached(body)
            return None if table is None else table.map_fields
        return self._cached.get((kind, body))

    def _rows(self, raw: bytes, log: FormatDescription) -> Fields:
        table = self.tables.of_rows(raw, log)
        if table is None:
            return _DUMMY if rows_table_id(raw, log) == DUMMY_ID else _NO_TABLE
        if table.rows_fields is None:
            database, name = table.database, table.name
            data = {"database": database, "table": name}
            table.rows_fields = Fields(data, database=database, table=name, rows_of=table)
        return table.rows_fields


def _parse(kind: int, raw: bytes, body: bytes, flags: int, log: FormatDescription) -> Fields:
    if parse_statement := _STATEMENTS.get(kind):
        return parse_statement(body, log)
    if parse_body := _BODIES.get(kind):
        return parse_body(body)
    if parse_event := _EVENTS.get(kind):
        return parse_event(kind, raw, body)
    if kind in _EMPTY:
        return Fields()
    if kind in _PRE_GA:
        raise BinlogError(
            ErrorKind.UNSUPPORTED_EVENT,
            f"{type_name(kind)}: rows as MySQL 5.1 wrote them before its release; no server reads them any more",
        )
    if flags & FLAG_IGNORABLE:
        return Fields(note="of an unknown type that may be ignored")
    raise BinlogError(ErrorKind.UNSUPPORTED_EVENT, type_name(kind))


def _format(log: FormatDescription) -> Fields:
    checksum = "CRC32" if log.checksum else "NONE" if log.has_algorithm else None
    data: dict[str, Any] = {
        "binlog_version": log.version,
        "server_version": log.server_version,
        "created": seconds_text(log.started) or None,
        "checksum": checksum,
        "in_use": log.in_use,
    }
    note = f"binlog version {log.version}, server {log.server_version}, checksums {checksum or 'unknown to it'}"
    if log.started:
        note += f", server started {seconds_text(log.started)}"
    if log.in_use:
        note += ", in use (being written, or its server crashed)"
    return Fields(data, note=note)


# -- statements ----------------------------------------------------------------------------------------------


def _query(body: bytes, log: FormatDescription) -> Fields:
    return _statement(parse_query(body), {}, log)


def _compressed_query(body: bytes, log: FormatDescription) -> Fields:
    return _query(mariadb_compressed.plain_body(K.MARIADB_QUERY_COMPRESSED, body), log)


def _load_query(body: bytes, log: FormatDescription) -> Fields:
    load = control.parse_load_query(body)
    duplicates = ("error", "ignore", "replace")[min(load.duplicates, 2)]
    return _statement(load.query, {"file_id": load.file_id, "duplicates": duplicates}, log)


def _statement(query: Query, extra: dict[str, Any], log: FormatDescription) -> Fields:
    text, status = query.query, query.status
    data: dict[str, Any] = {"database": query.database, "query": text, **extra}
    data["thread_id"] = query.thread_id
    data["error_code"] = query.error_code
    data["execution_seconds"] = query.execution_s
    data["sql_mode"] = status.sql_mode
    if status.time_zone is not None:
        data["time_zone"] = status.time_zone
    if status.updated_databases is not None:
        data["updated_databases"] = list(status.updated_databases)
    if status.ddl_xid is not None:
        data["xid"] = status.ddl_xid
    statement = logged_statement(query, 0, ServerVersion.of(log), 0)
    kind = logged_kind(statement)
    note = f"thread {query.thread_id}"
    if query.database and kind not in (QueryKind.BEGIN, QueryKind.COMMIT):
        note += f"  database `{query.database}`"
    if query.error_code:
        note += f"  error {query.error_code}"
    return Fields(
        data,
        database=query.database,
        query_kind=kind,
        statement=statement,
        note=note,
        lines=f"{_COMMENT_LINE.sub(' #', text)};\n",
    )


def _rows_query(body: bytes) -> Fields:
    return _comment(control.parse_rows_query(body))


def _annotate(body: bytes) -> Fields:
    return _comment(control.parse_annotate_rows(body))


def _comment(text: str) -> Fields:
    return Fields({"query": text}, lines="".join(f"# {line}\n" for line in text.split("\n")))


def _intvar(body: bytes) -> Fields:
    intvar = control.parse_intvar(body)
    return Fields({"intvar": asdict(intvar)}, lines=f"SET {intvar.name}={intvar.value};\n")


def _rand(body: bytes) -> Fields:
    first, second = control.parse_rand(body)
    lines = f"SET @@RAND_SEED1={first}, @@RAND_SEED2={second};\n"
    return Fields({"rand_seeds": [first, second]}, lines=lines)


def _user_var(body: bytes) -> Fields:
    variable = control.parse_user_var(body)
    value = variable.value
    shown: Any = value if isinstance(value, int | float | None) else str(value)
    if isinstance(value, bytes):
        shown = {"hex": value.hex()}
        sql = f"0x{value.hex().upper()}" if value else "''"
    elif isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        sql = f"'{escaped}'"
    else:
        sql = "NULL" if value is None else str(value)
    name = variable.name.replace("`", "``")
    data = {"user_var": {"name": variable.name, "value": shown}}
    return Fields(data, lines=printable(f"SET @`{name}`={sql};") + "\n")


def _load_block(kind: int, _raw: bytes, body: bytes) -> Fields:
    block = control.parse_load_block(kind, body)
    note = f"file {block.file_id}, {len(block.data)} bytes"
    return Fields({"file_id": block.file_id, "data_bytes": len(block.data)}, note=note)


def _load(kind: int, _raw: bytes, body: bytes) -> Fields:
    load = control.parse_load(kind, body)
    data: dict[str, Any] = {
        "database": load.database,
        "table": load.table,
        "columns": list(load.fields),
        "load_file": load.file,
    }
    if load.file_id is not None:
        data["file_id"] = load.file_id
    note = f"LOAD DATA of {load.file} into `{load.database}`.`{load.table}`"
    return Fields(data, database=load.database, table=load.table, note=note)


# -- GTIDs and the ends of transactions ----------------------------------------------------------------------


def _gtid(kind: int, _raw: bytes, body: bytes) -> Fields:
    if kind == _GTID and len(body) >= GTID_CLOCK_AT:
        # Filters and summaries need only the GTID. The other fields are parsed only if the event is shown.
        number = int.from_bytes(body[GTID_NUMBER_AT:GTID_CLOCK_AT], "little")
        text = f"{gtid_events.uuid_text(body[GTID_SOURCE_AT:GTID_NUMBER_AT])}:{number}"
        return Fields(gtid=text, complete_later=partial(_complete_gtid, kind, body))
    fields = Fields()
    _complete_gtid(kind, body, fields)
    return fields


def _complete_gtid(kind: int, body: bytes, fields: Fields) -> None:
    gtid = gtid_events.parse_gtid_event(kind, body)
    name = str(gtid)
    text = name if gtid.source else ""
    data: dict[str, Any] = {"gtid": text or None}
    if gtid.last_committed is not None:
        data |= {"last_committed": gtid.last_committed, "sequence_number": gtid.sequence_number}
    committed = ""
    if gtid.immediate_commit_us is not None:
        committed = original = time_text(gtid.immediate_commit_us)
        if gtid.original_commit_us != gtid.immediate_commit_us:
            original = time_text(gtid.original_commit_us or 0)
        data |= {"committed_at": committed, "original_committed_at": original}
    if gtid.transaction_length is not None:
        data["transaction_length"] = gtid.transaction_length
    if gtid.immediate_version is not None:
        data["server_version"] = gtid.immediate_version
        data["original_server_version"] = gtid.original_version
    if gtid.commit_group_ticket is not None:
        data["commit_group_ticket"] = gtid.commit_group_ticket
    fields.gtid, fields.data = text, data
    fields.note = f"{name}  committed {committed}" if committed else name


def _mariadb_gtid(_kind: int, raw: bytes, body: bytes) -> Fields:
    gtid = gtid_events.parse_mariadb_gtid(body, EventHeader.read(raw).server_id)
    flags = [name for bit, name in _MARIADB_FLAGS if gtid.flags & bit]
    data: dict[str, Any] = {"gtid": str(gtid), "gtid_flags": flags}
    if gtid.commit_id is not None:
        data["commit_id"] = gtid.commit_id
    if gtid.xid is not None:
        data["xid"] = _xid(gtid.xid)
    if gtid.alter_of is not None:
        data["alter_of"] = gtid.alter_of
    return Fields(data, gtid=str(gtid), note=" ".join((f"{gtid} ", *flags, *_alter(gtid))))


def _alter(gtid: gtid_events.MariadbGtid) -> Iterator[str]:
    """Yield the words for the phase of a DDL that is logged in two transactions, as mariadb-binlog prints them."""
    if gtid.alter_phase:
        yield f"{str(gtid.alter_phase.name).lower()} alter"
    if gtid.alter_of is not None:
        yield f"id={gtid.alter_of}"


def _xid(xid: gtid_events.Xid) -> dict[str, Any]:
    return {"format_id": xid.format_id, "gtrid": xid.gtrid.hex(), "bqual": xid.bqual.hex()}


def _gtid_list(body: bytes) -> Fields:
    text = ",".join(map(str, gtid_events.parse_mariadb_gtid_list(body)))
    return Fields({"gtid_set": text}, note=f"[{text}]")


def _previous_gtids(body: bytes) -> Fields:
    text = str(gtid_events.parse_previous_gtids(body))
    return Fields({"gtid_set": text}, note=text or "[empty]")


def _commit(body: bytes) -> Fields:
    xid = control.parse_xid(body)
    return Fields({"xid": xid}, note=f"{xid}", lines="COMMIT;\n")


def _xa_prepare(body: bytes) -> Fields:
    prepare = control.parse_xa_prepare(body)
    data = {"xid": _xid(prepare.xid), "one_phase": prepare.one_phase}
    return Fields(data, lines=f"{prepare};\n")


def _payload(body: bytes) -> Fields:
    payload = payloads.parse_payload(body)
    compression, size = payload.compression.name, payload.uncompressed_size
    data = {
        "compression": compression,
        "payload_bytes": len(payload.data),
        "uncompressed_bytes": size,
    }
    note = f"{compression}, {len(payload.data)} bytes for {size}; its events follow"
    return Fields(data, note=note)


def _transaction_context(body: bytes) -> Fields:
    context = control.parse_transaction_context(body)
    data = {
        "server_uuid": context.server_uuid,
        "thread_id": context.thread_id,
        "write_set": [item.hex() for item in context.write_set],
        "read_set": [item.hex() for item in context.read_set],
    }
    return Fields(data, note=f"of {context.server_uuid}, thread {context.thread_id}")


# -- events of the log itself --------------------------------------------------------------------------------


def _rotate(body: bytes) -> Fields:
    file, position = parse_rotate(body)
    return Fields({"next_file": file, "next_position": position}, note=f"to {file}:{position}")


def _incident(body: bytes) -> Fields:
    incident = control.parse_incident(body)
    lines = printable(f"# THE SERVER'S LOG IS INCOMPLETE: {incident.message}") + "\n"
    return Fields({"incident": asdict(incident)}, note=f"{incident.number}", lines=lines)


def _heartbeat(kind: int, raw: bytes, body: bytes) -> Fields:
    heartbeat = control.parse_heartbeat(kind, body, EventHeader.read(raw).log_pos)
    return Fields(asdict(heartbeat), note=f"{heartbeat.file}:{heartbeat.position}")


def _checkpoint(body: bytes) -> Fields:
    file = control.parse_binlog_checkpoint(body)
    return Fields({"checkpoint_file": file}, note=file)


def _encryption(body: bytes) -> Fields:
    start = control.parse_start_encryption(body)
    data = {"scheme": start.scheme, "key_version": start.key_version, "nonce": start.nonce.hex()}
    return Fields(data, note=f"scheme {start.scheme}, key version {start.key_version}")


def _view_change(body: bytes) -> Fields:
    view = control.parse_view_change(body)
    data = {"view_id": view.view_id, "view_sequence_number": view.sequence_number}
    return Fields(data, note=view.view_id)


def _ignorable(body: bytes) -> Fields:
    record = parse_record(body)
    if record is None:
        return Fields(note="may be ignored")
    note = f"record of binlog-dispatcher: seq {record.seq}, {record.file}:{record.offset}"
    return Fields({"record": asdict(record)}, note=note)


# Parsers that need the body and the log's format.
_STATEMENTS: dict[int, Callable[[bytes, FormatDescription], Fields]] = {
    K.QUERY: _query, K.MARIADB_QUERY_COMPRESSED: _compressed_query, K.EXECUTE_LOAD_QUERY: _load_query,
}  # fmt: skip
# Parsers that need only the body.
_BODIES: dict[int, Callable[[bytes], Fields]] = {
    K.MARIADB_GTID_LIST: _gtid_list, K.PREVIOUS_GTIDS: _previous_gtids, K.ROTATE: _rotate, K.ROWS_QUERY: _rows_query,
    K.MARIADB_ANNOTATE_ROWS: _annotate, K.XID: _commit, K.XA_PREPARE: _xa_prepare, K.INTVAR: _intvar, K.RAND: _rand,
    K.USER_VAR: _user_var, K.INCIDENT: _incident, K.MARIADB_BINLOG_CHECKPOINT: _checkpoint,
    K.MARIADB_START_ENCRYPTION: _encryption, K.TRANSACTION_CONTEXT: _transaction_context, K.VIEW_CHANGE: _view_change,
    K.TRANSACTION_PAYLOAD: _payload, K.IGNORABLE: _ignorable,
}  # fmt: skip
# Parsers that need the type code, the whole event and the body.
_EVENTS: dict[int, Callable[[int, bytes, bytes], Fields]] = {
    K.GTID: _gtid, K.ANONYMOUS_GTID: _gtid, K.GTID_TAGGED: _gtid, K.MARIADB_GTID: _mariadb_gtid,
    K.HEARTBEAT: _heartbeat, K.HEARTBEAT_V2: _heartbeat, K.APPEND_BLOCK: _load_block, K.BEGIN_LOAD_QUERY: _load_block,
    K.EXEC_LOAD: _load_block, K.DELETE_FILE: _load_block, K.LOAD: _load, K.NEW_LOAD: _load, K.CREATE_FILE: _load,
}  # fmt: skip
