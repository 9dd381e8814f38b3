"""The control table TARGET/_binlog/tables: what the mirror knows of each table, and how far each consumer is applied.

It is an append-only Delta table of rows; of the rows of one table id the one with the largest `serial` counts. Rows of
five kinds:

* `table`: the state of a table. Only the application that applies the consumer writes them.
* `history`: the same of the history of a table.
* `request`: what a person asks for (`python -m spark_sink resolve`, `copy`, `adopt`), from any process. One about a
  table id stands until the table's row names its id in `handled`. A copy is asked for by consumer and name, because
  only the application that applies the consumer makes records: the newest request of a name stands until a `table` row
  names its id in `answered`.
* `consumer`: everything of the consumer up to `from_lsn` is applied, or stands in the row of a table.
* `claim`: the job whose id is in `request` has the consumer, for the stage in `state`; see `claims`.

`from_lsn` of a table: entries of the table up to this lsn are dealt with, whatever its folder records. So a table's
applied lsn is the larger one of `from_lsn` and of the version that its Delta table records.

A row is one Delta commit, and commits are atomic; rows that have to change together are written together. Compaction
deletes rows that no longer count.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.mirror import remedies
from spark_sink.mirror.checkpoints import BACKSTOP
from spark_sink.mirror.damage import naming_damage
from spark_sink.mirror.group_commit import GroupCommit
from spark_sink.mirror.jvm import FileSystem, append_file, delta_version, has_commit
from spark_sink.mirror.names import TableName, own_path, table_label

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ClaimedStage(StrEnum):
    """What a job does for a consumer."""

    LOG = "log"
    APPLY = "apply"


class TableState(StrEnum):
    """What a mirrored table is."""

    CREATING = "creating"  # a copy is asked for and has not begun
    COPYING = "copying"  # its rows are copied, or the log is replayed on the copy
    COMPLETE = "complete"  # equal to the server's table as of its applied lsn
    PARTIAL = "partial"  # rows are missing, as a policy or a person allowed
    STOPPED = "stopped"  # `reason` says why; its entries wait in the log
    DROPPED = "dropped"


# Of `detail`: where the table still lies until its folder is moved to its place, `folder`; in an object store the steps
# of the move that have ended.
MOVED_FROM = "moved_from"
MOVE_STEP = "move_step"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table of the mirror.

    `folder`: path below the target, "" if it has none yet; `server`, `epoch`: the history that it belongs to;
    `from_lsn`: see the module; `signature`: its columns as JSON, "" if not known; `reason`: why it is stopped or
    partial, or the last error; `request`: what a person asked for and is not done yet, "" if nothing; `detail`: what a
    state needs beside it; `history`: it is the history of the table of this name.
    """

    table_id: str
    consumer: str
    database: str
    table: str
    folder: str = ""
    state: TableState = TableState.COMPLETE
    server: str = ""
    epoch: int = 0
    from_lsn: int = 0
    signature: str = ""
    reason: str = ""
    request: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    serial: int = 0
    at: datetime | None = None
    history: bool = False

    @property
    def name(self) -> TableName:
        return self.database, self.table

    @property
    def lies_at(self) -> str:
        """The folder in which the table's rows are: not yet its own, if that is taken."""
        return self.detail.get(MOVED_FROM) or self.folder

    @property
    def shown_name(self) -> TableName:
        """The name under which its rows are read: that of a history is its own."""
        return self.database, self.table + ("__history" if self.history else "")

    @property
    def label(self) -> str:
        return table_label(self.shown_name)

    def having(self, **detail: Any) -> TableRecord:
        """Returns the record with values of `detail` set; None takes a value away."""
        values = {k: v for k, v in {**self.detail, **detail}.items() if v is not None}
        return replace(self, detail=values)


def new_table_id() -> str:
    return uuid.uuid4().hex


_TYPES = {"serial": "bigint", "at": "timestamp", "epoch": "bigint", "from_lsn": "bigint"}
_NAMES = (
    ("serial", "at", "kind", "consumer", "table_id", "database", "table", "folder", "state", "server")
    + ("epoch", "from_lsn", "signature", "reason", "request", "detail")
)  # fmt: skip
_PROPERTIES = {**BACKSTOP, "delta.enableDeletionVectors": "false"}
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ControlRows:
    """The rows of the control table that count. `claims`: the id of the job that has a consumer for a stage."""

    records: dict[str, TableRecord]
    applied: dict[str, int]
    claims: dict[tuple[str, ClaimedStage], str]
    serial: int
    histories: dict[str, TableRecord] = field(default_factory=dict)
    named: dict[tuple[str, TableName], str] = field(default_factory=dict)
    """Copies that are asked for: ids of requests by consumer and name."""

    def of_consumer(self, consumer: str) -> dict[TableName, TableRecord]:
        """Returns the consumer's tables by name: one that is not dropped, else the one that was dropped last."""
        found: dict[TableName, TableRecord] = {}
        for record in sorted(self.records.values(), key=_precedence):
            if record.consumer == consumer:
                found[record.name] = record
        return found


