"""The control table TARGET/_binlog/tables: what the mirror knows of each table, and how far each consumer is applied.

It is an append-only Delta table of rows; of the rows of one table id the one with the largest `serial` counts. Rows of
five kinds:

* `table`: the record of a table, its state as JSON in `detail`. Only the application that applies the consumer writes
  them, and `adopt`, which takes the consumer from it before.
* `history`: the same of the history of a table.
* `request`: what a person asks for (`python -m spark_sink resolve`, `copy`, `adopt`), from any process. One about a
  table id stands until the table's row names its id in `handled`. A copy is asked for by consumer and name, because
  only the application that applies the consumer makes records: the newest request of a name stands until a `table` row
  names its id in `answered`.
* `consumer`: everything of the consumer up to `from_lsn` is applied, or stands in the row of a table.
* `claim`: the job whose id is in `request` has the consumer, for the stage in `state`; see `claims`.

`from_lsn` of a table: entries of the table up to this lsn are dealt with, whatever its folder records. So a table's
applied lsn is the larger one of `from_lsn` and of the version that its Delta table records.

Delta commits are atomic, so rows that have to change together are written in one commit. Compaction deletes rows that
no longer count.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from spark_sink.mirror.lake.checkpoints import BACKSTOP
from spark_sink.mirror.lake.damage import naming_damage
from spark_sink.mirror.lake.delta_commit import append_file
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
    superseded,
)
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.values.names import TableName, own_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_TYPES = {"serial": "bigint", "at": "timestamp", "epoch": "bigint", "from_lsn": "bigint"}
_NAMES = (
    ("serial", "at", "kind", "consumer", "table_id", "database", "table", "folder", "state", "server")
    + ("epoch", "from_lsn", "signature", "reason", "request", "detail")
)  # fmt: skip
_PROPERTIES = {**BACKSTOP, "delta.enableDeletionVectors": "false"}


class ControlTable:
    """Reads and writes the control table of a target. Threads may share it.

    A commit costs the same for one row as for a hundred, so rows that several consumers write at a time share one.
    """

    def __init__(self, spark: SparkSession, target: str) -> None:
        self._spark = spark.newSession()
        self.path = own_path(target, "tables")
        self._files = FileSystem(spark)
        self._lock = threading.RLock()
        self._commits = GroupCommit(self._commit)
        self._version = -1
        self._raw: list[Row] = []
        self._rows = latest_rows([])

    # -- reading ---------------------------------------------------------------------------------------------

    def rows(self) -> ControlRows:
        """Returns what counts, read again if it has changed."""
        with self._lock:
            if self._version >= 0 and not has_commit(self._files, self.path, self._version + 1):
                return self._rows
            with naming_damage(lambda: self._files, self.path, remedies.of_lost_control(self.path)):
                version = delta_version(self._spark, self.path)
                if version != self._version:
                    frame = self._spark.read.format("delta").option("versionAsOf", version)
                    self._hold(version, [row.asDict() for row in frame.load(self.path).collect()])
            return self._rows

    def _hold(self, version: int, rows: list[Row]) -> None:
        self._version, self._raw, self._rows = version, rows, latest_rows(rows)

    def records(self) -> dict[str, TableRecord]:
        """Returns the tables by table id, with the requests that stand."""
        return self.rows().records

    def applied(self, consumer: str) -> int:
        """Returns the lsn up to which everything of the consumer is applied or stands in the record of a table."""
        return self.rows().applied.get(consumer, 0)

    # -- writing ---------------------------------------------------------------------------------------------

    def write(
        self, records: Iterable[TableRecord], applied: tuple[str, int] | None = None
    ) -> Mapping[str, tuple[int, datetime]]:
        """Write records, and up to which lsn a consumer is applied, (consumer, lsn), in one commit.

        Returns the serial and the time of each record as written, by table id.
        """
        rows = [row_of(record) for record in records]
        consumers = []
        if applied is not None:
            consumers.append(control_row("consumer", consumer=applied[0], from_lsn=applied[1]))
        if rows or consumers:
            self._commits.add([*rows, *consumers])
        return {row["table_id"]: (row["serial"], row["at"]) for row in rows}

    def request(self, table_id: str, wish: Wish) -> None:
        """Ask for something about a table. The application that applies its consumer does it."""
        asked = json.dumps({"id": uuid.uuid4().hex})
        row = control_row("request", table_id=table_id, request=str(wish), detail=asked)
        self._commits.add([row])

    def request_copies(self, tables: Iterable[tuple[str, TableName]]) -> None:
        """Ask for copies of tables, by consumer and name, in one commit."""
        rows = []
        for consumer, (database, table) in tables:
            asked = json.dumps({"id": uuid.uuid4().hex})
            names = {"consumer": consumer, "database": database, "table": table}
            rows.append(control_row("request", **names, request=str(Wish.COPY), detail=asked))
        self._commits.add(rows)

    def claim(self, run: str, consumers: Iterable[str], stages: Sequence[ClaimedStage]) -> None:
        """Make `run` the job that has the consumers for the stages, in one commit."""
        self._commits.add(
            [
                control_row("claim", consumer=consumer, state=str(stage), request=run)
                for consumer in consumers
                for stage in stages
            ]
        )

    def compact(self) -> int:
        """Delete the rows that no longer count. Returns how many there were."""
        with self._lock:
            self.rows()
            superfluous = superseded(self._raw)
            if superfluous:
                table = DeltaTable.forPath(self._spark, self.path)
                table.delete(F.col("serial").isin(sorted(superfluous)))
            return len(superfluous)

    def _create(self) -> None:
        table = DeltaTable.createIfNotExists(self._spark).location(self.path)
        for name in _NAMES:
            table = table.addColumn(name, _TYPES.get(name, "string"))
        for key, value in _PROPERTIES.items():
            table = table.property(key, value)
        table.execute()

    def _commit(self, rows: list[dict[str, Any]]) -> None:
        """Write rows, with their serial and the time in them."""
        with self._lock:
            self.rows()
            if self._version < 0:
                self._create()
            # Read after the creation: another process may have made the table, and written into it.
            serial = self.rows().serial
            at = datetime.now(UTC)
            for number, row in enumerate(rows, serial + 1):
                row |= {"serial": number, "at": at}
            append_file(self._spark, self.path, _file_of(rows), len(rows))
            # Rows of another process in between are read with the next `rows`.
            if delta_version(self._spark, self.path) == self._version + 1:
                self._hold(self._version + 1, [*self._raw, *rows])


def _file_of(rows: Sequence[Row]) -> bytes:
    """Returns a Parquet file of rows."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    types = {"bigint": pa.int64(), "timestamp": pa.timestamp("us", "UTC"), "string": pa.string()}
    schema = pa.schema([(name, types[_TYPES.get(name, "string")]) for name in _NAMES])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), sink)
    return bytes(sink.getvalue())
