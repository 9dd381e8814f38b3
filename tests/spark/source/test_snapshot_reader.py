"""The reader of a stream that begins with a snapshot: the planning on the driver, with a fake daemon. The server from
which rows are read is in the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.snapshot_reader import SnapshotStreamReader, offset_of
from spark_sink.source.selection.table_filter import TableFilter
from spark_sink.source.snapshot.row_range import RowRange
from spark_sink.source.snapshot.rules import ChunkEnd, SnapshotState, TableName
from spark_sink.source.snapshot.selected_tables import selected_tables
from spark_sink.source.table_rows.chunks import Chunk
from tests.spark.source.test_partial_changes import KEY, OPTIONS
from tests.support.fake_daemon import FakeDaemon, position, problem

LIMIT = ReadMaxBytes(1000)
BEGIN: dict[str, Any] = {"snapshot": {}}
READING = SnapshotState(table=("shop", "t"), key=KEY, after=("5",))


class FakeServer:
    """A server with the table shop.t, which is one chunk, and further tables."""

    def __init__(self, options: SourceOptions) -> None:
        self._selected = TableFilter(selected_tables(options))
        self.names: list[TableName] = [("shop", "t"), ("shop", "u")]

    def selects(self, name: TableName) -> bool:
        return self._selected.selects_table(*name, 0)

    def tables(self) -> list[TableName]:
        return list(filter(self.selects, self.names))

    check = tables

    def key(self, name: TableName) -> Any:
        assert self.selects(name)
        return KEY

    def wait_until_executed(self, *_: object) -> None:
        pass

    def next_chunks(self, name: TableName, after: Any, *_: object) -> tuple[list[Chunk], int]:
        assert self.selects(name)
        return [Chunk(after, None)], 1000

    def chunks(self, state: SnapshotState, _: int) -> list[Chunk]:
        assert state.chunk is not None
        return [Chunk(state.after, state.chunk.upper)]


Made = Callable[..., SnapshotStreamReader]


@pytest.fixture
def new_reader(daemon: FakeDaemon) -> Iterator[Made]:
    made: list[SnapshotStreamReader] = []

    def new(**options: str) -> SnapshotStreamReader:
        given = OPTIONS | {"url": daemon.url, "retryTimeoutSeconds": "1"} | options
        reader = SnapshotStreamReader(SourceOptions.parse(given), StructType())
        reader._server = FakeServer(reader._options)  # type: ignore[assignment]
        made.append(reader)
        return reader

    daemon.tables = {f"shop.{name}": {"columns": [], "key": ["id"]} for name in "tu"}
    yield new
    for reader in made:
        reader.stop()


def to_end(reader: SnapshotStreamReader, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the ends of all batches of a run with `Trigger.AvailableNow`."""
    ends: list[dict[str, Any]] = []
    while (end := reader.latestOffset(start, LIMIT)) != start:
        reader.partitions(start, end)
        ends.append(end)
        start = end
    return ends


def test_a_run_reads_all_tables_and_names_them_in_the_log(
    daemon: FakeDaemon, new_reader: Made, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spark_sink.source")
    daemon.add(b"x")
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    ends = to_end(reader, BEGIN)
    assert [end["snapshot"]["table"][1] for end in ends if end.get("snapshot", {}).get("rows")] == [
        "t",
        "u",
    ]
    assert ends[-1] == daemon.head.as_dict()
    assert "a snapshot of 2 tables begins" in caplog.text and "shop.t, shop.u" in caplog.text


# -- a daemon that delivers nothing ------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "state", [SnapshotState(), SnapshotState(READING.table, KEY, until=(1, 1))]
)
def test_a_run_ends_if_the_daemon_reads_no_further(
    daemon: FakeDaemon, new_reader: Made, state: SnapshotState
) -> None:
    """The consumer is paused, or the daemon does not reach the server."""
    daemon.queued = position(0)
    daemon.add(b"x")
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(BinlogError, match=r"the daemon has not reached .* in 1 s") as caught:
        reader.latestOffset(offset_of(position(0), state), LIMIT)
    assert caught.value.kind is ErrorKind.RANGE_UNAVAILABLE
    daemon.queued = None
    to_end(reader, offset_of(position(0), state))


def test_no_rows_are_planned_while_the_daemon_delivers_nothing(
    daemon: FakeDaemon, new_reader: Made
) -> None:
    """The tasks could not fetch the changes that are committed while they read rows."""
    daemon.queued = position(0)
    daemon.add(b"x", marker=True)
    reader, start = new_reader(), offset_of(position(0), SnapshotState())
    assert reader.latestOffset(start, LIMIT) == start
    daemon.queued = None
    assert reader.latestOffset(start, LIMIT)["snapshot"]["rows"]


@pytest.mark.timeout(60)
def test_the_limit_of_rows_per_second_is_no_failure(daemon: FakeDaemon, new_reader: Made) -> None:
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    reader._due_at = time.monotonic() + 2.5
    assert reader.latestOffset(offset_of(position(0), SnapshotState()), LIMIT)["snapshot"]["rows"]


def test_a_consumer_that_has_failed_is_opened_at_the_snapshot_s_beginning(
    daemon: FakeDaemon, new_reader: Made
) -> None:
    daemon.add(b"x")
    daemon.faults["session"] = [problem(409, ErrorKind.HISTORY_DIFFERS, "the log is another one")]
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    ends = to_end(reader, BEGIN)
    assert ends[-1] == daemon.head.as_dict()


# -- options that have changed -----------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [None, ChunkEnd(("9",), 1, 1)])
def test_a_table_that_is_no_longer_selected_is_left(
    daemon: FakeDaemon,
    new_reader: Made,
    caplog: pytest.LogCaptureFixture,
    chunk: ChunkEnd | None,
) -> None:
    reader = new_reader(tables="shop.u")
    state = SnapshotState(READING.table, KEY, READING.after, chunk=chunk, rows=chunk is not None)
    start = offset_of(position(0), state)
    end = reader.latestOffset(start, LIMIT)
    assert end["snapshot"]["table"] == ["shop", "u"]
    (part,) = reader.partitions(start, end)
    assert isinstance(part, RowRange) and part.table == ("shop", "u")
    warnings = [each for each in caplog.messages if "the options no longer select it" in each]
    assert len(warnings) == 1 and "shop.t" in warnings[0]


def test_a_planned_batch_of_a_table_that_is_no_longer_selected_has_no_rows(
    daemon: FakeDaemon, new_reader: Made
) -> None:
    planned = SnapshotState(
        READING.table, KEY, READING.after, chunk=ChunkEnd(None, 1, 1), rows=True
    )
    start, end = (offset_of(position(0), state) for state in (READING, planned))
    assert len(new_reader().partitions(start, end)) == 1
    assert new_reader(tables="shop.u").partitions(start, end) == []
