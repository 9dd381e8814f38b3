"""The applier ends between any two of its writes, and the next one goes on: the tables are as if it had not ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.runtime.consumer_tables import ConsumerTables
from spark_sink.mirror.runtime.folder_mover import FolderMover
from spark_sink.mirror.tables.delta import MirroredTable
from spark_sink.mirror.tables.directory import TableDirectory
from spark_sink.mirror.tables.steps import RowStep
from tests.spark.conftest import Source, Target, assert_equal
from tests.spark.mirror.conftest import Mirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# After which call the applier ends, and at which call of it.
POINTS: list[tuple[str, type, str, int]] = [
    ("between two steps of a table", RowStep, "commit", 1),
    ("between two tables", RowStep, "commit", 2),
    ("a table is created, its record is not written", MirroredTable, "create", 1),
    ("a table is emptied, its record is not written", MirroredTable, "empty", 1),
    ("the intent of a swap is written", TableDirectory, "save", 3),
    ("one folder of a swap is aside", FolderMover, "_aside", 1),
    ("one folder of a swap is in place", FolderMover, "_into_place", 1),
    ("the control table is written", TableDirectory, "save", 1),
]


class _EndedError(BaseException):
    """Not an `Exception`: nothing handles it, as nothing handles a kill."""


def end_after(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, at: int, stop: threading.Event
) -> Callable[[], bool]:
    """Let the applier end after the call number `at` of a method. Returns a function that tells whether it did."""
    original = getattr(owner, name)
    calls = 0
    lock = threading.Lock()

    def ending(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        if stop.is_set():
            raise _EndedError
        result = original(*arguments, **more)
        with lock:
            calls += 1
            if calls == at:
                stop.set()
        if stop.is_set():
            raise _EndedError
        return result

    monkeypatch.setattr(owner, name, ending)
    # What a killed process does not do at its end.
    monkeypatch.setattr(ConsumerTables, "write_watermark", lambda *_, **__: None)
    return stop.is_set


@pytest.mark.deep
def test_the_applier_ends_at_each_point_and_goes_on(
    mirror: Mirror, source: Source, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute(
        *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in ("t", "_gho", "u"))
    )
    reached = []
    for number, (point, owner, name, at) in enumerate(POINTS):
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
            stop = threading.Event()
            ended = end_after(patched, owner, name, at, stop)
            Applier(mirror.spark, mirror.options()).run(stop, drain=True)
            reached.append(ended())
        assert mirror.apply() == 0, point
        assert_equal(source, target, "t", "_gho", "u", f"fresh{number}")
    assert all(reached), [point for point, hit in zip(POINTS, reached, strict=True) if not hit]


def test_tables_whose_creation_was_killed_are_created(spark: SparkSession, tmp_path: Path) -> None:
    """Delta makes the folder of the commits before the first of them."""
    log = LogAppender(spark, str(tmp_path))
    table = MirroredTable("one", str(tmp_path / "t"), "shop.t")
    for path in (log.log.path, table.path):
        (Path(path) / "_delta_log" / "_staged_commits").mkdir(parents=True)
    table.create(spark, StructType([StructField("id", IntegerType())]))
    assert table.columns(spark).names == ["id"]
    assert log.claim("shop").append == 1
