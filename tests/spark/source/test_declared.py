"""The stream reader that declares its consumer. The tests call it in the same way as Spark, without Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from spark_sink.source.data_source import BinlogDataSource
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.declared import DeclaredPartition, DeclaredStreamReader
from spark_sink.source.slices import Slice
from tests.support.fake_daemon import FakeDaemon, position

ALL = ReadAllAvailable()
Offset = dict[str, Any]
NewReader = Callable[..., DeclaredStreamReader]


@pytest.fixture
def new_reader(daemon: FakeDaemon) -> Iterator[NewReader]:
    made: list[DeclaredStreamReader] = []

    def new(**options: str) -> DeclaredStreamReader:
        given = {"url": daemon.url, "databases": "shop", "retryTimeoutSeconds": "5"} | options
        reader = BinlogDataSource(given).streamReader(StructType())
        assert isinstance(reader, DeclaredStreamReader)
        made.append(reader)
        return reader

    yield new
    for reader in made:
        reader.stop()


class Checkpoint:
    """The checkpoint in which Spark stores the end of each batch of a query."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def run(self, reader: DeclaredStreamReader) -> list[DeclaredPartition]:
        """Plan and commit batches until there is nothing new. Returns the partitions of all batches."""
        planned: list[DeclaredPartition] = []
        while True:
            start = json.loads(self.ends[-1]) if self.ends else reader.initialOffset()
            end = reader.latestOffset(start, ALL)
            if json.dumps(end) == json.dumps(start):
                return planned
            self.ends.append(json.dumps(end))
            planned += map(_declared, reader.partitions(start, end))

    @property
    def end(self) -> Offset:
        end: Offset = json.loads(self.ends[-1])
        return end


def _declared(part: object) -> DeclaredPartition:
    assert isinstance(part, DeclaredPartition) and isinstance(part.partition, Slice)
    return part


def calls(daemon: FakeDaemon) -> list[str]:
    return [name for name, _ in daemon.calls]


