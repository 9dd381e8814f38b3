"""Spark settings that make commits to small Delta tables fast. A job uses these settings, except those that the user
has set."""

from __future__ import annotations

# With the settings of `spark.databricks.delta`, each commit writes the table's state and the recorded versions into a
# checksum file. The next commit then needs no Spark jobs to compute this state: a MERGE of few rows takes one second
# instead of five.
SMALL_TABLES = {
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.incremental.commit.enabled": "true",
    "spark.databricks.delta.setTransactionsInCrc.writeOnCommit": "true",
    "spark.databricks.delta.allFilesInCrc.enabled": "true",
    "spark.databricks.delta.allFilesInCrc.verificationMode.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
    # The time that a Python worker may take to start. The default of 15 s was too short on a busy machine.
    "spark.python.authenticate.socketTimeout": "120s",
}
