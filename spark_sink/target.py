"""One mirrored table: what is known of it, and the steps that change it.

Every step records `(application id, version)` in its own Delta commit: the application id is made
of consumer, table and epoch, the version is the `seq` of the step's last transaction. Delta refuses
a version that is not newer than the one it holds, so a step that is replayed after a crash changes
nothing. Spark's batch number cannot serve: one batch may hold several steps of a table, and a fresh
checkpoint counts from 0 again.

MERGE and DELETE take the pair from the session's settings, so each `StepSession` has a session of its
own and is used by one thread at a time.

DROP TABLE and TRUNCATE empty the target and keep it: with the folder the versions would go, too,
and a replay would bring the old rows back for a while. An empty target holds no row that a change
of columns could concern, so it takes any layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, TimestampNTZType

from dispatcher.model.errors import BinlogError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
# Characters that Parquet allows in no column name without Delta's column mapping.
_UNMAPPED = re.compile(r"[ ,;{}()\n\t=]")
_SAFE_IN_PATH = " $-_"

INTERPRETED_BYTES_MAX = 2 << 20


def folder_name(name: str) -> str:
    """A database's or table's name as the name of a folder; `name_of_folder` is its inverse.

    Letters of any script stay; what Hadoop, globs or file systems give a meaning is written as %xx.
    """
    text = "".join(c if c.isalnum() or c in _SAFE_IN_PATH else quote(c, safe="") for c in name)
    # quote leaves "." and "~" alone; "." and ".." are places and not names.
    return text.replace(".", "%2E").replace("~", "%7E")


def name_of_folder(name: str) -> str:
    return unquote(name)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Version:
    """What a commit is recorded under."""

    epoch: int
    seq: int


@dataclass
class StepSession:
    """A session for one thread at a time: its settings carry the version of the step under way."""

    spark: SparkSession

    def expect(self, data_bytes: int) -> None:
        """Choose how to run what follows. Compiling generated code for a MERGE takes a third of all
        the time that a small one needs, and halves that of a large one.
        """
        small = data_bytes <= INTERPRETED_BYTES_MAX
        self.spark.conf.set("spark.sql.codegen.wholeStage", str(not small).lower())
        self.spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")

    @contextmanager
    def recording(self, app_id: str, version: int) -> Iterator[None]:
        """Commits made within are recorded under the pair, and skipped where they are not newer."""
        self.spark.conf.set(_APP_ID, app_id)
        self.spark.conf.set(_VERSION, str(version))
        try:
            yield
        finally:
            self.spark.conf.unset(_APP_ID)
            self.spark.conf.unset(_VERSION)


@dataclass
class MirroredTable:
    """One table in the target. `columns`: name to type as in the target, None = not known yet or no
    table there.
    """

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

    # -- what is there ---------------------------------------------------------------------------------------

    def exists(self, worker: StepSession) -> bool:
        if not self.known:
            there = DeltaTable.isDeltaTable(worker.spark, self.path)
            self.columns = self._frame(worker).schema if there else None
            self.known = True
        return self.columns is not None

    def has(self, worker: StepSession, step: Version) -> bool:
        """True if the step is in the target already. The target is asked once per epoch, since no
        other job writes this id.
        """
        if step.epoch not in self.versions:
            self.versions[step.epoch] = (
                self._version(worker, step.epoch) if self.exists(worker) else -1
            )
        return step.seq <= self.versions[step.epoch]

    def is_empty(self, worker: StepSession) -> bool:
        return not self.exists(worker) or self._frame(worker).isEmpty()

    def _frame(self, worker: StepSession) -> DataFrame:
        return worker.spark.read.format("delta").load(self.path)

    def _version(self, worker: StepSession, epoch: int) -> int:
        return int(self._log(worker).startTransaction().txnVersion(self.app_id(epoch)))

    def _log(self, worker: StepSession) -> Any:
        # There is no public call for recorded versions and sizes; Delta's own commands ask here.
        jvm: Any = worker.spark._jvm  # noqa: SLF001
        session: Any = worker.spark._jsparkSession  # noqa: SLF001
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(session, self.path)

    def size_bytes(self, worker: StepSession) -> int:
        """Of the files that the table consists of; 0 where that is not known without computing it."""
        known: Any = self._log(worker).unsafeVolatileSnapshot().sizeInBytesIfKnown()
        return int(known.get()) if known.isDefined() else 0

    # -- steps -----------------------------------------------------------------------------------------------

    def empty(self, worker: StepSession, step: Version) -> None:
        """Delete all rows, if there are any."""
        if not self.exists(worker):
            return
        with worker.recording(self.app_id(step.epoch), step.seq):
            DeltaTable.forPath(worker.spark, self.path).delete()
        self.versions[step.epoch] = step.seq

    def fit(self, worker: StepSession, wanted: StructType, place: str) -> bool:
        """Make the target take rows of `wanted`: add what is new. True: it is to be written anew
        with that schema.

        Raises `BinlogError` UNSUPPORTED_CHANGE where rows that exist would have to change.
        """
        if not self.exists(worker):
            return True
        assert self.columns is not None
        have = {field.name.lower(): field for field in self.columns}
        want = {field.name.lower(): field for field in wanted}
        changed = [
            f"column {f.name!r} was {f.dataType.simpleString()} and is "
            + (want[name].dataType.simpleString() if name in want else "gone")
            for name, f in have.items()
            if name not in want or want[name].dataType != f.dataType
        ]
        added = [field for name, field in want.items() if name not in have]
        changed += [f"column {f.name!r} was added and is not NULL" for f in added if not f.nullable]
        changed += [
            f"column {f.name!r} has a name that needs a new table"
            for f in added
            if _UNMAPPED.search(f.name)
        ]
        if changed:
            if self.is_empty(worker):
                return True
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"table {self.label}: " + "; ".join(changed),
                where=place,
            )
        if added:
            self._add_columns(worker, added)
        return False

    def _add_columns(self, worker: StepSession, added: list[StructField]) -> None:
        table = f"delta.{quoted(self.path)}"
        if any(isinstance(field.dataType, TimestampNTZType) for field in added):
            # Creating a table with such a column turns the feature on, adding one does not.
            feature = "'delta.feature.timestampNtz' = 'supported'"
            worker.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({feature})")
        names = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in added)
        worker.spark.sql(f"ALTER TABLE {table} ADD COLUMNS ({names})")
        self.known = False

    def write(self, step: Version, rows: DataFrame, columns: StructType) -> None:
        """Create the table, or replace an empty one whatever its columns were, with `rows`."""
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
        worker: StepSession,
        step: Version,
        events: DataFrame,
        key: list[str],
        columns: StructType,
    ) -> None:
        """`events`: one per key, with `key`, `row` and `deleted`."""
        values: dict[str, str | Column] = {
            quoted(f.name): F.col(f"e.row.{quoted(f.name)}") for f in columns
        }
        same = " AND ".join(f"t.{quoted(name)} = e.key.{quoted(name)}" for name in key)
        with worker.recording(self.app_id(step.epoch), step.seq):
            (
                DeltaTable.forPath(worker.spark, self.path)
                .alias("t")
                .merge(events.alias("e"), same)
                .whenMatchedDelete("e.deleted")
                .whenMatchedUpdate(set=values)
                .whenNotMatchedInsert("NOT e.deleted", values=values)
                .execute()
            )
        self.versions[step.epoch] = step.seq
