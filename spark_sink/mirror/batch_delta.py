"""One mirrored table: its state in the target, and the steps that change it.

Every step records `(application id, version)` in its own Delta commit. The application id consists of consumer, table
and epoch; the version is the `seq` of the step's last transaction. Delta skips a commit whose version is not newer than
the recorded one, so a step that is replayed after a crash changes nothing. Spark's batch number cannot be the version:
one batch may hold several steps of a table, and a new checkpoint counts from 0 again.

MERGE and DELETE take the pair from the session's settings. So each `BatchSession` has a session of its own, and is used
by one thread at a time.

DROP TABLE and TRUNCATE empty the target and keep it: without its folder the recorded versions would be lost, and a
replay would bring the old rows back for a while. An empty target holds no row that a change of columns could concern,
so it takes any layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.names import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
# Characters that a column name may hold only with Delta's column mapping.
_UNMAPPED = re.compile(r"[ ,;{}()\n\t=]")

INTERPRETED_BYTES_MAX = 2 << 20


@dataclass(frozen=True, slots=True)
class Version:
    """The version that a commit records."""

    epoch: int
    seq: int


@dataclass
class BatchSession:
    """A Spark session for one thread at a time: its settings carry the version of the current step."""

    spark: SparkSession

    def expect(self, data_bytes: int) -> None:
        """Choose how the next step runs, by its size.

        Compiling generated code takes a third of the time of a small MERGE, and halves that of a large one.
        """
        small = data_bytes <= INTERPRETED_BYTES_MAX
        self.spark.conf.set("spark.sql.codegen.wholeStage", str(not small).lower())
        self.spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")

    @contextmanager
    def recording(self, app_id: str, version: int) -> Iterator[None]:
        """Commits made within record the pair, and are skipped if it is not newer."""
        self.spark.conf.set(_APP_ID, app_id)
        self.spark.conf.set(_VERSION, str(version))
        try:
            yield
        finally:
            self.spark.conf.unset(_APP_ID)
            self.spark.conf.unset(_VERSION)


@dataclass
class BatchTable:
    """One table in the target. `columns`: name to type as there; None if not known yet, or if there is no table."""

    consumer: str
    database: str
    table: str
    path: str
    known: bool = False
    columns: StructType | None = None
    versions: dict[int, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.database}.{self.table}"

    def app_id(self, epoch: int) -> str:
        return f"binlog-dispatcher/{self.consumer}/{self.label}/{epoch}"

    # -- state -----------------------------------------------------------------------------------------------

    def exists(self, session: BatchSession) -> bool:
        if not self.known:
            is_table = DeltaTable.isDeltaTable(session.spark, self.path)
            self.columns = self._frame(session).schema if is_table else None
            self.known = True
        return self.columns is not None

    def has(self, session: BatchSession, step: Version) -> bool:
        """True if the step was applied already. Asks the target once per epoch: only this mirror writes the id."""
        if step.epoch not in self.versions:
            self.versions[step.epoch] = (
                self._version(session, step.epoch) if self.exists(session) else -1
            )
        return step.seq <= self.versions[step.epoch]

    def is_empty(self, session: BatchSession) -> bool:
        return not self.exists(session) or self._frame(session).isEmpty()

    def _frame(self, session: BatchSession) -> DataFrame:
        return session.spark.read.format("delta").load(self.path)

    def _version(self, session: BatchSession, epoch: int) -> int:
        return int(self._log(session).startTransaction().txnVersion(self.app_id(epoch)))

    def _log(self, session: BatchSession) -> Any:
        # Recorded versions and sizes have no public API; Delta's own commands use this class.
        jvm: Any = session.spark._jvm  # noqa: SLF001
        java_session: Any = session.spark._jsparkSession  # noqa: SLF001
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session, self.path)

    def size_bytes(self, session: BatchSession) -> int:
        """The size of the table's files; 0 if a Spark job would have to compute it."""
        known: Any = self._log(session).unsafeVolatileSnapshot().sizeInBytesIfKnown()
        return int(known.get()) if known.isDefined() else 0

    # -- steps -----------------------------------------------------------------------------------------------

    def empty(self, session: BatchSession, step: Version) -> None:
        """Delete all rows, if there are any."""
        if not self.exists(session):
            return
        with session.recording(self.app_id(step.epoch), step.seq):
            DeltaTable.forPath(session.spark, self.path).delete()
        self.versions[step.epoch] = step.seq

    def fit(self, session: BatchSession, layout: StructType, place: str) -> bool:
        """Add the columns that are new in `layout`. Returns True if the table must be written anew with that schema.

        Raises `BinlogError` UNSUPPORTED_CHANGE if existing rows would have to change.
        """
        if not self.exists(session):
            return True
        assert self.columns is not None
        existing = {field.name.lower(): field for field in self.columns}
        required = {field.name.lower(): field for field in layout}
        changed = [
            f"column {f.name!r} was {f.dataType.simpleString()} and is "
            + (required[name].dataType.simpleString() if name in required else "gone")
            for name, f in existing.items()
            if name not in required or required[name].dataType != f.dataType
        ]
        added = [field for name, field in required.items() if name not in existing]
        changed += [f"column {f.name!r} was added and is not NULL" for f in added if not f.nullable]
        changed += [
            f"column {f.name!r} has a name that needs a new table"
            for f in added
            if _UNMAPPED.search(f.name)
        ]
        if changed:
            if self.is_empty(session):
                return True
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {self.label}: " + "; ".join(changed),
                where=place,
            )
        if added:
            self._add_columns(session, added)
        return False

    def _add_columns(self, session: BatchSession, added: list[StructField]) -> None:
        table = f"delta.{quoted(self.path)}"
        if any(isinstance(field.dataType, TimestampNTZType) for field in added):
            # Creating a table with such a column enables the feature; adding one does not.
            feature = "'delta.feature.timestampNtz' = 'supported'"
            session.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({feature})")
        names = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in added)
        session.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({names})")
        self.known = False

    def write(self, step: Version, rows: DataFrame, columns: StructType) -> None:
        """Create the table with `rows`, or replace an empty one, whatever its columns."""
        nullable = StructType(
            [f if f.nullable else type(f)(f.name, f.dataType, True) for f in columns]
        )
        writer = (
            rows.write.format("delta")
            .mode("overwrite")
            .option("overwriteSchema", "true")
            .option("txnAppId", self.app_id(step.epoch))
            .option("txnVersion", str(step.seq))
        )
        if any(_UNMAPPED.search(f.name) for f in columns):
            writer = writer.option("delta.columnMapping.mode", "name")
        writer.save(self.path)
        self.known, self.columns = True, nullable
        self.versions[step.epoch] = step.seq

    def merge(
        self,
        session: BatchSession,
        step: Version,
        events: DataFrame,
        key: list[str],
        columns: StructType,
    ) -> None:
        """Merge `events`: one per key, with `key`, `row` and `deleted`."""
        values: dict[str, str | Column] = {
            quoted(f.name): F.col(f"e.row.{quoted(f.name)}") for f in columns
        }
        same = " AND ".join(f"t.{quoted(name)} = e.key.{quoted(name)}" for name in key)
        with session.recording(self.app_id(step.epoch), step.seq):
            (
                DeltaTable.forPath(session.spark, self.path)
                .alias("t")
                .merge(events.alias("e"), same)
                .whenMatchedDelete("e.deleted")
                .whenMatchedUpdate(set=values)
                .whenNotMatchedInsert("NOT e.deleted", values=values)
                .execute()
            )
        self.versions[step.epoch] = step.seq
