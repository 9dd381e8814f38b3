"""What the commands `tables`, `top`, `resolve` and `adopt` do: they read the control table, and write requests into it.

The application that applies a consumer does what is requested, at once if it runs, else at its next start.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.job_numbers import read_numbers
from spark_sink.mirror import jvm
from spark_sink.mirror.catalog import REFUSED, REGISTERED
from spark_sink.mirror.control import (
    ClaimedStage,
    ControlRows,
    ControlTable,
    TableRecord,
    TableState,
    new_table_id,
)
from spark_sink.mirror.copy.progress import CopyProgress, remaining_s
from spark_sink.mirror.copy.staging import StagingTable
from spark_sink.mirror.delta import TABLE_ID_PROPERTY, MirroredTable
from spark_sink.mirror.entries import append_of
from spark_sink.mirror.log import BinlogLog
from spark_sink.mirror.names import TableName, fits_pattern, own_path
from spark_sink.mirror.renames import folder_of
from spark_sink.mirror.transitions import LEFT_OUT
from spark_sink.top import MirrorReadings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.settings import MirrorSettings


class Resolution(StrEnum):
    """How a table that is stopped goes on."""

    APPLIED = "applied"  # a person has applied the entry by hand
    SKIP = "skip"  # the entry is left out; the table is partial from then on
    RETRY = "retry"  # the entry is tried again
    RECOPY = "recopy"  # the table is copied again
    PARTIAL = "partial"  # a table that is older than the mirror goes on without its older rows


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of `tables`.

    `waiting_rows`: row changes in the log that the table does not have yet; `lag_s`: seconds since the oldest of them
    was committed, None if there is none; `since`: when the state was written; `copied`: how far the copy of a table is
    that is copied, else None; `catalog`: its name in the catalog, `catalog_error`: why that is not as it should be.
    """

    consumer: str
    table: str
    state: str
    applied_lsn: int
    waiting_rows: int
    lag_s: float | None
    since: datetime | None
    reason: str
    copied: CopyProgress | None = None
    catalog: str = ""
    catalog_error: str = ""

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        values |= {"since": self.since.isoformat() if self.since else None}
        return values | {"copied": asdict(self.copied) if self.copied else None}


def selected(records: Iterable[TableRecord], patterns: Sequence[str]) -> list[TableRecord]:
    """Returns the tables whose database.table fits one of the patterns, all for no pattern; sorted, no dropped ones.

    Raises `UserError` for a pattern that fits no table.
    """
    tables = sorted(
        (record for record in records if record.state is not TableState.DROPPED),
        key=lambda record: (record.consumer, record.name),
    )
    for pattern in patterns:
        if not any(fits_pattern(record.label, pattern) for record in tables):
            raise UserError(
                ErrorKind.UNKNOWN_TABLE,
                f"no table of the mirror fits {pattern!r}",
                remedy="python -m spark_sink tables shows the tables; write a name like database.table",
            )
    fits = [r for r in tables if any(fits_pattern(r.label, pattern) for pattern in patterns)]
    return fits if patterns else tables


def table_lines(spark: SparkSession, target: str, patterns: Sequence[str] = ()) -> list[TableLine]:
    """Returns how far the tables of a target and their histories are. Raises `UserError` for a pattern that fits no
    table."""
    known = ControlTable(spark, target).rows()
    tables = [*known.records.values(), *known.histories.values(), *_asked_for(known)]
    records = selected(tables, patterns)
    root = target.rstrip("/")
    applied = {record.table_id: _applied(spark, root, record) for record in records}
    waiting = _waiting(spark, target, records, applied)
    now = datetime.now(UTC)
    lines = []
    for record in records:
        rows, oldest = waiting.get(record.table_id, (0, None))
        lag_s = None if oldest is None else max(0.0, (now - oldest).total_seconds())
        lines.append(
            TableLine(
                record.consumer,
                record.label,
                str(record.state),
                applied[record.table_id],
                rows,
                lag_s,
                record.at.replace(tzinfo=UTC) if record.at else None,
                record.reason,
                _copied(spark, target, record),
                record.detail.get(REGISTERED, ""),
                record.detail.get(REFUSED, ""),
            )
        )
    return lines


