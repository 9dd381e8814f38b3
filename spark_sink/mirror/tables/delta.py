"""One mirrored table as a Delta table, and the commits that change it.

A step applies a sequence of log entries to the table. Every step is one Delta commit. The commit records the
application id `binlog-dispatcher/table/<table id>` with a version: the lsn (number) of the step's last entry. Delta
skips a commit whose version is not newer than the recorded one, so a step that is repeated after a crash changes
nothing. The table id belongs to the table, not to its name or folder, so it does not change when the table is renamed.

For MERGE, UPDATE and DELETE, Delta reads the application id and the version from the settings of the Spark session. So
each `StepSession` has its own Spark session, and only one thread at a time uses it.

A table gets the features column mapping (by name) and type widening when a change of its columns needs them
(`lake.table_features`). The property `binlog.table_id` shows to which table a folder belongs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BooleanType, StructField, StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake import delta_commit, delta_log, table_features
from spark_sink.mirror.lake.checkpoints import BACKSTOP
from spark_sink.mirror.lake.table_features import COLUMN_MAPPING
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.tables.whole_rows import equal_rows
from spark_sink.mirror.values.iceberg_types import COMPATIBLE
from spark_sink.mirror.values.names import quoted
from spark_sink.mirror.values.small_tables import SMALL_TABLES
from spark_sink.mirror.values.step_clock import StepClock

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

TABLE_ID_PROPERTY = "binlog.table_id"
FEED_PROPERTY = "delta.enableChangeDataFeed"
_FEED_COLUMNS = {"_change_type", "_commit_version", "_commit_timestamp"}
_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"

# A step with less data than this, some 16,000 rows, spends most of its time on planning and compiling.
SMALL_STEP_BYTES_MAX = 512 << 10
SMALL_TABLE_BYTES_MAX = 512 << 10

# Measured: a MERGE of 100 rows takes 0.7 s with these settings, and 1.6 s with Spark's own. But a MERGE of many rows
# takes longer with them: a rewrite of a million rows takes 48 s instead of 18 s, because expressions are interpreted.
# If the source of the MERGE is a local relation, it is cheaper to compute the source twice than to store it. For a
# large step, Delta stores the source.
_SMALL = {
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


class StepSession:
    """A Spark session that only one thread at a time uses, because its settings contain the version of the current
    step.

    The session does not change settings of the user.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark.newSession()
        given = dict(spark.sparkContext.getConf().getAll())
        users = {name for name, value in given.items() if value != SMALL_TABLES.get(name)}
        self._choices = {name: value for name, value in _SMALL.items() if name not in users}
        self._small = False
        self.clock = StepClock()  # of the current step

    def expect(self, data_bytes: int, table_bytes: int) -> None:
        """Choose the settings for the next step. `data_bytes`: size of the step's data; `table_bytes`: size of the
        table's files, -1 if it is not known."""
        small = data_bytes <= SMALL_STEP_BYTES_MAX and 0 <= table_bytes <= SMALL_TABLE_BYTES_MAX
        if small == self._small:
            return
        for name, value in self._choices.items():
            if small:
                self.spark.conf.set(name, value)
            else:
                self.spark.conf.unset(name)
        self._small = small

    @contextmanager
    def recording(self, app_id: str, version: int) -> Iterator[None]:
        """Within this context, each commit records `version` for `app_id`. Delta skips a commit whose version is not
        newer than the recorded one."""
        self.spark.conf.set(_APP_ID, app_id)
        self.spark.conf.set(_VERSION, str(version))
        try:
            yield
        finally:
            self.spark.conf.unset(_APP_ID)
            self.spark.conf.unset(_VERSION)


@dataclass(frozen=True, slots=True)
class MergeForm:
    """How `MirroredTable.merge` changes rows by events.

    `key`: key columns; `columns`: the table's columns, without metadata columns, with their types; `extra`: for each
    metadata column, by its name, the expression over an event that computes its value; `soft`: True to mark rows as
    deleted instead of deleting them; `bounds`: further conditions on the target's rows, by which Delta can skip files.
    """

    key: Sequence[str]
    columns: StructType
    extra: Mapping[str, Column] = field(default_factory=dict)
    soft: bool = False
    bounds: str = ""


@dataclass(frozen=True, slots=True)
class RewriteForm:
    """How `MirroredTable.rewrite` changes rows by lines with the fields `key`, `row` and `way`. The values of `way`
    mean: `write` changes the row of the key, or inserts it; `delete` deletes all rows of the key; `mark` marks all rows
    of the key as deleted; `insert` inserts the row.

    `key`, `columns`: names of the key's columns, and of the columns of `row`; `extra`: values of further columns;
    `marked`: the column that marks rows as deleted, "" if there is none; `bounds`: see `MergeForm`.
    """

    key: Sequence[str]
    columns: Sequence[str]
    extra: Mapping[str, Column] = field(default_factory=dict)
    marked: str = ""
    bounds: str = ""


