"""The effect of maintenance on real tables; the mirror continues afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable

from spark_sink.mirror.lake import checkpoints
from spark_sink.mirror.lake.checkpoints import RETENTION_PROPERTY, Checkpoints
from spark_sink.mirror.lake.delta_log import (
    delta_version,
    forget_table,
    recorded_versions,
    table_properties,
    table_size,
)
from spark_sink.mirror.lake.local_control import LocalLog
from spark_sink.mirror.log.binlog_log import log_app_id
from spark_sink.mirror.rules import upkeep
from spark_sink.mirror.rules.events import VectorsEnabled
from spark_sink.mirror.rules.states import Creating, Dropped, LeftOut, Live, State, Stopped
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.runtime import maintenance
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.runtime.maintenance import MaintainedTables, Maintenance
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


DEADLINE_S = 120.0


def tables_of(mirror: Mirror) -> MaintainedTables:
    """Returns the tables of a mirror's consumer from the control table."""
    rows = mirror.control.rows()
    records = [*rows.records.values(), *rows.histories.values()]
    own = tuple(record for record in records if record.consumer == mirror.consumer)
    return MaintainedTables(mirror.consumer, own, needed=0)


def test_tables_that_stand_or_move_are_left_alone() -> None:
    def record(name: str, state: State | None = None, **fields: Any) -> TableRecord:
        folder = fields.pop("folder", f"shop/{name}")
        return TableRecord(name, "shop", "shop", name, folder, state or Live(), **fields)

    tables = MaintainedTables(
        "shop",
        (
            record("complete"),
            record("partial", Live(complete=False)),
            record("left_out", LeftOut(3)),
            record("orders", history=True, folder="shop/orders__history"),
            record("stopped", Stopped(7, Live())),
            record("copied", Creating()),
            record("dropped", Dropped()),
            record("moving", move=Move("shop/before")),
            record("empty", folder=""),
        ),
        needed=0,
    )
    assert [(r.label, table.path) for r, table in tables.growing("file:/lake/")] == [
        ("shop.complete", "file:/lake/shop/complete"),
        ("shop.partial", "file:/lake/shop/partial"),
        ("shop.left_out", "file:/lake/shop/left_out"),
        ("shop.orders__history", "file:/lake/shop/orders__history"),
    ]


DAY_S = 86_400.0


def newest_checkpoint(table: Path) -> int:
    names = [file.name for file in (table / "_delta_log").glob("*.checkpoint.parquet")]
    return max((int(name.partition(".")[0]) for name in names), default=-1)


