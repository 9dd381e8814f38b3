"""The changelog of a table: a view over the mirror's log. The log contains each change exactly once.

The view is a DataFrame (frame). This module writes nothing: the executors decode the log's payloads when the frame is
read. A frame shows the log as it was when the frame was made. It lacks the changes of days that were deleted from the
log (`log_days`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.table_map.column_rules import UNCHANGED, ColumnRules
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.log.binlog_log import FOLDER, entry_of
from spark_sink.mirror.log.slices import COLUMNS
from spark_sink.mirror.rules.plan import GapItem, route
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.values.names import TableName
from spark_sink.source.raw_entries import EntryKind
from spark_sink.source.schemas import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from spark_sink.mirror.schema.change_rows import LayoutRows

# The greatest expected difference between the server's clock and the job's clock. The days of the log are days of the
# job's clock.
_CLOCKS_APART = timedelta(days=1)
_PAYLOADS = ("small_payload", "payload")


@dataclass(frozen=True, slots=True)
class ChangelogRange:
    """The part of a changelog that is read: `start` is included, `end` is not. Each bound is the number of an entry of
    the log, a time of commit, or None."""

    start: int | datetime | None = None
    end: int | datetime | None = None

    @classmethod
    def parse(cls, start: str | None, end: str | None) -> ChangelogRange:
        """Parse both bounds. Raises `UserError` for a text that is neither a number nor a time in ISO 8601; a time
        without a zone is UTC."""
        return cls(_bound("--from", start), _bound("--to", end))

    def entries(self) -> Column:
        """Returns the condition on entries of the log. An entry (rows of a table in the log) that fulfils the condition
        may also contain changes outside of the range."""
        chosen = F.lit(True)
        if isinstance(self.start, int):
            chosen &= F.col("lsn") >= self.start
        if isinstance(self.end, int):
            chosen &= F.col("lsn") < self.end
        if isinstance(self.start, datetime):
            # An append (one micro-batch in the log) is made after the server has committed its changes.
            chosen &= F.col("day") >= F.lit((_utc(self.start) - _CLOCKS_APART).date())
        return chosen

    def changes(self) -> Column:
        """Returns the condition on changes."""
        chosen = F.lit(True)
        if isinstance(self.start, datetime):
            chosen &= F.col("committed_at") >= F.lit(_utc(self.start))
        if isinstance(self.end, datetime):
            chosen &= F.col("committed_at") < F.lit(_utc(self.end))
        return chosen


def _utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)


def _bound(option: str, text: str | None) -> int | datetime | None:
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        return _utc(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise UserError(
            ErrorKind.REQUEST,
            f"{option} {text!r} is neither the number of an entry (lsn) nor a time",
            remedy="write it like 2026-11-21T12:00:00Z, or take a number of the column lsn",
        ) from None


def table_changes(
    spark: SparkSession,
    target: str,
    table: str,
    *,
    consumer: str = "",
    within: ChangelogRange | None = None,
    invalid_dates: InvalidDates = InvalidDates.NULL,
    rules: ColumnRules = UNCHANGED,
) -> DataFrame:
    """Returns the changes of a table, with the columns of `change_rows.changelog_schema`. The changes are not sorted;
    their order is that of (`lsn`, `position`).

    `table`: database.table, the name in the log (the log has changes from before a RENAME under the old name);
    `consumer`: the consumer whose log is read, "" if only one consumer has the table; `rules`: how values are changed,
    such as masks. The frame's executors need this package.

    Raises `UserError` UNKNOWN_TABLE if the log has no rows of the table; `BinlogError` UNSUPPORTED_CHANGE if no type
    can represent the values of all the types that a column has had.
    """
    from spark_sink.mirror.schema.change_rows import changelog_schema, joint_row  # noqa: PLC0415

    within = within or ChangelogRange()
    name = _name(table)
    log = _log(spark, target)
    of_table = (F.col("kind") == EntryKind.ROWS.value) & (F.col("database") == name[0])
    of_table &= F.col("table") == name[1]
    consumer = consumer or _only_consumer(log.where(of_table), table)
    log = log.where((F.col("consumer") == consumer) & within.entries())
    entries = log.where(of_table)
    schema = changelog_schema(joint_row(_layouts(entries, table, invalid_dates, rules), table))
    payload = F.coalesce("small_payload", "payload").alias("payload")
    decode = partial(_decode, schema, invalid_dates, rules, frozenset(_going_on(entries)))
    rows = entries.select("lsn", payload).mapInArrow(decode, spark_schema(schema))
    return rows.unionByName(_statements(spark, log, name, schema)).where(within.changes())


def _name(table: str) -> TableName:
    database, _, name = table.partition(".")
    if not database or not name:
        raise UserError(ErrorKind.REQUEST, f"write a table like database.table, not {table!r}")
    return database, name


def _log(spark: SparkSession, target: str) -> DataFrame:
    """Returns the newest version of the log."""
    path = f"{target.rstrip('/')}/{FOLDER}"
    version = delta_version(spark, path)
    if version < 0:
        raise UserError(
            ErrorKind.UNKNOWN_TABLE,
            f"there is no log of a mirror at {path}",
            remedy="name the target of the mirror: --target, or --config with its settings",
        )
    return spark.read.format("delta").option("versionAsOf", version).load(path)


def _only_consumer(entries: DataFrame, table: str) -> str:
    consumers = sorted(row["consumer"] for row in entries.select("consumer").distinct().collect())
    if not consumers:
        raise _no_rows(table)
    if len(consumers) > 1:
        raise UserError(
            ErrorKind.REQUEST,
            f"several consumers have the table {table}: {', '.join(consumers)}",
            remedy="name one: --consumer",
        )
    return str(consumers[0])


def _no_rows(table: str) -> UserError:
    return UserError(
        ErrorKind.UNKNOWN_TABLE,
        f"the log has no rows of the table {table} in this range",
        remedy="python -m spark_sink tables shows the tables; the log is kept for log_days, and holds changes, no"
        " copied rows",
    )


def _layouts(
    entries: DataFrame, table: str, invalid_dates: InvalidDates, rules: ColumnRules
) -> list[LayoutRows]:
    from spark_sink.mirror.schema.change_rows import LayoutRows  # noqa: PLC0415

    of_layout = entries.groupBy("layout").agg(
        F.first("table_map").alias("table_map"), F.min("lsn").alias("a"), F.max("lsn").alias("z")
    )
    layouts = []
    for row in of_layout.collect():
        table_map = rules.table_map(TableMap.parse(bytes(row["table_map"])))
        schema = arrow_types.change_schema(table_map.columns, table_map.label, invalid_dates)
        layouts.append(LayoutRows(schema.field("after").type, row["a"], row["z"]))
    if not layouts:
        raise _no_rows(table)
    return layouts


def _going_on(entries: DataFrame) -> list[int]:
    """Returns the entries whose last transaction continues in the table's next entry. Only large transactions do so."""
    following = Window.partitionBy("epoch").orderBy("lsn")
    seqs = entries.select("lsn", "epoch", "first_seq", "last_seq")
    seqs = seqs.withColumn("next", F.lead("first_seq").over(following))
    return [row["lsn"] for row in seqs.where("next = last_seq").select("lsn").collect()]


