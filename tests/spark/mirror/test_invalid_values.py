"""Values that are invalid for their columns' types: the table stops, or has NULL in their place, and the quarantine has
their bytes once."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.copy.copier import Copier
from spark_sink.mirror.rules.states import Copying as CopyingState
from spark_sink.mirror.rules.states import TableState
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.runtime.apply import Applier
from spark_sink.mirror.tables import steps
from spark_sink.mirror.tables.quarantine import Quarantine
from spark_sink.mirror.values.policies import InvalidValue, TablePolicy
from tests.servers import Server
from tests.spark.conftest import Source
from tests.spark.mirror.conftest import Mirror
from tests.spark.mirror.copy.conftest import NOWHERE, Copying, add_reader
from tests.spark.mirror.test_crashes import Ending

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, d DATE, u VARCHAR(9) CHARACTER SET ucs2)"
ROWS = (
    "SET sql_mode = ''",
    "INSERT INTO t VALUES (1, '2024-01-31', 'a'), (2, '2024-00-31', 'b'), (3, NULL, X'D800')",
    "UPDATE t SET u = 'c' WHERE id = 2",  # the date is in both images
    "INSERT INTO t VALUES (4, '0000-00-00', X'0061D8000062')",
    "DELETE FROM t WHERE id = 4",
)
MIRRORED = {1: ("2024-01-31", "a"), 2: (None, "c"), 3: (None, None)}
IN_LOG = [
    ({"id": 2}, "d", b"2024-00-31"),
    ({"id": 2}, "d", b"2024-00-31"),
    ({"id": 3}, "u", b"\xd8\0"),
    ({"id": 4}, "d", b"0000-00-00"),
    ({"id": 4}, "u", b"\0a\xd8\0\0b"),
]
STRICT = {"invalid_dates": InvalidDates.ERROR}


def quarantined(mirror: Mirror) -> list[tuple[dict[str, Any], str, bytes]]:
    frame = mirror.spark.read.format("delta").load(Quarantine(str(mirror.target.path)).path)
    rows = frame.orderBy("key", "column", "seq").collect()
    return [(json.loads(row["key"]), row["column"], bytes(row["bytes"])) for row in rows]


def mirrored(mirror: Mirror, table: str = "t") -> dict[int, tuple[str | None, str | None]]:
    rows = mirror.target.rows(mirror.source, table)
    return {row["id"]: (row["d"] and str(row["d"]), row["u"]) for row in rows}


@pytest.fixture
def copying(mirror: Mirror, mysql97: Server) -> Copying:
    add_reader(mysql97)
    return Copying(mirror.spark, mysql97, mirror.target.path)


@pytest.fixture
def invalid(mirror: Mirror, source: Source) -> Mirror:
    """A mirror whose log has invalid values."""
    source.execute(TABLE, *ROWS)
    mirror.policy = TablePolicy(invalid=InvalidValue.QUARANTINE)
    return mirror


def test_a_table_stops_at_an_invalid_value_and_its_remedy_works(
    invalid: Mirror, source: Source
) -> None:
    invalid.policy = TablePolicy()
    source.execute("CREATE TABLE j (id INT PRIMARY KEY, u CHAR(1) CHARACTER SET ucs2)")
    source.execute("INSERT INTO j VALUES (1, X'D800')")
    invalid.feed()
    invalid.apply(**STRICT)
    for table in ("t", "j"):
        assert invalid.record(table).word is TableState.STOPPED
    assert "set on_invalid: quarantine for the table" in invalid.record("j").reason
    assert "--as retry" in invalid.record("j").reason
    invalid.policy = TablePolicy(invalid=InvalidValue.QUARANTINE)
    for table in ("t", "j"):
        invalid.ask(table, Wish.RETRY)
    assert invalid.apply(**STRICT) == 0
    assert mirrored(invalid) == MIRRORED
    assert invalid.target.rows(source, "j") == [{"id": 1, "u": None}]
    assert sorted(quarantined(invalid), key=str) == sorted(
        [*IN_LOG, ({"id": 1}, "u", b"\xd8\0")], key=str
    )


@pytest.mark.parametrize("by_executors", [False, True])
def test_the_quarantine_has_each_value_once_through_a_kill(
    invalid: Mirror, monkeypatch: pytest.MonkeyPatch, by_executors: bool
) -> None:
    if by_executors:
        monkeypatch.setattr(steps, "LOCAL_BYTES_MAX", 0)
        monkeypatch.setattr(steps, "DRIVER_BYTES_MAX", 0)
    invalid.feed()
    with monkeypatch.context() as patched:
        ending = Ending(patched)
        ending.after(Quarantine, "add", 1, lambda *_: True)
        Applier(invalid.spark, invalid.options(**STRICT)).run(ending.stop, drain=True)
        assert ending.stop.is_set()
    assert quarantined(invalid) == IN_LOG
    assert invalid.apply(**STRICT) == 0
    assert (mirrored(invalid), quarantined(invalid)) == (MIRRORED, IN_LOG)
    invalid.read_again()
    assert invalid.apply(**STRICT) == 0
    assert (mirrored(invalid), quarantined(invalid)) == (MIRRORED, IN_LOG)


def test_invalid_values_become_null_and_are_counted(invalid: Mirror, source: Source) -> None:
    source.execute("SET sql_mode = ''", "CREATE TABLE k (id INT, d DATE, u CHAR(1))")
    source.execute(
        "SET sql_mode = ''",
        *["INSERT INTO k VALUES (1, '2024-02-00', 'x')"] * 3,
        "DELETE FROM k LIMIT 1",
    )
    invalid.policy = TablePolicy(invalid=InvalidValue.NULL)
    invalid.feed()
    applier = Applier(invalid.spark, invalid.options(**STRICT))
    assert applier.run(threading.Event(), drain=True) == 0
    assert mirrored(invalid) == MIRRORED
    assert invalid.target.rows(source, "k") == [{"id": 1, "d": None, "u": "x"}] * 2
    (progress,) = applier.progress()
    database = source.database
    assert progress.invalid == {f"{database}.t": len(IN_LOG), f"{database}.k": 3}


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_copy_has_null_and_the_quarantine_the_text(
    mirror: Mirror, source: Source, copying: Copying, parallel: int
) -> None:
    source.execute(TABLE, *ROWS)
    record = TableRecord("id-t", "shop", source.database, "t", state=CopyingState(NOWHERE))
    policy = TablePolicy(invalid=InvalidValue.QUARANTINE)
    copier = Copier(
        mirror.spark, copying.settings(parallel=parallel), str(mirror.target.path), InvalidDates.ERROR, lambda _: policy
    )  # fmt: skip
    begin = copying.end()
    for _ in range(2):  # the second copy continues after the first, whose last commit is lost
        result = copier.copy(record, begin=begin, progress=lambda _: None, stopping=lambda: False)
        assert result.complete
        rows = {row["id"]: (row["d"] and str(row["d"]), row["u"]) for row in copying.rows("t")}
        assert rows == MIRRORED
        assert result.invalid_values == 2
        assert quarantined(mirror) == [({"id": 2}, "d", b"2024-00-31"), ({"id": 3}, "u", b"\xd8\0")]
        for file in (mirror.target.path / "_binlog" / "copies" / "id-t").rglob("*"):
            if file.is_file():
                file.unlink()


def test_a_copy_of_a_table_without_a_key_names_the_row(
    mirror: Mirror, source: Source, copying: Copying
) -> None:
    source.execute("SET sql_mode = ''", "CREATE TABLE k (id INT, d DATE)")
    source.execute(
        "SET sql_mode = ''",
        "INSERT INTO k VALUES (1, '2024-02-00'), (2, '2024-02-01')",
        "INSERT INTO k VALUES (1, '2024-03-00'), (1, '2024-03-00')",
    )
    add_reader(copying.server, "with_locks", "LOCK TABLES ON *.*")
    copying.account = "with_locks"
    policy = TablePolicy(invalid=InvalidValue.QUARANTINE)
    settings = copying.settings(lock_keyless_tables=True)
    copier = Copier(
        mirror.spark, settings, str(mirror.target.path), InvalidDates.ERROR, lambda _: policy
    )
    record = TableRecord("id-k", "shop", source.database, "k", state=CopyingState(NOWHERE))
    result = copier.copy(
        record, begin=copying.end(), progress=lambda _: None, stopping=lambda: False
    )
    assert (result.rows, result.invalid_values) == (4, 3)
    row = {"id": 1, "d": None}
    assert sorted(quarantined(mirror), key=str) == [
        (row, "d", b"2024-02-00"),
        (row, "d", b"2024-03-00"),
    ]
