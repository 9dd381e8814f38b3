"""Reads the state of each table, and how far it is applied, from the control table and the log, for the commands
`tables` and `top`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.names import folded_name
from dispatcher.model.sizes import duration_text
from spark_sink.mirror.copy.progress import CopyProgress, remaining_s
from spark_sink.mirror.copy.staging import StagingTable
from spark_sink.mirror.lake import delta_log
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.table_features import reader_features
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.states import Creating, TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.table_works import mirrored_table
from spark_sink.mirror.values.entries import append_of
from spark_sink.mirror.values.names import TableName, copy_folder, fits_pattern

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of `tables`.

    `waiting_rows`: how many row changes in the log the table does not have yet; `lag_s`: seconds since the oldest of
    these changes was committed, None if there is none; `since`: when the state was written; `copied`: how far the copy
    is while the table is being copied, else None; `catalog`: the table's name in the catalog; `catalog_error`: why the
    table is not registered under the wanted name, "" if it is; `requires`: the features of Delta
    that the table requires of its readers; `proved`, `proved_rows`: when the last comparison of the whole table with
    the server's table that found no difference began, None if there was none, and how many rows it has compared;
    `differs`: the newest difference, until such a comparison finds none; `evidence`: path of the file with this
    difference; `not_proved`: why the table cannot be compared.
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
    requires: tuple[str, ...] = ()
    proved: datetime | None = None
    proved_rows: int = 0
    differs: str = ""
    evidence: str = ""
    not_proved: str = ""

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        for name in ("since", "proved"):
            values[name] = values[name].isoformat() if values[name] else None
        return values | {"copied": asdict(self.copied) if self.copied else None}


def selected(records: Iterable[TableRecord], patterns: Sequence[str]) -> list[TableRecord]:
    """Returns, sorted, the tables whose database.table fits one of the patterns, or all tables without patterns.
    Dropped tables are left out.

    Raises `UserError` for a pattern that fits no table.
    """
    tables = sorted(
        (record for record in records if not record.is_dropped),
        key=lambda record: (record.consumer, record.name),
    )
    for pattern in patterns:
        if not any(fits_pattern(record.label, pattern) for record in tables):
            raise UserError(
                ErrorKind.UNKNOWN_TABLE,
                f"no table of the mirror fits {pattern!r}{_in_lower_case(tables, pattern)}",
                remedy="python -m spark_sink tables shows the tables; write a name like database.table",
            )
    fits = [r for r in tables if any(fits_pattern(r.label, pattern) for pattern in patterns)]
    return fits if patterns else tables


def _in_lower_case(tables: Iterable[TableRecord], pattern: str) -> str:
    """Returns which tables fit the pattern without case, for a message."""
    folded = folded_name(pattern, 1)
    fits = [r.label for r in tables if fits_pattern(folded_name(r.label, 1), folded)]
    return f", but without case {', '.join(fits[:3])}" if fits else ""


def table_lines(
    spark: SparkSession,
    target: str,
    patterns: Sequence[str] = (),
    interval_s: Callable[[TableName], float] = lambda _: 0.0,
) -> list[TableLine]:
    """Returns how far the tables of a target and their histories are applied. `interval_s`: returns the shortest time
    between two steps of a table, by its name. Raises `UserError` for a pattern that fits no table."""
    control_rows = ControlTable(spark, target).rows()
    tables = [
        *control_rows.records.values(),
        *control_rows.histories.values(),
        *_asked_for(control_rows),
    ]
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
                str(record.word),
                applied[record.table_id],
                rows,
                lag_s,
                record.at.replace(tzinfo=UTC) if record.at else None,
                record.reason or (_why_waits(record, interval_s) if rows else ""),
                _copied(spark, target, record),
                record.registered,
                record.refused,
                reader_features(spark, mirrored_table(root, record).path) if record.folder else (),
                *_proof(control_rows.proofs.get(record.table_id), record),
            )
        )
    return lines


def _proof(proof: Proof | None, record: TableRecord) -> tuple[datetime | None, int, str, str, str]:
    """Returns the last five values of a table's line."""
    if proof is None or not record.is_live:
        return None, 0, "", "", ""
    found = proof.difference
    proved = None if proof.proved is None else datetime.fromtimestamp(proof.proved, UTC)
    differs, evidence = ("", "") if found is None else (str(found), found.evidence)
    return proved, proof.proved_rows, differs, evidence, proof.skipped


def proof_text(line: TableLine, now: datetime) -> str:
    """Returns what a person needs to know about the proof of a table; "" if nothing is known."""
    if line.differs:
        return f"differs: {line.differs}"
    if line.not_proved:
        return "not proved"
    if line.proved is None:
        return ""
    age = duration_text((now - line.proved).total_seconds())
    return f"proved {age} ago, {line.proved_rows} rows"


def _why_waits(record: TableRecord, interval_s: Callable[[TableName], float]) -> str:
    """Returns why changes may wait for a step of a table that has no other reason."""
    pause_s = interval_s(record.name) if record.is_live and not record.history else 0.0
    return f"its steps wait for seconds_between_steps: {pause_s:g}" if pause_s else ""


def _asked_for(control_rows: ControlRows) -> list[TableRecord]:
    """Returns records for the tables whose copy a person has requested, and for which the job has not created a record
    yet."""
    reason = "a copy was asked for; the job makes it when it runs"
    live = {
        (record.consumer, record.name)
        for record in control_rows.records.values()
        if not record.is_dropped
    }
    return [
        TableRecord(f"asked/{consumer}/{name}", consumer, *name, state=Creating(), reason=reason)
        for consumer, name in control_rows.named.keys() - live
    ]


def _copied(spark: SparkSession, target: str, record: TableRecord) -> CopyProgress | None:
    """Returns the progress of a table's copy, read from the copy's folder; None if the table is not being copied."""
    if record.word is not TableState.COPYING:
        return None
    path = f"{target.rstrip('/')}/{copy_folder(record.table_id)}"
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
    table = mirrored_table(root, record)
    return max(record.from_lsn, table.version(spark))


def _waiting(
    spark: SparkSession, target: str, records: Sequence[TableRecord], applied: dict[str, int]
) -> dict[str, tuple[int, datetime | None]]:
    """Returns, by table id, the number of row changes that each table does not have yet, and the commit time of the
    oldest."""
    path = BinlogLog(spark, target).path
    if not records or delta_log.delta_version(spark, path) < 0:
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
    sums = behind.groupBy("table_id").agg(F.sum("rows").alias("rows"), oldest).collect()
    return {row["table_id"]: (int(row["rows"]), _time(row["oldest"])) for row in sums}


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros / 1e6, UTC)
