"""Writes Delta's checkpoints of the mirror's tables, during maintenance instead of during commits.

A checkpoint contains a table's state, so that a reader need not read each commit. Delta writes a checkpoint in every
n-th commit. That commit has to wait for the Spark jobs that write the checkpoint: such an append to the mirror's log
took 15 s. So the mirror creates its tables with a large n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_sink.mirror.lake import delta_commit, delta_log
from spark_sink.mirror.lake.file_system import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT_COMMITS = 200  # a table gets a checkpoint this many commits after its last one
# The n of the mirror's tables. It is finite, so that Delta writes checkpoints even if maintenance does not run. The
# number is a property of the table, so other writers use it, too.
BACKSTOP = {"delta.checkpointInterval": "10000"}


class Checkpoints:
    """Writes checkpoints. Not thread-safe."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._files = FileSystem(spark)
        self._newest: dict[str, int] = {}

    def write(self, path: str) -> bool:
        """Write a checkpoint of the Delta table at `path` if at least `CHECKPOINT_COMMITS` commits follow the newest
        one. Returns False if it has written no checkpoint, because fewer commits follow or there is no table."""
        newest = self._newest.get(path)
        if newest is None or (newest >= 0 and not delta_log.has_commit(self._files, path, newest)):
            # Either this object sees the path for the first time, or a RENAME has moved another table to the path.
            if delta_log.delta_version(self._spark, path) < 0:
                return False
            newest = self._newest[path] = delta_log.checkpoint_version(self._spark, path)
        if not delta_log.has_commit(self._files, path, newest + CHECKPOINT_COMMITS):
            return False
        self._newest[path] = delta_commit.write_checkpoint(self._spark, path)
        return True
