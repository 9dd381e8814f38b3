"""The mirror copies a table that is older than the log while the table changes. Afterwards the copy equals the server's
table at one position."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable

from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.rules.states import Creating, TableState
from spark_sink.mirror.rules.table_record import TableRecord, new_table_id
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.verify.verify import TableDifference, Verdict, verify
from spark_sink.source.table_rows.table_server import executed_position
from tests.spark.conftest import Source, Target
from tests.spark.mirror.conftest import Mirror
from tests.spark.mirror.copy.conftest import add_reader, copy_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class RealMirror(Mirror):
    """A mirror whose log ends with the server's own positions."""

    def server(self) -> CopyServer:
        return CopyServer.of_settings(copy_settings(self.source.server))

    def feed_real(self) -> None:
        """Append the new transactions, up to the server's own position."""
        with self.server().session() as connection:
            end = executed_position(connection)
        self.source.feed()
        daemon = self.source.daemon
        new = daemon.transactions[self.fed :]
        if not self.append:
            self.append = self.appender.claim(self.consumer).append
        data = b"".join(transaction.data for transaction in new)
        self.append += 1
        self._append(data, replace(end, epoch=1))
        self.fed += len(new)

    def ask_for_copy(self, table: str) -> None:
        name = self.source.database, table
        asked = TableRecord(new_table_id(), self.consumer, *name, state=Creating())
        self.control.write([asked])

    def verify(self, *tables: str, **options: Any) -> list[TableDifference]:
        names = [(self.source.database, table) for table in tables]
        return verify(self.spark, self.server(), str(self.target.path), names, **options)


@pytest.fixture
def real(spark: SparkSession, source: Source, target: Target) -> RealMirror:
    add_reader(source.server)
    return RealMirror(spark, source, target)


def run_until(mirror: RealMirror, tables: list[str], change: Callable[[int], None]) -> None:
    """Apply the log, with new changes all the time, until the tables are complete."""
    settings = copy_settings(mirror.source.server, max_bytes_in_chunk=1 << 10)
    copier = Copier(mirror.spark, settings, str(mirror.target.path))
    stop, codes = threading.Event(), []
    applier = Applier(mirror.spark, mirror.options(can_copy=True), copier)
    thread = threading.Thread(target=lambda: codes.append(applier.run(stop)))
    thread.start()
    deadline = time.monotonic() + 500
    try:
        number = 0
        while not all(complete(mirror, table) for table in tables):
            assert time.monotonic() < deadline, mirror.control.records()
            assert thread.is_alive()
            change(number)
            mirror.feed_real()
            number += 1
    finally:
        stop.set()
        thread.join(120)
    assert codes == [0]


def complete(mirror: RealMirror, table: str) -> bool:
    record = mirror.record(table)
    assert record.word is not TableState.STOPPED, record
    return record.word is TableState.COMPLETE


@pytest.mark.rotate(4, of="tables of the mirror")
def test_a_table_with_a_column_that_the_server_lacks_is_different(real: RealMirror) -> None:
    real.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    real.feed_real()
    assert real.apply() == 0
    (equal,) = real.verify("t")
    assert equal.verdict is Verdict.EQUAL, str(equal)
    path = real.target.of(real.source, "t")
    real.spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (added INT)")
    (found,) = real.verify("t")
    assert (found.verdict, found.reason) == (
        Verdict.DIFFERENT,
        "the server has no column 'added'",
    )


@pytest.mark.deep
def test_a_copy_while_the_table_changes_equals_the_server(real: RealMirror) -> None:
    source = real.source
    rows = ", ".join(f"({i}, 'old {i}', {i}.5)" for i in range(3_500))
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(40), d DECIMAL(12,2))",
        f"INSERT INTO t VALUES {rows}",
        "CREATE TABLE same (id INT PRIMARY KEY, f FLOAT, g POINT, j JSON)",
        "INSERT INTO same VALUES (1, 0.1, POINT(1, 2), '{\"a\": 1}'), (2, NULL, NULL, NULL)",
    )
    # The mirror's log begins after these rows.
    source.feed()
    real.fed = len(source.daemon.transactions)
    real.feed_real()
    real.ask_for_copy("t")
    real.ask_for_copy("same")

    def change(number: int) -> None:
        source.execute(
            f"UPDATE t SET a = 'new {number}' WHERE id % 7 = {number % 7}",
            f"DELETE FROM t WHERE id = {number * 11 % 3_500}",
            f"INSERT INTO t VALUES ({10_000 + number}, 'inserted', 1)",
        )

    run_until(real, ["t", "same"], change)
    real.feed_real()
    assert real.apply(can_copy=True) == 0
    found = real.verify("t", "same", wait_s=120)
    assert [(d.verdict, d.server_rows == d.mirror_rows) for d in found] == [
        (Verdict.EQUAL, True)
    ] * 2
    ((count,),) = source.server.execute(f"SELECT COUNT(*) FROM {source.database}.t")
    assert found[0].server_rows == count

    # If mirror and server differ, `verify` reports the keys that differ.
    path = real.target.of(source, "t")
    table = DeltaTable.forPath(real.spark, path)
    table.delete("id = 20")
    table.update("id = 30", {"a": "'wrong'"})
    (different,) = real.verify("t", wait_s=5)
    assert different.verdict is Verdict.DIFFERENT
    assert different.mirror_rows == different.server_rows - 1
    assert dict(different.keys) == {"id=20": "missing in the mirror", "id=30": "other values"}
    assert "id=20: missing in the mirror" in str(different)

    # A mirror that has not reached the position yet is not reported as different.
    source.execute("UPDATE t SET a = 'later' WHERE id = 40")
    (moving,) = real.verify("t", wait_s=1)
    assert moving.verdict is Verdict.MOVING
    (unknown,) = real.verify("nothing")
    assert unknown.verdict is Verdict.NOT_COMPARED