def test_the_name_is_in_the_checkpoint_before_the_consumer_is_declared(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    reader = new_reader()
    assert reader.initialOffset() == reader.initialOffset() == {"consumer": ""}
    named = reader.latestOffset({"consumer": ""}, ALL)
    assert reader.latestOffset({"consumer": ""}, ALL) == named
    assert named["consumer"].startswith("spark-") and list(named) == ["consumer"]
    assert list(reader.partitions({"consumer": ""}, named)) == []
    assert daemon.calls == []
    first = reader.latestOffset(named, ALL)
    assert list(daemon.declared) == [named["consumer"]]
    assert first == {**position(0).as_dict(), "consumer": named["consumer"]}
    assert list(reader.partitions(named, first)) == []


def test_a_query_started_again_has_the_same_consumer(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    checkpoint = Checkpoint()
    assert checkpoint.run(new_reader()) == []
    daemon.add(b"x" * 10)
    (part,) = checkpoint.run(new_reader())
    assert part.consumer == checkpoint.end["consumer"]
    assert (part.partition.start.position.seq, part.partition.end.position.seq) == (0, 1)  # type: ignore[attr-defined]
    assert list(daemon.declared) == [part.consumer]
    daemon.add(b"x" * 10)
    checkpoint.run(new_reader(databases="shop", startingOffsets="earliest"))
    assert len(daemon.declared) == 1 and checkpoint.end["seq"] == 2


def test_two_checkpoints_have_two_consumers(daemon: FakeDaemon, new_reader: NewReader) -> None:
    one, two = Checkpoint(), Checkpoint()
    one.run(new_reader())
    two.run(new_reader())
    assert sorted(daemon.declared) == sorted([one.end["consumer"], two.end["consumer"]])
    assert len(daemon.declared) == 2


@pytest.mark.parametrize("committed", [0, 1, 2, 3])
def test_a_query_killed_after_any_batch_goes_on(
    daemon: FakeDaemon, new_reader: NewReader, committed: int
) -> None:
    daemon.add(b"x" * 10)
    daemon.acknowledged = daemon.base
    checkpoint = Checkpoint()
    checkpoint.run(new_reader())
    names = set(daemon.declared)
    # The batch after the last committed batch was planned before the restart, and is planned again.
    again = new_reader()
    ends = [json.loads(end) for end in checkpoint.ends]
    start = ends[committed - 1] if committed else again.initialOffset()
    parts = list(again.partitions(start, ends[committed])) if committed < len(ends) else []
    assert len(parts) == (committed == 2)
    checkpoint.ends = checkpoint.ends[: max(1, committed)]
    checkpoint.run(again)
    assert set(daemon.declared) == names and checkpoint.end["seq"] == 1


def test_a_consumer_that_was_removed_is_declared_again_at_the_checkpoint(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    daemon.add(b"x" * 10)
    checkpoint = Checkpoint()
    checkpoint.run(new_reader())
    (name,) = daemon.declared
    daemon.declared.clear()
    daemon.calls.clear()
    daemon.add(b"x" * 10)
    checkpoint.run(new_reader())
    assert list(daemon.declared) == [name] and calls(daemon)[:2] == ["consumers", "session"]
    assert daemon.calls[1][1]["after"]["seq"] == 1


def test_the_declared_consumer_reads_what_the_options_select(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    for options in (
        {"databases": "shop, team_*"},
        {"table": "shop.orders", "source": "db", "consumerPrefix": "nb-"},
        {"tables": "shop.*, shop.x", "startingOffsets": "earliest"},
        {"table": "shop.a*b", "startingOffsets": "binlog.000003:1234"},
    ):
        Checkpoint().run(new_reader(**options))
    bodies = [{k: v for k, v in body.items() if k != "name"} for body in daemon.declared.values()]
    plain = {"source": None, "databases": ["shop"], "tables": None, "start": "latest"}
    assert bodies == [
        {**plain, "databases": ["shop", "team_*"]},
        {**plain, "source": "db", "tables": ["shop.orders"]},
        {**plain, "tables": ["shop.*", "shop.x"], "start": "earliest"},
        {**plain, "tables": ["shop.a[*]b"], "start": {"file": "binlog.000003", "offset": 1234}},
    ]
    assert [name[:3] for name in daemon.declared] == ["spa", "nb-", "spa", "spa"]


def test_available_now_ends_at_the_head_of_its_start(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    for _ in range(3):
        daemon.add(b"x" * 10)
    reader, checkpoint = new_reader(), Checkpoint()
    reader.prepareForTriggerAvailableNow()
    checkpoint.run(reader)
    assert checkpoint.end["seq"] == 3
    daemon.add(b"x" * 10)
    assert checkpoint.run(reader) == []
    report = reader.reportLatestOffset()
    assert report is not None and report["consumer"] == checkpoint.end["consumer"]


def test_the_executors_read_with_the_consumer_of_the_partition(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    """Spark sends the reader of another process to the executors. That reader does not have the consumer's name."""
    daemon.add(b"x" * 10)
    (part,) = Checkpoint().run(new_reader(raw="slices"))
    sent = pickle.loads(pickle.dumps(new_reader(raw="slices")))
    reader = sent._reader_of(pickle.loads(pickle.dumps(part)).consumer)
    assert reader._options.consumer == part.consumer


def test_options_that_differ_from_the_checkpoints_are_an_error(
    daemon: FakeDaemon, new_reader: NewReader
) -> None:
    checkpoint = Checkpoint()
    checkpoint.run(new_reader())
    with pytest.raises(BinlogError) as caught:
        checkpoint.run(new_reader(databases="shop, billing"))
    assert caught.value.kind is ErrorKind.CONSUMER_EXISTS
    assert "begin with a new checkpoint" in str(caught.value)


def test_a_batch_needs_a_consumer(daemon: FakeDaemon) -> None:
    source = BinlogDataSource({"url": daemon.url, "databases": "shop"})
    with pytest.raises(UserError, match="a batch has no checkpoint") as caught:
        source.reader(StructType())
    assert "set the option consumer" in caught.value.remedy


def test_the_columns_of_a_table_are_known_before_the_query_runs(daemon: FakeDaemon) -> None:
    column = {"name": "id", "mysql_type": "int", "nullable": False, "charset": None}
    daemon.tables["shop.orders?source=db"] = {
        "database": "shop", "table": "orders", "columns": [column], "key": ["id"]
    }  # fmt: skip
    options = {"url": daemon.url, "databases": "shop", "table": "shop.orders", "source": "db"}
    schema = BinlogDataSource(options).schema()
    assert isinstance(schema, StructType) and "after" in schema.fieldNames()
    assert calls(daemon) == ["tables"]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (
            {"consumer": "shop", "databases": "shop"},
            "'consumer' and 'databases' exclude each other",
        ),
        ({"databases": " , "}, "option 'databases' is empty"),
        ({"source": "db", "consumer": "shop"}, "option 'source' needs 'databases'"),
        ({"consumerPrefix": "x", "consumer": "shop"}, "option 'consumerPrefix' needs 'databases'"),
        (
            {"databases": "shop", "consumerPrefix": "-x"},
            "option 'consumerPrefix' must be at most 40",
        ),
        (
            {"databases": "shop", "startingOffsets": json.dumps(position(1).as_dict())},
            "cannot be a position with 'databases'",
        ),
        ({}, "option 'consumer' is missing"),
    ],
)
def test_wrong_options_are_reported(options: dict[str, str], finding: str) -> None:
    with pytest.raises(UserError) as caught:
        SourceOptions.parse({"url": "http://127.0.0.1:1", **options})
    assert finding in caught.value.what
