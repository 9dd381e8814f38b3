"""The changes that a stream delivers while its snapshot is not over."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.binlog.table_map.column_types import Type
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from spark_sink.source import rows, schemas
from spark_sink.source.http.client import SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice
from spark_sink.source.snapshot.rules import ChunkEnd, KeyPart, SnapshotState
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map

END = SliceCut(Position("s", "", "binlog.000001", 4, 1, 1))
KEY = (KeyPart("id", "number:3:0"),)
INSERT, UPDATE, DELETE = 30, 31, 32
COLUMNS = [Spec("id", Type.LONG), Spec("n", Type.LONG)]
OPTIONS = {
    "url": "http://h:1",
    "consumer": "c",
    "tables": "shop.*",
    "startingOffsets": "snapshot",
    "mysql": "reader@db:3306",
    "mysqlPasswordFile": "/run/secrets/reader",
}
READ_TO_5 = SnapshotState(table=("shop", "t"), key=KEY, after=("5",))


def row(key: int, n: int = 0) -> list[bytes]:
    return [integer(key, 4), integer(n, 4)]


def change(log: Delivered, kind: int, *images: list[bytes], table: str = "t") -> None:
    log.transaction((19, table_map(COLUMNS, table=table)), (kind, rows_body(kind, list(images))))


def read(log: Delivered, state: SnapshotState, **more: str) -> list[dict[str, Any]]:
    options = SourceOptions.parse(OPTIONS | more)
    schema = schemas.stream_schema(options, None)
    part = replace(Slice(1, 0, END, END), snapshot=state)
    batches = rows.read_slice(options, schema, part, log.bytes())
    return [each for batch in batches for each in batch.to_pylist()]


def images(rows_: list[dict[str, Any]]) -> list[tuple[str, int | None, int | None]]:
    """(op, id before, id after)"""
    keys = [
        [json.loads(each[name])["id"] if each[name] else None for name in ("before", "after")]
        for each in rows_
    ]
    return [(r["op"], *key) for r, key in zip(rows_, keys, strict=True)]


def test_changes_of_rows_that_are_not_read_are_left_out() -> None:
    log = Delivered()
    change(log, INSERT, row(5), row(6), row(4))
    change(log, DELETE, row(6), row(5))
    change(log, UPDATE, row(6), row(6, 1), row(4), row(4, 1))
    assert images(read(log, READ_TO_5)) == [
        ("insert", None, 5),
        ("insert", None, 4),
        ("delete", 5, None),
        ("update", 4, 4),
    ]


def test_an_update_over_the_end_of_the_rows_that_are_read_is_a_delete_or_an_insert() -> None:
    log = Delivered()
    change(log, UPDATE, row(5), row(9), row(9), row(3), row(1), row(2), row(7), row(8))
    given = read(log, READ_TO_5, metadata="key, changed")
    assert images(given) == [("delete", 5, None), ("insert", None, 3), ("update", 1, 2)]
    assert [json.loads(each["key"])["id"] for each in given] == [5, 3, 1]
    assert [each["changed"] for each in given] == [None, None, ["id"]]


def test_rows_of_a_chunk_that_is_not_settled_count_as_read() -> None:
    log = Delivered()
    change(log, INSERT, row(5), row(6), row(9), row(10))
    state = replace(READ_TO_5, chunk=ChunkEnd(("9",), 1, 1))
    assert [after for _, _, after in images(read(log, state))] == [5, 6, 9]
    state = replace(READ_TO_5, chunk=ChunkEnd(None, 1, 1))
    assert [after for _, _, after in images(read(log, state))] == [5, 6, 9, 10]


@pytest.mark.parametrize(("table", "count"), [("a", 1), ("t", 0), ("z", 0)])
def test_of_other_tables_those_before_the_present_one_are_delivered(table: str, count: int) -> None:
    log = Delivered()
    change(log, INSERT, row(6), table=table)
    assert len(read(log, READ_TO_5)) == count


def test_statements_are_delivered_but_a_rename_ends_the_snapshot() -> None:
    log = Delivered()
    log.ddl("ALTER TABLE t ADD c INT", "shop")
    assert [each["op"] for each in read(log, READ_TO_5)] == ["ddl"]
    log.ddl("RENAME TABLE other.t TO other.u", "shop")
    assert len(read(log, READ_TO_5)) == 1
    log.ddl("RENAME TABLE z TO a", "shop")
    with pytest.raises(BinlogError, match=r"the snapshot cannot go on at table shop\.z") as caught:
        read(log, READ_TO_5)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE
