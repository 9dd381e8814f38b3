"""The meaning of each setting of the mirror, for the reference. `PATTERN` is a pattern like `shop.*`."""

from __future__ import annotations

MIRROR = {
    "url": "The daemon's API",
    "token": "A bearer token of the daemon",
    "token_file": "A file that contains the token; read again for each request, on the executors "
    "too",
    "ca_file": "The authority that signed the daemon's certificate",
    "consumers.NAME.include": "The consumer's tables to mirror",
    "consumers.NAME.exclude": "Of these, tables that are not mirrored",
    "target": "Tables are at `TARGET/database/table`; any path that Spark can write",
    "catalog": "Name of each table in a catalog of Spark's, such as `main.{database}.{table}`; "
    "without it in none ([targets.md](targets.md#names-in-a-catalog))",
    "stages": "`log` reads from the daemon, `apply` writes the tables",
    "available_now": "Mirror up to the server's tip at the start, then end",
    "trigger_interval": "Shortest time between two appends to the log, such as `2 seconds`",
    "fail_on_data_loss": "Stop if the server has purged changes; false: go on behind them, see "
    "`on_gap`",
    "max_bytes_per_trigger": "Bytes of an append; without it half of the queue's limit",
    "max_partitions": "Slices in which an append is read",
    "max_bytes_per_partition": "Of a slice; a larger transaction is divided into more slices",
    "retry_timeout_seconds": "How long to wait for a daemon that does not answer",
    "parallel_tables": "Tables that are brought forward at a time",
    "max_bytes_per_step": "Of the log, in one step of a table",
    "invalid_dates": "What a date like 0000-00-00 becomes ([types.md](types.md#invalid-dates))",
    "log_days": "For how long the log is kept after all tables have applied it",
    "tables.PATTERN.unknown_tables": "Rows of a table whose CREATE the log does not hold; without "
    "it `copy` with a server to copy from, else `stop`",
    "tables.PATTERN.on_gap": "What to do after purged changes; without it `copy` with a server to "
    "copy from, else `partial`",
    "tables.PATTERN.on_alter": "Changes of existing rows that no log holds; without it `recopy` "
    "([schema-changes.md](schema-changes.md))",
    "tables.PATTERN.deletes": "`hard`, without it, deletes the row; `soft` sets its column "
    "`_deleted`",
    "tables.PATTERN.metadata_columns": "Columns about the transaction that wrote a row last",
    "tables.PATTERN.seconds_between_steps": "Shortest time between two steps of rows",
    "tables.PATTERN.history": "Keep each version of a row in a table of its own, "
    "`TABLE__history` ([history.md](history.md#history-tables))",
    "tables.PATTERN.omit_columns": "Names of columns that the mirrored table does not have, such as generated ones that"
    " the server leaves out of the log ([types.md](types.md#generated-columns))",
    "tables.PATTERN.change_data_feed": "Give the Delta table a change data feed "
    "([history.md](history.md#change-data-feed))",
    "copy.mysql": "The server that rows are copied from: the source or, with GTIDs, a replica of "
    "it",
    "copy.password": "The account's password",
    "copy.password_file": "A file that contains the password",
    "copy.tls": "As MySQL's `--ssl-mode`",
    "copy.ca_file": "The authority that signed the server's certificate",
    "copy.parallel": "Ranges of a table that are read at a time",
    "copy.max_rows_per_second": "Of one table; 0: no limit",
    "copy.pause_above_threads_running": "Wait while the server runs more threads; 0: no limit",
    "copy.pause_above_replica_lag_seconds": "Wait while the replica is further behind; 0: no limit",
    "copy.max_bytes_in_chunk": "Size of a range of the key, by the server's estimate",
    "copy.wait_seconds": "How long to wait for the server to execute the position at which the "
    "log stands",
    "copy.lock_keyless_tables": "Lock a table without a key for the instant at which it is copied",
    "spark.master": "The Spark that the command starts itself",
    "spark.driver_memory": "Memory of the driver's JVM",
    "spark.conf": "Settings of Spark; they override all that the job sets",
    "metrics": "Serve Prometheus metrics at this address, such as `127.0.0.1:9464`",
    "log_level": "The least severe lines that are written",
    "log_format": "`console` writes text, `json` one object a line ([log.md](log.md#the-mirror))",
}
