"""Converts rows of the control table to records and back, and finds the rows that newer rows replace. Pure:
`ControlTable` reads and writes the rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import (
    Request,
    TableRecord,
    Wish,
    detail_json,
    with_detail,
)
from spark_sink.mirror.values.names import TableName


class ClaimedStage(StrEnum):
    """A stage that a job runs for a consumer."""

    LOG = "log"
    APPLY = "apply"


Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlRows:
    """The content of the rows that no newer row replaces. `applied`: by consumer, the lsn up to which entries are
    applied, or left in the log for a table; `claims`: by consumer and stage, the id of the job that has claimed the
    consumer."""

    records: dict[str, TableRecord]
    applied: dict[str, int]
    claims: dict[tuple[str, ClaimedStage], str]
    serial: int
    histories: dict[str, TableRecord] = field(default_factory=dict)
    named: dict[tuple[str, TableName], str] = field(default_factory=dict)
    """The ids of open requests for copies, by consumer and name."""


def latest_rows(rows: Iterable[Row]) -> ControlRows:
    """Returns the content of the rows that no newer row replaces. `rows`: all rows of the control table, in any
    order."""
    records: dict[str, TableRecord] = {}
    histories: dict[str, TableRecord] = {}
    requests: dict[str, Row] = {}
    applied: dict[str, int] = {}
    claims: dict[tuple[str, ClaimedStage], str] = {}
    named: dict[tuple[str, TableName], str] = {}
    serial = 0
    for row in sorted(rows, key=lambda row: (row["serial"], row["at"])):
        serial = max(serial, row["serial"])
        match row["kind"]:
            case "table":
                records[row["table_id"]] = _record(row)
            case "history":
                histories[row["table_id"]] = replace(_record(row), history=True)
            case "request" if row["table_id"]:
                requests[row["table_id"]] = row
            case "request":
                of_name = row["consumer"], (row["database"], row["table"])
                named[of_name] = json.loads(row["detail"])["id"]
            case "consumer":
                applied[row["consumer"]] = row["from_lsn"]
            case "claim":
                claims[row["consumer"], ClaimedStage(row["state"])] = row["request"]
    for table_id, row in requests.items():
        group = histories if table_id in histories else records
        record = group.get(table_id)
        asked = json.loads(row["detail"] or "{}")
        if record is not None and record.handled != asked["id"]:
            group[table_id] = replace(record, request=Request(asked["id"], Wish(row["request"])))
    answered = {i for record in records.values() for i in record.answered.values()}
    standing = {of_name: asked for of_name, asked in named.items() if asked not in answered}
    return ControlRows(records, applied, claims, serial, histories, standing)


def _record(row: Row) -> TableRecord:
    record = TableRecord(
        row["table_id"],
        row["consumer"],
        row["database"],
        row["table"],
        folder=row["folder"],
        server=row["server"],
        epoch=row["epoch"],
        from_lsn=row["from_lsn"],
        signature=row["signature"],
        reason=row["reason"],
        serial=row["serial"],
        at=row["at"],
    )
    return with_detail(record, TableState(row["state"]), json.loads(row["detail"] or "{}"))


def superseded(rows: Iterable[Row]) -> set[int]:
    """Returns the serials of the rows that newer rows replace. Rows of requests are never among them, because a record
    may name any request."""
    newest: dict[tuple[str, ...], int] = {}
    serials: dict[int, tuple[str, ...]] = {}
    shared: set[int] = set()
    for row in rows:
        of_consumer = row["kind"] in ("consumer", "claim")
        stage = row["state"] if row["kind"] == "claim" else ""
        key = (row["kind"], row["consumer"] if of_consumer else "", row["table_id"], stage)
        if row["serial"] in serials:  # two processes wrote this serial at the same time
            shared.add(row["serial"])
        serials[row["serial"]] = key
        newest[key] = max(newest.get(key, 0), row["serial"])
    return {
        serial
        for serial, key in serials.items()
        if key[0] != "request" and serial < newest[key] and serial not in shared
    }


def control_row(kind: str, **values: Any) -> dict[str, Any]:
    texts = ("consumer", "table_id", "database", "table", "folder", "state", "server")
    row: dict[str, Any] = {"serial": 0, "at": None, "kind": kind} | dict.fromkeys(texts, "")
    row |= {"epoch": 0, "from_lsn": 0, "signature": "", "reason": "", "request": "", "detail": ""}
    return row | values


def row_of(record: TableRecord) -> dict[str, Any]:
    return control_row(
        "history" if record.history else "table",
        consumer=record.consumer,
        table_id=record.table_id,
        database=record.database,
        table=record.table,
        folder=record.folder,
        state=str(record.word),
        server=record.server,
        epoch=record.epoch,
        from_lsn=record.from_lsn,
        signature=record.signature,
        reason=record.reason,
        detail=json.dumps(detail_json(record), sort_keys=True),
    )
