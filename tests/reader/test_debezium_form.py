"""The lines of `read --format debezium`: the envelope, updates of keys, statements, and values at the edges of types.

tests/front/clients/test_debezium_lines.py compares the lines with those of Debezium.
"""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import pytest

from dispatcher.binlog.table_map.column_types import Mask, MaskForm, Type
from dispatcher.reader.change_lines import ChangeLines, MaskedColumn
from dispatcher.reader.debezium_lines import DebeziumForm
from tests.support.rows_encoder import (
    SERVER,
    UTF8MB4,
    Delivered,
    Spec,
    decimal,
    encode_cell,
    geometry,
    integer,
    rows_body,
    table_map,
)

ORDERS = (
    Spec("id", Type.LONG, nullable=False),
    Spec("name", Type.VARCHAR, (400).to_bytes(2, "little"), charset=UTF8MB4),
)
WRITE, UPDATE, DELETE = 30, 31, 32


def lines_of(log: Delivered, **options: Any) -> list[dict[str, Any]]:
    lines = ChangeLines(form=DebeziumForm("here"), **options)
    return [json.loads(line) for line in b"".join(lines.of(log.bytes())).splitlines()]


def rows_log(kind: int, rows: list[list[bytes | None]], columns: tuple[Spec, ...]) -> Delivered:
    log = Delivered()
    log.transaction((19, table_map(columns)), (kind, rows_body(kind, rows)))
    return log


def order(number: int, name: str) -> list[bytes | None]:
    return [integer(number, 4), encode_cell(ORDERS[1], name)]


def test_a_row_has_the_envelope() -> None:
    (line,) = lines_of(rows_log(WRITE, [order(1, 'é"')], ORDERS))
    assert [line.pop(name) > 0 for name in ("ts_ms", "ts_us", "ts_ns")] == [True] * 3
    assert (
        line.pop("source").items()
        >= {
            "connector": "mysql",
            "name": "here",
            "snapshot": "false",
            "db": "shop",
            "table": "orders",
            "ts_ms": 1_700_000_000_000,
            "ts_us": 1_700_000_000_000_001,
            "ts_ns": 1_700_000_000_000_001_000,
            "gtid": f"{SERVER}:1",
            "file": "binlog.000007",
            "row": 0,
            "server_id": 1,
            "sequence": None,
            "query": None,
        }.items()
    )
    expected = {"before": None, "after": {"id": 1, "name": 'é"'}, "transaction": None, "op": "c"}
    assert line == expected


def test_an_update_of_the_key_is_a_deletion_and_an_insertion() -> None:
    pairs = [(order(n, "a"), order(n + (n == 2) * 10, "b")) for n in (1, 2, 3)]
    log = Delivered()
    rows = [image for pair in pairs for image in pair]
    log.transaction((19, table_map(ORDERS)), (UPDATE, rows_body(UPDATE, rows)))
    lines = lines_of(log)
    assert [line["op"] for line in lines] == ["u", "d", "c", "u"]
    assert [line["source"]["row"] for line in lines] == [0, 1, 1, 2]
    _, gone, made, _ = lines
    assert (gone["before"], gone["after"]) == ({"id": 2, "name": "a"}, None)
    assert (made["before"], made["after"]) == (None, {"id": 12, "name": "b"})


def test_a_statement_has_the_keys_of_a_schema_change() -> None:
    log = Delivered()
    log.ddl("ALTER TABLE orders ADD x INT")
    (line,) = lines_of(log)
    assert list(line) == ["source", "ts_ms", "databaseName", "schemaName", "ddl"]
    assert (line["databaseName"], line["ddl"]) == ("shop", "ALTER TABLE orders ADD x INT")
    source = line["source"]
    assert (source["ts_us"], source["db"], source["table"]) == (
        1_700_000_000_000_001,
        "shop",
        "orders",
    )
    (row,) = lines_of(rows_log(WRITE, [order(1, "a")], ORDERS))
    assert sorted(row["source"]) == sorted(source)


@pytest.mark.parametrize("precision", [20, 40], ids=["128 bits", "digits"])
def test_a_decimal_has_the_fewest_bytes(precision: int) -> None:
    column = Spec("d", Type.NEWDECIMAL, bytes((precision, 2)))
    edges = [(1 << n) + k for n in (7, 8, 15, 16, 31, 32, 55, 56) for k in (-1, 0, 1)]
    numbers = [0, *edges, *(-n for n in edges)]
    cells: list[list[bytes | None]] = [
        [decimal(Decimal(n).scaleb(-2), precision, 2)] for n in numbers
    ]
    lines = lines_of(rows_log(WRITE, [*cells, [None]], (column,)))
    found = [line["after"]["d"] for line in lines]
    assert found.pop() is None
    raw = [base64.b64decode(text) for text in found]
    assert [int.from_bytes(each, "big", signed=True) for each in raw] == numbers
    assert [len(each) for each in raw] == [
        (n if n >= 0 else ~n).bit_length() // 8 + 1 for n in numbers
    ]


def test_an_invalid_date_is_the_epoch_if_it_may_not_be_null() -> None:
    columns = tuple(
        Spec(f"{name}{nullable}", kind, meta, nullable=nullable)
        for nullable in (True, False)
        for name, kind, meta in (
            ("date", Type.DATE, b""),
            ("time", Type.DATETIME2, b"\6"),
            ("stamp", Type.TIMESTAMP2, b"\0"),
        )
    )
    zero = [bytes(3), (0x8000000000).to_bytes(5, "big") + bytes(3), bytes(4)]
    (line,) = lines_of(rows_log(WRITE, [[*zero, *zero]], columns))
    epoch = [0, 0, "1970-01-01T00:00:00Z"]
    assert list(line["after"].values()) == [None, None, None, *epoch]


def test_a_point_has_its_coordinates_and_no_srid_0() -> None:
    columns = (Spec("p", Type.GEOMETRY, b"\4", geometry=1), Spec("g", Type.GEOMETRY, b"\4"))
    wkb = bytes.fromhex("0101000000000000000000f03f0000000000000040")
    cells = [geometry(0, wkb), geometry(4326, wkb)]
    present, missing = lines_of(rows_log(WRITE, [list(cells), [None, None]], columns))
    text = base64.b64encode(wkb).decode()
    assert present["after"] == {
        "p": {"x": 1, "y": 2, "wkb": text, "srid": None},
        "g": {"wkb": text, "srid": 4326},
    }
    assert missing["after"] == {"p": None, "g": None}


def test_a_masked_column_is_text() -> None:
    masks = [MaskedColumn("shop.orders", "id", Mask(MaskForm.KEYED, b"a secret of the reader"))]
    (line,) = lines_of(rows_log(WRITE, [order(1, "a")], ORDERS), masks=masks)
    assert len(line["after"]["id"]) == 64
