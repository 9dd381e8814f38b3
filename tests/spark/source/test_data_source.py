"""The stream reader. The tests call it in the same way as Spark, without Spark."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import KEYS
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.http.client import SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers import stream_reader
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.schemas import RAW_SCHEMA
from spark_sink.source.slices import SLICE_SCHEMA, Slice, read_bytes, slices_of
from tests.spark.source.pauses import pause
from tests.support.fake_daemon import Answer, FakeDaemon, position, problem

ALL = ReadAllAvailable()


@pytest.fixture
def new_reader(daemon: FakeDaemon) -> Any:
    made: list[BinlogStreamReader] = []

    def new(**options: str) -> BinlogStreamReader:
        given = {"url": daemon.url, "consumer": "shop", "retryTimeoutSeconds": "5"} | options
        made.append(BinlogStreamReader(SourceOptions.parse(given), StructType()))
        return made[-1]

    yield new
    for reader in made:
        reader.stop()


def calls(daemon: FakeDaemon) -> list[str]:
    return [name for name, _ in daemon.calls]


def test_constructing_and_pickling_opens_nothing(daemon: FakeDaemon, new_reader: Any) -> None:
    reader = new_reader()
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._session is None
    assert copy._client is None
    new_reader(consumer="other")
    assert calls(daemon) == ["session"]


def test_initial_offset_is_asked_twice_and_moves_nothing(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    daemon.add(b"x" * 10)
    reader = new_reader()
    first, second = reader.initialOffset(), reader.initialOffset()
    assert json.dumps(first) == json.dumps(second)
    assert list(first) == list(KEYS)
    assert calls(daemon) == ["session"]


def test_the_start_of_latest_offset_is_the_acknowledgement(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    one = daemon.add(b"x" * 10)
    two = daemon.add(b"x" * 10)
    reader = new_reader(maxBytesPerTrigger="15")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == one.as_dict()
    assert daemon.acknowledged == position(0)
    reader.commit(one.as_dict())
    assert daemon.acknowledged == position(0)
    assert reader.latestOffset(one.as_dict(), limit) == two.as_dict()
    assert daemon.acknowledged == one
    reported = reader.reportLatestOffset()
    assert {**reported, **two.as_dict()} == reported and reported["consumer"] == "shop"
    assert reported["batch"]["transactions"] == 1
    nothing_new = reader.latestOffset(two.as_dict(), limit)
    assert nothing_new == two.as_dict()


def test_limits(daemon: FakeDaemon, new_reader: Any) -> None:
    daemon.max_bytes = 4000
    daemon.add(b"x")
    reader = new_reader()
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxBytes(0)
    for limit in (ReadMaxBytes(0), ALL, ReadMaxBytes(7), ReadMaxRows(3)):
        reader.latestOffset(start, limit)
    polls = [body["max_bytes"] for name, body in daemon.calls if name == "poll"]
    assert polls == [2000, None, 7, 2000]


def test_partitions_may_be_the_first_call(daemon: FakeDaemon, new_reader: Any) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(6)]
    reader = new_reader(maxPartitions="3")
    slices = reader.partitions(ends[0].as_dict(), ends[4].as_dict())
    assert daemon.acknowledged == ends[0]
    assert [(s.session, s.number, s.start.position, s.end.position) for s in slices] == [
        (1, 0, ends[0], ends[1]),
        (1, 1, ends[1], ends[2]),
        (1, 2, ends[2], ends[4]),
    ]
    assert pickle.loads(pickle.dumps(slices)) == slices
    reader.latestOffset(ends[4].as_dict(), ALL)
    assert calls(daemon) == ["session", "slices", "poll"]


def test_a_small_batch_is_one_slice_and_markers_are_none(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    reader = new_reader()
    start = reader.initialOffset()
    end = daemon.add(b"x" * 10)
    reader.latestOffset(start, ALL)
    assert reader.partitions(start, end.as_dict()) == [
        Slice(1, 0, SliceCut(position(0)), SliceCut(end), batch_bytes=10)
    ]
    # A restarted query asks for its initial offset again, which may be past the planned end.
    assert reader.partitions(end.as_dict(), start) == []
    assert "slices" not in calls(daemon)


@pytest.mark.parametrize("planned", [True, False])
def test_a_large_batch_has_more_slices(
    daemon: FakeDaemon, new_reader: Any, *, planned: bool
) -> None:
    reader = new_reader(maxPartitions="2", maxBytesPerPartition="1MiB")
    start = reader.initialOffset()
    ends = [daemon.add(bytes(1 << 20)) for _ in range(7)]
    if planned:
        reader.latestOffset(start, ALL)
    slices = reader.partitions(start, ends[-1].as_dict())
    assert [s.end for s in slices] == [SliceCut(end) for end in ends]
    assert [s.number for s in slices] == list(range(7))
    assert [body["n"] for name, body in daemon.calls if name == "slices"] == (
        [7] if planned else [2, 7]
    )


def test_slices_are_at_most_254(daemon: FakeDaemon, new_reader: Any) -> None:
    reader = new_reader(maxBytesPerPartition="1")
    start = reader.initialOffset()
    end = daemon.add(bytes(3000))
    reader.latestOffset(start, ALL)
    reader.partitions(start, end.as_dict())
    assert [body["n"] for name, body in daemon.calls if name == "slices"] == [254]


def test_the_checkpoint_wins_over_the_stored_position(daemon: FakeDaemon, new_reader: Any) -> None:
    ends = [daemon.add(b"x") for _ in range(3)]
    reader = new_reader()
    reader.initialOffset()
    assert reader.latestOffset(ends[1].as_dict(), ALL) == ends[2].as_dict()
    assert [body["after"] for name, body in daemon.calls if name == "session"] == [
        None,
        ends[1].as_dict(),
    ]


def test_a_start_from_the_options(daemon: FakeDaemon, new_reader: Any) -> None:
    one = daemon.add(b"x")
    assert new_reader(startingOffsets=one.to_json()).initialOffset() == one.as_dict()


def test_a_batch_has_at_most_so_many_transactions(daemon: FakeDaemon, new_reader: Any) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(5)]
    reader = new_reader(maxTransactionsPerTrigger="2")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == ends[1].as_dict()
    assert reader.latestOffset(ends[1].as_dict(), limit) == ends[3].as_dict()
    assert reader.latestOffset(ends[3].as_dict(), ALL) == ends[4].as_dict()


def test_a_batch_waits_for_its_bytes_but_not_longer_than_the_delay(
    daemon: FakeDaemon, new_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(stream_reader, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(stream_reader, "WAIT_MS", 20)
    reader = new_reader(minBytesPerTrigger="25B", maxTriggerDelay="10m")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    one = daemon.add(b"x" * 10)
    # As in Spark's Kafka source, the first batch does not wait.
    assert reader.latestOffset(start, limit) == one.as_dict()
    two = daemon.add(b"x" * 10)
    assert reader.latestOffset(one.as_dict(), limit) == one.as_dict()
    clock[0] += 599
    assert reader.latestOffset(one.as_dict(), limit) == one.as_dict()
    clock[0] += 2
    assert reader.latestOffset(one.as_dict(), limit) == two.as_dict()
    daemon.add(b"x" * 20)
    assert reader.latestOffset(two.as_dict(), limit) == two.as_dict()
    four = daemon.add(b"x" * 20)
    assert reader.latestOffset(two.as_dict(), limit) == four.as_dict()
    five = daemon.add(b"x")
    assert reader.latestOffset(four.as_dict(), ALL) == five.as_dict()
    sent = [body.get("min_bytes", 0) for name, body in daemon.calls if name == "poll"]
    assert sent == [0, 25, 25, 0, 25, 25, 0]


def test_a_run_to_the_end_does_not_wait_for_bytes(daemon: FakeDaemon, new_reader: Any) -> None:
    one = daemon.add(b"x" * 10)
    reader = new_reader(minBytesPerTrigger="1MB")
    reader.prepareForTriggerAvailableNow()
    reader._batched_at = time.monotonic()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(reader.initialOffset(), limit) == one.as_dict()


# -- a start at a place of the server's log ------------------------------------------------------------------


@pytest.mark.parametrize("moves", [False, True])
def test_a_place_is_asked_once_and_its_session_opens_with_the_first_batch(
    daemon: FakeDaemon, new_reader: Any, *, moves: bool
) -> None:
    daemon.add(b"x" * 10)
    tip = daemon.add(b"x" * 10)
    reader = new_reader(startingOffsets="latest")
    start = reader.initialOffset()
    assert start == tip.as_dict()
    assert (daemon.session, daemon.acknowledged) == (0, position(0))
    end = daemon.add(b"later") if moves else tip
    assert reader.latestOffset(start, ALL) == end.as_dict()
    assert reader.initialOffset() == start
    assert daemon.acknowledged == tip
    assert len(reader.partitions(start, end.as_dict())) == moves
    assert calls(daemon) == ["resolve", "session", "poll"]


def test_a_query_that_found_nothing_at_the_end_begins_there_again(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    daemon.add(b"x" * 10)
    killed = new_reader(startingOffsets="latest")
    killed.prepareForTriggerAvailableNow()
    start = killed.initialOffset()
    assert killed.latestOffset(start, ALL) == start
    assert killed.partitions(start, start) == []
    reader = new_reader(startingOffsets="latest")
    assert reader.partitions(reader.initialOffset(), start) == []


@pytest.mark.parametrize(
    "kind", [ErrorKind.POSITION_PURGED, ErrorKind.HISTORY_DIFFERS, ErrorKind.STORED_POSITION]
)
@pytest.mark.parametrize("place", ["earliest", "position"])
def test_a_run_to_the_end_of_the_log_revives_a_failed_consumer(
    daemon: FakeDaemon, new_reader: Any, kind: ErrorKind, place: str
) -> None:
    start, end = position(0), daemon.add(b"x" * 10)
    daemon.faults["session"] = [problem(410, kind, "the consumer has failed")]
    reader = new_reader(startingOffsets=start.to_json() if place == "position" else place)
    reader.prepareForTriggerAvailableNow()
    assert reader.reportLatestOffset() is None
    assert reader.initialOffset() == start.as_dict()
    assert reader.latestOffset(start.as_dict(), ALL) == end.as_dict()
    assert daemon.acknowledged == start
    daemon.add(b"later")
    assert reader.latestOffset(end.as_dict(), ALL) == end.as_dict()


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (ErrorKind.POSITION_PURGED, {}),
        (ErrorKind.FORBIDDEN, {"startingOffsets": "earliest"}),
    ],
)
def test_a_run_to_the_end_of_the_log_ends_if_no_start_can_help(
    daemon: FakeDaemon, new_reader: Any, kind: ErrorKind, options: dict[str, str]
) -> None:
    daemon.faults["session"] = [problem(403, kind, "refused")]
    with pytest.raises(BinlogError, match="refused"):
        new_reader(**options).prepareForTriggerAvailableNow()


def test_a_time_is_sent_to_the_daemon(daemon: FakeDaemon, new_reader: Any) -> None:
    one = daemon.add(b"x")
    daemon.places['{"timestamp": "1970-01-01T00:00:01.500000+00:00"}'] = one
    assert new_reader(startingTimestamp="1500").initialOffset() == one.as_dict()
    with pytest.raises(BinlogError, match="no place"):
        new_reader(startingTimestamp="1501").initialOffset()


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("place", ["latest", "earliest"])
def test_a_batch_that_was_planned_before_a_crash_keeps_its_start(
    daemon: FakeDaemon, new_reader: Any, place: str, *, more: bool
) -> None:
    """Spark asks the new process for the initial offset, and then for the batch. At that time, `latest` denotes another
    position."""
    daemon.add(b"x" * 10)
    killed = new_reader(startingOffsets=place)
    start = killed.initialOffset()
    end = daemon.add(b"x" * 10)
    assert killed.latestOffset(start, ALL) == end.as_dict()
    if more:
        daemon.add(b"x" * 10)
    reader = new_reader(startingOffsets=place)
    again = reader.initialOffset()
    assert (again == start) is (place == "earliest")
    slices = reader.partitions(again, end.as_dict())
    assert slices[0].start.position.as_dict() == start
    assert slices[-1].end.position == end
    assert daemon.acknowledged.as_dict() == start


def test_a_checkpoint_wins_over_a_place_and_one_line_says_so(
    daemon: FakeDaemon, new_reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = daemon.add(b"x"), daemon.add(b"x")
    reader = new_reader(startingOffsets="earliest")
    for _ in range(2):
        assert reader.latestOffset(one.as_dict(), ALL) == two.as_dict()
    (record,) = caplog.records
    assert record.getMessage() == (
        "consumer shop: continues at the checkpoint, epoch 1, seq 1 (binlog.000001:5); startingOffsets (earliest)"
        " is for a query without one"
    )
    assert daemon.acknowledged == one
    caplog.clear()
    for options in ({}, {"startingOffsets": one.to_json()}):
        new_reader(**options).latestOffset(one.as_dict(), ALL)
    assert not caplog.records


def test_available_now_ends_at_the_position_of_its_start(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    daemon.add(b"x" * 10)
    tip = daemon.add(b"", marker=True)
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    assert daemon.session == 0  # a read-only session fences no reader
    start = reader.initialOffset()
    daemon.add(b"later")
    end = reader.latestOffset(start, ALL)
    assert end == tip.as_dict()
    assert reader.partitions(start, end)
    assert reader.latestOffset(end, ALL) == end
    assert daemon.acknowledged.seq < tip.seq  # known to be the end without a call


def test_available_now_over_nothing_but_markers(daemon: FakeDaemon, new_reader: Any) -> None:
    reader = new_reader()
    start = reader.initialOffset()
    tip = daemon.add(b"", marker=True)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ALL)
    assert end == tip.as_dict()
    assert reader.partitions(start, end) == []
    assert reader.latestOffset(end, ALL) == end


def test_raw_slices_end_with_the_position_of_the_batch(daemon: FakeDaemon, new_reader: Any) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(6)]
    reader = new_reader(maxPartitions="3", raw="true")
    slices = reader.partitions(ends[0].as_dict(), ends[4].as_dict())
    assert [part.batch_end for part in slices] == [None, None, ends[4]]
    assert not any(part.gap or part.markers for part in slices)


def test_slices_that_are_not_read_are_rows(daemon: FakeDaemon, new_reader: Any) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(6)]
    planner = new_reader(maxPartitions="3", raw="slices")
    slices = planner.partitions(ends[0].as_dict(), ends[4].as_dict())
    reader = BinlogStreamReader(planner._options, SLICE_SCHEMA)
    rows = [row for part in slices for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["number"] for row in rows] == [0, 1, 2]
    assert slices_of(reversed(rows)) == slices
    assert {part.batch_bytes for part in slices} == {40}
    assert "binlog" not in calls(daemon)
    read = [read_bytes(planner._options, part) for part in slices]
    assert [part for part, _ in read] == slices
    assert b"".join(data for _, data in read).count(b"x") == 40


def test_raw_markers_are_a_slice_that_reads_nothing(daemon: FakeDaemon, new_reader: Any) -> None:
    reader = new_reader(raw="true")
    start = reader.initialOffset()
    tip = daemon.add(b"", marker=True)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ALL)
    assert end == tip.as_dict()
    (only,) = reader.partitions(start, end)
    assert only == Slice(1, 0, SliceCut(position(0)), SliceCut(tip), batch_end=tip, markers=True)
    reader = BinlogStreamReader(reader._options, RAW_SCHEMA)
    (row,) = [row for batch in reader.read(only) for row in batch.to_pylist()]
    assert (row["kind"], row["entry"], row["position"]) == ("end", 0, tip.to_json())
    assert "binlog" not in calls(daemon)


# -- changes that the server has purged ----------------------------------------------------------------------


def test_a_gap_that_a_poll_finds_is_an_error(daemon: FakeDaemon, new_reader: Any) -> None:
    one = daemon.add(b"x" * 10)
    reader = new_reader()
    reader.latestOffset(reader.initialOffset(), ALL)
    behind = daemon.purge()
    with pytest.raises(BinlogError) as caught:
        reader.latestOffset(one.as_dict(), ALL)
    assert caught.value.kind is ErrorKind.POSITION_PURGED
    text = str(caught.value)
    assert f"purged changes after epoch {one.epoch}, seq {one.seq} (binlog.000001:" in text
    assert f"continues at epoch {behind.epoch}, seq {behind.seq}" in text
    assert "failOnDataLoss" in text


@pytest.mark.parametrize("first", ["latestOffset", "partitions"])
def test_a_gap_that_a_session_finds_is_an_error(
    daemon: FakeDaemon, new_reader: Any, first: str
) -> None:
    one, two = daemon.add(b"x" * 10), daemon.add(b"x" * 10)
    daemon.purge()
    reader = new_reader()
    second = ALL if first == "latestOffset" else two.as_dict()
    with pytest.raises(BinlogError, match="the server has purged changes after"):
        getattr(reader, first)(one.as_dict(), second)


def test_a_gap_under_a_planned_batch_is_an_error(daemon: FakeDaemon, new_reader: Any) -> None:
    one, two = daemon.add(b"x" * 10), daemon.add(b"x" * 10)
    reader = new_reader()
    (part,) = reader.partitions(one.as_dict(), two.as_dict())[:1]
    daemon.purge()
    with pytest.raises(BinlogError, match="the server has purged changes after"):
        reader.read(part)


def test_without_failing_a_gap_is_logged_once_and_marked(
    daemon: FakeDaemon, new_reader: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = daemon.add(b"x" * 10)
    reader = new_reader(failOnDataLoss="false", raw="true")
    reader.latestOffset(reader.initialOffset(), ALL)
    behind = daemon.purge()
    for _ in range(2):
        assert reader.latestOffset(one.as_dict(), ALL) == behind.as_dict()
    (record,) = caplog.records
    assert "consumer shop: the server has purged changes after" in record.getMessage()
    (part,) = reader.partitions(one.as_dict(), behind.as_dict())
    assert part.gap and part.batch_end == behind
    end = daemon.add(b"x")
    (part,) = new_reader(failOnDataLoss="false", raw="true").partitions(
        behind.as_dict(), end.as_dict()
    )
    assert not part.gap


def test_without_failing_a_gap_before_the_first_batch_is_marked(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    one = daemon.add(b"x" * 10)
    behind = daemon.purge()
    reader = new_reader(failOnDataLoss="false", raw="true", startingOffsets=one.to_json())
    daemon.add(b"x" * 10)
    for _ in range(2):
        assert reader.initialOffset() == one.as_dict()
    assert reader.latestOffset(one.as_dict(), ALL) == behind.as_dict()
    (part,) = reader.partitions(one.as_dict(), behind.as_dict())
    assert (part.gap, part.markers, part.batch_end) == (True, True, behind)


def test_a_consumer_that_was_moved_is_like_one_behind_a_gap(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    one = daemon.add(b"x" * 10)
    behind = daemon.purge()
    refused = problem(400, ErrorKind.POSITION_UNKNOWN, "it belongs to another epoch")
    daemon.faults["session"] = [refused]
    start = {"raw": "true", "startingOffsets": one.to_json()}
    with pytest.raises(BinlogError, match="or the consumer was moved: it continues at epoch"):
        new_reader(**start).initialOffset()
    daemon.faults["session"] = [refused]
    reader = new_reader(failOnDataLoss="false", **start)
    assert reader.initialOffset() == one.as_dict()
    daemon.faults["session"] = [refused]
    end = daemon.add(b"x" * 10)
    assert reader.latestOffset(one.as_dict(), ALL) == behind.as_dict()
    (part,) = reader.partitions(one.as_dict(), behind.as_dict())
    assert part.gap and part.batch_end == behind
    assert reader.latestOffset(behind.as_dict(), ALL) == end.as_dict()


def test_a_gap_with_nothing_behind_it_is_a_batch_of_its_own(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    one = daemon.add(b"x" * 10)
    behind = daemon.purge()
    reader = new_reader(failOnDataLoss="false", raw="true", startingOffsets=one.to_json())
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ALL)
    assert (start, end) == (one.as_dict(), behind.as_dict())
    (part,) = reader.partitions(start, end)
    assert part.gap and part.batch_end == behind
    assert reader.latestOffset(end, ALL) == end


def test_a_gap_with_nothing_behind_it_ends_at_the_tip_as_the_server_writes_it(
    daemon: FakeDaemon, new_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = daemon.add(b"x" * 10)
    behind = daemon.purge()
    tip = replace(behind, offset=behind.offset + 40)  # no transaction lies between the two
    monkeypatch.setattr(FakeDaemon, "head", property(lambda _: tip))
    reader = new_reader(failOnDataLoss="false", raw="true", startingOffsets=one.to_json())
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ALL)
    (part,) = reader.partitions(start, end)
    assert (part.gap, part.markers, part.batch_end) == (True, True, tip)
    assert reader.latestOffset(end, ALL) == end


def test_a_consumer_that_is_moved_during_a_run_to_the_tip_goes_on_in_its_new_epoch(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    one = daemon.add(b"x" * 10)
    reader = new_reader(failOnDataLoss="false", raw="true", startingOffsets=one.to_json())
    start = reader.initialOffset()
    daemon.add(b"x" * 10)
    reader.prepareForTriggerAvailableNow()
    behind = daemon.purge()
    end = reader.latestOffset(start, ALL)
    (part,) = reader.partitions(start, end)
    assert (part.gap, part.batch_end) == (True, behind)


def test_a_gap_that_was_planned_before_a_crash_is_planned_again(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    one = daemon.add(b"x" * 10)
    behind = daemon.purge()
    reader = new_reader(failOnDataLoss="false", raw="true")
    (part,) = reader.partitions(one.as_dict(), behind.as_dict())
    assert (part.gap, part.markers, part.batch_end) == (True, True, behind)


# -- a checkpoint that is ahead of the server ----------------------------------------------------------------


def test_available_now_from_a_checkpoint_ahead_of_the_server(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    daemon.add(b"x")
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(BinlogError, match="seq 7 is ahead of the server"):
        reader.latestOffset(position(7).as_dict(), ALL)


def test_available_now_from_a_checkpoint_that_the_daemon_accepts_and_the_server_has_not_reached(
    daemon: FakeDaemon, new_reader: Any
) -> None:
    old, tip = daemon.add(b"x"), daemon.add(b"x")
    reader = new_reader()
    reader.prepareForTriggerAvailableNow()
    daemon.transactions.pop()
    # The daemon's answer for a reader that may be ahead of a lagging replica.
    answer = {
        "session": 1,
        "position": tip.as_dict(),
        "head": old.as_dict(),
        "max_bytes_in_binlog_queue": 1,
        "gap": False,
    }
    daemon.faults["session"] = [Answer(body=json.dumps(answer).encode())]
    reader._target = old
    with pytest.raises(BinlogError, match="ahead of the server's newest position") as caught:
        reader.latestOffset(tip.as_dict(), ALL)
    assert caught.value.kind is ErrorKind.POSITION_UNKNOWN


# -- a paused consumer -----------------------------------------------------------------------------------------


def test_a_pause_is_reported_and_logged_once(
    daemon: FakeDaemon,
    new_reader: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = daemon.add(b"x" * 10)
    reader = new_reader()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == one.as_dict()
    assert reader.reportLatestOffset()["paused"] is False
    pause(daemon, monkeypatch)
    daemon.add(b"x" * 10)
    for _ in range(2):
        assert reader.latestOffset(one.as_dict(), ALL) == one.as_dict()
    told = reader.reportLatestOffset()
    assert told["paused"] is True and told["batch"] == {"transactions": 0, "bytes": 0}
    assert told["seq"] == 2, "the server's newest position"
    (record,) = caplog.records
    assert record.getMessage() == (
        "consumer shop: the delivery is paused, so the query gets no changes;"
        " resume the delivery: binlog-dispatcher consumers resume shop"
    )
    monkeypatch.undo()
    assert reader.latestOffset(one.as_dict(), ALL) == daemon.head.as_dict()
    assert reader.reportLatestOffset()["paused"] is False


@pytest.mark.timeout(60)
def test_a_run_to_the_end_of_the_log_says_that_the_consumer_is_paused(
    daemon: FakeDaemon, new_reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.add(b"x" * 10)
    pause(daemon, monkeypatch)
    reader = new_reader(retryTimeoutSeconds="1")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(BinlogError, match=r"in 1 s: the delivery is paused") as caught:
        reader.latestOffset(reader.initialOffset(), ALL)
    assert caught.value.remedy is not None
    assert "binlog-dispatcher consumers resume shop" in caught.value.remedy


def test_a_newer_reader_fences_this_one(daemon: FakeDaemon, new_reader: Any) -> None:
    older, newer = new_reader(), new_reader()
    start = older.initialOffset()
    newer.initialOffset()
    with pytest.raises(BinlogError) as caught:
        older.latestOffset(start, ALL)
    assert caught.value.kind is ErrorKind.SESSION_FENCED
    assert "session 1 is not the newest" in str(caught.value)
    assert "declare a second consumer for a second reader" in str(caught.value)


def test_a_consumer_that_has_failed_for_good(daemon: FakeDaemon, new_reader: Any) -> None:
    reader = new_reader()
    start = reader.initialOffset()
    daemon.faults["poll"] = [problem(410, ErrorKind.POSITION_PURGED, "binlog.000001 is gone")]
    with pytest.raises(BinlogError, match=r"binlog\.000001 is gone"):
        reader.latestOffset(start, ALL)


def test_schemas(daemon: FakeDaemon, caplog: pytest.LogCaptureFixture) -> None:
    daemon.tables["shop.orders"] = {
        "database": "shop",
        "table": "orders",
        "columns": [
            {"name": "id", "mysql_type": "bigint unsigned", "nullable": False, "charset": None},
            {"name": "at", "mysql_type": "datetime(3)", "nullable": True, "charset": None},
            {"name": "ts", "mysql_type": "timestamp", "nullable": True, "charset": None},
        ],
        "key": ["id"],
    }
    given = {"url": daemon.url, "consumer": "shop"}
    changes = BinlogDataSource(given).schema()
    assert isinstance(changes, StructType)
    assert changes.simpleString() == (
        "struct<epoch:bigint,seq:bigint,ordinal:bigint,gtid:string,file:string,pos:bigint,"
        "committed_at:timestamp,database:string,table:string,op:string,before_absent:array<string>,"
        "after_absent:array<string>,before:string,after:string,"
        "tables:array<struct<database:string,table:string>>>"
    )
    assert [f.name for f in changes if not f.nullable] == ["epoch", "seq", "ordinal"]
    typed = BinlogDataSource(given | {"table": "shop.orders"}).schema()
    assert isinstance(typed, StructType)
    assert (
        typed["after"].dataType.simpleString()
        == "struct<id:decimal(20,0),at:timestamp_ntz,ts:timestamp>"
    )
    with pytest.raises(BinlogError, match=r"table shop\.nope does not exist"):
        BinlogDataSource(given | {"table": "shop.nope"}).schema()
    listed = BinlogDataSource(given | {"tables": "shop.orders, shop.ordrs, other.*"})
    assert listed.schema() == changes
    assert [record.getMessage() for record in caplog.records] == [
        "option tables: shop.ordrs: table shop.ordrs does not exist"
    ]
    caplog.clear()
    chosen = BinlogDataSource(given | {"columns": "shop.orders.idd, shop.orders.a*, x.y.*, *.*.z"})
    assert chosen.schema() == changes
    assert [record.getMessage() for record in caplog.records] == [
        "option columns: shop.orders: 'idd' is no column, did you mean 'id'?",
        "option columns: x.y: table x.y does not exist",
    ]
    options = {"table": "shop.orders", "columns": "id", "metadata": "key,transaction_end"}
    typed = BinlogDataSource(given | options).schema()
    assert isinstance(typed, StructType)
    assert [typed[name].dataType.simpleString() for name in ("before", *typed.names[-2:])] == [
        "struct<id:decimal(20,0)>",
        "struct<id:decimal(20,0)>",
        "boolean",
    ]
    with pytest.raises(UserError, match="unknown option"):
        BinlogDataSource(given | {"tabel": "shop.orders"})
