"""How a task reads a range of a table. The server and the daemon are in the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from dispatcher.binlog.table_map.column_types import Column, Type
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.source import schemas
from spark_sink.source.options import SourceOptions
from spark_sink.source.snapshot import range_reader, repeats
from spark_sink.source.snapshot.row_range import RowRange
from spark_sink.source.table_rows.chunks import Chunk
from spark_sink.source.table_rows.session import changed_during_copy
from spark_sink.source.table_rows.source_table import SourceTable
from tests.spark.source.test_partial_changes import KEY, OPTIONS, WHOLE, row, sparse
from tests.support.rows_encoder import Delivered, integer

PART = RowRange(0, Position("s", "", "binlog.1", 4, 1, 1), ("shop", "t"), KEY, Chunk(None, None))
COLUMNS = tuple(Column(name, Type.LONG, 0, False, False, 0, (), True) for name in ("id", "n"))


class FakeServer:
    """A server with the rows (id, n) of one table. `steps`: what the task asks, in order."""

    def __init__(self) -> None:
        self.label = "reader@db:3306"
        self.rows = {1: 10, 2: 20}
        self.steps: list[str] = []
        self.failing: dict[str, list[BinlogError]] = {}
        self.generated: frozenset[str] = frozenset()
        self.changes = b""

    def step(self, name: str) -> None:
        self.steps.append(name)
        if self.failing.get(name):
            raise self.failing[name].pop(0)

    @contextmanager
    def session(self) -> Iterator[Any]:
        self.step("session")
        yield self

    def wait_until_executed(self, _: object, position: Position, **_more: object) -> bool:
        assert position == PART.position
        self.step("wait")
        return True

    def table(self, _: object, database: str, name: str) -> SourceTable:
        self.step("table")
        charsets = ("", "")
        return SourceTable(
            database, name, COLUMNS, charsets, (0,), "PRIMARY", "InnoDB", 2, 8, all_versions=False
        )

    def reader(self, *_: object) -> Any:
        def batches(*_: object) -> Iterator[pa.RecordBatch]:
            self.step("rows")
            columns = [
                pa.array(values, pa.int32()) for values in zip(*self.rows.items(), strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, ["id", "n"])

        return SimpleNamespace(result_columns=lambda *_: (), batches=batches)

    def executed(self, _: object) -> Position:
        self.step("executed")
        return PART.position

    def generated_columns(self, *_: object) -> frozenset[str]:
        return self.generated


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    for name, value in (
        ("table_server", lambda _: fake),
        ("wait_until_executed", fake.wait_until_executed),
        ("read_source_table", fake.table),
        ("lower_case_table_names", lambda _: 0),
        ("RowReader", fake.reader),
        ("executed_position", fake.executed),
        ("generated_columns", fake.generated_columns),
        ("_changes_since", lambda *_: fake.changes),
    ):
        monkeypatch.setattr(range_reader, name, value)
    monkeypatch.setattr(
        repeats, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: None)
    )
    return fake


def read(**more: str) -> dict[int, int]:
    options = SourceOptions.parse(OPTIONS | more)
    batches = range_reader.read_range(options, schemas.stream_schema(options, None), PART)
    after = [json.loads(each["after"]) for batch in batches for each in batch.to_pylist()]
    return {each["id"]: each.get("n") for each in after}


def test_the_connection_that_reads_waits_for_the_position(server: FakeServer) -> None:
    """Another connection of the driver may have reached another replica."""
    assert read() == {1: 10, 2: 20}
    assert server.steps == ["session", "wait", "table", "rows", "executed"]


@pytest.mark.parametrize("step", ["session", "wait", "table", "rows", "executed"])
def test_rows_are_read_again_after_a_lost_connection(server: FakeServer, step: str) -> None:
    server.failing[step] = [BinlogError(ErrorKind.CONNECTION_LOST, "gone")] * 2
    assert read() == {1: 10, 2: 20}
    assert server.steps.count(step) == 3


def test_a_server_that_lags_is_not_asked_again(server: FakeServer) -> None:
    server.failing["wait"] = [BinlogError(ErrorKind.RANGE_UNAVAILABLE, "not executed")]
    with pytest.raises(BinlogError, match="not executed"):
        read()


def test_a_table_that_is_altered_all_the_time_ends_the_attempts(server: FakeServer) -> None:
    server.failing["rows"] = [changed_during_copy("shop.t", "h")] * 4
    with pytest.raises(BinlogError, match="was altered while it was read"):
        read()
    server.failing["rows"] = [changed_during_copy("shop.t", "h")] * 3
    assert read() == {1: 10, 2: 20}


def test_a_table_that_the_options_no_longer_select_is_named(server: FakeServer) -> None:
    with pytest.raises(BinlogError, match=r"shop\.t: the options no longer select it") as caught:
        read(tables="shop.other")
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE


# -- the changes since the position ------------------------------------------------------------------------------


def test_both_keys_of_an_update_without_duplicates_are_left_out(server: FakeServer) -> None:
    log = Delivered()
    sparse(log, (WHOLE, [False, True]), row(1, 5), [integer(10, 4)])
    server.changes = log.bytes()
    assert read() == {2: 20}


def test_a_row_of_which_a_change_lacks_columns_ends_the_snapshot(server: FakeServer) -> None:
    """A session with binlog_row_image=MINIMAL: the stream omits the row, and would never have the column."""
    log = Delivered()
    sparse(log, ([True, False], [True, False]), [integer(7, 4)], [integer(2, 4)])
    server.changes = log.bytes()
    with pytest.raises(BinlogError, match=r"shop\.t: .*column 'n' is missing"):
        read()
    assert read(columns="shop.t.id") == {1: None}
    server.generated = frozenset(("n",))
    assert read() == {1: 10}
    server.rows = {1: 10, 3: 30}
    server.generated = frozenset()
    assert read() == {1: 10, 3: 30}, "the change is of another range"
