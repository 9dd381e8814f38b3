"""Whose folder the steps of a history may write into. No Spark is needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.history.history_steps import HistorySteps
from spark_sink.mirror.history.history_table import HistoryTable
from spark_sink.mirror.rules.effects import EndVersions
from spark_sink.mirror.rules.states import Dropped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.values.policies import ApplyOptions

ANY: Any = SimpleNamespace(spark=None)
HISTORY = TableRecord("h", "shop", "shop", "t", "shop/t__history", history=True)
OF_ITS_NAME = TableRecord("other", "shop", "shop", "t__history", "shop/t__history")


def steps(*mirrored: TableRecord) -> HistorySteps:
    control: Any = SimpleNamespace(records=lambda: {r.table_id: r for r in mirrored})
    return HistorySteps("shop", ApplyOptions("/lake", ["shop"]), ANY, control)


def fit(of: HistorySteps) -> HistoryTable:
    return of._fitted(ANY, HISTORY, StructType())


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MirroredTable, "exists", lambda *_: True)
    monkeypatch.setattr(MirroredTable, "owner", lambda *_: "h")
    monkeypatch.setattr(HistoryTable, "fit", lambda *_: None)


def test_a_history_is_in_the_folder_of_its_record() -> None:
    assert fit(steps()).table == MirroredTable("h", "/lake/shop/t__history", HISTORY.label)


def test_a_history_is_made_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MirroredTable, "exists", lambda *_: False)
    monkeypatch.setattr(MirroredTable, "owner", lambda *_: "")
    assert fit(steps()).table.path == "/lake/shop/t__history"


def test_the_table_of_another_owner_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other owner may be a consumer that has adopted the table in between."""
    monkeypatch.setattr(MirroredTable, "owner", lambda *_: "another")
    with pytest.raises(BinlogError, match="another Delta table is there"):
        fit(steps())
    ended: list[object] = []
    monkeypatch.setattr(HistoryTable, "end_all", lambda *_: ended.append(_))
    steps().end(ANY, EndVersions(1, HISTORY, 9, None))
    assert ended == []


def test_a_mirrored_table_that_has_the_name_of_the_history_keeps_its_folder() -> None:
    with pytest.raises(BinlogError, match="the table of this name is mirrored"):
        fit(steps(OF_ITS_NAME))
    dropped = TableRecord("other", "shop", "shop", "t__history", state=Dropped())
    theirs = TableRecord("theirs", "billing", "shop", "t__history", "shop/t__history")
    assert fit(steps(dropped, theirs)).table.path == "/lake/shop/t__history"


def test_all_versions_of_its_own_table_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[tuple[str, int]] = []

    def end_all(of: HistoryTable, _: object, lsn: int, __: object) -> None:
        ended.append((of.table.path, lsn))

    monkeypatch.setattr(HistoryTable, "end_all", end_all)
    steps().end(cast("Any", ANY), EndVersions(1, HISTORY, 9, None))
    assert ended == [("/lake/shop/t__history", 9)]
