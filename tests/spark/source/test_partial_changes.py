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
from tests.spark.source.test_projection import definition
from tests.support.rows_encoder import (
    Delivered,
    Spec,
    integer,
    lsb_bits,
    rows_body,
    table_map,
    text,
)

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
    with pytest.raises(
        BinlogError, match=r"the snapshot cannot continue at table shop\.z"
    ) as caught:
        read(log, READ_TO_5)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE


# -- images that lack columns ------------------------------------------------------------------------------------


def sparse(log: Delivered, present: tuple[list[bool], list[bool]], *images: list[bytes]) -> None:
    """Adds an UPDATE whose images have only the columns `present`."""
    before, after = map(lsb_bits, present)
    body = rows_body(
        UPDATE,
        list(images),
        width=len(COLUMNS),
        present=before,
        present_after=after,
    )
    log.transaction((19, table_map(COLUMNS, table="t")), (UPDATE, body))


WHOLE = [True, True]


def test_an_image_without_duplicates_is_completed_from_the_image_before() -> None:
    """The images of MariaDB's binlog_row_image=FULL_NODUP."""
    log = Delivered()
    sparse(log, (WHOLE, [False, True]), row(4, 7), [integer(8, 4)], row(9, 7), [integer(8, 4)])
    sparse(log, (WHOLE, [True, False]), row(9, 7), [integer(3, 4)], row(5, 7), [integer(6, 4)])
    given = read(log, READ_TO_5, metadata="changed")
    assert images(given) == [("update", 4, 4), ("insert", None, 3), ("delete", 5, None)]
    assert [json.loads(each["after"] or "{}") for each in given[:2]] == [
        {"id": 4, "n": 8},
        {"id": 3, "n": 7},
    ]
    assert {str(each["after_absent"]) for each in given} == {"None"}
    assert given[0]["changed"] == ["n"]


def test_a_row_of_another_table_is_completed_too() -> None:
    """The stream may have omitted the row, because it changed while the table was read."""
    log = Delivered()
    sparse(log, (WHOLE, [False, True]), row(4, 7), [integer(8, 4)])
    (given,) = read(log, SnapshotState(table=("shop", "z"), key=KEY))
    assert json.loads(given["after"]) == {"id": 4, "n": 8}


def test_an_image_that_cannot_be_completed_ends_the_snapshot() -> None:
    """The images of a session with binlog_row_image=MINIMAL."""
    log = Delivered()
    sparse(log, ([True, False], [False, True]), [integer(4, 4)], [integer(8, 4)])
    assert images(read(log, READ_TO_5))[0][:2] == ("update", 4)
    sparse(log, ([True, False], [True, False]), [integer(9, 4)], [integer(3, 4)])
    with pytest.raises(BinlogError, match=r"shop\.t: .*column 'n' is missing") as caught:
        read(log, READ_TO_5)
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE
    assert "binlog_row_image to FULL" in str(caught.value)
    assert len(read(log, READ_TO_5, columns="shop.t.id")) == 2


def test_a_key_that_no_image_holds_ends_the_snapshot() -> None:
    log = Delivered()
    sparse(log, ([False, True], [False, True]), [integer(1, 4)], [integer(8, 4)])
    with pytest.raises(BinlogError, match=r"shop\.t: .*column 'id' is missing"):
        read(log, READ_TO_5)


def test_a_key_of_another_type_ends_the_snapshot() -> None:
    log = Delivered()
    columns = [Spec("id", Type.VARCHAR, (80).to_bytes(2, "little"), charset=255), COLUMNS[1]]
    images_ = [[text("5", 1), integer(0, 4)]]
    log.transaction((19, table_map(columns, table="t")), (INSERT, rows_body(INSERT, images_)))
    with pytest.raises(BinlogError, match="the type of its key was changed") as caught:
        read(log, READ_TO_5)
    assert "new checkpoint" in str(caught.value)


def test_a_key_of_a_wider_number_is_followed() -> None:
    log = Delivered()
    columns = [Spec("id", Type.LONGLONG, unsigned=True), COLUMNS[1]]
    images_ = [[integer(key, 8), integer(0, 4)] for key in (4, 6)]
    log.transaction((19, table_map(columns, table="t")), (INSERT, rows_body(INSERT, images_)))
    assert [after for _, _, after in images(read(log, READ_TO_5))] == [4]


def test_typed_images_are_completed_too() -> None:
    log = Delivered()
    sparse(log, (WHOLE, [False, True]), row(4, 7), [integer(8, 4)])
    sparse(log, (WHOLE, [True, False]), row(9, 7), [integer(3, 4)])
    options = {key: value for key, value in OPTIONS.items() if key != "tables"}
    parsed = SourceOptions.parse(options | {"table": "shop.t"})
    schema = schemas.stream_schema(parsed, definition(id="int", n="int"))
    part = replace(Slice(1, 0, END, END), snapshot=READ_TO_5)
    batches = rows.read_slice(parsed, schema, part, log.bytes())
    given = [each for batch in batches for each in batch.to_pylist()]
    assert [(each["op"], each["after"]) for each in given] == [
        ("update", {"id": 4, "n": 8}),
        ("insert", {"id": 3, "n": 7}),
    ]
