"""Converts rows of the control table to records and back, and finds the rows that newer rows replace. Pure:
`ControlTable` reads and writes the rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from spark_sink.mirror.rules.proofs import Proof, proof_from, proof_json
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
    """The content of the rows that no newer row replaces.

    `applied`: by consumer, the lsn up to which each entry is applied, or is left in the log for a table; `claims`: by
    consumer and stage, the id of the job that has claimed the consumer; `serial`: the largest serial of a row; `named`:
    the ids of open requests for copies, by consumer and name; `requests`: the newest request about each table id;
    `names`: the newest request about each pair of consumer and name (both also contain answered requests); `proofs`:
    the proofs by table id; `claimed`: when each consumer was claimed, in UTC.
    """

    records: dict[str, TableRecord] = field(default_factory=dict)
    applied: dict[str, int] = field(default_factory=dict)
    claims: dict[tuple[str, ClaimedStage], str] = field(default_factory=dict)
    serial: int = 0
    histories: dict[str, TableRecord] = field(default_factory=dict)
    named: dict[tuple[str, TableName], str] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    names: dict[tuple[str, TableName], str] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)
    claimed: dict[str, datetime] = field(default_factory=dict)


def latest_rows(rows: Iterable[Row]) -> ControlRows:
    """Returns the content of the rows that no newer row replaces. `rows`: all rows of the control table, in any
    order."""
    return rows_after(ControlRows(), rows)


def rows_after(before: ControlRows, rows: Iterable[Row]) -> ControlRows:
    """Returns the content after newer rows were written. `rows`: these rows, in any order. Apart from copies of dicts,
    the time that this function takes is proportional to the number of these rows."""
    records, histories = dict(before.records), dict(before.histories)
    requests, names = dict(before.requests), dict(before.names)
    applied, claims = dict(before.applied), dict(before.claims)
    proofs, claimed = dict(before.proofs), dict(before.claimed)
    serial, touched = before.serial, dict[str, None]()
    for row in sorted(rows, key=lambda row: (row["serial"], row["at"])):
        serial = max(serial, row["serial"])
        match row["kind"]:
            case "table":
                records[row["table_id"]] = _record(row)
                touched[row["table_id"]] = None
            case "history":
                histories[row["table_id"]] = replace(_record(row), history=True)
                touched[row["table_id"]] = None
            case "request" if row["table_id"]:
                asked = json.loads(row["detail"] or "{}")
                requests[row["table_id"]] = Request(asked["id"], Wish(row["request"]))
                touched[row["table_id"]] = None
            case "request":
                of_name = row["consumer"], (row["database"], row["table"])
                names[of_name] = json.loads(row["detail"])["id"]
            case "proof":
                proofs[row["table_id"]] = _proof(row)
            case "consumer":
                applied[row["consumer"]] = row["from_lsn"]
            case "claim":
                claims[row["consumer"], ClaimedStage(row["state"])] = row["request"]
                if row["at"] is not None:
                    claimed[row["consumer"]] = row["at"].replace(tzinfo=UTC)
    for table_id in touched:
        group = histories if table_id in histories else records
        record, request = group.get(table_id), requests.get(table_id)
        if record is not None and request is not None and record.handled != request.id:
            group[table_id] = replace(record, request=request)
    named = _open(before, names, records, touched)
    return ControlRows(
        records, applied, claims, serial, histories, named, requests, names, proofs, claimed
    )


def _open(
    before: ControlRows,
    names: dict[tuple[str, TableName], str],
    records: dict[str, TableRecord],
    touched: Iterable[str],
) -> dict[tuple[str, TableName], str]:
    """Returns, by consumer and name, the requests for copies that no record answers. `touched`: ids of the records that
    may differ from those of `before`."""
    versions = ((before.records.get(table_id), records.get(table_id)) for table_id in touched)
    is_same = names == before.names and not any(
        record is not None and record.answered for pair in versions for record in pair
    )
    if is_same:
        return before.named
    answered = {i for record in records.values() for i in record.answered.values()}
    return {of_name: asked for of_name, asked in names.items() if asked not in answered}


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
    return with_detail(record, json.loads(row["detail"] or "{}"))


def _proof(row: Row) -> Proof:
    detail = json.loads(row["detail"] or "{}")
    return proof_from(row["table_id"], row["consumer"], row["from_lsn"], detail)


def superseded(rows: Iterable[Row]) -> set[int]:
    """Returns the serials of the rows that newer rows replace. A row of a request is never replaced, because a record
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


def row_of_proof(proof: Proof) -> dict[str, Any]:
    return control_row(
        "proof",
        consumer=proof.consumer,
        table_id=proof.table_id,
        from_lsn=proof.since,
        detail=json.dumps(proof_json(proof), sort_keys=True),
    )


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
