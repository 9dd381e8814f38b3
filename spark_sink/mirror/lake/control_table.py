"""The control table TARGET/_binlog/tables: what the mirror knows about each table, and how far each consumer is
applied.

It is a Delta table to which rows are only appended. Among the rows of one kind and one table id, the row with the
largest `serial` replaces all others. There are six kinds of rows:

* `table`: the record of a table, with the table's state as JSON in `detail`. Two programs write such rows: the
  application that applies the consumer, and `adopt`, which first takes the claim of the consumer from that application.
* `history`: the record of a table's history, in the form of `table` rows.
* `request`: a command of a person (`python -m spark_sink resolve`, `copy`, `adopt`). Any process may write it. A
  request about a table id is open until the table's row names the request's id in `handled`. A request for a copy has a
  consumer and a table's name instead of a table id, because the table may not have an id yet: a table gets its id with
  its record, and only the application that applies the consumer creates records. The newest request for a name is open
  until a `table` row names the request's id in `answered`.
* `consumer`: the watermark of a consumer. Each entry up to `from_lsn` is applied, or is left in the log because its
  table is stopped or being copied, as the table's row shows.
* `proof`: whether a table is known to equal its server's table; see `rules/proofs.py`.
* `claim`: the job whose id is in `request` runs the stage in `state` (log or apply) for the consumer; see
  `runtime/claims.py`.

An lsn is the number of an entry (rows of a table, or a statement) of the mirror's log. The `from_lsn` of a table is an
lsn up to which no entry of the table has to be applied, even if the Delta table records a smaller lsn. So a table's
applied lsn is the larger of two numbers: `from_lsn`, and the version that its Delta table records.

Rows that have to change together are written in one commit, because Delta commits are atomic. `ControlTable.compact`
deletes rows that newer rows replace.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.mirror.lake.checkpoints import BACKSTOP
from spark_sink.mirror.lake.control_file import NAMES, TYPES, copy_rows, file_of, request_row
from spark_sink.mirror.lake.damage import naming_damage
from spark_sink.mirror.lake.delta_commit import append_file, create_table
from spark_sink.mirror.lake.delta_log import delta_version, has_commit
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.lake.group_commit import GroupCommit
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.control_rows import (
    ClaimedStage,
    ControlRows,
    Row,
    control_row,
    latest_rows,
    row_of,
    row_of_proof,
    rows_after,
    superseded,
)
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.values.names import TableName, own_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_PROPERTIES = {**BACKSTOP, "delta.enableDeletionVectors": "false"}


class ControlTable:
    """Reads and writes the control table of a target. Threads may share it.

    A commit costs the same for one row as for a hundred, so rows that several consumers write at the same time share
    one commit.
    """

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark = spark.newSession()
        self.path = own_path(target, "tables")
        self._files = FileSystem(spark)
        self._commits = GroupCommit(self._commit)
        # If a thread takes both locks, it takes `_writing` first.
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._version = -1
        self._raw: list[Row] = []
        self._rows = latest_rows([])

    # -- reading ---------------------------------------------------------------------------------------------

    def rows(self) -> ControlRows:
        """Returns the rows that no newer row replaces. Reads the table again only if it has changed. If another thread
        is writing rows with this object, returns the rows from before this write."""
        with self._lock:
            if not self._writing.locked():
                self._read()
            return self._rows

    def _read(self) -> None:
        if self._version >= 0 and not has_commit(self._files, self.path, self._version + 1):
            return
        with naming_damage(lambda: self._files, self.path, remedies.of_lost_control(self.path)):
            version = delta_version(self._spark, self.path)
            if version != self._version:
                frame = self._spark.read.format("delta").option("versionAsOf", version)
                self._hold(version, [row.asDict() for row in frame.load(self.path).collect()])

    def _hold(self, version: int, rows: list[Row]) -> None:
        self._version, self._raw, self._rows = version, rows, latest_rows(rows)

    def records(self) -> dict[str, TableRecord]:
        """Returns the records of tables by table id, with their open requests."""
        return self.rows().records

    def applied(self, consumer: str) -> int:
        """Returns the watermark of the consumer. Waits while another thread writes rows with this object: if the log
        stage got an older watermark, it could give one number to two entries."""
        with self._writing, self._lock:
            self._read()
            return self._rows.applied.get(consumer, 0)

    # -- writing ---------------------------------------------------------------------------------------------

    def write(
        self,
        records: Iterable[TableRecord],
        applied: tuple[str, int] | None = None,
        proofs: Iterable[Proof] = (),
    ) -> Mapping[str, tuple[int, datetime]]:
        """Write, in one commit, records, proofs, and the lsn up to which a consumer is applied. `applied`: consumer and
        lsn.

        Returns the serial and the time of each record as written, by table id.
        """
        rows = [row_of(record) for record in records]
        consumers = []
        if applied is not None:
            consumers.append(control_row("consumer", consumer=applied[0], from_lsn=applied[1]))
        others = [*consumers, *map(row_of_proof, proofs)]
        if rows or others:
            self._commits.add([*rows, *others])
        return {row["table_id"]: (row["serial"], row["at"]) for row in rows}

    def request(self, table_id: str, wish: Wish) -> None:
        """Write a request about a table. The application that applies the table's consumer executes the request."""
        self._commits.add([request_row(table_id, wish)])

    def request_copies(self, tables: Iterable[tuple[str, TableName]]) -> None:
        """Request copies of tables, by consumer and name, in one commit."""
        self._commits.add(copy_rows(tables))

    def claim(self, run: str, consumers: Iterable[str], stages: Sequence[ClaimedStage]) -> None:
        """Record, in one commit, that the job with the id `run` now runs these stages for these consumers."""
        self._commits.add(
            [
                control_row("claim", consumer=consumer, state=str(stage), request=run)
                for consumer in consumers
                for stage in stages
            ]
        )

    def compact(self) -> int:
        """Delete the rows that newer rows replace. Returns how many were deleted."""
        with self._writing:
            with self._lock:
                self._read()
                superfluous = superseded(self._raw)
            if superfluous:
                table = DeltaTable.forPath(self._spark, self.path)
                table.delete(F.col("serial").isin(sorted(superfluous)))
            return len(superfluous)

    def _create(self) -> None:
        table = DeltaTable.createIfNotExists(self._spark).location(self.path)
        for name in NAMES:
            table = table.addColumn(name, TYPES.get(name, "string"))
        for key, value in _PROPERTIES.items():
            table = table.property(key, value)
        create_table(self._spark, self.path, table)

    def _commit(self, rows: list[dict[str, Any]]) -> None:
        """Write rows, and set their serial and time."""
        with self._writing:
            version, serial = self._newest()
            at = datetime.now(UTC)
            for number, row in enumerate(rows, serial + 1):
                row |= {"serial": number, "at": at}
            append_file(self._spark, self.path, file_of(rows), len(rows))
            with self._lock:
                # If another process has written rows between these versions, the next call of `rows` reads them.
                if delta_version(self._spark, self.path) == version + 1:
                    self._version = version + 1
                    self._raw += rows
                    self._rows = rows_after(self._rows, rows)

    def _newest(self) -> tuple[int, int]:
        """Returns the newest version of the control table, and the largest serial in it. Creates the table if it is
        missing."""
        with self._lock:
            self._read()
            if self._version < 0:
                self._create()
                # Another process may have created the table at the same time, and written into it.
                self._read()
            return self._version, self._rows.serial
