"""When the record of a history names the folder of its Delta table. No Spark is needed."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.history.history_records import HistoryRecords
from spark_sink.mirror.history.history_steps import DeltaHistorySteps
from spark_sink.mirror.history.history_table import HistoryTable
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.values.policies import ApplyOptions, TablePolicy
from tests.spark.mirror.test_catalog import Control

NAME = ("shop", "t")
ANY: Any = None


@pytest.fixture
def records() -> HistoryRecords:
    """Of a table whose history has no rows so far."""
    control = cast(ControlTable, Control())
    directory = TableDirectory("shop", control, lambda folder: f"/lake/{folder}")
    directory.save(TableRecord("t", "shop", *NAME, folder="shop/t"))
    options = ApplyOptions("/lake", ["shop"], lambda _: TablePolicy(history=True))
    made = HistoryRecords(directory, control, options)
    made.begin_new()
    return made


def fit(records: HistoryRecords) -> HistoryTable:
    return DeltaHistorySteps(records, ANY)._fitted(ANY, records.record(NAME), StructType())


def test_a_record_names_its_folder_when_its_table_is_there(
    records: HistoryRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MirroredTable, "exists", lambda *_: False)
    named: list[str] = []

    def refuse(*_: Any) -> None:
        named.append(records.record(NAME).folder)
        raise BinlogError(ErrorKind.UNSUPPORTED_CHANGE, "a column valid_to")

    monkeypatch.setattr(HistoryTable, "fit", refuse)
    with pytest.raises(BinlogError, match="a column valid_to"):
        fit(records)
    assert named == [""] and records.record(NAME).folder == ""

    monkeypatch.setattr(HistoryTable, "fit", lambda *_: None)
    assert fit(records).table.path == "/lake/shop/t__history"
    assert records.record(NAME).folder == "shop/t__history"


@pytest.mark.parametrize("begun", [False, True])
def test_the_table_of_another_owner_is_left_alone(
    records: HistoryRecords, monkeypatch: pytest.MonkeyPatch, begun: bool
) -> None:
    """Such as that of the consumer that has adopted the table in between."""
    monkeypatch.setattr(MirroredTable, "exists", lambda *_: True)
    monkeypatch.setattr(HistoryTable, "fit", lambda *_: None)
    if begun:
        monkeypatch.setattr(MirroredTable, "owner", lambda *_: records.record(NAME).table_id)
        fit(records)
    monkeypatch.setattr(MirroredTable, "owner", lambda *_: "another")
    with pytest.raises(BinlogError, match="another Delta table is there"):
        fit(records)
