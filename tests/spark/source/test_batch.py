"""The batch reader. The tests call it in the same way as Spark, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.http.client import SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers import batch
from spark_sink.source.readers.batch import BinlogBatchReader
from spark_sink.source.schemas import RAW_SCHEMA
from spark_sink.source.slices import Slice
from tests.spark.source.pauses import pause
from tests.support.fake_daemon import FakeDaemon, position, problem

NewReader = Callable[..., BinlogBatchReader]


@pytest.fixture
def new_reader(daemon: FakeDaemon) -> NewReader:
    def new(**options: str) -> BinlogBatchReader:
        given = {"url": daemon.url, "consumer": "shop", "retryTimeoutSeconds": "5", "raw": "true"}
        return BinlogBatchReader(SourceOptions.parse(given | options), RAW_SCHEMA)

    return new


def span(slices: Any) -> tuple[Position, Position]:
    assert all(isinstance(part, Slice) for part in slices)
    assert [part.start for part in slices[1:]] == [part.end for part in slices[:-1]]
    return slices[0].start.position, slices[-1].end.position


def changed(daemon: FakeDaemon) -> list[str]:
    """Returns the received calls that change something in the daemon."""
    return [
        name
        for name, body in daemon.calls
        if name == "ack" or body.get("session", 0) or (name == "session" and not body["read_only"])
    ]


def test_a_batch_is_what_the_queue_holds_and_changes_nothing(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    ends = [daemon.add(b"x" * 10) for _ in range(6)]
    daemon.acknowledged = ends[0]
    daemon.session = 7
    reader = pickle.loads(pickle.dumps(new_reader(maxPartitions="3")))
    assert daemon.calls == []
    slices = reader.partitions()
    assert span(slices) == (ends[0], ends[-1]) and len(slices) == 3
    assert b"".join(reader._bytes(reader._options, part)[1] for part in slices) == b"x" * 50
    assert slices[-1].batch_end == ends[-1]
    assert changed(daemon) == []
    assert (daemon.session, daemon.acknowledged) == (7, ends[0])


@pytest.mark.parametrize(
    ("options", "first", "last"),
    [
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, 1, 6),
        ({"startingOffsets": position(3).to_json()}, 3, 6),
        ({"startingTimestamp": "1000", "endingTimestamp": "2000"}, 2, 4),
        ({"endingOffsets": "1970-01-01T00:00:02Z"}, 1, 4),
    ],
)
def test_a_batch_between_two_places(
    daemon: FakeDaemon, new_reader: NewReader, options: dict[str, str], first: int, last: int
) -> None:
    ends = [daemon.base, *(daemon.add(b"x") for _ in range(6))]
    assert ends[3] == position(3)
    daemon.acknowledged = ends[1]
    for second, place in ((1, ends[2]), (2, ends[4])):
        daemon.places[f'{{"timestamp": "1970-01-01T00:00:0{second}+00:00"}}'] = place
    assert span(new_reader(**options).partitions()) == (ends[first], ends[last])


def test_an_empty_batch(daemon: FakeDaemon, new_reader: NewReader) -> None:
    daemon.acknowledged = daemon.add(b"x")
    reader = new_reader()
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []  # Spark makes such a partition


def test_a_batch_of_transactions_that_hold_nothing_reads_nothing(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    end = daemon.add(b"", marker=True)
    (only,) = new_reader().partitions()
    assert only.markers and only.batch_end == end
    assert new_reader(raw="false").partitions() == []


def test_large_batches_have_more_slices(daemon: FakeDaemon, new_reader: NewReader) -> None:
    for _ in range(7):
        daemon.add(bytes(1 << 20))
    assert len(new_reader(maxPartitions="2", maxBytesPerPartition="1MiB").partitions()) == 7


# -- changes that the queue does not have --------------------------------------------------------------------


@pytest.mark.parametrize("moved", [False, True])
def test_a_beginning_that_the_queue_no_longer_has(
    daemon: FakeDaemon, new_reader: NewReader, *, moved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    one, two, three = (daemon.add(b"x") for _ in range(3))
    daemon.acknowledged = begins = two
    if moved:
        begins = daemon.purge()
        three = daemon.add(b"x")
    given = {"startingOffsets": one.to_json()}
    with pytest.raises(BinlogError) as caught:
        new_reader(**given).partitions()
    assert caught.value.kind is ErrorKind.POSITION_PURGED
    text = str(caught.value)
    assert f"changes after epoch 1, seq {one.seq}" in text
    assert f"begins at epoch {begins.epoch}, seq {begins.seq}" in text and "failOnDataLoss" in text
    slices = new_reader(failOnDataLoss="false", **given).partitions()
    assert span(slices) == (begins, three)
    (record,) = caplog.records
    assert "consumer shop: changes after" in record.getMessage()


def test_a_slice_that_was_acknowledged_meanwhile(
    daemon: FakeDaemon, new_reader: NewReader, caplog: pytest.LogCaptureFixture
) -> None:
    ends = [daemon.add(b"x") for _ in range(6)]
    given = {"maxPartitions": "3", "maxBytesPerPartition": "1"}
    slices = new_reader(**given).partitions()
    daemon.acknowledge_as_another_reader(ends[2])
    for part in slices[:3]:
        with pytest.raises(BinlogError, match="were acknowledged, or the server has purged them"):
            new_reader(**given).read(part)
    lenient = new_reader(failOnDataLoss="false", **given)
    for part in slices:
        list(lenient._bytes(lenient._options, part))
    assert len(caplog.records) == 3


def test_of_a_slice_that_was_acknowledged_in_part_the_rest_is_read(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    ends = [daemon.add(bytes([n])) for n in range(4)]
    (part,) = new_reader(maxPartitions="1").partitions()
    daemon.acknowledge_as_another_reader(ends[1])
    reader = new_reader(failOnDataLoss="false")
    left, data = reader._bytes(reader._options, part)
    assert left.start.position == ends[1] and bytes(data) == bytes([2, 3])


@pytest.mark.parametrize("behind", [0, 1])
def test_a_slice_inside_of_a_transaction_that_was_acknowledged_meanwhile(
    daemon: FakeDaemon, new_reader: NewReader, caplog: pytest.LogCaptureFixture, behind: int
) -> None:
    """The stream has acknowledged up to this transaction, or up to the next one."""
    ends = [daemon.add(bytes([n])) for n in range(3)]
    (part,) = new_reader(maxPartitions="1").partitions()
    part = replace(part, start=SliceCut(ends[0], EventPoint(3, 120)))
    gone = problem(409, ErrorKind.POSITION_UNKNOWN, "the range is not in the queue")
    daemon.acknowledged = ends[behind]
    daemon.faults["binlog"] = [gone, gone]
    reader = new_reader(failOnDataLoss="false")
    left, data = reader._bytes(
        reader._options, replace(part, end=SliceCut(ends[0], EventPoint(9, 400)))
    )
    assert left.gap and bytes(data) == b""
    left, data = reader._bytes(reader._options, part)
    assert left.start == SliceCut(ends[behind]) and bytes(data) == bytes(range(behind + 1, 3))
    assert "changes after a place in the transaction that ends at epoch 1, seq 1" in caplog.text
    daemon.faults["binlog"] = [gone]
    with pytest.raises(BinlogError, match="in the transaction that ends at") as caught:
        new_reader()._bytes(new_reader()._options, part)
    assert caught.value.kind is ErrorKind.POSITION_PURGED


def test_a_range_that_is_unknown_for_another_reason_is_an_error(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    daemon.add(b"x")
    (part,) = new_reader(maxPartitions="1").partitions()
    daemon.faults["binlog"] = [problem(409, ErrorKind.POSITION_UNKNOWN, "unknown")]
    reader = new_reader(failOnDataLoss="false")
    with pytest.raises(BinlogError, match="unknown") as caught:
        reader._bytes(reader._options, part)
    assert caught.value.kind is ErrorKind.POSITION_UNKNOWN


# -- the end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seq", "why"),
    [(1, "lies before the batch's beginning, epoch 1, seq 2"), (9, "is not in the server's log")],
)
def test_an_end_that_cannot_be_reached(
    daemon: FakeDaemon, new_reader: NewReader, seq: int, why: str
) -> None:
    daemon.add(b"x")
    daemon.acknowledged = daemon.add(b"x")
    daemon.add(b"x")
    with pytest.raises(UserError, match=why):
        new_reader(endingOffsets=position(seq).to_json()).partitions()


def test_a_batch_of_a_paused_consumer_says_so(
    daemon: FakeDaemon, new_reader: NewReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.add(b"x")
    pause(daemon, monkeypatch)
    with pytest.raises(BinlogError, match=r"gets no further.*: the delivery is paused") as caught:
        new_reader(retryTimeoutSeconds="1").partitions()
    assert caught.value.remedy is not None
    assert "binlog-dispatcher consumers resume shop" in caught.value.remedy


def test_a_full_queue_ends_a_batch_with_a_warning(
    daemon: FakeDaemon,
    new_reader: NewReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = iter(range(0, 10**6, 3))
    monkeypatch.setattr(batch, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(batch, "WAIT_MS", 10)
    ends = [daemon.add(b"x" * 10) for _ in range(4)]
    daemon.queued, daemon.max_bytes = ends[2], 50
    assert span(new_reader().partitions()) == (position(0), ends[2])
    (record,) = caplog.records
    assert "the queue is full, so the batch ends at epoch 1, seq 3" in record.getMessage()
    # If the queue has room, the daemon is only slow, so the batch waits. If the options name an end, the batch always
    # waits for this end.
    for options in ({}, {"endingOffsets": ends[3].to_json()}):
        daemon.max_bytes = 50 if options else 70
        with pytest.raises(BinlogError, match=r"has read up to epoch 1, seq 3 .* gets no further"):
            new_reader(**options).partitions()


# -- options -------------------------------------------------------------------------------------------------


def test_latest_is_no_beginning_of_a_batch_and_a_stream_has_no_end(daemon: FakeDaemon) -> None:
    given = {"url": daemon.url, "consumer": "shop", "raw": "true"}
    schema = StructType()
    with pytest.raises(UserError, match="'startingOffsets' cannot be latest for a batch"):
        BinlogDataSource(given | {"startingOffsets": "latest"}).reader(schema)
    with pytest.raises(UserError, match="a stream has no end"):
        BinlogDataSource(given | {"endingTimestamp": "1000"}).streamReader(schema)


def test_options_of_streams_are_not_used(
    daemon: FakeDaemon, new_reader: NewReader, caplog: pytest.LogCaptureFixture
) -> None:
    daemon.add(b"x" * 100)
    daemon.add(b"x" * 100)
    assert span(new_reader(maxBytesPerTrigger="1").partitions()) == (position(0), daemon.head)
    assert "are for streams" in caplog.text