@dataclass(frozen=True, slots=True)
class MirroredTable:
    """A table in the target. `label`: database.table, for messages."""

    table_id: str
    path: str
    label: str

    @property
    def app_id(self) -> str:
        return f"binlog-dispatcher/table/{self.table_id}"

    @property
    def sql_name(self) -> str:
        """The table's name in Spark SQL."""
        return f"delta.{quoted(self.path)}"

    # -- state -----------------------------------------------------------------------------------------------

    def exists(self, spark: SparkSession) -> bool:
        return delta_log.delta_version(spark, self.path) >= 0

    def version(self, spark: SparkSession) -> int:
        """Returns the recorded lsn of the table's last step; -1 if there is none."""
        return delta_log.txn_version(spark, self.path, self.app_id)

    def has(self, spark: SparkSession, version: int) -> bool:
        """True if the step that ends with the lsn `version` is already applied."""
        return version <= self.version(spark)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.path)

    def columns(self, spark: SparkSession) -> StructType:
        return self.frame(spark).schema

    def owner(self, spark: SparkSession) -> str:
        """Returns the id of the table to which the folder belongs; "" if there is no Delta table, or no id."""
        return delta_log.table_properties(spark, self.path).get(TABLE_ID_PROPERTY, "")

    def size_bytes(self, spark: SparkSession) -> int:
        """Returns the size of the table's files, as the last commit recorded it; -1 if the last commit did not record
        the size, 0 if there is no table."""
        return delta_log.table_size(spark, self.path)[0]

    def is_empty(self, spark: SparkSession) -> bool:
        return not self.exists(spark) or self.frame(spark).isEmpty()

    def is_for_iceberg(self, spark: SparkSession) -> bool:
        """True if the Delta table has the property for Iceberg's readers. Delta then refuses to write what Iceberg's
        readers cannot read."""
        return delta_log.table_properties(spark, self.path).get(COMPATIBLE) == "true"

    # -- commits ---------------------------------------------------------------------------------------------

    def create(
        self,
        spark: SparkSession,
        columns: StructType,
        *,
        feed: bool = False,
        iceberg: bool = False,
    ) -> None:
        """Create the table without rows, if it does not exist. The commit records no lsn. `feed`: True to enable the
        change data feed; `iceberg`: True if Iceberg's readers have to read the table's files.

        Raises `BinlogError` UNSUPPORTED_CHANGE for a column with a name that Delta uses in a feed.
        """
        properties = {**BACKSTOP, **_features(columns), TABLE_ID_PROPERTY: self.table_id}
        if feed:
            self._require_no_feed_columns(columns)
            properties[FEED_PROPERTY] = "true"
        if iceberg:
            properties |= {**COLUMN_MAPPING, COMPATIBLE: "true"}
        builder = DeltaTable.createIfNotExists(spark).location(self.path)
        builder = builder.addColumns(all_nullable(columns))
        for name, value in properties.items():
            builder = builder.property(name, value)
        delta_commit.create_table(spark, self.path, builder)

    def feed_changes(self, spark: SparkSession) -> None:
        """Enable the change data feed for the commits after this call, unless it is already enabled. This makes a
        separate commit.

        Raises `BinlogError` UNSUPPORTED_CHANGE for a column with a name that Delta uses in a feed.
        """
        if delta_log.table_properties(spark, self.path).get(FEED_PROPERTY) == "true":
            return
        self._require_no_feed_columns(self.columns(spark))
        spark.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ('{FEED_PROPERTY}' = 'true')")

    def _require_no_feed_columns(self, columns: StructType) -> None:
        names = (column.name for column in columns)
        if taken := [name for name in names if name.lower() in _FEED_COLUMNS]:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {self.label} has a column {taken[0]}, which Delta's change data feed has, too",
                remedy=remedies.of_setting(
                    self.label, "leave change_data_feed out of the table's policy"
                ),
            )

    def replace_schema(self, spark: SparkSession, columns: StructType) -> None:
        """Delete all rows, and replace the columns. The commits record no lsn. After a failure, the call can be
        repeated, as long as no rows were written since then."""
        table_features.require(spark, self.path, _features(columns))
        empty = spark.createDataFrame([], all_nullable(columns))
        writer = empty.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.save(self.path)

    def own(self, spark: SparkSession) -> None:
        """Assign the Delta table to this mirrored table, in a separate commit."""
        spark.sql(
            f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ('{TABLE_ID_PROPERTY}' = '{self.table_id}')"
        )

    def take_over(
        self,
        spark: SparkSession,
        columns: StructType,
        *,
        feed: bool = False,
        iceberg: bool = False,
    ) -> None:
        """Assign the existing Delta table to this mirrored table: delete its rows, and replace its columns. `feed`,
        `iceberg`: as in `create`. The commits record no lsn. After a failure, the call can be repeated, because the
        owner changes last."""
        for_iceberg = iceberg and not self.is_for_iceberg(spark)
        if for_iceberg:
            # A column that is older than the table's column mapping keeps its name in the files, and its older files
            # have no ids. So for Iceberg's readers, the columns are replaced by new ones.
            self.replace_schema(spark, StructType([StructField("none", BooleanType())]))
            table_features.require(spark, self.path, COLUMN_MAPPING)
            self.replace_schema(spark, StructType([StructField("other", BooleanType())]))
        self.replace_schema(spark, columns)
        if feed:
            self.feed_changes(spark)
        if for_iceberg:
            spark.sql(
                f"ALTER TABLE {self.sql_name}"
                f" SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false', '{COMPATIBLE}' = 'true')"
            )
        self.own(spark)

    def add_columns(self, spark: SparkSession, columns: StructType) -> None:
        """Add columns at the end, NULL in existing rows. The commits record no lsn."""
        table_features.require(spark, self.path, _features(columns))
        names = ", ".join(f"{quoted(c.name)} {c.dataType.simpleString()}" for c in columns)
        spark.sql(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({names})")

    def append(self, version: int, rows: DataFrame) -> None:
        """Append rows. Delta matches their columns by name."""
        writer = rows.write.format("delta").mode("append")
        writer.option("txnAppId", self.app_id).option("txnVersion", str(version)).save(self.path)

    def record(self, session: StepSession, version: int) -> None:
        """Record a version and change nothing."""
        spark = session.spark
        self.append(version, spark.createDataFrame([], self.columns(spark)))

    def empty(self, session: StepSession, version: int) -> None:
        """Delete all rows."""
        if not self.exists(session.spark):
            return
        with session.recording(self.app_id, version):
            DeltaTable.forPath(session.spark, self.path).delete()

    def update(
        self,
        session: StepSession,
        version: int,
        values: dict[str, str | Column],
        where: str = "true",
    ) -> None:
        """Set columns of the rows that fulfil `where`. The keys of `values` are quoted names of columns."""
        with session.recording(self.app_id, version):
            DeltaTable.forPath(session.spark, self.path).update(where, values)

    def merge(self, session: StepSession, version: int, events: DataFrame, form: MergeForm) -> None:
        """Merge `events` into the table. `events` has one event per key, with the fields `key`, `row` and `deleted`."""
        values: dict[str, Any] = {
            quoted(column.name): F.col(f"e.row.{quoted(column.name)}") for column in form.columns
        }
        values |= {quoted(name): value for name, value in form.extra.items()}
        conditions = [f"t.{quoted(name)} = e.key.{quoted(name)}" for name in form.key]
        same = " AND ".join([*conditions, *([form.bounds] if form.bounds else [])])
        with session.recording(self.app_id, version):
            builder = DeltaTable.forPath(session.spark, self.path).alias("t")
            merge = builder.merge(events.alias("e"), same)
            if form.soft:
                merge = merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(values=values)
            else:
                merge = merge.whenMatchedDelete("e.deleted").whenMatchedUpdate(set=values)
                merge = merge.whenNotMatchedInsert("NOT e.deleted", values=values)
            merge.execute()

    def rewrite(
        self, session: StepSession, version: int, lines: DataFrame, form: RewriteForm
    ) -> None:
        """Rewrite the rows of keys. `lines`: see `RewriteForm`."""
        values: dict[str, Any] = {
            quoted(name): F.col(f"e.row.{quoted(name)}") for name in form.columns
        }
        values |= {quoted(name): value for name, value in form.extra.items()}
        # A row that the mirror has not written may have NULL in its key.
        same = [f"t.{quoted(name)} <=> e.key.{quoted(name)}" for name in form.key]
        same += ["e.way != 'insert'", *([form.bounds] if form.bounds else [])]
        with session.recording(self.app_id, version):
            builder = DeltaTable.forPath(session.spark, self.path).alias("t")
            merge = builder.merge(lines.alias("e"), " AND ".join(same))
            if form.marked:
                marked: dict[str, Any] = {quoted(form.marked): F.lit(True)}
                merge = merge.whenMatchedUpdate("e.way = 'mark'", set=marked)
            merge = merge.whenMatchedDelete("e.way = 'delete'")
            merge = merge.whenMatchedUpdate("e.way = 'write'", set=values)
            merge.whenNotMatchedInsert("e.way IN ('write', 'insert')", values=values).execute()

    def merge_counts(
        self, session: StepSession, version: int, lines: DataFrame, columns: StructType
    ) -> None:
        """Replace groups of equal rows: a line in which `removes` is true deletes all rows that equal its `row`; any
        other line inserts its `row`."""
        names = [quoted(column.name) for column in columns]
        equal = f"e.removes AND {equal_rows(columns, 't', 'e.row')}"
        values: dict[str, Any] = {name: F.col(f"e.row.{name}") for name in names}
        with session.recording(self.app_id, version):
            builder = DeltaTable.forPath(session.spark, self.path).alias("t")
            merge = builder.merge(lines.alias("e"), equal).whenMatchedDelete()
            merge.whenNotMatchedInsert("NOT e.removes", values=values).execute()


def _features(columns: StructType) -> dict[str, str]:
    """Returns the properties of `lake.table_features` that a table with these columns needs."""
    return table_features.for_columns((c.name, c.dataType.jsonValue()) for c in columns)


def all_nullable(columns: StructType) -> StructType:
    """Returns the columns with NULL allowed, so that a change between NULL and NOT NULL does not change the Delta
    table."""
    return StructType([StructField(column.name, column.dataType, True) for column in columns])
