"""What an event's body holds, as `Fields`: a reader for each type of event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from dispatcher.binlog.event import control, mariadb_compressed
from dispatcher.binlog.event import gtid as gtid_events
from dispatcher.binlog.event import transaction_payload as payloads
from dispatcher.binlog.event.header import FormatDescription, parse_rotate
from dispatcher.binlog.event.query import Query, parse_query
from dispatcher.binlog.event.record import parse_record
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.statement import QueryKind, classify
from dispatcher.inspect.columns import charset_text, type_text
from dispatcher.inspect.entry import Fields
from dispatcher.inspect.tables import Table
from dispatcher.inspect.times import seconds_text, time_text

K = EventType
_GTID = int(K.GTID)


def format_fields(log: FormatDescription) -> Fields:
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


def table_fields(table: Table) -> Fields:
    data: dict[str, Any] = {"database": table.database, "table": table.name, "table_id": table.id}
    fields = Fields(
        data, database=table.database, table=table.name, note=f"{table.label}  id {table.id}"
    )
    if table.map is None:
        fields.error = table.error
        return fields
    columns = []
    for number, column in enumerate(table.map.columns):
        one: dict[str, Any] = {"name": column.name or f"@{number + 1}", "type": type_text(column)}
        if charset := charset_text(column):
            one["charset"] = charset
        one["nullable"] = column.nullable
        if not column.visible:
            one["visible"] = False
        columns.append(one)
    data["columns"] = columns
    data["key"] = [columns[at]["name"] for at in table.map.key]
    lines = [
        f"#   {one['name']} {one['type']}{' character set ' + one['charset'] if 'charset' in one else ''}"
        f"{'' if one['nullable'] else ' not null'}{'' if one.get('visible', True) else ' invisible'}"
        for one in columns
    ]
    if data["key"]:
        lines.append(f"#   primary key ({', '.join(data['key'])})")
    fields.lines = "\n".join(lines) + "\n"
    return fields


def _query(kind: int, _raw: bytes, body: bytes) -> Fields:
    if kind == K.MARIADB_QUERY_COMPRESSED:
        body = mariadb_compressed.plain_body(kind, body)
    return _statement(parse_query(body), {})


def _load_query(_kind: int, _raw: bytes, body: bytes) -> Fields:
    load = control.parse_load_query(body)
    more = {
        "file_id": load.file_id,
        "duplicates": ("error", "ignore", "replace")[min(load.duplicates, 2)],
    }
    return _statement(load.query, more)


def _statement(query: Query, more: dict[str, Any]) -> Fields:
    text, status = query.query, query.status
    data: dict[str, Any] = {"database": query.database, "query": text, **more}
    data |= {
        "thread_id": query.thread_id,
        "error_code": query.error_code,
        "execution_seconds": query.execution_s,
    }
    data["sql_mode"] = status.sql_mode
    if status.time_zone is not None:
        data["time_zone"] = status.time_zone
    if status.updated_databases is not None:
        data["updated_databases"] = list(status.updated_databases)
    if status.ddl_xid is not None:
        data["xid"] = status.ddl_xid
    kind = classify(text)
    note = f"thread {query.thread_id}"
    if query.database and kind not in (QueryKind.BEGIN, QueryKind.COMMIT):
        note += f"  database `{query.database}`"
    if query.error_code:
        note += f"  error {query.error_code}"
    return Fields(
        data,
        database=query.database,
        query_kind=kind,
        sql_mode=status.sql_mode,
        note=note,
        lines=f"{text};\n",
    )


def _gtid(kind: int, _raw: bytes, body: bytes) -> Fields:
    if kind == _GTID and len(body) >= 25:
        # All that filters and summaries need; the rest is read where the event is shown.
        text = f"{gtid_events.uuid_text(body[1:17])}:{int.from_bytes(body[17:25], 'little')}"
        return Fields(gtid=text, later=partial(_complete_gtid, kind, body))
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


_MARIADB_FLAGS = (
    (gtid_events.STANDALONE, "standalone"), (0x04, "transactional"), (0x08, "allow_parallel"), (0x10, "waited"),
    (gtid_events.DDL, "ddl"), (gtid_events.PREPARED_XA, "prepared_xa"), (gtid_events.COMPLETED_XA, "completed_xa"),
)  # fmt: skip


def _mariadb_gtid(_kind: int, raw: bytes, body: bytes) -> Fields:
    gtid = gtid_events.parse_mariadb_gtid(body, int.from_bytes(raw[5:9], "little"))
    flags = [name for bit, name in _MARIADB_FLAGS if gtid.flags & bit]
    data: dict[str, Any] = {"gtid": str(gtid), "gtid_flags": flags}
    if gtid.commit_id is not None:
        data["commit_id"] = gtid.commit_id
    if gtid.xid is not None:
        data["xid"] = _xid(gtid.xid)
    if gtid.alter_of is not None:
        data["alter_of"] = gtid.alter_of
    return Fields(data, gtid=str(gtid), note=" ".join((f"{gtid} ", *flags)))


def _xid(xid: gtid_events.Xid) -> dict[str, Any]:
    return {"format_id": xid.format_id, "gtrid": xid.gtrid.hex(), "bqual": xid.bqual.hex()}


def _gtid_list(_kind: int, _raw: bytes, body: bytes) -> Fields:
    text = ",".join(map(str, gtid_events.parse_mariadb_gtid_list(body)))
    return Fields({"gtid_set": text}, note=f"[{text}]")


def _previous_gtids(_kind: int, _raw: bytes, body: bytes) -> Fields:
    text = str(gtid_events.parse_previous_gtids(body))
    return Fields({"gtid_set": text}, note=text or "[empty]")


def _rotate(_kind: int, _raw: bytes, body: bytes) -> Fields:
    file, position = parse_rotate(body)
    return Fields({"next_file": file, "next_position": position}, note=f"to {file}:{position}")


def _rows_query(_kind: int, _raw: bytes, body: bytes) -> Fields:
    return _comment(control.parse_rows_query(body))


def _annotate(_kind: int, _raw: bytes, body: bytes) -> Fields:
    return _comment(control.parse_annotate_rows(body))


def _comment(text: str) -> Fields:
    return Fields({"query": text}, lines="".join(f"# {line}\n" for line in text.split("\n")))


def _commit(_kind: int, _raw: bytes, body: bytes) -> Fields:
    xid = control.parse_xid(body)
    return Fields({"xid": xid}, note=f"{xid}", lines="COMMIT;\n")


def _xa_prepare(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_xa_prepare(body)
    data = {"xid": _xid(found.xid), "one_phase": found.one_phase}
    return Fields(data, lines=f"{found};\n")


def _intvar(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_intvar(body)
    return Fields({"intvar": asdict(found)}, lines=f"SET {found.name}={found.value};\n")


def _rand(_kind: int, _raw: bytes, body: bytes) -> Fields:
    first, second = control.parse_rand(body)
    return Fields(
        {"rand_seeds": [first, second]}, lines=f"SET @@RAND_SEED1={first}, @@RAND_SEED2={second};\n"
    )


def _user_var(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_user_var(body)
    value = found.value
    if isinstance(value, bytes):
        shown: Any = {"hex": value.hex()}
        text = f"0x{value.hex().upper()}" if value else "''"
    else:
        shown = value if isinstance(value, int | float | None) else str(value)
        text = (
            "NULL" if value is None else _sql_text(value) if isinstance(value, str) else str(value)
        )
    name = found.name.replace("`", "``")
    return Fields(
        {"user_var": {"name": found.name, "value": shown}}, lines=f"SET @`{name}`={text};\n"
    )


def _sql_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _incident(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_incident(body)
    return Fields(
        {"incident": asdict(found)},
        note=f"{found.number}",
        lines=f"# THE SERVER'S LOG IS INCOMPLETE: {found.message}\n",
    )


def _heartbeat(kind: int, raw: bytes, body: bytes) -> Fields:
    found = control.parse_heartbeat(kind, body, int.from_bytes(raw[13:17], "little"))
    return Fields(asdict(found), note=f"{found.file}:{found.position}")


def _checkpoint(_kind: int, _raw: bytes, body: bytes) -> Fields:
    file = control.parse_binlog_checkpoint(body)
    return Fields({"checkpoint_file": file}, note=file)


def _encryption(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_start_encryption(body)
    data = {"scheme": found.scheme, "key_version": found.key_version, "nonce": found.nonce.hex()}
    return Fields(data, note=f"scheme {found.scheme}, key version {found.key_version}")


def _transaction_context(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_transaction_context(body)
    data = {
        "server_uuid": found.server_uuid,
        "thread_id": found.thread_id,
        "write_set": [item.hex() for item in found.write_set],
        "read_set": [item.hex() for item in found.read_set],
    }
    return Fields(data, note=f"of {found.server_uuid}, thread {found.thread_id}")


def _view_change(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_view_change(body)
    return Fields(
        {"view_id": found.view_id, "view_sequence_number": found.sequence_number},
        note=found.view_id,
    )


def _load_block(kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_load_block(kind, body)
    note = f"file {found.file_id}, {len(found.data)} bytes"
    return Fields({"file_id": found.file_id, "data_bytes": len(found.data)}, note=note)


def _load(kind: int, _raw: bytes, body: bytes) -> Fields:
    found = control.parse_load(kind, body)
    data: dict[str, Any] = {
        "database": found.database,
        "table": found.table,
        "columns": list(found.fields),
        "load_file": found.file,
    }
    if found.file_id is not None:
        data["file_id"] = found.file_id
    note = f"LOAD DATA of {found.file} into `{found.database}`.`{found.table}`"
    return Fields(data, database=found.database, table=found.table, note=note)


def _payload(_kind: int, _raw: bytes, body: bytes) -> Fields:
    found = payloads.parse_payload(body)
    compression = found.compression.name
    data = {
        "compression": compression,
        "payload_bytes": len(found.data),
        "uncompressed_bytes": found.uncompressed_size,
    }
    note = (
        f"{compression}, {len(found.data)} bytes for {found.uncompressed_size}; its events follow"
    )
    return Fields(data, note=note)


def _ignorable(_kind: int, _raw: bytes, body: bytes) -> Fields:
    record = parse_record(body)
    if record is None:
        return Fields(note="may be ignored")
    note = f"record of binlog-dispatcher: seq {record.seq}, {record.file}:{record.offset}"
    return Fields({"record": asdict(record)}, note=note)


READERS: dict[int, Callable[[int, bytes, bytes], Fields]] = {
    K.QUERY: _query, K.MARIADB_QUERY_COMPRESSED: _query, K.EXECUTE_LOAD_QUERY: _load_query, K.GTID: _gtid,
    K.ANONYMOUS_GTID: _gtid, K.GTID_TAGGED: _gtid, K.MARIADB_GTID: _mariadb_gtid,
    K.MARIADB_GTID_LIST: _gtid_list, K.PREVIOUS_GTIDS: _previous_gtids, K.ROTATE: _rotate, K.ROWS_QUERY: _rows_query,
    K.MARIADB_ANNOTATE_ROWS: _annotate, K.XID: _commit, K.XA_PREPARE: _xa_prepare, K.INTVAR: _intvar, K.RAND: _rand,
    K.USER_VAR: _user_var, K.INCIDENT: _incident, K.HEARTBEAT: _heartbeat, K.HEARTBEAT_V2: _heartbeat,
    K.MARIADB_BINLOG_CHECKPOINT: _checkpoint, K.MARIADB_START_ENCRYPTION: _encryption,
    K.TRANSACTION_CONTEXT: _transaction_context, K.VIEW_CHANGE: _view_change, K.APPEND_BLOCK: _load_block,
    K.BEGIN_LOAD_QUERY: _load_block, K.EXEC_LOAD: _load_block, K.DELETE_FILE: _load_block, K.LOAD: _load,
    K.NEW_LOAD: _load, K.CREATE_FILE: _load, K.TRANSACTION_PAYLOAD: _payload, K.IGNORABLE: _ignorable,
}  # fmt: skip
