"""Executes one step of a table: decodes the rows of a run, and commits them to the table. A run (`rules.plan.RowRun`)
consists of adjacent log entries of the table with the same columns. The commit records the lsn (the number) of the
run's last entry.

The driver decodes a small run, and reduces it to the last event of each key. The driver commits these events itself if
it can (`driver_commit`); otherwise it passes them to Spark as a local relation. The executors decode and reduce a large
run, payload by payload. A payload is the bytes of one entry. If the run has several payloads, a window function finds
the last event of each key among the events of all payloads.

A step commits:

* an append, if no row of the run can be in the table already: all changes are inserts, and before the run the table was
  equal to the server's table;
* otherwise, a MERGE of the last event of each key;
* for a table without a key, a MERGE that replaces each group of equal rows by the number of such rows after the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.table_map.column_rules import UNCHANGED, ColumnRules
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.executed import Snapshot
from spark_sink.mirror.rules.omitted import kept_table_map
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables import keyed
from spark_sink.mirror.tables.delta import MergeForm, MirroredTable, StepSession
from spark_sink.mirror.tables.driver_commit import DriverTable
from spark_sink.mirror.tables.quarantine import (
    Quarantine,
    found_schema,
    invalid_table,
    of_changes,
)
from spark_sink.mirror.tables.table_checks import require_table
from spark_sink.mirror.tables.whole_rows import equal_rows, grouped
from spark_sink.mirror.values.faults import becomes_null, fault_of
from spark_sink.mirror.values.names import quoted
from spark_sink.mirror.values.policies import (
    Deletes,
    InvalidValue,
    MetadataColumn,
    TablePolicy,
)
from spark_sink.mirror.values.step_clock import StepPhase
from spark_sink.source.schemas import spark_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from spark_sink.mirror.log.binlog_log import BinlogLog

DRIVER_BYTES_MAX = 32 << 20  # a run up to this size is committed by the driver itself
JOINED_BYTES_MAX = 1 << 20  # payloads up to this size are decoded together
LOCAL_BYTES_MAX = 4 << 20  # a run up to this size is passed to Spark as a local relation

_METADATA_TYPES = {
    MetadataColumn.SEQ: LongType(),
    MetadataColumn.GTID: StringType(),
    MetadataColumn.COMMITTED_AT: TimestampType(),
    MetadataColumn.DELETED: BooleanType(),
}
# Expressions over an event, whose alias is "e" in a MERGE.
_METADATA_FIELDS = {
    MetadataColumn.SEQ: "seq",
    MetadataColumn.GTID: "gtid",
    MetadataColumn.COMMITTED_AT: "committed_at",
    MetadataColumn.DELETED: "deleted",
}


class Decoding(NamedTuple):
    """How payloads are decoded: see `delivered.decode_table`."""

    invalid_dates: InvalidDates
    all_versions: bool
    rules: ColumnRules = UNCHANGED


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How the rows of a run are decoded. `key`: names of the key columns, () for a table without a key."""

    table_map: TableMap
    key: tuple[str, ...]
    changes: pa.Schema
    columns: StructType

    @classmethod
    def of(cls, run: RowRun, invalid_dates: InvalidDates, policy: TablePolicy) -> RowLayout:
        """Raises `BinlogError` METADATA_MISSING or UNSUPPORTED_TYPE, with a message that names table and column, and
        the `BinlogError` of `kept_table_map`."""
        table_map = kept_table_map(TableMap.parse(run.entries[0].table_map), policy)
        names = [column.name for column in table_map.columns]
        changes = arrow_types.change_schema(table_map.columns, table_map.label, invalid_dates)
        (row,) = (field.dataType for field in spark_schema(changes) if field.name == "after")
        assert isinstance(row, StructType)
        return cls(table_map, tuple(names[i] for i in table_map.key), changes, row)

    @property
    def row(self) -> pa.StructType:
        """The Arrow type of a row."""
        return self.changes.field("after").type

    def stored_columns(self, policy: TablePolicy) -> StructType:
        """Returns the columns of the mirrored table: the columns of a row, and the metadata columns of the policy.

        Raises `BinlogError` UNSUPPORTED_CHANGE if a column of the row has the name of a metadata column.
        """
        names = {column.name.lower() for column in self.columns}
        if taken := [name for name in policy.extra if name in names]:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {self.table_map.label} has a column {taken[0]}, which is the name of a metadata column",
                remedy=remedies.of_setting(
                    self.table_map.label, "leave this metadata column out of the table's policy"
                ),
            )
        extra = [StructField(name, _METADATA_TYPES[name], True) for name in policy.extra]
        return StructType([*self.columns, *extra])


