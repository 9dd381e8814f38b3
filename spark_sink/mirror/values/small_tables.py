"""Settings of Spark with which commits to small Delta tables are fast. A job has them unless the user sets others."""

from __future__ import annotations

# Each commit writes the table's state, and the recorded versions, into a checksum file, so that the next commit does
# not compute them with Spark jobs: a MERGE of few rows takes one second instead of five.
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