def _precedence(record: TableRecord) -> tuple[bool, int]:
    return record.state is not TableState.DROPPED, record.serial


def latest_rows(rows: Iterable[Row]) -> ControlRows:
    """Returns what counts of the rows of the control table, in any order."""
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
        known = histories if table_id in histories else records
        record = known.get(table_id)
        asked = json.loads(row["detail"] or "{}")
        if record is not None and record.detail.get("handled") != asked["id"]:
            known[table_id] = replace(record, request=row["request"]).having(asked=asked)
    answered = {
        i for record in records.values() for i in record.detail.get("answered", {}).values()
    }
    standing = {of_name: asked for of_name, asked in named.items() if asked not in answered}
    return ControlRows(records, applied, claims, serial, histories, standing)


def _record(row: Row) -> TableRecord:
    return TableRecord(
        row["table_id"],
        row["consumer"],
        row["database"],
        row["table"],
        row["folder"],
        TableState(row["state"]),
        row["server"],
        row["epoch"],
        row["from_lsn"],
        row["signature"],
        row["reason"],
        "",
        json.loads(row["detail"] or "{}"),
        row["serial"],
        row["at"],
    )


def rebased(newest: TableRecord, before: TableRecord, after: TableRecord) -> TableRecord:
    """Returns the newest record with what `after` changes of `before`: fields, and values of `detail`."""
    names = {field.name for field in fields(after)} - {"serial", "at", "detail"}
    changed = {n: v for n in names if (v := getattr(after, n)) != getattr(before, n)}
    keys = before.detail.keys() | after.detail.keys()
    detail = {k: v for k in keys if (v := after.detail.get(k)) != before.detail.get(k)}
    return replace(newest, **changed).having(**detail)


def handled(record: TableRecord) -> TableRecord:
    """Returns the record without its request, whose id is in `handled` from now on, or in `answered` if it was about a
    name."""
    asked = record.detail.get("asked")
    if asked is None:
        return record
    done = replace(record, request="").having(asked=None)
    if "name" in asked:
        return answering(done, asked["name"], asked["id"])
    return done.having(handled=asked["id"])


def answering(record: TableRecord, label: str, request_id: str) -> TableRecord:
    """Returns the record, which answers the request for a copy of the table of this name."""
    return record.having(answered={**record.detail.get("answered", {}), label: request_id})


def superseded(rows: Iterable[Row]) -> set[int]:
    """Returns the serials of the rows that no longer count. Requests stay: a record may name any of them."""
    newest: dict[tuple[str, ...], int] = {}
    serials: dict[int, tuple[str, ...]] = {}
    shared: set[int] = set()
    for row in rows:
        of_consumer = row["kind"] in ("consumer", "claim")
        stage = row["state"] if row["kind"] == "claim" else ""
        key = (row["kind"], row["consumer"] if of_consumer else "", row["table_id"], stage)
        if row["serial"] in serials:  # of two processes at one time
            shared.add(row["serial"])
        serials[row["serial"]] = key
        newest[key] = max(newest.get(key, 0), row["serial"])
    return {
        serial
        for serial, key in serials.items()
        if key[0] != "request" and serial < newest[key] and serial not in shared
    }