@dataclass(frozen=True, slots=True)
class RowStep:
    """A step of rows.

    `exact`: True if the table was equal to the server's table before the run, so that a row that the run inserts is not
    in the table yet; `snapshot`: the snapshot whose transactions the table already shows, None if there is none.
    """

    record: TableRecord
    table: MirroredTable
    run: RowRun
    layout: RowLayout
    policy: TablePolicy
    decoding: Decoding
    exact: bool
    snapshot: Snapshot | None = None

    @property
    def appends(self) -> bool:
        soft = self.policy.deletes is Deletes.SOFT
        return self.exact and self.run.only_inserts and not soft

    def commit(self, session: StepSession, log: BinlogLog, quarantine: Quarantine) -> int:
        """Commit the step. Returns how many invalid values became NULL. If rows cannot be mirrored, raises
        `BinlogError`, and does not change the table."""
        strict = self.decoding._replace(rules=replace(self.decoding.rules, nulls_invalid=False))
        try:
            replace(self, decoding=strict).commit_rows(session, log)
        except Exception as error:
            if not becomes_null(fault_of(error), self.policy.invalid):
                raise
        else:
            return 0
        found = self._invalid_values(session, log)
        if found.num_rows and self.policy.invalid is InvalidValue.QUARANTINE:
            quarantine.add(session.spark, self.record, found)
        self.commit_rows(session, log)
        return int(found.num_rows)

    def commit_rows(self, session: StepSession, log: BinlogLog) -> None:
        """Commit the step. Raises `BinlogError` for an invalid value, unless the rules of the decoding replace it."""
        if self.layout.key or self.appends:
            self._commit_events(session, log)
        else:
            self._commit_counts(session, log)

    # -- invalid values --------------------------------------------------------------------------------------

    def _invalid_values(self, session: StepSession, log: BinlogLog) -> pa.Table:
        """Returns the invalid values of the run, with the schema `found_schema`."""
        columns, key = self.layout.columns.names, self.layout.key
        find = partial(_found_values, columns, key, self.decoding, self.snapshot)
        if (held := self._held(log, LOCAL_BYTES_MAX)) is not None:
            lsns = [entry.lsn for entry in self.run.entries]
            batches = [
                b for lsn, payload in zip(lsns, held, strict=True) for b in find(lsn, payload)
            ]
            return invalid_table(batches)
        payloads = self._payloads(session, log)
        rows = payloads.mapInArrow(partial(_find_invalid, find), spark_schema(found_schema()))
        return rows.toArrow().cast(found_schema())

    # -- with a key ------------------------------------------------------------------------------------------

    def _commit_events(self, session: StepSession, log: BinlogLog) -> None:
        soft = self.policy.deletes is Deletes.SOFT
        form = keyed.event_form(self.layout.changes, self.layout.key, keep_deleted=soft)
        table = DriverTable(session.spark, self.table, session.clock)
        by_driver = table.columns and (self.appends or not table.feed)
        with session.clock.phase(StepPhase.READ):
            held = self._held(log, DRIVER_BYTES_MAX if by_driver else LOCAL_BYTES_MAX)
            events = None if held is None else keyed.last_events(self._decoded(held), form)
        if events is not None and self._commit_by_driver(table, events):
            return
        session.expect(self.run.payload_bytes, self.table.size_bytes(session.spark))
        local = events is not None and self.run.payload_bytes <= LOCAL_BYTES_MAX
        frame = self._local(session, events) if local else self._last_events(session, log, form)
        if self.appends:
            with session.clock.phase(StepPhase.WRITE):
                self.table.append(self.run.lsn, self._rows(frame))
            return
        bounds = "" if events is None else key_bounds(events, self.layout.key)
        merge = MergeForm(self.layout.key, self.layout.columns, self._extra("e."), soft, bounds)
        with session.clock.phase(StepPhase.WRITE):
            self.table.merge(session, self.run.lsn, frame, merge)

    def _commit_by_driver(self, table: DriverTable, events: pa.Table) -> bool:
        """Commit events by the driver. Returns False if Spark must do this."""
        import pyarrow.compute as pc  # noqa: PLC0415

        written = events
        if self.policy.deletes is not Deletes.SOFT:
            written = events.filter(pc.invert(events.column("deleted")))
        rows = _fields(written.column("row"))
        for name in self.policy.extra:
            rows = rows.append_column(name, written.column(_METADATA_FIELDS[name]))
        if self.appends:
            return table.append(self.run.lsn, rows)
        return table.replace(self.run.lsn, _fields(events.column("key")), rows)

    def _rows(self, events: DataFrame) -> DataFrame:
        metadata = [value.alias(name) for name, value in self._extra("").items()]
        return events.select("row.*", *metadata)

    def _extra(self, alias: str) -> dict[str, Column]:
        return {name: F.col(alias + _METADATA_FIELDS[name]) for name in self.policy.extra}

    def _held(self, log: BinlogLog, bytes_max: int) -> list[bytes] | None:
        """Returns the payloads of a run of at most `bytes_max`; None if the run has more bytes, or if only executors
        can read the log's large payloads."""
        if self.run.payload_bytes > bytes_max:
            return None
        large = [entry.lsn for entry in self.run.entries if entry.payload is None]
        payloads = log.local_payloads(self.record.consumer, large) if large else {}
        if payloads is None:
            return None
        return [e.payload if e.payload is not None else payloads[e.lsn] for e in self.run.entries]

    def _decoded(self, payloads: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
        for payload in delivered.joined_payloads(payloads, JOINED_BYTES_MAX):
            yield from _decode(payload, self.decoding, self.snapshot)

    def _local(self, session: StepSession, events: pa.Table) -> DataFrame:
        return session.spark.createDataFrame(events.combine_chunks(), spark_schema(events.schema))

    def _distributed(
        self, session: StepSession, log: BinlogLog, form: keyed.EventForm
    ) -> DataFrame:
        """Returns, for each payload, the last event of each key, with the payload's `lsn`."""
        schema = spark_schema(form.schema).add("lsn", LongType())
        payloads = self._payloads(session, log)
        return payloads.mapInArrow(partial(_reduce, form, self.decoding, self.snapshot), schema)

    def _payloads(self, session: StepSession, log: BinlogLog) -> DataFrame:
        lsns = [entry.lsn for entry in self.run.entries]
        return log.payloads(session.spark, self.record.consumer, lsns)

    def _last_events(
        self, session: StepSession, log: BinlogLog, form: keyed.EventForm
    ) -> DataFrame:
        events = self._distributed(session, log, form)
        # One payload has one event per key. In a run that can be appended, each key occurs only once.
        if len(self.run.entries) == 1 or self.appends:
            return events
        key = [F.col("key").getField(name) for name in self.layout.key]
        newest = Window.partitionBy(*key).orderBy(F.desc("lsn"), F.desc("order"))
        ranked = events.withColumn("rank", F.row_number().over(newest))
        return ranked.where("rank = 1").drop("rank")

    # -- without a key ---------------------------------------------------------------------------------------

    def _commit_counts(self, session: StepSession, log: BinlogLog) -> None:
        """Change the number of each distinct row in the table by the run's sum for this row."""
        if self.policy.deletes is Deletes.SOFT or self.policy.extra:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {self.table.label} has no key, so it cannot have metadata columns or soft deletes",
                remedy=remedies.of_setting(
                    self.table.label, "give the table a policy without them"
                ),
            )
        require_table(session.spark, self.table)
        # The source of the MERGE reads the table itself, so Delta has to store the source. A size of -1 (not known)
        # selects the settings for this.
        session.expect(self.run.payload_bytes, -1)
        with session.clock.phase(StepPhase.READ):
            counts = self._counts(session, log)
        change = F.sum("count").alias("change")
        sums = grouped(counts, self.layout.columns, "row", [change]).where("change != 0")
        lines = self._count_lines(session, sums)
        with session.clock.phase(StepPhase.WRITE):
            self.table.merge_counts(session, self.run.lsn, lines, self.layout.columns)

    def _counts(self, session: StepSession, log: BinlogLog) -> DataFrame:
        row = StructField("row", self.layout.columns)
        schema = StructType([row, StructField("count", LongType())])
        if (held := self._held(log, LOCAL_BYTES_MAX)) is not None:
            tables = [keyed.row_counts_of(batch, self.layout.row) for batch in self._decoded(held)]
            if not tables:  # only old versions of rows have changed
                return session.spark.createDataFrame([], schema)
            return session.spark.createDataFrame(_joined(tables), schema)
        payloads = self._payloads(session, log)
        count = partial(_count, self.layout.row, self.decoding, self.snapshot)
        return payloads.mapInArrow(count, schema)

    def _count_lines(self, session: StepSession, sums: DataFrame) -> DataFrame:
        """Returns lines with `row` and `removes`. If the number of equal rows decreases: one line that removes all of
        them, and one line that inserts a row for each row that remains. If the number increases: one line that inserts
        a row for each row that is added.

        Raises `BinlogError` INVALID_VALUE if the table was exact and lacks rows that have to be removed.
        """
        names = [quoted(column.name) for column in self.layout.columns]
        whole_row = F.struct(*names).alias("row")
        target = self.table.frame(session.spark).select(whole_row).alias("t")
        fewer = sums.where("change < 0").alias("s")
        same = F.expr(equal_rows(self.layout.columns, "t.row", "s.row"))
        found = [F.first("s.change").alias("change"), F.count("t.row").alias("present")]
        matched = fewer.join(target, same, "left")
        present = grouped(matched, self.layout.columns, "s.row", found).persist()
        try:
            lacking = (
                present.where("present + change < 0").agg(F.sum(F.expr("present + change"))).head()
            )
        finally:
            present.unpersist()
        if self.exact and lacking is not None and lacking[0] is not None:
            raise BinlogError(
                ErrorKind.INVALID_VALUE,
                f"table {self.table.label}, which has no key, lacks {-lacking[0]} rows that were deleted or changed",
                remedy=remedies.of_copy_again(self.table.label),
            )
        kept = present.withColumn("kept", F.greatest(F.col("present") + F.col("change"), F.lit(0)))
        removes = kept.select("row", F.lit(True).alias("removes"))
        inserts = kept.select("row", F.col("kept").alias("n")).where("n > 0")
        more = sums.where("change > 0").select("row", F.col("change").alias("n"))
        each = F.explode(F.expr("sequence(1L, n)"))
        inserts = inserts.unionByName(more).select("row", F.lit(False).alias("removes"), each)
        return removes.unionByName(inserts.drop("col"))


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415

    # In a local relation, Spark ignores all batches that follow two batches without rows.
    return pa.concat_tables(tables).combine_chunks()


