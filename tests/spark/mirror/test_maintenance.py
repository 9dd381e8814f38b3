"""What maintenance does to real tables, and that the mirror goes on afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_sink.mirror.history.history_records import HistoryRecords
from spark_sink.mirror.lake import checkpoints
from spark_sink.mirror.lake.checkpoints import Checkpoints
from spark_sink.mirror.lake.delta_log import delta_version, table_properties, table_size
from spark_sink.mirror.rules import upkeep
from spark_sink.mirror.runtime import maintenance
from spark_sink.mirror.runtime.maintenance import Maintenance
from spark_sink.mirror.tables.directory import TableDirectory
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class Maintained:
    """The tables of a mirror's consumer."""

    consumer: str
    directory: TableDirectory
    histories: HistoryRecords
    applied_to: int = 0


def tables_of(mirror: Mirror) -> Maintained:
    def path(folder: str) -> str:
        return f"{mirror.target.path}/{folder}"

    directory = TableDirectory(mirror.consumer, mirror.control, path)
    records = HistoryRecords(directory, mirror.control, mirror.options())
    return Maintained(mirror.consumer, directory, records)


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
    of_application = Maintenance(mirror.spark, mirror.options(maintenance_s=0.0), mirror.control)
    assert of_application.is_due()
    of_application.run([tables_of(mirror)])
    for table in (Path(path), Path(mirror.log.path), Path(mirror.control.path)):
        assert newest_checkpoint(table) >= 3
    assert table_size(mirror.spark, path)[1] == 1
    assert table_properties(mirror.spark, path)["delta.enableDeletionVectors"] == "true"
    source.execute("UPDATE t SET v = 1 WHERE id < 2", "DELETE FROM t WHERE id = 3")
    assert mirror.run() == 0
    assert_equal(source, target, "t")


def test_a_checkpoint_is_written_once_in_some_commits(
    spark: SparkSession, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_COMMITS", 2)
    path = mirror.log.path
    written = Checkpoints(spark)
    assert not written.write(path)  # there is no table
    found = []
    for number in range(1, 7):
        mirror.appender.claim("shop")
        assert delta_version(spark, path) == number
        found.append(written.write(path))
    assert found == [True, False, True, False, True, False]
    # Another object finds what is there.
    assert not Checkpoints(spark).write(path)
    assert newest_checkpoint(Path(path)) == 5
