"""The lines of the command `read`: their keys, their order, and which changes are written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.binlog.decode.delivered import Ddl, changes
from dispatcher.binlog.table_map.column_types import Mask, MaskForm, Type
from dispatcher.model.errors import UserError
from dispatcher.reader.change_lines import ChangeLines, MaskedColumn
from tests.support.rows_encoder import (
    SERVER,
    UTF8MB4,
    Delivered,
    Spec,
    encode_cell,
    integer,
    rows_body,
    table_map,
)

ORDERS = (
    Spec("id", Type.LONG, nullable=False),
    Spec("name", Type.VARCHAR, (400).to_bytes(2, "little"), charset=UTF8MB4),
)
ITEMS = (Spec("id", Type.LONGLONG),)
WRITE, UPDATE, DELETE = 30, 31, 32


def map_of(columns: tuple[Spec, ...], table: str, table_id: int) -> tuple[int, bytes]:
    return 19, table_map(columns, table=table, table_id=table_id)


ORDERS_MAP = map_of(ORDERS, "orders", 77)
ITEMS_MAP = map_of(ITEMS, "items", 78)


def orders(kind: int, *ids: int) -> tuple[int, bytes]:
    return kind, rows_body(
        kind, [[integer(i, 4), encode_cell(ORDERS[1], f'a"é\n{i}')] for i in ids]
    )


def items(kind: int, *ids: int) -> tuple[int, bytes]:
    return kind, rows_body(kind, [[integer(i, 8)] for i in ids], table_id=78)


def lines_of(lines: ChangeLines, log: Delivered) -> list[dict[str, Any]]:
    text = b"".join(lines.of(log.bytes()))
    assert not text or text.endswith(b"\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_row_has_its_images_and_its_place() -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, orders(WRITE, 1), orders(DELETE, 2))
    inserted, deleted = lines_of(ChangeLines(), log)
    assert inserted == {
        "op": "insert",
        "database": "shop",
        "table": "orders",
        "before": None,
        "after": {"id": 1, "name": 'a"é\n1'},
        "gtid": f"{SERVER}:1",
        "committed_at": "2023-11-14T22:13:20.000001Z",
        "file": "binlog.000007",
        "pos": 1500,
        "epoch": 1,
        "seq": 1,
        "ordinal": 3 << 24,
    }
    assert (deleted["op"], deleted["before"]["id"], deleted["after"]) == ("delete", 2, None)


def test_a_statement_has_its_text_and_its_place() -> None:
    log = Delivered()
    log.ddl("ALTER TABLE `a\tb` ADD x INT")
    (line,) = lines_of(ChangeLines(), log)
    assert line == {
        "op": "ddl",
        "database": "shop",
        "query": "ALTER TABLE `a\tb` ADD x INT",
        "gtid": f"{SERVER}:1",
        "committed_at": "2023-11-14T22:13:20.000001Z",
        "file": "binlog.000007",
        "pos": 1500,
        "epoch": 1,
        "seq": 1,
        "ordinal": 1 << 24,
    }


def test_changes_of_several_tables_are_in_the_order_of_the_log() -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, ITEMS_MAP, orders(WRITE, 1), items(WRITE, 1), orders(WRITE, 2, 3))
    log.transaction(ITEMS_MAP, items(WRITE, 2, 3))
    log.ddl("CREATE TABLE t (id INT)")
    log.transaction(ORDERS_MAP, ITEMS_MAP, items(WRITE, 4), orders(WRITE, 4))
    log.epoch += 1
    log.transaction(ORDERS_MAP, orders(WRITE, 5))
    lines = lines_of(ChangeLines(), log)
    told = [(line.get("table"), line["after"]["id"] if "after" in line else 0) for line in lines]
    assert told == [
        ("orders", 1), ("items", 1), ("orders", 2), ("orders", 3), ("items", 2), ("items", 3), (None, 0),
        ("items", 4), ("orders", 4), ("orders", 5),
    ]  # fmt: skip
    places = [(line["epoch"], line["seq"], line["ordinal"]) for line in lines]
    assert places == sorted(set(places))


def test_every_change_has_one_line() -> None:
    log = Delivered()
    for n in range(50):
        log.transaction(ORDERS_MAP, ITEMS_MAP, items(WRITE, n), orders(WRITE, n), items(DELETE, n))
    count = sum(1 if isinstance(c, Ddl) else len(c.batch) for c in changes(log.bytes()))
    assert len(lines_of(ChangeLines(), log)) == count == 150


@pytest.mark.parametrize(
    ("tables", "folded", "expected"),
    [
        (("shop.orders",), 0, ["orders", "ALTER TABLE orders ADD x INT", "DROP DATABASE shop"]),
        (("shop.o*",), 0, ["orders", "ALTER TABLE orders ADD x INT", "DROP DATABASE shop"]),
        (("shop.ITEMS",), 1, ["items", "ALTER TABLE Items ADD x INT", "DROP DATABASE shop"]),
        (("shop.ITEMS",), 0, ["DROP DATABASE shop"]),
        (("other.orders",), 0, ["DROP DATABASE shop"]),
    ],
)
def test_only_the_chosen_tables_are_written(
    tables: tuple[str, ...], folded: int, expected: list[str]
) -> None:
    log = Delivered(lower_case_table_names=folded)
    log.transaction(ORDERS_MAP, ITEMS_MAP, orders(WRITE, 1), items(WRITE, 1))
    log.ddl("ALTER TABLE orders ADD x INT")
    log.ddl("ALTER TABLE Items ADD x INT")
    log.ddl("DROP DATABASE shop")
    lines = lines_of(ChangeLines(tables, lower_case_table_names=folded), log)
    assert [line.get("table") or line["query"] for line in lines] == expected


def test_a_schema_comes_before_the_rows_and_after_each_change() -> None:
    longer = (*ITEMS, Spec("more", Type.LONG))
    log = Delivered()
    log.transaction(ITEMS_MAP, items(WRITE, 1))
    log.transaction(ITEMS_MAP, items(WRITE, 2))
    log.transaction(
        map_of(longer, "items", 79), (WRITE, rows_body(WRITE, [[integer(3, 8), None]], table_id=79))
    )
    schemas = ChangeLines(schemas=True)
    lines = lines_of(schemas, log)
    assert [line["op"] for line in lines] == ["schema", "insert", "insert", "schema", "insert"]
    assert [column["name"] for column in lines[0]["columns"]] == ["id"]
    log = Delivered()
    log.transaction(
        map_of(longer, "items", 79), (WRITE, rows_body(WRITE, [[integer(4, 8), None]], table_id=79))
    )
    assert [line["op"] for line in lines_of(schemas, log)] == ["insert"]


def test_masked_columns_have_their_masks_and_the_schema_names_them() -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, orders(WRITE, 1), ITEMS_MAP, items(WRITE, 1))
    masks = [
        MaskedColumn("shop.ord*", "Name", Mask(MaskForm.LAST4)),
        MaskedColumn("shop.orders", "id", Mask(MaskForm.KEYED, b"a secret of the reader")),
    ]
    schema, order, _, item = lines_of(ChangeLines(schemas=True, masks=masks), log)
    assert [column.get("mask") for column in schema["columns"]] == ["keyed", "last4"]
    assert order["after"]["name"] == '****"é\n1'
    assert len(order["after"]["id"]) == 64
    assert item["after"] == {"id": 1}


def test_a_mask_that_hides_the_key_is_refused() -> None:
    log = Delivered()
    log.transaction((19, table_map(ORDERS, key=(0,))), orders(WRITE, 1))
    lines = ChangeLines(masks=[MaskedColumn("shop.orders", "id", Mask(MaskForm.SHA256))])
    with pytest.raises(UserError, match="id is a part of the key"):
        lines_of(lines, log)


def of_note(table: str = "shop.orders", column: str = "name") -> MaskedColumn:
    return MaskedColumn(table, column, Mask(MaskForm.SHA256))


def renamed_orders(name: str) -> tuple[int, bytes]:
    """Returns the TABLE_MAP of orders with another name for the second column."""
    columns = (ORDERS[0], replace(ORDERS[1], name=name))
    return map_of(columns, "orders", 77)


def test_a_mask_of_a_column_that_the_table_lacks_ends_before_its_rows() -> None:
    log = Delivered()
    log.transaction(ITEMS_MAP, items(WRITE, 1))
    log.ddl("CREATE TABLE t (id INT)")
    log.transaction(ITEMS_MAP, ORDERS_MAP, items(WRITE, 2), orders(WRITE, 1))
    written = []
    with pytest.raises(UserError, match=r"table shop\.orders has no column nmae") as caught:
        written += list(ChangeLines(masks=[of_note(column="nmae")]).of(log.bytes()))
    assert "did you mean name?" in caught.value.remedy
    assert b"orders" not in b"".join(written)


@pytest.mark.parametrize(
    ("options", "is_refused"),
    [
        ({"masks": [of_note(column="nmae")]}, True),
        ({"masks": [of_note(column="NAME")]}, False),
        ({"masks": [of_note("shop.*", "nmae")]}, False),
        ({"masks": [of_note(column="nmae")], "masks_may_lack": True}, False),
        ({"masks": [of_note(column="nmae")], "tables": ("shop.items",)}, False),
    ],
)
def test_which_tables_may_lack_a_masked_column(options: dict[str, Any], is_refused: bool) -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, orders(WRITE, 1))
    lines = ChangeLines(**options)
    if is_refused:
        with pytest.raises(UserError, match="has no column"):
            lines_of(lines, log)
    else:
        lines_of(lines, log)


@pytest.mark.parametrize("table", ["shop.orders", "shop.*"])
def test_a_masked_column_that_is_renamed_ends_before_its_next_row(table: str) -> None:
    lines = ChangeLines(masks=[of_note(table)])
    first = Delivered()
    first.transaction(ORDERS_MAP, orders(WRITE, 1))
    (row,) = lines_of(lines, first)
    assert len(row["after"]["name"]) == 64
    then = Delivered()
    then.transaction(ORDERS_MAP, orders(WRITE, 2))
    then.ddl("ALTER TABLE orders RENAME COLUMN name TO title")
    then.transaction(renamed_orders("title"), orders(WRITE, 3))
    written: list[bytes | memoryview] = []
    with pytest.raises(UserError, match="no longer has the column name"):
        written.extend(lines.of(then.bytes()))
    assert b'"id":3' not in b"".join(written)
    both = ChangeLines(masks=[of_note(table), of_note(table, "title")], masks_may_lack=True)
    rows = [line["after"] for line in lines_of(both, then) if line["op"] == "insert"]
    assert [len(row.get("name") or row["title"]) for row in rows] == [64, 64]
