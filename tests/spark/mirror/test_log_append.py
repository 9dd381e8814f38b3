"""Micro-batches in the log: the driver, workers and Spark write the same entries from the same slices."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log import append
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.values.entries import INLINE_BYTES, LogEntry
from spark_sink.source.options import SourceOptions
from spark_sink.source.raw_entries import EntryKind
from tests.spark.conftest import Source, to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def options_of(source: Source) -> dict[str, str]:
    return {
        "url": source.daemon.url,
        "consumer": "shop",
        "raw": "slices",
        "maxPartitions": "3",
        "maxBytesPerPartition": "1MiB",
    }


def choose(writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if writer != "driver":
        monkeypatch.setattr(append, "DRIVER_BYTES_MAX", 1)
    if writer == "Spark":
        monkeypatch.setattr(FileSystem, "local", lambda *_: None)


def logged(
    spark: SparkSession, source: Source, folder: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> tuple[list[LogEntry], dict[int, bytes], int, int]:
    """Append everything that the daemon has, in one run. Returns the entries, all payloads, and the appender's counts
    of files and row changes."""
    source.daemon.acknowledged = source.daemon.base  # an earlier run has acknowledged more
    appender = LogAppender(spark, str(folder / "target"))
    options = options_of(source)
    parsed = SourceOptions.parse(options)
    first = appender.claim("shop").append + 1
    counted: list[int] = []

    def append(batch: DataFrame, number: int) -> None:
        counted.append(appender.append(batch, parsed, "shop", first + number))

    with monkeypatch.context() as patch:
        choose(writer, patch)
        frame = spark.readStream.format("binlog").options(**options).load()
        to_end(frame, folder / "checkpoint", append)
    entries = appender.log.entries("shop", 0)
    of_rows = [entry.lsn for entry in entries if entry.kind is EntryKind.ROWS]
    payloads = appender.log.local_payloads("shop", of_rows)
    assert payloads is not None
    return entries, payloads, len(list((folder / "target").rglob("*.parquet"))), sum(counted)


@pytest.mark.rotate(4, of="tables of the mirror")
def test_every_writer_appends_the_same(
    spark: SparkSession, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)",
        "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
        f"INSERT INTO t VALUES (3, REPEAT('x', {INLINE_BYTES + 1}))",
        "ALTER TABLE t ADD COLUMN w INT",
        "UPDATE t SET w = id",
        f"INSERT INTO t (id, v) SELECT id + 10, REPEAT('y', {1 << 20}) FROM t",
    )
    source.feed()
    found = {
        writer: logged(spark, source, tmp_path / writer, monkeypatch, writer)
        for writer in ("driver", "workers", "Spark")
    }
    entries, payloads, files, _ = found["driver"]
    assert [rows for *_, rows in found.values()] == [9] * 3
    assert files == 2  # one file of the claim, and one file of the batch
    kinds = [entry.kind for entry in entries]
    assert kinds.count(EntryKind.STATEMENT) == 3  # the first statement is CREATE DATABASE
    assert kinds[-1] is EntryKind.END
    assert kinds.count(EntryKind.END) == 1
    assert sum(entry.rows for entry in entries) == 9
    assert {entry.payload is None for entry in entries if entry.payload_bytes} == {True, False}
    assert all(len(payloads[e.lsn]) == e.payload_bytes for e in entries if e.payload_bytes)
    for others in (found["workers"], found["Spark"]):
        assert others[:2] == (entries, payloads)
        assert others[2] > 2  # each slice has a file


@pytest.mark.parametrize(
    "writer",
    [
        pytest.param("driver", marks=pytest.mark.deep),
        "workers",
        pytest.param("Spark", marks=pytest.mark.deep),
    ],
)
def test_a_batch_that_a_claim_overtakes_is_refused(
    writer: str,
    spark: SparkSession,
    source: Source,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    source.feed()
    older, newer = (LogAppender(spark, str(tmp_path / "target")) for _ in range(2))
    first = older.claim("shop").append + 1
    options = options_of(source)
    parsed = SourceOptions.parse(options)
    refused: list[BinlogError] = []

    def overtaken(batch: DataFrame, number: int) -> None:
        assert newer.claim("shop").append == first
        with monkeypatch.context() as patch:
            choose(writer, patch)
            try:
                older.append(batch, parsed, "shop", first + number)
            except BinlogError as error:
                refused.append(error)

    stream: Any = spark.readStream.format("binlog").options(**options).load()
    to_end(stream, tmp_path / "checkpoint", overtaken)
    (error,) = refused
    assert error.kind is ErrorKind.SESSION_FENCED
    assert newer.log.entries("shop", 0) == []


def test_a_batch_without_slices_has_a_number(spark: SparkSession, tmp_path: Path) -> None:
    """If a new query was killed before its first commit, it plans a batch without slices."""
    from spark_sink.source.slices import SLICE_SCHEMA  # noqa: PLC0415

    appender = LogAppender(spark, str(tmp_path / "target"))
    options = SourceOptions.parse({"url": "http://127.0.0.1:1", "consumer": "c", "raw": "slices"})
    appender.claim("shop")
    appender.append(spark.createDataFrame([], SLICE_SCHEMA), options, "shop", 2)
    assert appender.log.last_append("shop") == 2
    assert appender.log.entries("shop", 0) == []