def _fields(structs: pa.ChunkedArray) -> pa.Table:
    """Returns the fields of structs, none of which is NULL, as columns."""
    import pyarrow as pa  # noqa: PLC0415

    fields = structs.combine_chunks().flatten()
    return pa.Table.from_arrays(fields, names=[field.name for field in structs.type])


def _decode(
    payload: bytes, decoding: Decoding, snapshot: Snapshot | None
) -> Iterator[pa.RecordBatch]:
    """Decode a payload to the changes that are not in the snapshot."""
    for batch in delivered.decode_table(
        payload,
        invalid_dates=decoding.invalid_dates,
        all_versions=decoding.all_versions,
        ruled=decoding.rules.table_map,
    ):
        yield batch if snapshot is None else snapshot.unseen(batch)


def _found_values(
    columns: Sequence[str],
    key: Sequence[str],
    decoding: Decoding,
    snapshot: Snapshot | None,
    lsn: int,
    payload: bytes,
) -> Iterator[pa.RecordBatch]:
    """Decode a payload to the invalid values of changes that are not in the snapshot."""
    for item in delivered.changes(
        payload,
        invalid_dates=decoding.invalid_dates,
        all_versions=decoding.all_versions,
        ruled=decoding.rules.table_map,
    ):
        if isinstance(item, delivered.TableChanges) and item.invalid:
            found = of_changes(lsn, item, columns, key)
            yield found if snapshot is None else snapshot.unseen(found)