class ControlTable:
    """Reads and writes the control table of a target. Threads may share it.

    A commit costs the same for one row as for a hundred, so rows of threads that write at a time share one.
    """

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark = spark.newSession()
        self.path = own_path(target, "tables")
        self._files = FileSystem(spark)
        self._lock = threading.RLock()
        self._commits = GroupCommit(self._commit)
        self._version = -1
        self._raw: list[Row] = []
        self._rows = latest_rows([])

    # -- reading ---------------------------------------------------------------------------------------------

    def rows(self) -> ControlRows:
        """Returns what counts, read again if it has changed."""
        with self._lock:
            if self._version >= 0 and not has_commit(self._files, self.path, self._version + 1):
                return self._rows
            with naming_damage(lambda: self._files, self.path, remedies.of_lost_control(self.path)):
                version = delta_version(self._spark, self.path)
                if version != self._version:
                    frame = self._spark.read.format("delta").option("versionAsOf", version)
                    self._hold(version, [row.asDict() for row in frame.load(self.path).collect()])
            return self._rows

    def _hold(self, version: int, rows: list[Row]) -> None:
        self._version, self._raw, self._rows = version, rows, latest_rows(rows)

    def records(self) -> dict[str, TableRecord]:
        """Returns the tables by table id, with the requests that stand."""
        return self.rows().records

    def applied(self, consumer: str) -> int:
        """Returns the lsn up to which everything of the consumer is applied or stands in the record of a table."""
        return self.rows().applied.get(consumer, 0)

    # -- writing ---------------------------------------------------------------------------------------------

    def write(self, *records: TableRecord) -> None:
        """Write the records, in one commit."""
        if records:
            self._commits.add([_row_of(record) for record in records])

    def request(self, table_id: str, request: str, **detail: Any) -> None:
        """Ask for something about a table. The application that applies its consumer does it."""
        asked = {"id": uuid.uuid4().hex, **detail}
        self._commits.add(
            [_row("request", table_id=table_id, request=request, detail=json.dumps(asked))]
        )

    def request_copies(self, tables: Iterable[tuple[str, TableName]]) -> None:
        """Ask for copies of tables, by consumer and name, in one commit."""
        rows = []
        for consumer, (database, table) in tables:
            asked = json.dumps({"id": uuid.uuid4().hex})
            names = {"consumer": consumer, "database": database, "table": table}
            rows.append(_row("request", **names, request="copy", detail=asked))
        self._commits.add(rows)

    def named_requests(self, consumer: str) -> dict[TableName, str]:
        """Returns the ids of the requests for copies that stand, by name."""
        return {name: asked for (of, name), asked in self.rows().named.items() if of == consumer}

    def set_applied(self, consumer: str, lsn: int) -> None:
        """Record that everything of the consumer up to `lsn` is applied, or stands in the record of a table."""
        self._commits.add([_row("consumer", consumer=consumer, from_lsn=lsn)])

    def claim(self, run: str, consumers: Iterable[str], stages: Sequence[ClaimedStage]) -> None:
        """Make `run` the job that has the consumers for the stages, in one commit."""
        self._commits.add(
            [
                _row("claim", consumer=consumer, state=str(stage), request=run)
                for consumer in consumers
                for stage in stages
            ]
        )

    def compact(self) -> int:
        """Delete the rows that no longer count. Returns how many there were."""
        with self._lock:
            self.rows()
            superfluous = superseded(self._raw)
            if superfluous:
                table = DeltaTable.forPath(self._spark, self.path)
                table.delete(F.col("serial").isin(sorted(superfluous)))
            return len(superfluous)

    def _create(self) -> None:
        table = DeltaTable.createIfNotExists(self._spark).location(self.path)
        for name in _NAMES:
            table = table.addColumn(name, _TYPES.get(name, "string"))
        for key, value in _PROPERTIES.items():
            table = table.property(key, value)
        table.execute()

    def _commit(self, rows: list[dict[str, Any]]) -> None:
        with self._lock:
            self.rows()
            if self._version < 0:
                self._create()
            # Read after the creation: another process may have made the table, and written into it.
            serial = self.rows().serial
            at = datetime.now(UTC)
            for number, row in enumerate(rows, serial + 1):
                row |= {"serial": number, "at": at}
            append_file(self._spark, self.path, _file_of(rows), len(rows))
            # Rows of another process in between are read with the next `rows`.
            if delta_version(self._spark, self.path) == self._version + 1:
                self._hold(self._version + 1, [*self._raw, *rows])


def _file_of(rows: Sequence[Row]) -> bytes:
    """Returns a Parquet file of rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string()}
    schema = pa.schema([(name, types[_TYPES.get(name, "string")]) for name in _NAMES])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), sink)
    return bytes(sink.getvalue())


def _row(kind: str, **values: Any) -> dict[str, Any]:
    texts = ("consumer", "table_id", "database", "table", "folder", "state", "server")
    row: dict[str, Any] = {"serial": 0, "at": None, "kind": kind} | dict.fromkeys(texts, "")
    row |= {"epoch": 0, "from_lsn": 0, "signature": "", "reason": "", "request": "", "detail": ""}
    return row | values


def _row_of(record: TableRecord) -> dict[str, Any]:
    detail = {name: value for name, value in record.detail.items() if name != "asked"}
    return _row(
        "history" if record.history else "table",
        consumer=record.consumer,
        table_id=record.table_id,
        database=record.database,
        table=record.table,
        folder=record.folder,
        state=str(record.state),
        server=record.server,
        epoch=record.epoch,
        from_lsn=record.from_lsn,
        signature=record.signature,
        reason=record.reason,
        detail=json.dumps(detail, sort_keys=True) if detail else "",
    )
