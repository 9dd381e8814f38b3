"""Copies of tables of a real server: after any kill, a copy has each row once. Copies lock nothing, and no log line or
message contains the password."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.copy import copier, pace
from spark_sink.mirror.copy.chunk_reader import ChunkReading
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.copy.server import ServerLoad
from spark_sink.mirror.copy.staging import StagingTable
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules.states import Copying as CopyingState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.source.table_rows.positions import contains_executed
from tests.servers import Server
from tests.spark.facts import both_lines
from tests.spark.mirror.copy.conftest import PASSWORD, Copying, add_reader

pytestmark = pytest.mark.rotate(2, of="copies")

NewDatabase = Callable[[Server], str]
SMALL: dict[str, Any] = {"max_bytes_in_chunk": 1 << 10, "parallel": 2}


def numbers(server: Server, database: str, count: int, table: str = "t") -> None:
    """Create a table of `count` rows with a key of two columns."""
    server.execute(
        f"CREATE TABLE {database}.{table} (a INT, b VARCHAR(9), c VARCHAR(40), d DECIMAL(9,2), PRIMARY KEY (a, b))"
    )
    for start in range(0, count, 10_000):
        rows = ", ".join(
            f"({i // 3}, 'k{i % 3}', 'value {i}', {i / 100})"
            for i in range(start, min(count, start + 10_000))
        )
        server.execute(f"INSERT INTO {database}.{table} VALUES {rows}")


def selected(server: Server, database: str, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted(server.execute(f"SELECT * FROM {database}.{table}"), key=str)


def copied(copying: Copying, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in copying.rows(table)), key=str)


@pytest.fixture(params=["workers", "Spark"])
def writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Parameter: who writes the files of a copy. On a local file system these are the workers, otherwise Spark."""
    if request.param == "Spark":
        monkeypatch.setattr(FileSystem, "local", lambda *_: None)
    return str(request.param)


@pytest.mark.parametrize(
    "writer", ["workers", pytest.param("Spark", marks=pytest.mark.deep)], indirect=True
)
def test_all_rows_in_several_groups(
    writer: str, copying: Copying, new_database: NewDatabase, caplog: Any
) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 9_500)
    begin = copying.end()
    with caplog.at_level(logging.INFO):
        result = copying.copy(database, "t", begin=begin, **SMALL)
    assert copied(copying) == selected(copying.server, database)
    assert (result.rows, result.complete, result.exact) == (9_500, True, False)
    assert result.chunks == 10
    assert [report.rows for report in copying.reports] == [4_000, 8_000, 9_500]
    assert begin.position is not None
    assert contains_executed(result.executed, begin.position)
    assert result.bytes > 0
    # InnoDB's estimate may be wrong by one row.
    assert f"copy table={database}.t rows=9500 rows_estimated=9" in caplog.text
    assert PASSWORD not in caplog.text
    # A copy that is complete is not copied again.
    again = copying.copy(database, "t", begin=begin, **SMALL)
    assert (again.rows, again.bytes, again.chunks) == (result.rows, result.bytes, result.chunks)
    assert again.executed == result.executed


