"""Writes Delta's checkpoints of the mirror's tables, during maintenance instead of during commits, and deletes old
commits.

A checkpoint contains a table's state, so that a reader need not read each commit. Delta writes a checkpoint in every
n-th commit. That commit has to wait for the Spark jobs that write the checkpoint: such an append to the mirror's log
took 15 s. So the mirror creates its tables with a large n.

Delta itself keeps the commits of 30 days, and whole days. A table with a commit each second would have 2.6 million of
them, and each transaction lists them all.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import TYPE_CHECKING

from spark_sink.mirror.lake import delta_commit, delta_log
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules.upkeep import first_kept_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_COMMITS = 200  # a table gets a checkpoint this many commits after its last one
# The n of the mirror's tables. It is finite, so that Delta writes checkpoints even if maintenance does not run. The
# number is a property of the table, so other writers use it, too.
BACKSTOP = {"delta.checkpointInterval": "10000"}
RETENTION_PROPERTY = "delta.logRetentionDuration"
FORGOTTEN_MAX = 2000  # commits that one call deletes
_CHECKPOINT = ".checkpoint.parquet"


class Checkpoints:
    """Writes checkpoints. Not thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._files = FileSystem(spark)
        self._newest: dict[str, int] = {}

    def write(self, path: str, keep_s: float) -> bool:
        """Write a checkpoint of the Delta table at `path` if at least `CHECKPOINT_COMMITS` commits follow the newest
        one, and delete commits that are older than `keep_s`, see `first_kept_commit`. Returns False if it has written
        no checkpoint, because fewer commits follow or there is no table."""
        newest = self._newest.get(path)
        if newest is None or (newest >= 0 and not delta_log.has_commit(self._files, path, newest)):
            # Either this object sees the path for the first time, or a RENAME has moved another table to the path.
            if delta_log.delta_version(self._spark, path) < 0:
                return False
            newest = self._newest[path] = delta_log.checkpoint_version(self._spark, path)
        if not delta_log.has_commit(self._files, path, newest + CHECKPOINT_COMMITS):
            return False
        self._newest[path] = delta_commit.write_checkpoint(self._spark, path)
        self._forget(path, keep_s)
        return True

    def _forget(self, path: str, keep_s: float) -> None:
        """Delete commits and checkpoints, the oldest first, so that the remaining commits have no gap after a crash.
        A table with a retention of its own is left to Delta."""
        if RETENTION_PROPERTY in delta_log.table_properties(self._spark, path):
            return
        folder = f"{path}/_delta_log"
        # A checkpoint of several files, which needs a setting of a user, does not count.
        written = self._files.modified(folder, f"{'[0-9]' * 20}{_CHECKPOINT}")
        versions = {int(name.removesuffix(_CHECKPOINT)): at for name, at in written.items()}
        kept = first_kept_commit(versions, time.time(), keep_s)
        if not kept:
            return
        first = self._first_commit(path, kept)
        for version in range(first, min(kept, first + FORGOTTEN_MAX)):
            endings = (_CHECKPOINT, ".crc", ".json") if version in versions else (".crc", ".json")
            for ending in endings:
                self._files.delete(f"{folder}/{version:020d}{ending}")

    def _first_commit(self, path: str, kept: int) -> int:
        """Returns the oldest version that has a commit. `kept`: a version that has one."""
        return bisect_left(
            range(kept), True, key=lambda version: delta_log.has_commit(self._files, path, version)
        )
