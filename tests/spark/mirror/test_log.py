"""The log in a real Delta table: numbers of appends, claims, which entries are read, and which files are read for
them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.mirror.lake.delta_log import delta_version
from spark_sink.mirror.log.append import LogAppender
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.values.entries import INLINE_BYTES, LogEnd, append_of, first_lsn, last_lsn
from spark_sink.source.raw_entries import EntryKind, entry_number, statement_columns
from tests.support.statements import as_logged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.rotate(3, of="the log")

COMMITTED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def position(seq: int) -> Position:
    return Position("server", "", "binlog.000001", 4 + seq, seq, 7)


def rows_of(table: str, index: int, payload: bytes = b"payload") -> dict[str, Any]:
    return {
        "entry": entry_number(0, index),
        "kind": "rows",
        "database": "shop",
        "table": table,
        "layout": "layout",
        "epoch": 7,
        "first_seq": 1,
        "last_seq": 2,
        "rows": 6,
        "inserts": 3,
        "updates": 2,
        "deletes": 1,
        "table_map": b"map",
        "payload": payload,
        "committed_at": COMMITTED,
    }


def statement(query: str, index: int) -> dict[str, Any]:
    return {
        "entry": entry_number(0, index),
        "kind": "statement",
        "epoch": 7,
        "first_seq": 3,
        "last_seq": 3,
        "rows": 0,
        **statement_columns(as_logged(query, "shop", 4)),
        "file": "binlog.000001",
        "pos": 99,
        "committed_at": COMMITTED,
    }


def end_at(seq: int, index: int, *, gap: bool = False) -> dict[str, Any]:
    return {
        "entry": entry_number(0, index),
        "kind": "end",
        "epoch": 7,
        "first_seq": seq,
        "last_seq": seq,
        "rows": 0,
        "position": position(seq).to_json(),
        "gap": gap,
    }


@pytest.fixture
def appender(spark: SparkSession, tmp_path: Path) -> LogAppender:
    return LogAppender(spark, str(tmp_path / "target"))


@pytest.fixture
def log(appender: LogAppender) -> BinlogLog:
    return appender.log


def test_what_is_appended_is_read_back(
    spark: SparkSession, log: BinlogLog, appender: LogAppender, tmp_path: Path
) -> None:
    assert log.end("shop") is None
    assert log.entries("shop", 0) == []
    reader = BinlogLog(spark, str(tmp_path / "target"))
    assert reader.last_append("shop") == 0
    assert appender.claim("shop") == LogEnd(1, None)
    assert reader.last_append("shop") == 1
    large = bytes(INLINE_BYTES + 1)
    written = [
        rows_of("t", 0),
        rows_of("u", 1, large),
        statement("DROP TABLE t", 2),
        end_at(3, 3, gap=True),
    ]
    appender.append_entries(written, "shop", 2)
    assert reader.last_append("shop") == reader.last_append("shop") == 2
    first, second, third, end = log.entries("shop", 0)
    assert [entry.lsn for entry in (first, second, third, end)] == [
        first_lsn(2) + entry_number(0, index) for index in range(4)
    ]
    assert (first.kind, first.database, first.table, first.layout) == (
        EntryKind.ROWS,
        "shop",
        "t",
        "layout",
    )
    assert (first.rows, first.inserts, first.updates, first.deletes) == (6, 3, 2, 1)
    assert (first.epoch, first.first_seq, first.last_seq, first.table_map) == (7, 1, 2, b"map")
    assert (first.payload, first.payload_bytes) == (b"payload", 7)
    assert first.committed_at == COMMITTED
    assert (second.payload, second.payload_bytes) == (None, INLINE_BYTES + 1)
    assert (third.kind, third.statement) == (
        EntryKind.STATEMENT,
        as_logged("DROP TABLE t", "shop", 4),
    )
    assert (third.file, third.pos, third.payload_bytes) == ("binlog.000001", 99, 0)
    assert (end.kind, end.position, end.gap) == (EntryKind.END, position(3), True)
    assert log.end("shop") == LogEnd(2, position(3))
    payloads = log.payloads(spark, "shop", [second.lsn, first.lsn]).collect()
    assert {row["lsn"]: bytes(row["payload"]) for row in payloads} == {
        first.lsn: b"payload",
        second.lsn: large,
    }
    assert log.local_payloads("shop", [second.lsn]) == {second.lsn: large}
    # If the log is not on a local file system, Spark reads the same entries.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_sink.mirror.lake.file_system.FileSystem.local", lambda *_: None)
        assert log.entries("shop", 0) == [first, second, third, end]
        assert log.entries("shop", 0, tables=[("shop", "t")]) == [first, third, end]
        assert log.local_payloads("shop", [second.lsn]) is None
    assert log.entries("shop", 0, tables=[("shop", "t")]) == [first, third, end]
    for file in (tmp_path / "target/_binlog/log").rglob("*.parquet"):
        row_group = pq.ParquetFile(file).metadata.row_group(0)
        assert row_group.column(0).compression == "ZSTD"


def test_a_small_append_and_a_look_are_no_jobs(
    spark: SparkSession, log: BinlogLog, appender: LogAppender
) -> None:
    def jobs() -> int:
        return len(spark.sparkContext.statusTracker().getJobIdsForGroup(None))

    appender.claim("shop")
    batches = [[rows_of("t", 0), end_at(number, 1)] for number in range(2, 6)]
    log.entries("shop", 0)
    for number, frame in enumerate(batches, 2):
        before = jobs()
        appender.append_entries(frame, "shop", number)
        assert len(log.entries("shop", last_lsn(number - 1))) == 2
        assert jobs() == before


@pytest.mark.deep
def test_entries_are_read_in_parts(
    spark: SparkSession, log: BinlogLog, appender: LogAppender
) -> None:
    appender.claim("shop")
    for number in range(2, 8):
        appender.append_entries(
            [rows_of("t", 0), rows_of("u", 1), end_at(number, 2)], "shop", number
        )
    appender.claim("shop")
    appender.append_entries([rows_of("t", 0), end_at(9, 1)], "shop", 9)

    def appends(after: int, **options: Any) -> list[int]:
        return [append_of(entry.lsn) for entry in log.entries("shop", after, **options)]

    assert appends(0, appends_max=2) == [2] * 3  # append 1 is a claim
    assert appends(last_lsn(2), appends_max=2) == [3] * 3 + [4] * 3
    assert appends(first_lsn(3) + 1, appends_max=1) == [3, 4, 4, 4]
    assert appends(last_lsn(7), appends_max=1) == [9] * 2  # append 8 is a claim
    assert appends(last_lsn(2), before=first_lsn(4)) == [3] * 3
    assert appends(last_lsn(7), before=first_lsn(9)) == []
    assert appends(last_lsn(9)) == []
    of_u = log.entries("shop", last_lsn(5), tables=[("shop", "u")])
    assert [(append_of(e.lsn), e.kind.value, e.table) for e in of_u] == [
        (6, "rows", "u"),
        (6, "end", ""),
        (7, "rows", "u"),
        (7, "end", ""),
        (9, "end", ""),
    ]
    # Another object, which has read no commit before, returns the same entries.
    assert BinlogLog(spark, log.path.removesuffix("/_binlog/log")).entries(
        "shop", 0, appends_max=99
    ) == log.entries("shop", 0, appends_max=99)


def test_consumers_do_not_see_each_other(
    spark: SparkSession, log: BinlogLog, appender: LogAppender
) -> None:
    for consumer in ("shop", "it's \\ {1}"):
        appender.claim(consumer)
        appender.append_entries([rows_of(consumer[:1], 0), end_at(5, 1)], consumer, 2)
    for consumer in ("shop", "it's \\ {1}"):
        rows, _ = log.entries(consumer, 0)
        assert rows.table == consumer[:1]
        assert log.end(consumer) == LogEnd(2, position(5))
    log.compact("it's \\ {1}")


# -- claims --------------------------------------------------------------------------------------------------


def test_a_claim_fences_the_older_run(spark: SparkSession, appender: LogAppender) -> None:
    log = appender.log
    appender.claim("shop")
    appender.append_entries([end_at(1, 0)], "shop", 2)
    newer = LogAppender(spark, log.path.removesuffix("/_binlog/log"))
    assert newer.claim("shop") == LogEnd(3, position(1))
    version = delta_version(spark, log.path)
    for number in (3, 5):
        with pytest.raises(BinlogError, match="another job has claimed append") as caught:
            appender.append_entries([end_at(99, 0)], "shop", number)
        assert caught.value.kind is ErrorKind.SESSION_FENCED
    assert delta_version(spark, log.path) == version
    newer.append_entries([end_at(2, 0)], "shop", 4)
    assert log.end("shop") == LogEnd(4, position(2))


def test_an_append_of_the_older_run_does_not_prevent_a_claim(
    spark: SparkSession, appender: LogAppender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The older run appends after the newer run has read the log and before the newer run writes its claim."""
    appender.claim("shop")
    newer = LogAppender(spark, appender.log.path.removesuffix("/_binlog/log"))
    newest = newer.log.last_append

    def overtaken(consumer: str) -> int:
        found = newest(consumer)
        if found == 1:
            appender.append_entries([end_at(1, 0)], "shop", 2)
        return found

    monkeypatch.setattr(newer.log, "last_append", overtaken)
    assert newer.claim("shop") == LogEnd(3, position(1))


