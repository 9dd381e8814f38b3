"""Checkpoints of a query whose options have changed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxBytes
from pyspark.sql.types import StructType

from dispatcher.model.errors import UserError
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.declared import DeclaredStreamReader
from spark_sink.source.readers.reader_without_limits import ReaderWithoutLimits
from spark_sink.source.readers.snapshot_reader import SnapshotStreamReader
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from tests.spark.source.test_partial_changes import OPTIONS
from tests.support.fake_daemon import position

PLAIN: dict[str, Any] = position(5).as_dict()
DECLARED = {**PLAIN, "consumer": "spark-1"}
NEW = {"consumer": ""}
SNAPSHOT = {**PLAIN, "snapshot": {"table": ["shop", "t"], "key": []}}
BEGIN: dict[str, Any] = {"snapshot": {}}
FOREIGN = {"topic": {"0": 5}}
CONSUMER = {"url": "http://127.0.0.1:1", "consumer": "shop", "retryTimeoutSeconds": "1"}
DATABASES = {"url": "http://127.0.0.1:1", "databases": "shop", "retryTimeoutSeconds": "1"}

CASES = [
    (BinlogStreamReader, CONSUMER, DECLARED, "set the option databases in place of consumer"),
    (BinlogStreamReader, CONSUMER, NEW, "set the option databases in place of consumer"),
    (BinlogStreamReader, CONSUMER, SNAPSHOT, "set startingOffsets to snapshot"),
    (BinlogStreamReader, CONSUMER, BEGIN, "set startingOffsets to snapshot"),
    (BinlogStreamReader, CONSUMER, FOREIGN, "use the checkpoint with the source"),
    (DeclaredStreamReader, DATABASES, PLAIN, "set the option consumer in place of databases"),
    (DeclaredStreamReader, DATABASES, SNAPSHOT, "set startingOffsets to snapshot"),
    (DeclaredStreamReader, DATABASES, FOREIGN, "set the option consumer in place of databases"),
    (SnapshotStreamReader, OPTIONS, DECLARED, "set the option databases in place of consumer"),
    (SnapshotStreamReader, OPTIONS, FOREIGN, "use the checkpoint with the source"),
]


@pytest.mark.parametrize("call", ["latestOffset", "partitions"])
@pytest.mark.parametrize(("kind", "options", "offset", "remedy"), CASES)
def test_the_error_names_the_options_that_the_checkpoint_needs(
    kind: Any, options: dict[str, str], offset: dict[str, Any], remedy: str, call: str
) -> None:
    reader = kind(SourceOptions.parse(options), StructType())
    arguments = {"latestOffset": (offset, ReadMaxBytes(0)), "partitions": (offset, offset)}
    with pytest.raises(UserError, match="the checkpoint does not fit the options") as caught:
        getattr(reader, call)(*arguments[call])
    assert remedy in caught.value.remedy and "begin with a new checkpoint" in caught.value.remedy


@pytest.mark.parametrize(("offset", "remedy"), [(DECLARED, "databases"), (SNAPSHOT, "snapshot")])
def test_a_spark_without_admission_control_names_them_too(
    offset: dict[str, Any], remedy: str
) -> None:
    reader = ReaderWithoutLimits(SourceOptions.parse(CONSUMER), StructType())
    with pytest.raises(UserError, match="the checkpoint does not fit the options") as caught:
        reader.partitions(offset, offset)
    assert remedy in caught.value.remedy
