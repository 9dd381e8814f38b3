"""The control table as a Delta table, which several processes may write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.table_record import TableRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_table_that_another_process_makes_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (ControlTable(spark, str(tmp_path / "target")) for _ in range(2))
    create = other._create

    def create_late() -> None:
        one.write(TableRecord("a", "shop", "db", "first"))
        create()

    monkeypatch.setattr(other, "_create", create_late)
    other.write(TableRecord("b", "shop", "db", "second"))
    for table in (other, one):
        records = table.records()
        assert {record.table: record.serial for record in records.values()} == {
            "first": 1,
            "second": 2,
        }
