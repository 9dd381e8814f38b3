"""The stream reader for a Spark without admission control. The tests call it in the same way as Spark 4.0, without
Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers import reader_without_limits
from spark_sink.source.readers.reader_without_limits import ReaderWithoutLimits
from spark_sink.source.slices import Slice
from tests.support.fake_daemon import FakeDaemon, position

NewReader = Callable[..., ReaderWithoutLimits]
Offset = dict[str, Any]


@pytest.fixture
def new_reader(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewReader]:
    monkeypatch.setattr(reader_without_limits, "WAIT_MS", 1)
    made: list[ReaderWithoutLimits] = []

    def new(**options: str) -> ReaderWithoutLimits:
        given = {"url": daemon.url, "consumer": "shop", "retryTimeoutSeconds": "5"} | options
        made.append(ReaderWithoutLimits(SourceOptions.parse(given), StructType()))
        return made[-1]

    yield new
    for reader in made:
        reader.stop()


def planned(reader: ReaderWithoutLimits, start: Offset, end: Offset) -> list[Slice]:
    return [part for part in reader.partitions(start, end) if isinstance(part, Slice)]


def calls(daemon: FakeDaemon) -> list[str]:
    return [name for name, _ in daemon.calls]


def test_a_new_query_begins_where_its_initial_offset_is(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    end = daemon.add(b"x" * 10)
    reader = new_reader()
    assert reader.latestOffset() == end.as_dict()
    start = reader.initialOffset()
    assert start == position(0).as_dict()
    (part,) = planned(reader, start, end.as_dict())
    assert (part.start.position, part.end.position) == (position(0), end)
    assert daemon.acknowledged == position(0)


def test_a_new_query_at_a_place_stores_the_place(daemon: FakeDaemon, new_reader: NewReader) -> None:
    place = daemon.add(b"x" * 10)
    reader = new_reader(startingOffsets="latest")
    assert reader.latestOffset() == reader.initialOffset() == place.as_dict()
    assert reader.partitions(place.as_dict(), place.as_dict()) == []
    assert daemon.acknowledged == place
    end = daemon.add(b"x" * 10)
    assert reader.latestOffset() == end.as_dict()


def test_the_next_call_acknowledges_the_batch_that_was_planned(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    one = daemon.add(b"x" * 10).as_dict()
    reader = new_reader()
    assert reader.latestOffset() == one
    two = daemon.add(b"x" * 10)
    # Spark has not planned the batch, so the reader does not acknowledge it, and returns the end of the same batch
    # again.
    assert reader.latestOffset() == two.as_dict()
    assert daemon.acknowledged == position(0)
    reader.partitions(reader.initialOffset(), two.as_dict())
    assert daemon.acknowledged == position(0)
    assert reader.latestOffset() == two.as_dict()
    assert daemon.acknowledged == two


def test_a_restart_goes_on_behind_the_committed_batch(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(3)]
    reader = new_reader()
    told = ends[1].as_dict()
    assert reader.partitions(told, told) == []
    assert calls(daemon) == []
    assert reader.latestOffset() == ends[2].as_dict()
    assert daemon.acknowledged == ends[1]


def test_a_restart_plans_the_uncommitted_batch_again_before_it_is_acknowledged(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(3)]
    reader = new_reader()
    start, end = ends[0].as_dict(), ends[1].as_dict()
    reader.partitions(end, end)
    (part,) = planned(reader, start, end)
    assert (part.start.position, part.end.position) == (ends[0], ends[1])
    assert daemon.acknowledged == ends[0]
    assert reader.latestOffset() == ends[2].as_dict()
    assert daemon.acknowledged == ends[1]


def test_a_restart_plans_the_uncommitted_first_batch_again(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    end = daemon.add(b"x" * 10).as_dict()
    reader = new_reader()
    reader.partitions(end, end)
    (part,) = planned(reader, reader.initialOffset(), end)
    assert part.start.position == position(0)


def test_the_first_batch_ends_at_the_head_however_many_polls_it_takes(
    daemon: FakeDaemon, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(3)]
    daemon.queued = ends[0]
    poll = daemon._poll
    served = iter(ends)

    def one_more(body: dict[str, Any]) -> Any:
        answer = poll(body)
        daemon.queued = next(served, ends[-1])
        return answer

    monkeypatch.setattr(daemon, "_poll", one_more)
    assert new_reader().latestOffset() == ends[-1].as_dict()
    assert calls(daemon).count("poll") > 2


def test_the_first_batch_ends_at_the_head_behind_transactions_of_others(
    daemon: FakeDaemon, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [daemon.add(b"", marker=True) for _ in range(3)]
    daemon.queued = ends[0]
    poll = daemon._poll
    served = iter(ends)

    def one_more(body: dict[str, Any]) -> Any:
        answer = poll(body)
        daemon.queued = next(served, ends[-1])
        return answer

    monkeypatch.setattr(daemon, "_poll", one_more)
    assert new_reader().latestOffset() == ends[-1].as_dict()


def test_the_first_batch_ends_at_the_head_of_its_beginning(
    daemon: FakeDaemon, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = daemon.add(b"x" * 10)
    poll = daemon._poll

    def with_a_later_one(body: dict[str, Any]) -> dict[str, Any]:
        daemon.add(b"x" * 10)
        return poll(body)

    monkeypatch.setattr(daemon, "_poll", with_a_later_one)
    assert new_reader().latestOffset() == end.as_dict()


def test_the_first_batch_is_no_larger_than_the_queue(
    daemon: FakeDaemon, new_reader: NewReader, caplog: pytest.LogCaptureFixture
) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(5)]
    daemon.max_bytes = 30
    daemon.queued, daemon.full = ends[2], True
    reader = new_reader()
    assert reader.latestOffset() == ends[2].as_dict()
    assert "the first batch of this run ends at" in caplog.text
    assert "start it again for the rest" in caplog.text
    # Later batches have at most half of the queue, so that the daemon can fill the other half.
    reader.partitions(reader.initialOffset(), ends[2].as_dict())
    reader.latestOffset()
    limits = [body["max_bytes"] for name, body in daemon.calls if name == "poll"]
    assert limits == [None, None, 15]


def test_the_option_bounds_every_batch(daemon: FakeDaemon, new_reader: NewReader) -> None:
    ends = [daemon.add(b"x" * 10).as_dict() for _ in range(3)]
    reader = new_reader(maxBytesPerTrigger="25")
    assert reader.latestOffset() == ends[1]
    reader.partitions(reader.initialOffset(), ends[1])
    assert reader.latestOffset() == ends[2]


def test_a_daemon_that_does_not_reach_the_head(daemon: FakeDaemon, new_reader: NewReader) -> None:
    daemon.add(b"x" * 10)
    daemon.queued = position(0)
    with pytest.raises(BinlogError) as caught:
        new_reader(retryTimeoutSeconds="1").latestOffset()
    assert caught.value.kind is ErrorKind.RANGE_UNAVAILABLE


def test_a_range_that_stops_growing_before_the_head(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    daemon.queued = daemon.add(b"x" * 10)
    daemon.add(b"x" * 10)
    assert new_reader(retryTimeoutSeconds="1").latestOffset() == daemon.queued.as_dict()


def test_a_gap_is_a_batch_of_its_own(daemon: FakeDaemon, new_reader: NewReader) -> None:
    before = daemon.add(b"x" * 10).as_dict()
    begins = daemon.purge()
    daemon.add(b"x" * 10)
    reader = new_reader(failOnDataLoss="false")
    reader.partitions(before, before)
    assert reader.latestOffset() == begins.as_dict()
    assert reader.partitions(before, begins.as_dict()) == []
    assert reader.latestOffset() == daemon.head.as_dict()


def test_a_run_whose_beginning_spark_tells_too_late(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    end = daemon.add(b"x" * 10).as_dict()
    reader = new_reader()
    assert reader.latestOffset() == end
    with pytest.raises(UserError) as caught:
        reader.partitions(end, end)
    assert "triggerAvailableNowWrapper.enabled to false" in str(caught.value)


def test_offsets_are_the_same_text_each_time(daemon: FakeDaemon, new_reader: NewReader) -> None:
    daemon.add(b"x" * 10)
    reader = new_reader()
    assert json.dumps(reader.latestOffset()) == json.dumps(reader.latestOffset())
