"""Reads the log of a Delta table, by Delta's private interfaces, without a Spark job.

Delta has no public interfaces that return recorded versions, a table's version or the size of its files without a job.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_sink.mirror.lake.commit_actions import commit_actions
from spark_sink.mirror.lake.damage import naming_damage
from spark_sink.mirror.lake.file_system import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def txn_version(spark: SparkSession, path: str, app_id: str) -> int:
    """Returns the version that is recorded for `app_id` in the Delta table at `path`; -1 if there is none."""
    return recorded_version(transaction_on(spark, path), app_id)


def delta_version(spark: SparkSession, path: str) -> int:
    """Returns the newest version of the Delta table at `path`; -1 if there is no table."""
    return int(transaction_on(spark, path).readVersion())


def recorded_versions(spark: SparkSession, path: str, app_id: str) -> tuple[int, int]:
    """Returns the results of `delta_version` and `txn_version`, both from one snapshot of the table."""
    transaction = transaction_on(spark, path)
    return int(transaction.readVersion()), recorded_version(transaction, app_id)


def newest_commit(spark: SparkSession, path: str) -> dict[str, Any]:
    """Returns the `commitInfo` of the newest commit of the Delta table at `path`; {} if it has none. Delta's public
    interface for a table's history would run a Spark job."""
    version = delta_version(spark, path)
    text = FileSystem(spark).read(f"{path}/_delta_log/{version:020d}.json") or ""
    infos = (action["commitInfo"] for action in commit_actions(text) if "commitInfo" in action)
    return next(infos, {})


def has_commit(files: FileSystem, path: str, version: int) -> bool:
    """True if the Delta table at `path` has the commit with this number. This function checks only one file;
    `delta_version` lists the folder of the commits, which takes ten times as long."""
    return files.exists(f"{path}/_delta_log/{version:020d}.json")


def table_size(spark: SparkSession, path: str) -> tuple[int, int]:
    """Returns (bytes, files) of the Delta table at `path`, as its last commit recorded them; (-1, -1) if that commit
    did not record them, (0, 0) if there is no table."""
    transaction = transaction_on(spark, path)
    if int(transaction.readVersion()) < 0:
        return 0, 0
    checksum: Any = transaction.snapshot().checksumOpt()
    if not checksum.isDefined():
        return -1, -1
    return int(checksum.get().tableSizeBytes()), int(checksum.get().numFiles())


def checkpoint_version(spark: SparkSession, path: str) -> int:
    """Returns the version of the newest checkpoint of the Delta table at `path`; -1 if it has none."""
    return int(transaction_on(spark, path).snapshot().checkpointProvider().version())


def forget_table(spark: SparkSession, path: str) -> None:
    """Remove the table at `path` from Delta's cache, because another folder may have been renamed to this path."""
    jvm: Any = spark._jvm  # noqa: SLF001
    java_session: Any = spark._jsparkSession  # noqa: SLF001
    log: Any = jvm.org.apache.spark.sql.delta.DeltaLog
    log.invalidateCache(java_session, jvm.org.apache.hadoop.fs.Path(path))


def table_properties(spark: SparkSession, path: str) -> dict[str, str]:
    """Returns the properties of the Delta table at `path`."""
    properties: Any = transaction_on(spark, path).metadata().configuration()
    jvm: Any = spark._jvm  # noqa: SLF001
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(properties))


def schema_fields(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    """Returns the fields of the Delta table at `path` in Spark's JSON form, with the metadata that Delta keeps in the
    fields and hides from readers: a column's name in the files, and the earlier types of the column."""
    fields = json.loads(transaction_on(spark, path).metadata().schemaString())["fields"]
    assert isinstance(fields, list)
    return fields


def widens(spark: SparkSession, before: str, after: str) -> bool:
    """True if Delta can change a column's type from `before` to `after` by metadata alone. Types are in Spark's JSON
    form."""
    jvm: Any = spark._jvm  # noqa: SLF001
    kinds = [jvm.org.apache.spark.sql.types.DataType.fromJson(text) for text in (before, after)]
    atomic: Any = jvm.java.lang.Class.forName("org.apache.spark.sql.types.AtomicType")
    if not all(atomic.isInstance(kind) for kind in kinds):
        return False
    return bool(jvm.org.apache.spark.sql.delta.TypeWidening.isTypeChangeSupported(*kinds))


def transaction_on(spark: SparkSession, path: str) -> Any:
    # A transaction begins with the newest snapshot. The public `DeltaTable` would read the snapshot with a Spark job.
    jvm: Any = spark._jvm  # noqa: SLF001
    java_session: Any = spark._jsparkSession  # noqa: SLF001
    _activate(jvm, java_session)
    with naming_damage(partial(FileSystem, spark), path):
        log: Any = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session, path)
        return log.startTransaction()


def _activate(jvm: Any, java_session: Any) -> None:
    """Give the thread a session if it has none; in a query's batch, it has one. Spark's public interfaces do so, but
    Delta's private ones do not, and without a session Delta cannot read a checkpoint that has no checksum file beside
    it. A job that is killed between the write of a checkpoint and the write of the checksum leaves such a table."""
    sessions: Any = jvm.org.apache.spark.sql.classic.SparkSession
    if not sessions.getActiveSession().isDefined():
        sessions.setActiveSession(java_session)


def table_files(spark: SparkSession, path: str) -> tuple[int, DataFrame]:
    """Returns the newest version of the Delta table at `path`, and its files as Delta's `add` actions: `path`,
    `partitionValues`, `stats` (JSON) and others."""
    from pyspark.sql import DataFrame  # noqa: PLC0415

    snapshot: Any = transaction_on(spark, path).snapshot()
    return int(snapshot.version()), DataFrame(snapshot.allFiles().toDF(), spark)


def recorded_version(transaction: Any, app_id: str) -> int:
    checksum: Any = transaction.snapshot().checksumOpt()
    transactions: Any = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not transactions.isDefined():
        return int(transaction.txnVersion(app_id))  # runs Spark jobs
    recorded: Any = transactions.get()
    for index in range(recorded.size()):
        if recorded.apply(index).appId() == app_id:
            return int(recorded.apply(index).version())
    return -1


def property_in_commits(files: FileSystem, path: str, name: str) -> str:
    """Returns a property of the Delta table at `path` from the newest commit that can be read and contains the table's
    properties; "" if there is no such commit. This works even if the table's log is so damaged that Delta cannot read
    it."""
    folder = f"{path}/_delta_log"
    for file in reversed(files.names(folder)):
        if not file.endswith(".json"):
            continue
        try:
            for action in commit_actions(files.read(f"{folder}/{file}") or ""):
                if "metaData" in action:
                    return str(action["metaData"]["configuration"].get(name, ""))
        except (ValueError, TypeError, AttributeError, KeyError):
            continue  # this commit is damaged: look at the one before it
    return ""