@pytest.mark.deep
def test_empty_and_tiny_tables(copying: Copying, new_database: NewDatabase) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 0, "none")
    numbers(copying.server, database, 1, "one")
    assert copying.copy(database, "none").rows == 0
    assert copying.copy(database, "one").rows == 1
    assert copied(copying, "none") == []
    assert copied(copying, "one") == selected(copying.server, database, "one")


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("before the commit", marks=pytest.mark.deep),
        "after the commit",
        pytest.param("before the end", marks=pytest.mark.deep),
    ],
)
def test_a_killed_copy_goes_on_with_what_is_missing(
    moment: str, copying: Copying, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, begin = new_database(copying.server), copying.end()
    numbers(copying.server, database, 9_500)
    begin = copying.end()
    append = StagingTable.append

    class Killed(BaseException):
        pass

    def killing(self: StagingTable, rows: Any, state: Any) -> tuple[int, int]:
        dies = bool(state.executed) if moment == "before the end" else state.group == 2
        if dies and moment != "after the commit":
            raise Killed
        counts = append(self, rows, state)
        if dies:
            raise Killed
        return counts

    with monkeypatch.context() as patched:
        patched.setattr(StagingTable, "append", killing)
        with pytest.raises(Killed):
            copying.copy(database, "t", begin=begin, **SMALL)
    before = len(copying.reports)
    # A row that is inserted now, after the last bound of the copy, is also copied if the copy has not read to the end.
    copying.server.execute(f"INSERT INTO {database}.t VALUES (100000, 'x', 'new', 1)")
    result = copying.copy(database, "t", begin=begin, **SMALL)
    later = [row for row in selected(copying.server, database) if row[0] != 100_000]
    assert [row for row in copied(copying) if row[0] != 100_000] == later
    assert result.rows == 9_500 + (moment != "before the end")
    groups = {"before the commit": 2, "after the commit": 1, "before the end": 0}
    assert len(copying.reports) - before == groups[moment]


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_job_that_copies_the_table_too_takes_no_rows_away(
    writer: str,
    parallel: int,
    copying: Copying,
    new_database: NewDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another job writes its second group, which ends at another key, while this job reads its own."""
    database = new_database(copying.server)
    numbers(copying.server, database, 9_500)
    begin, append, reports = copying.end(), StagingTable.append, copying.reports
    groups: list[int] = []

    def beside(self: StagingTable, rows: Any, state: Any) -> tuple[int, int]:
        groups.append(state.group)
        if groups == [1, 2]:
            more = SMALL | {"parallel": parallel}
            copying.copy(database, "t", begin=begin, stopping=lambda: len(reports) > 1, **more)
        return append(self, rows, state)

    with monkeypatch.context() as patched:
        patched.setattr(StagingTable, "append", beside)
        with pytest.raises(pace.OtherJobError):
            copying.copy(database, "t", begin=begin, **SMALL)
    assert copying.copy(database, "t", begin=begin, **SMALL).rows == 9_500
    assert copied(copying) == selected(copying.server, database)


@pytest.mark.deep
def test_a_newer_copy_begins_again(copying: Copying, new_database: NewDatabase) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 50)
    first = copying.end()
    copying.copy(database, "t", begin=first)
    copying.server.execute(f"DELETE FROM {database}.t WHERE a > 3")
    copying.copy(database, "t", begin=type(first)(7, copying.end().position))
    assert copied(copying) == selected(copying.server, database)


@pytest.mark.deep
def test_a_stop_between_groups(copying: Copying, new_database: NewDatabase) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 9_500)
    begin, stop = copying.end(), threading.Event()

    def stopping_after(_: CopyProgress) -> None:
        stop.set()

    result = copying.copy(
        database, "t", begin=begin, stopping=stop.is_set, progress=stopping_after, **SMALL
    )
    assert (result.complete, result.rows) == (False, 4_000)
    assert begin.position is not None
    standing = TableRecord("id-t", "shop", database, "t", state=CopyingState(begin.position))
    standing = replace(standing, from_lsn=last_lsn(begin.append))
    ControlTable(copying.spark, str(copying.target)).write([standing])
    (line,) = both_lines(copying.spark, str(copying.target))
    assert line.copied is not None
    assert (line.copied.rows, line.copied.chunks) == (4_000, 4)
    assert line.copied.rows_estimated == result.source.rows > 0
    assert f"{database}.t: 4000 rows copied (" in str(line.copied)
    assert copying.copy(database, "t", begin=begin, **SMALL).rows == 9_500


@pytest.mark.deep
def test_a_lost_connection_is_tried_again(
    copying: Copying, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 100)
    failures = [BinlogError(ErrorKind.CONNECTION_LOST, "gone"), RuntimeError("a worker died")]
    append = StagingTable.append

    def failing(self: StagingTable, rows: Any, state: Any) -> tuple[int, int]:
        if failures:
            raise failures.pop()
        return append(self, rows, state)

    monkeypatch.setattr(StagingTable, "append", failing)
    monkeypatch.setattr(pace, "_BACKOFF_S", 0.01)
    assert copying.copy(database, "t").rows == 100
    assert not failures


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {t} MODIFY d BIGINT",
        pytest.param("DROP TABLE {t}", marks=pytest.mark.deep),
    ],
)
def test_a_table_that_changes_meanwhile(
    change: str, copying: Copying, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 9_500)
    monkeypatch.setattr(copier, "_CHANGE_WAIT_S", 0.2)

    def changing(report: CopyProgress) -> None:
        if report.rows == 4_000:
            copying.server.execute(change.format(t=f"{database}.t"))

    with pytest.raises(BinlogError, match=f"table {database}.t was altered") as caught:
        copying.copy(database, "t", progress=changing, **SMALL)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE


@pytest.mark.deep
def test_a_copy_whose_table_changed_ends_when_it_is_stopped(
    copying: Copying, new_database: NewDatabase
) -> None:
    database, altered = new_database(copying.server), threading.Event()
    numbers(copying.server, database, 9_500)

    def changing(report: CopyProgress) -> None:
        copying.server.execute(f"ALTER TABLE {database}.t DROP COLUMN c")
        threading.Timer(2, altered.set).start()

    result = copying.copy(database, "t", stopping=altered.is_set, progress=changing, **SMALL)
    assert not result.complete


@pytest.mark.deep
def test_no_lock_waits_and_none_are_held(copying: Copying, new_database: NewDatabase) -> None:
    """The copy does not wait for locked rows or for rows that are not committed, and it locks no row."""
    server, database = copying.server, new_database(copying.server)
    numbers(server, database, 9_500)
    wanted, seen = selected(server, database), []

    def looking(_: CopyProgress) -> None:
        seen.append(server.execute("SELECT COUNT(*) FROM performance_schema.data_locks"))
        server.execute(
            "SET SESSION innodb_lock_wait_timeout = 1", f"UPDATE {database}.t SET c = c WHERE a = 7"
        )

    with closing(server.connect(autocommit=False)) as writer, writer.cursor() as cursor:
        cursor.execute(f"UPDATE {database}.t SET c = 'not committed' WHERE a < 5")
        cursor.execute(f"SELECT * FROM {database}.t WHERE a = 1000 FOR UPDATE")
        result = copying.copy(database, "t", progress=looking, **SMALL)
        writer.rollback()
    assert copied(copying) == wanted
    assert result.complete and seen


@pytest.mark.deep
def test_writers_do_not_wait_for_a_copy(copying: Copying, new_database: NewDatabase) -> None:
    server, database = copying.server, new_database(copying.server)
    numbers(server, database, 9_500)
    done, stop = [0], threading.Event()

    def write() -> None:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SET SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1"
            )
            while not stop.is_set():
                cursor.execute(f"UPDATE {database}.t SET d = d + 1 WHERE a = {done[0] % 3000}")
                done[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        result = copying.copy(database, "t", **SMALL)
    finally:
        stop.set()
        writer.join()
    assert result.rows == 9_500 and done[0] > 10
    assert server.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_waits'")[0][1] in ("0", 0)


@pytest.mark.deep
def test_the_throttle(copying: Copying, new_database: NewDatabase) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 3_000)
    began = time.monotonic()
    result = copying.copy(database, "t", max_rows_per_second=1_000, parallel=1)
    assert result.rows == 3_000
    assert time.monotonic() - began >= 3


@pytest.mark.deep
def test_a_busy_server_pauses_the_copy(
    copying: Copying, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database(copying.server)
    numbers(copying.server, database, 9_500)
    loads, asked = [9, 9, 9], []

    def load(_: Any, *, with_lag: bool) -> ServerLoad:
        asked.append(with_lag)
        return ServerLoad(loads.pop() if loads else 1, None)

    monkeypatch.setattr(pace, "server_load", load)
    monkeypatch.setattr(pace, "_PAUSE_S", 0.01)
    assert copying.copy(database, "t", pause_above_threads_running=5, **SMALL).rows == 9_500
    assert len(asked) > 3 and not any(asked)


def test_a_table_without_a_key(writer: str, copying: Copying, new_database: NewDatabase) -> None:
    server, database = copying.server, new_database(copying.server)
    server.execute(
        f"CREATE TABLE {database}.t (a INT, b VARCHAR(9))",
        f"INSERT INTO {database}.t VALUES (1, 'x'), (1, 'x'), (2, NULL)",
    )
    add_reader(server, "no_locks")
    copying.account = "no_locks"
    with pytest.raises(BinlogError, match=r"no primary key.*copy.lock_keyless_tables"):
        copying.copy(database, "t")
    with pytest.raises(BinlogError, match=r"no primary key.*may not lock it") as caught:
        copying.copy(database, "t", lock_keyless_tables=True)
    assert caught.value.kind is ErrorKind.GRANT_MISSING
    add_reader(server, "with_locks", "LOCK TABLES ON *.*")
    copying.account = "with_locks"
    result = copying.copy(database, "t", lock_keyless_tables=True)
    assert (result.rows, result.exact, result.complete) == (3, True, True)
    assert copied(copying) == selected(server, database)


def test_the_password_is_in_no_text(
    writer: str,
    copying: Copying,
    new_database: NewDatabase,
    monkeypatch: pytest.MonkeyPatch,
    caplog: Any,
) -> None:
    database, plans = new_database(copying.server), []
    numbers(copying.server, database, 10)
    method = "chunk_files" if writer == "workers" else "chunk_rows"
    frame_of = getattr(StagingTable, method)

    def planned(self: StagingTable, reading: ChunkReading, *destination: Any) -> Any:
        frame = frame_of(self, reading, *destination)
        # This private object returns the whole plan as text; `explain` would print it.
        plans.append(frame._jdf.queryExecution().toString() + repr(reading))
        return frame

    monkeypatch.setattr(StagingTable, method, planned)
    copying.copy(database, "t")
    assert plans and PASSWORD not in "".join(plans)
    copying.server.execute("DROP USER IF EXISTS 'gone'@'%'")
    copying.account = "gone"
    with caplog.at_level(logging.DEBUG), pytest.raises(BinlogError) as caught:
        copying.copy(
            database, "t", begin=Copying(copying.spark, copying.server, copying.target).end()
        )
    assert caught.value.kind is ErrorKind.ACCESS_DENIED
    assert PASSWORD not in str(caught.value) + repr(caught.value) + caplog.text
