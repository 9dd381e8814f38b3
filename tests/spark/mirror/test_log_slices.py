"""Files of the log in memory: rows, row groups, statistics and paths."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from io import BytesIO
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.mirror.log.files import added_file
from spark_sink.mirror.log.slices import (
    COLUMNS,
    ROW_GROUP_BYTES,
    FileContent,
    LogAppend,
    file_in_memory,
)
from spark_sink.mirror.values.entries import INLINE_BYTES, first_lsn
from spark_sink.source.raw_entries import entry_number

DAY = date(2026, 1, 2)
COMMITTED = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
APPEND = LogAppend("shop", 7, "a run", DAY)


def entry(index: int, payload: bytes | None = None, **values: Any) -> dict[str, Any]:
    row = {"entry": entry_number(0, index), "kind": "rows", "committed_at": COMMITTED}
    return row | ({} if payload is None else {"payload": payload}) | values


def written(*entries: dict[str, Any]) -> tuple[pq.ParquetFile, FileContent]:
    made = file_in_memory(map(APPEND.row, entries))
    assert made is not None
    return pq.ParquetFile(BytesIO(made[0])), made[1]


def test_no_entries_are_no_file() -> None:
    assert file_in_memory([]) is None


def test_a_row_has_every_column_and_its_payload_in_one_of_two() -> None:
    large = bytes(INLINE_BYTES + 1)
    file, content = written(entry(0, b"small"), entry(1, large), entry(2, query="DROP TABLE t"))
    assert file.schema_arrow.names == [name for name, _ in COLUMNS]
    first, second, third = file.read().to_pylist()
    assert (first["small_payload"], first["payload"], first["payload_bytes"]) == (b"small", None, 5)
    assert (second["small_payload"], second["payload"]) == (None, large)
    assert (third["small_payload"], third["payload"], third["payload_bytes"]) == (None, None, 0)
    assert third["query"] == "DROP TABLE t"
    assert {row["run"] for row in (first, second, third)} == {"a run"}
    assert first["committed_at"] == COMMITTED
    assert content == FileContent(3, first_lsn(7), first_lsn(7) + 2)


@given(st.lists(st.integers(0, ROW_GROUP_BYTES + 2), min_size=1, max_size=8))
def test_a_row_group_has_few_payloads(sizes: list[int]) -> None:
    """A worker holds the payloads of one row group."""
    file, _ = written(*(entry(index, bytes(size)) for index, size in enumerate(sizes)))
    found = []
    for number in range(file.num_row_groups):
        of_group = file.read_row_group(number, ["payload_bytes"]).column(0).to_pylist()
        assert len(of_group) == 1 or sum(of_group) <= ROW_GROUP_BYTES
        found += of_group
    assert found == sizes


@pytest.mark.parametrize("consumer", ["shop", "it's \\ {1}", "a/b", "日本 %41", ".."])
def test_readers_find_the_file_of_any_consumer(consumer: str) -> None:
    append = LogAppend(consumer, 7, "a run", DAY)
    content = FileContent(2, 30, 31)
    action = append.add_action("part.parquet", 99, content)
    path = append.file("part.parquet")
    assert path.count("/") == 2
    assert path.endswith("/day=2026-01-02/part.parquet")
    assert unquote(action["path"]) == path
    assert json.loads(action["stats"])["numRecords"] == 2
    found = added_file(action["path"], action["partitionValues"], action["stats"])
    assert (found.path, found.consumer, found.day) == (path, consumer, DAY)
    assert (found.first, found.last) == (30, 31)


def test_a_payload_is_not_copied_before_it_is_written() -> None:
    data = memoryview(bytearray(1 << 20))
    row = APPEND.row(entry(0) | {"payload": data})
    assert row["payload"] is data
    assert pa.py_buffer(row["payload"]).address == pa.py_buffer(data).address
