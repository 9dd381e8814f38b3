"""A history table: a Delta table with all versions of the rows of a mirrored table (slowly changing dimension, type 2).

A history table has the columns that the mirrored table has or had, and `VERSION_COLUMNS`. Each step of a history is one
Delta commit that records the lsn (number) of the step's last log entry, as for mirrored tables, so a repeated step
changes nothing. The mirror adds and widens columns of a history table, but drops none, because old versions contain
values of these columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    BooleanType,
    LongType,
    StructField,
    StructType,
    TimestampType,
)

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake import delta_log, table_features
from spark_sink.mirror.lake.table_features import TYPE_WIDENING
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.tables.delta import MirroredTable, StepSession
from spark_sink.mirror.tables.whole_rows import equal_rows, grouped
from spark_sink.mirror.values.iceberg_types import promotes
from spark_sink.mirror.values.names import quoted
from spark_sink.source.schemas import spark_schema
from spark_sink.source.spark_abilities import expected_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

VERSION_COLUMNS = StructType(
    [
        StructField("valid_from", TimestampType()),
        StructField("valid_to", TimestampType()),
        StructField("is_current", BooleanType()),
        StructField("valid_from_lsn", LongType()),
        StructField("valid_from_position", LongType()),
        StructField("valid_to_lsn", LongType()),
        StructField("valid_to_position", LongType()),
    ]
)
_FROM = {
    "valid_from": "from_at",
    "valid_from_lsn": "from_lsn",
    "valid_from_position": "from_position",
}
_TO = {"valid_to": "to_at", "valid_to_lsn": "to_lsn", "valid_to_position": "to_position"}


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """`table`: the Delta table, with the label of the history; `iceberg`: True if Iceberg's readers have to read the
    table's files."""

    table: MirroredTable
    iceberg: bool = False

    # -- columns ---------------------------------------------------------------------------------------------

    def fit(self, spark: SparkSession, columns: StructType) -> None:
        """Create the table, or add the columns that it lacks and widen the types of its columns. These commits record
        no lsn.

        Raises `BinlogError` UNSUPPORTED_CHANGE for a column that has the name of one of `VERSION_COLUMNS`, and for a
        column whose new type cannot represent its old values.
        """
        taken = {column.name for column in VERSION_COLUMNS}
        if clash := [column.name for column in columns if column.name.lower() in taken]:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"the table has a column {clash[0]}, which is the name of a column of its history {self.table.label}",
                remedy="rename the column, or leave the table's history out in the settings of the mirror",
            )
        if not self.table.exists(spark):
            columns = StructType([*columns, *VERSION_COLUMNS])
            self.table.create(spark, columns, iceberg=self.iceberg)
            return
        existing = {column.name.lower(): column for column in self.table.columns(spark)}
        if added := [column for column in columns if column.name.lower() not in existing]:
            self.table.add_columns(spark, StructType(added))
        for column in columns:
            had = existing.get(column.name.lower(), column)
            if had.dataType != column.dataType:
                self._widen(spark, had, column)

    def _widen(self, spark: SparkSession, had: StructField, column: StructField) -> None:
        from spark_sink.mirror.schema.change_rows import common_type  # noqa: PLC0415 - loads pyarrow

        common = common_type(*(expected_type(c.dataType) for c in (had, column)))
        wanted = None if common is None else spark_schema(_one_field(common))[0].dataType
        if wanted == had.dataType:
            return
        if wanted is None or not delta_log.widens(spark, had.dataType.json(), wanted.json()):
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"column {column.name} of the history {self.table.label} is {had.dataType.simpleString()}, and is now"
                f" {column.dataType.simpleString()}: no type holds the values of both",
                where=self.table.path,
                remedy=f"move this folder to another place to keep it, then {remedies.of_history(self.table.label)}",
            )
        name, kind = quoted(had.name), wanted.simpleString()
        features = table_features.for_columns([(had.name, wanted.jsonValue())])
        iceberg = self.iceberg or self.table.is_for_iceberg(spark)
        if iceberg and not promotes(had.dataType.json(), wanted.json()):
            table_features.require(spark, self.table.path, features)
            self._rewrite(spark, had.name, kind)
        else:
            table_features.require(spark, self.table.path, features | TYPE_WIDENING)
            spark.sql(f"ALTER TABLE {self.table.sql_name} ALTER COLUMN {name} TYPE {kind}")

    def _rewrite(self, spark: SparkSession, name: str, kind: str) -> None:
        """Change a column's type by a commit that rewrites all rows."""
        frame = self.table.frame(spark)
        frame = frame.withColumn(name, F.col(quoted(name)).cast(kind))
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(self.table.path)

    # -- commits ---------------------------------------------------------------------------------------------

    def commit(
        self, session: StepSession, version: int, lines: pa.Table, key: Sequence[str]
    ) -> None:
        """Commit the lines of one step. `row_versions.version_lines` returns the schema of `lines`."""
        import pyarrow.compute as pc  # noqa: PLC0415

        frame = session.spark.createDataFrame(lines.combine_chunks(), spark_schema(lines.schema))
        if not pc.any(lines.column("closes")).as_py():
            # An append does not cast values, so cast them here: a former table with the same name may have had wider
            # columns.
            types = {c.name.lower(): c.dataType for c in self.table.columns(session.spark)}
            values = {n: v.cast(types[n.lower()]) for n, v in self._values(frame, "").items()}
            self.table.append(version, frame.select(*(v.alias(n) for n, v in values.items())))
            return
        same = [f"t.{quoted(name)} = e.key.{quoted(name)}" for name in key]
        self._merge(session, version, frame, same)

    def end_all(self, session: StepSession, version: int, at: datetime) -> None:
        """End all current versions, because the mirrored table was emptied or dropped."""
        if not self.table.exists(session.spark):
            return
        ended = {"valid_to": _time(at), "is_current": F.lit(False), "valid_to_lsn": F.lit(version)}
        ended["valid_to_position"] = F.lit(0).cast("long")
        values: dict[str, str | Column] = {quoted(name): value for name, value in ended.items()}
        self.table.update(session, version, values, "is_current")

    def compare(self, session: StepSession, version: int, rows: DataFrame, at: datetime) -> None:
        """Make the current versions equal to `rows`, which are all rows of the mirrored table at the lsn `version`.
        Current versions that equal no row of `rows` end at `at`. New versions begin for rows that equal no current
        version. The history table must have all columns of `rows`.

        The comparison uses all columns of a row, so it needs no key, and the key columns may have changed.
        """
        names = [quoted(name) for name in rows.columns]
        row = F.struct(*names).alias("row")
        current = self.table.frame(session.spark).where("is_current").select(row)
        now = rows.select(row)
        equal = F.expr(equal_rows(rows.schema, "o.row", "n.row"))
        gone = current.alias("o").join(now.alias("n"), equal, "left_anti")
        gone = grouped(gone, rows.schema, "row", [])
        new = now.alias("n").join(current.alias("o"), equal, "left_anti")
        point = {"lsn": F.lit(version), "position": F.lit(0).cast("long"), "at": _time(at)}
        nothing = {name: F.lit(None).cast(value_type) for name, value_type in _POINT_TYPES.items()}

        def lines(found: DataFrame, *, closes: bool) -> DataFrame:
            begin, end = (nothing, point) if closes else (point, nothing)
            points = [value.alias(f"from_{name}") for name, value in begin.items()]
            points += [value.alias(f"to_{name}") for name, value in end.items()]
            return found.select(F.lit(closes).alias("closes"), "row", *points)

        frame = lines(gone, closes=True).unionByName(lines(new, closes=False))
        self._merge(session, version, frame, [equal_rows(rows.schema, "t", "e.row")])

    def _merge(
        self, session: StepSession, version: int, lines: DataFrame, same: Sequence[str]
    ) -> None:
        ended: dict[str, Any] = {name: F.col(f"e.{value}") for name, value in _TO.items()}
        ended["is_current"] = F.lit(False)
        values: dict[str, Any] = {quoted(n): v for n, v in self._values(lines, "e.").items()}
        with session.recording(self.table.app_id, version):
            builder = DeltaTable.forPath(session.spark, self.table.path).alias("t")
            merge = builder.merge(
                lines.alias("e"), " AND ".join(["t.is_current", "e.closes", *same])
            )
            merge = merge.whenMatchedUpdate(set=ended)
            merge.whenNotMatchedInsert("NOT e.closes", values=values).execute()

    @staticmethod
    def _values(lines: DataFrame, alias: str) -> dict[str, Column]:
        """Returns the values of a new version by column name, as expressions over the columns of a line."""
        row = lines.schema["row"].dataType
        assert isinstance(row, StructType)
        values = {column.name: F.col(f"{alias}row.{quoted(column.name)}") for column in row}
        values |= {name: F.col(alias + value) for name, value in (_FROM | _TO).items()}
        values["is_current"] = F.col(f"{alias}to_lsn").isNull()
        return values


_POINT_TYPES = {"lsn": "long", "position": "long", "at": "timestamp"}


def _one_field(kind: pa.DataType) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    return pa.schema([pa.field("value", kind)])


def _time(at: datetime) -> Column:
    """Returns a time as an expression that does not depend on the session's time zone."""
    return F.timestamp_micros(F.lit(int(at.timestamp() * 1_000_000)))
