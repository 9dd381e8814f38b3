"""Reads the rows that a mirrored table had at an entry of the log, from a version of the table's Delta table. The
number of an entry is its lsn.

Each step records its lsn in its commit. So the wanted version is the last version before the first commit of a later
step. Commits without an lsn, such as compactions, change no rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.commit_actions import commit_actions
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.names import quoted
from spark_sink.mirror.values.policies import Deletes, MetadataColumn, TablePolicy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def mirrored_rows(
    spark: SparkSession, table: MirroredTable, policy: TablePolicy, lsn: int
) -> DataFrame | None:
    """Returns the rows that the table had when the entry `lsn` was applied, without metadata columns and without rows
    that are marked as deleted; None if there was no table yet. Raises `BinlogError` RANGE_UNAVAILABLE if Delta no
    longer has that version."""
    files = FileSystem(spark)
    newest = delta_version(spark, table.path)
    if newest < 0:
        return None

    def recorded(version: int) -> int | None:
        text = files.read(f"{table.path}/_delta_log/{version:020d}.json")
        if text is None:
            raise BinlogError(
                ErrorKind.RANGE_UNAVAILABLE,
                f"Delta no longer has the commits of table {table.label} of before version {version + 1}, which hold"
                f" the rows at lsn {lsn}",
                where=table.path,
            )
        return lsn_of_commit(text, table.app_id)

    version = version_at(newest, recorded, lsn)
    if version < 0:
        return None
    frame = spark.read.format("delta").option("versionAsOf", version).load(table.path)
    if policy.deletes is Deletes.SOFT and MetadataColumn.DELETED in frame.columns:
        frame = frame.where(f"NOT coalesce({quoted(MetadataColumn.DELETED)}, false)")
    return frame.drop(*policy.extra)


def lsn_of_commit(text: str, app_id: str) -> int | None:
    """Returns the version that a commit of Delta's log records for `app_id`, None if it records none."""
    txns = (action["txn"] for action in commit_actions(text) if "txn" in action)
    versions = (txn["version"] for txn in txns if txn["appId"] == app_id)
    return next((int(version) for version in versions), None)


def version_at(newest: int, recorded: Callable[[int], int | None], lsn: int) -> int:
    """Returns the last version of a Delta table before the first step after `lsn`; -1 if this step made the first
    version.

    `newest`: the newest version of the Delta table; `recorded`: returns the lsn of the step that made a version, None
    if no step made it.
    """
    last = newest
    for version in range(newest, -1, -1):
        step = recorded(version)
        if step is not None and step <= lsn:
            break
        if step is not None:
            last = version - 1
    return last