@pytest.mark.deep
def test_tables_are_compacted_and_have_checkpoints(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for number in range(4):
        source.execute(f"INSERT INTO t VALUES ({number}, 0)")
        assert mirror.run() == 0
    path = target.of(source, "t")
    assert table_size(mirror.spark, path)[1] == 4
    monkeypatch.setattr(upkeep, "SMALL_FILES_MAX", 3)
    monkeypatch.setattr(maintenance, "DELETION_VECTORS_FROM_BYTES", 1)
    monkeypatch.setattr(maintenance, "CHECKPOINTS_EVERY_S", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_COMMITS", 3)
    told: list[tuple[str, VectorsEnabled]] = []
    of_application = Maintenance(
        mirror.spark,
        mirror.options(maintenance_s=0.0),
        mirror.control,
        lambda consumer, event: told.append((consumer, event)),
        BusyFolders(),
    )
    assert of_application.is_due()
    of_application.run([tables_of(mirror)])
    assert told == [("shop", VectorsEnabled(mirror.record("t").table_id))]
    for table in (Path(path), Path(mirror.log.path), Path(mirror.control.path)):
        assert newest_checkpoint(table) >= 3
    assert table_size(mirror.spark, path)[1] == 1
    assert table_properties(mirror.spark, path)["delta.enableDeletionVectors"] == "true"
    source.execute("UPDATE t SET v = 1 WHERE id < 2", "DELETE FROM t WHERE id = 3")
    assert mirror.run() == 0
    assert_equal(source, target, "t")


@pytest.mark.rotate(4, of="tables of the mirror")
def test_many_tiny_files_are_compacted_with_the_next_checkpoint(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for number in range(3):
        source.execute(f"INSERT INTO t VALUES ({number}, 0)")
        assert mirror.run() == 0
    path = target.of(source, "t")
    monkeypatch.setattr(upkeep, "TINY_FILES_MAX", 2)
    monkeypatch.setattr(maintenance, "CHECKPOINTS_EVERY_S", 0.0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_COMMITS", 3)
    of_application = Maintenance(
        mirror.spark, mirror.options(), mirror.control, lambda *_: None, BusyFolders()
    )
    of_application.run([tables_of(mirror)])
    assert table_size(mirror.spark, path)[1] == 1
    source.execute("UPDATE t SET v = 1")
    assert mirror.run() == 0
    of_application.run([tables_of(mirror)])  # one commit since the last checkpoint: left alone
    assert_equal(source, target, "t")


@pytest.mark.rotate(4, of="tables of the mirror")
def test_a_checkpoint_is_written_once_in_some_commits(
    spark: SparkSession, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_COMMITS", 2)
    path = mirror.log.path
    written = Checkpoints(spark)
    assert not written.write(path, DAY_S)  # there is no table
    found = []
    for number in range(1, 7):
        mirror.appender.claim("shop")
        assert delta_version(spark, path) == number
        found.append(written.write(path, DAY_S))
    assert found == [True, False, True, False, True, False]
    # Another object finds the existing checkpoint.
    assert not Checkpoints(spark).write(path, DAY_S)
    assert newest_checkpoint(Path(path)) == 5


def versions(table: str, ending: str = "json") -> list[int]:
    """Returns the versions of the files with this ending in a table's Delta log."""
    names = (file.name for file in Path(table, "_delta_log").glob(f"*.{ending}"))
    return sorted(int(name.partition(".")[0]) for name in names if name[0].isdigit())


@pytest.mark.rotate(4, of="tables of the mirror")
def test_commits_before_an_old_checkpoint_are_deleted(
    spark: SparkSession, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_COMMITS", 2)
    monkeypatch.setattr(upkeep, "READ_S", 0.0)
    path = mirror.log.path
    written = Checkpoints(spark)
    for _ in range(6):
        mirror.appender.claim("shop")
        written.write(path, DAY_S)
    assert versions(path) == list(range(7))  # no checkpoint is old enough
    assert versions(path, "checkpoint.parquet") == [1, 3, 5]
    monkeypatch.setattr(checkpoints, "FORGOTTEN_MAX", 3)
    for first in (3, 6):
        for _ in range(2):
            mirror.appender.claim("shop")
        assert Checkpoints(spark).write(path, 0.0)
        newest = delta_version(spark, path)
        assert versions(path) == list(range(first, newest + 1))
    assert min(versions(path, "checkpoint.parquet")) >= 6
    assert versions(path, "crc") == versions(path)
    hidden = {file.name[1:21] for file in Path(path, "_delta_log").glob(".0*")}
    assert {int(version) for version in hidden} == set(versions(path))
    # The table is whole, for Delta and for the readers without Spark.
    forget_table(spark, path)
    wanted = recorded_versions(spark, path, log_app_id("shop"))
    assert wanted[0] == versions(path)[-1]
    assert DeltaTable.forPath(spark, path).toDF().count() == wanted[0]  # one row of each commit
    assert LocalLog.read(Path(path)).version == wanted[0]
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{RETENTION_PROPERTY}' = '9 days')")
    mirror.appender.claim("shop")
    before = versions(path)
    assert Checkpoints(spark).write(path, 0.0)
    assert versions(path) == before


def test_a_thread_reads_a_checkpoint_without_a_checksum(
    spark: SparkSession, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is killed after the write of a checkpoint leaves no checksum of the newest version."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_COMMITS", 1)
    path = mirror.log.path
    for _ in range(3):
        mirror.appender.claim("shop")
    wanted = recorded_versions(spark, path, log_app_id("shop"))
    assert Checkpoints(spark).write(path, DAY_S)
    for checksum in Path(path).glob("_delta_log/*.crc"):
        checksum.unlink()
    forget_table(spark, path)
    found: list[tuple[int, int]] = []
    thread = threading.Thread(
        target=lambda: found.append(recorded_versions(spark, path, log_app_id("shop")))
    )
    thread.start()
    thread.join(DEADLINE_S)
    assert found == [wanted]


def test_a_vacuum_that_fails_is_repeated_in_the_next_round(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.appender.claim("shop")
    attempts: list[str] = []

    class Vacuumed:
        @staticmethod
        def forPath(_: SparkSession, path: str) -> Vacuumed:  # noqa: N802
            attempts.append(path)
            return Vacuumed()

        def vacuum(self) -> None:
            if len(attempts) == 1:
                raise OSError("the storage does not answer")

    monkeypatch.setattr(maintenance, "DeltaTable", Vacuumed)
    of_application = Maintenance(
        mirror.spark,
        mirror.options(maintenance_s=0.0),
        mirror.control,
        lambda _consumer, _event: None,
        BusyFolders(),
    )
    for _ in range(3):
        of_application.run([])
    assert attempts.count(mirror.log.path) == 2