def _asked_for(known: ControlRows) -> list[TableRecord]:
    """The tables without a record whose copy is asked for, as the job will make them."""
    reason = "a copy was asked for; the job makes it when it runs"
    live = {
        (record.consumer, record.name)
        for record in known.records.values()
        if record.state is not TableState.DROPPED
    }
    return [
        TableRecord(
            f"asked/{consumer}/{name}", consumer, *name, state=TableState.CREATING, reason=reason
        )
        for consumer, name in known.named.keys() - live
    ]


def mirror_readings(
    spark: SparkSession,
    settings: MirrorSettings,
    patterns: Sequence[str],
    complete: Callable[[str], str] = str,
) -> MirrorReadings:
    """Returns what `top` reads: the tables, and the metrics of the job if the settings name their address.

    `complete`: completes the commands of the reasons.
    """
    listen = None if settings.metrics is None else settings.metrics.rpartition(":")
    return MirrorReadings(
        settings.target,
        lambda: [
            replace(line, reason=complete(line.reason))
            for line in table_lines(spark, settings.target, patterns)
        ],
        None if listen is None else partial(read_numbers, listen[0].strip("[]"), int(listen[2])),
    )


def _copied(spark: SparkSession, target: str, record: TableRecord) -> CopyProgress | None:
    """Returns how far the copy of a table is, by the folder that it fills."""
    if record.state is not TableState.COPYING:
        return None
    path = own_path(target, "copies", record.table_id)
    copy_id = f"{record.table_id}/{append_of(record.from_lsn)}"
    table = MirroredTable(record.table_id, path, record.label)
    state = StagingTable(spark, table, copy_id).state()
    if state is None:
        return None
    speed = state.rows / state.seconds if state.seconds else 0.0
    rest_s = None if state.position else remaining_s(state.rows, state.rows_estimated, speed)
    return CopyProgress(
        record.label,
        state.rows,
        state.rows_estimated,
        state.bytes,
        state.chunks,
        state.seconds,
        rest_s,
    )


def _applied(spark: SparkSession, root: str, record: TableRecord) -> int:
    if not record.folder:
        return record.from_lsn
    table = MirroredTable(record.table_id, f"{root}/{record.lies_at}", record.label)
    return max(record.from_lsn, table.version(spark))


def _waiting(
    spark: SparkSession, target: str, records: Sequence[TableRecord], applied: dict[str, int]
) -> dict[str, tuple[int, datetime | None]]:
    """Returns (rows, commit time of the oldest) of what each table does not have yet, by its id."""
    path = BinlogLog(spark, target).path
    if not records or jvm.delta_version(spark, path) < 0:
        return {}
    points = [(r.consumer, *r.name, r.table_id, applied[r.table_id]) for r in records]
    names = ["consumer", "database", "table"]
    points_frame = spark.createDataFrame(
        points, "consumer string, database string, table string, table_id string, at long"
    )
    entries = spark.read.format("delta").load(path)
    entries = entries.where((F.col("kind") == "rows") & (F.col("lsn") > min(applied.values())))
    behind = entries.join(F.broadcast(points_frame), names).where("lsn > at")
    oldest = F.unix_micros(F.min("committed_at")).alias("oldest")
    found = behind.groupBy("table_id").agg(F.sum("rows").alias("rows"), oldest).collect()
    return {row["table_id"]: (int(row["rows"]), _time(row["oldest"])) for row in found}


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)


def request_resolution(
    spark: SparkSession, target: str, patterns: Sequence[str], resolution: Resolution
) -> list[TableRecord]:
    """Request how tables go on. Returns the tables that it concerns.

    Raises `UserError` for a pattern that fits no table, and if no table is in a state that this resolves. A history can
    only be begun anew, by RECOPY and its own name.
    """
    control = ControlTable(spark, target)
    chosen = selected(_tables_and_histories(control, patterns), patterns)
    left_out = [record for record in chosen if LEFT_OUT in record.detail]
    if left_out and (len(left_out) == len(chosen) or any(r.label in patterns for r in left_out)):
        raise UserError(
            ErrorKind.REQUEST,
            f"the settings leave out {', '.join(record.label for record in left_out)}",
            remedy="change include or exclude of the consumer in the mirror's settings, and start the job again",
        )
    chosen = [record for record in chosen if record not in left_out]
    if resolution is not Resolution.RECOPY:
        chosen = [record for record in chosen if record.state is TableState.STOPPED]
    if resolution is not Resolution.RECOPY and any(record.history for record in chosen):
        raise UserError(
            ErrorKind.REQUEST,
            f"a history cannot go on as {resolution}",
            remedy="--as recopy: its current versions become the rows that the table has now",
        )
    if not chosen:
        raise UserError(
            ErrorKind.REQUEST,
            f"no table that fits {', '.join(patterns)} is stopped",
            remedy="python -m spark_sink tables shows the states",
        )
    for record in chosen:
        control.request(record.table_id, str(resolution))
    return chosen