def _decode(
    schema: pa.Schema,
    invalid_dates: InvalidDates,
    rules: ColumnRules,
    going_on: frozenset[int],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Decode entries to their changes. Runs on the executors."""
    from spark_sink.mirror.schema.change_rows import change_rows  # noqa: PLC0415

    for batch in batches:
        for lsn, payload in zip(
            batch.column("lsn").to_pylist(), batch.column("payload"), strict=True
        ):
            decoded = delivered.decode_table(
                payload.as_py(), invalid_dates=invalid_dates, ruled=rules.table_map
            )
            yield from change_rows(decoded, lsn, schema, goes_on=lsn in going_on)


def _statements(
    spark: SparkSession, log: DataFrame, name: TableName, schema: pa.Schema
) -> DataFrame:
    """Returns the statements that concern the table, and the gaps, as rows of the changelog."""
    from spark_sink.mirror.schema.change_rows import GAP_OP, STATEMENT_OP  # noqa: PLC0415

    chosen = (F.col("kind") == EntryKind.STATEMENT.value) | F.col("gap")
    concerned: list[dict[str, Any]] = []
    for row in log.where(chosen).select(*_without_payloads()).toLocalIterator():
        entry = entry_of(row.asDict() | {"small_payload": None})
        for named, item in route(entry, effects_of, lambda: [name], lambda _: False):
            if named == name:
                concerned.append(
                    dict.fromkeys(schema.names)
                    | {field: getattr(entry, field) for field in ("lsn", "epoch", "committed_at")}
                    | {"position": 0, "transaction_end": True, "seq": entry.first_seq}
                    | {"op": GAP_OP if isinstance(item, GapItem) else STATEMENT_OP}
                    | {"file": entry.file or None, "pos": entry.pos or None}
                    | {"query": None if entry.statement is None else entry.statement.text}
                )
    rows = [tuple(row[field] for field in schema.names) for row in concerned]
    return spark.createDataFrame(rows, spark_schema(schema))


def _without_payloads() -> list[str]:
    return [name for name, _ in COLUMNS if name not in (*_PAYLOADS, "run")]


def json_lines(frame: DataFrame, limit: int | None = None) -> Iterator[str]:
    """Yields the changes in order, each as one JSON object."""
    ordered = frame.orderBy("lsn", "position")
    if limit is not None:
        ordered = ordered.limit(limit)
    every = F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("line")
    return (str(row["line"]) for row in ordered.select(every).toLocalIterator())
