"""The applier ends between any two of its writes, and another applier continues. The tables are the same as without
this end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import delta.exceptions.base
import pytest
from delta.tables import DeltaTable
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_sink.mirror.lake import delta_commit
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.delta_commit import create_table
from spark_sink.mirror.lake.delta_log import delta_version, table_properties
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.tables.delta import TABLE_ID_PROPERTY, MirroredTable
from spark_sink.mirror.tables.steps import RowStep
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Condition = Callable[..., bool]
COLUMNS = StructType([StructField("id", IntegerType())])


def _always(*_: Any) -> bool:
    return True


def _moves(_: ControlTable, records: Iterable[TableRecord], *__: Any) -> bool:
    return any(record.move is not None for record in records)


# The calls after which the applier ends: (description, class, method, number of the call, condition on its arguments).
POINTS: list[tuple[str, type, str, int, Condition]] = [
    ("between two steps of a table", RowStep, "commit", 1, _always),
    ("between two tables", RowStep, "commit", 2, _always),
    ("a table is created, its record is not written", MirroredTable, "create", 1, _always),
    ("a table is emptied, its record is not written", MirroredTable, "empty", 1, _always),
    ("the intent of a swap is written", ControlTable, "write", 1, _moves),
    ("one folder of a swap is aside", FolderMover, "_aside", 1, _always),
    ("one folder of a swap is in place", FolderMover, "_into_place", 1, _always),
    ("the control table is written", ControlTable, "write", 1, _always),
]


class _EndedError(BaseException):
    """Ends the applier. It is no `Exception`, so that no code handles it, as no code can handle a kill."""


class Ending:
    """Sets the event `stop` after a call of a method, so that the applier ends. After this call, the applier writes no
    record."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.stop = threading.Event()
        self._patched = patched
        self._lock = threading.Lock()
        self._left = 0
        self._patch(ControlTable, "write", 0, _always)

    def after(self, owner: type, name: str, at: int, condition: Condition) -> None:
        """End after the `at`-th call for which the condition is true."""
        self._left = at
        self._patch(owner, name, 1, condition)

    def _patch(self, owner: type, name: str, counts: int, condition: Condition) -> None:
        original = getattr(owner, name)

        def ending(*arguments: Any, **more: Any) -> Any:
            if self.stop.is_set():
                raise _EndedError
            result = original(*arguments, **more)
            with self._lock:
                if condition(*arguments) and counts:
                    self._left -= counts
                    if self._left == 0:
                        self.stop.set()
            if self.stop.is_set():
                raise _EndedError
            return result

        self._patched.setattr(owner, name, ending)


@pytest.mark.deep
def test_the_applier_ends_at_each_point_and_goes_on(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in ("t", "_gho", "u"))
    )
    reached = []
    for number, (point, owner, name, at, condition) in enumerate(POINTS):
        source.execute(
            f"CREATE TABLE fresh{number} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO fresh{number} VALUES (1, 1)",
            f"INSERT INTO t VALUES ({10 * number}, 1), ({10 * number + 1}, 2)",
            f"INSERT INTO _gho VALUES ({10 * number}, 5)",
            "TRUNCATE u",
            f"INSERT INTO u VALUES ({number}, 1)",
            f"UPDATE t SET v = v + 1 WHERE id >= {10 * number}",
            "RENAME TABLE t TO swap_, _gho TO t, swap_ TO _gho",
            f"DELETE FROM t WHERE id = {10 * number}",
        )
        mirror.feed()
        with monkeypatch.context() as patched:
            ending = Ending(patched)
            ending.after(owner, name, at, condition)
            Applier(mirror.spark, mirror.options()).run(ending.stop, drain=True)
            reached.append(ending.stop.is_set())
        assert mirror.apply() == 0, point
        assert_equal(source, target, "t", "_gho", "u", f"fresh{number}")
    assert all(reached), [point for point, hit in zip(POINTS, reached, strict=True) if not hit]


def test_tables_whose_creation_was_killed_are_created(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta creates the folder `_delta_log` before the first commit, so a kill can leave the folder without a
    commit."""
    monkeypatch.setattr(delta_commit, "_CREATING_S", 0.5)
    log, control = LogAppender(spark, str(tmp_path)), ControlTable(spark, str(tmp_path))
    table = MirroredTable("one", str(tmp_path / "t"), "shop.t")
    for path in (log.log.path, control.path, table.path):
        (Path(path) / "_delta_log" / "_staged_commits").mkdir(parents=True)
    table.create(spark, COLUMNS)
    assert table.columns(spark).names == ["id"]
    assert log.claim("shop").append == 1
    control.write([], ("shop", 7))
    assert control.applied("shop") == 7


def test_a_table_that_another_process_creates_at_the_same_time_is_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta raises an error for the place while its folder `_delta_log` has no commit."""
    path, waits = tmp_path / "t", list[float]()
    MirroredTable("one", str(tmp_path / "other"), "shop.t").create(spark, COLUMNS)
    (path / "_delta_log").mkdir(parents=True)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        first = f"{0:020d}.json"
        (tmp_path / "other" / "_delta_log" / first).rename(path / "_delta_log" / first)

    builder = DeltaTable.createIfNotExists(spark).location(str(path)).addColumns(COLUMNS)
    create_table(spark, str(path), builder, sleep)
    assert len(waits) == 1
    assert delta_version(spark, str(path)) == 0
    assert table_properties(spark, str(path))[TABLE_ID_PROPERTY] == "one"


def test_a_creation_that_loses_to_another_process_uses_its_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Delta has a Python exception for each kind of conflict, without a common base class."""
    kinds = [
        kind
        for kind in vars(delta.exceptions.base).values()
        if isinstance(kind, type) and kind.__module__ == delta.exceptions.base.__name__
    ]
    assert len(kinds) >= 8
    for kind in kinds:
        builder = MagicMock()
        builder.execute.side_effect = [kind("t"), None]
        create_table(spark, str(tmp_path), builder, lambda _: None)
        assert builder.execute.call_count == 2, kind