def test_an_append_that_a_claim_overtakes_is_refused(
    spark: SparkSession, appender: LogAppender
) -> None:
    """When the claim is committed, the append has begun its transaction and is reading its entries."""
    appender.claim("shop")
    newer = LogAppender(spark, appender.log.path.removesuffix("/_binlog/log"))

    def overtaken() -> Iterator[dict[str, Any]]:
        assert newer.claim("shop") == LogEnd(2, None)
        yield end_at(5, 0)

    with pytest.raises(BinlogError, match="another job has claimed append 2") as caught:
        appender.append_entries(overtaken(), "shop", 2)
    assert caught.value.kind is ErrorKind.SESSION_FENCED
    assert newer.log.entries("shop", 0) == []


# -- retention -----------------------------------------------------------------------------------------------


def on_day(monkeypatch: pytest.MonkeyPatch, day: int) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls(2026, 1, day, 12, tzinfo=tz)

    monkeypatch.setattr("spark_sink.mirror.log.append.datetime", Clock)


@pytest.mark.deep
def test_days_are_forgotten_but_not_the_end(
    spark: SparkSession, log: BinlogLog, appender: LogAppender, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_day(monkeypatch, 1)
    appender.claim("shop")
    appender.claim("other")
    for day in (2, 3):
        on_day(monkeypatch, day)
        appender.append_entries([rows_of("t", 0), end_at(day, 1)], "shop", day)
    on_day(monkeypatch, 4)
    appender.claim("shop")
    lasts = log.days("shop")
    assert [append_of(lasts[date(2026, 1, day)]) for day in (1, 2, 3, 4)] == [1, 2, 3, 4]
    log.forget("shop", date(2026, 1, 2))
    assert sorted(log.days("shop")) == [date(2026, 1, day) for day in (2, 3, 4)]
    # Day 3 has the newest END entry.
    log.forget("shop", date(2030, 1, 1))
    assert sorted(log.days("shop")) == [date(2026, 1, day) for day in (3, 4)]
    assert sorted(log.days("other")) == [date(2026, 1, 1)]
    assert log.end("shop") == LogEnd(4, position(3))
    assert [append_of(entry.lsn) for entry in log.entries("shop", 0, appends_max=1)] == [3, 3]
    assert appender.claim("shop").append == 5


@pytest.mark.deep
def test_a_day_of_many_files_is_compacted_and_read_as_before(
    spark: SparkSession, log: BinlogLog, appender: LogAppender, monkeypatch: pytest.MonkeyPatch
) -> None:
    appender.claim("shop")
    for number in range(2, 5):
        appender.append_entries([rows_of("t", 0), end_at(number, 1)], "shop", number)
    before = log.entries("shop", 0)
    log.compact("shop")  # the day has few files, so there is nothing to compact
    version = delta_version(spark, log.path)
    monkeypatch.setattr("spark_sink.mirror.log.binlog_log.COMPACTED_FILES", 2)
    log.compact("shop")  # the day has more files now
    assert delta_version(spark, log.path) == version
    monkeypatch.setattr("spark_sink.mirror.log.binlog_log.COMPACTED_FILES_TODAY", 2)
    log.compact("shop")
    assert delta_version(spark, log.path) == version + 1
    assert len(log._after("shop", -1)) == 1
    assert log.entries("shop", 0) == before
    appender.append_entries([end_at(5, 0)], "shop", 5)
    assert log.end("shop") == LogEnd(5, position(5))