def _tables_and_histories(control: ControlTable, patterns: Sequence[str]) -> list[TableRecord]:
    """The tables, and the histories that a pattern names by themselves."""
    rows = control.rows()
    named = {pattern for pattern in patterns if "*" not in pattern}
    return [*rows.records.values(), *(r for r in rows.histories.values() if r.label in named)]


def adopt_tables(
    spark: SparkSession,
    target: str,
    consumer: str,
    patterns: Sequence[str],
    count: Callable[[int], None] = lambda _: None,
) -> list[TableRecord]:
    """Give tables of other consumers, or Delta tables without an owner, to `consumer`, with the rows that they have.

    Applications that apply one of the consumers end, because their records are written here. Returns the new records.
    `patterns`: of tables in the control table; a plain name may also be that of a Delta table that is not in it.
    `count` is called with 1 for each table that is done. Raises `UserError` if there is no such table.
    """
    control = ControlTable(spark, target)
    records = list(control.records().values())
    # A table that stopped because a Delta table is in its place has no folder of its own.
    labels = {
        record.label
        for record in records
        if record.state is not TableState.DROPPED and (record.consumer != consumer or record.folder)
    }
    unowned = [p for p in patterns if p not in labels and _is_delta(spark, target, p)]
    others = (
        selected(records, [p for p in patterns if p not in unowned])
        if len(unowned) < len(patterns)
        else []
    )
    taken = [r for r in others if r.consumer != consumer]
    if not taken and not unowned:
        raise UserError(
            ErrorKind.REQUEST,
            f"the tables that fit {', '.join(patterns)} belong to {consumer} already",
            remedy="python -m spark_sink tables shows the consumer of each table",
        )
    concerned = {consumer, *(record.consumer for record in taken)}
    control.claim(f"adopt-{uuid.uuid4().hex}", concerned, [ClaimedStage.APPLY])
    own = {
        r.name: r for r in records if r.consumer == consumer and r.state is not TableState.DROPPED
    }
    adopted = [_adopted(consumer, record.name, record.folder, own) for record in taken]
    adopted += [_adopted(consumer, name, folder_of(name), own) for name in map(_name, unowned)]
    for record in adopted:
        if record.folder:
            _set_owner(spark, f"{target.rstrip('/')}/{record.folder}", record.table_id)
        count(1)
    given = [
        replace(r, state=TableState.DROPPED, folder="", reason=f"adopted by {consumer}")
        for r in taken
    ]
    control.write(*given, *adopted)
    return adopted


def _adopted(
    consumer: str, name: TableName, folder: str, own: dict[TableName, TableRecord]
) -> TableRecord:
    """The record of an adopted table: its columns and its epoch become those of the next rows, and rows are merged."""
    reason = "adopted with the rows that it had"
    if (record := own.get(name)) is not None:
        stands = replace(record, folder=folder, signature="", epoch=0, reason=reason)
        return stands.having(goal=str(TableState.COMPLETE), exact_from=None)
    return TableRecord(new_table_id(), consumer, *name, folder=folder, reason=reason)


def _name(label: str) -> TableName:
    database, _, table = label.partition(".")
    return database, table


def _is_delta(spark: SparkSession, target: str, label: str) -> bool:
    path = f"{target.rstrip('/')}/{folder_of(_name(label))}"
    return "." in label and "*" not in label and jvm.delta_version(spark, path) >= 0


def _set_owner(spark: SparkSession, path: str, table_id: str) -> None:
    table = MirroredTable(table_id, path, path)
    spark.sql(
        f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ('{TABLE_ID_PROPERTY}' = '{table_id}')"
    )