def _find_invalid(
    find: Callable[[int, bytes], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Decode payloads to their invalid values. Runs on the executors."""
    for batch in batches:
        for lsn, payload in zip(batch.column("lsn"), batch.column("payload"), strict=True):
            yield from find(lsn.as_py(), payload.as_py())


def _reduce(
    form: keyed.EventForm,
    decoding: Decoding,
    snapshot: Snapshot | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Decode payloads, and reduce each payload to the last event of each key. Runs on the executors."""
    import pyarrow as pa  # noqa: PLC0415

    for batch in batches:
        for lsn, payload in zip(batch.column("lsn"), batch.column("payload"), strict=True):
            events = keyed.last_events(_decode(payload.as_py(), decoding, snapshot), form)
            lsns = pa.repeat(lsn, events.num_rows)
            yield from events.append_column("lsn", lsns).to_batches(max_chunksize=1 << 16)


def _count(
    row: pa.StructType,
    decoding: Decoding,
    snapshot: Snapshot | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Decode payloads into rows with counts. Runs on the executors."""
    for batch in batches:
        for payload in batch.column("payload"):
            for changes in _decode(payload.as_py(), decoding, snapshot):
                yield from keyed.row_counts_of(changes, row).to_batches()


def key_bounds(events: pa.Table, key: Sequence[str]) -> str:
    """Returns the range of the keys as a condition on the target, by which Delta can skip files."""
    conditions = []
    for name in key:
        limits = keyed.key_range(events.column("key").combine_chunks().field(name))
        if limits is not None:
            low, high = map(_sql_literal, limits)
            conditions.append(f"t.{quoted(name)} BETWEEN {low} AND {high}")
    return " AND ".join(conditions)


def _sql_literal(value: Any) -> str:
    match value:
        case date():
            return f"DATE'{value.isoformat()}'"
        case Decimal():
            return f"{value:f}BD"
    return str(value)
