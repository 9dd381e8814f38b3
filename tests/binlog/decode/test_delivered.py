"""Whole delivered binlogs: order, ordinals, DDL, slices, and truncated or changed bytes."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.changes.json_render import json_text
from dispatcher.binlog.decode.delivered import Ddl, TableChanges, TableSlice
from dispatcher.binlog.event.query import parse_query
from dispatcher.binlog.event.record import RECORD_VERSION
from dispatcher.binlog.sql.statement import parse_statement
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import (
    SERVER,
    UTF8MB4,
    Delivered,
    Spec,
    encode_cell,
    fde,
    gtid_body,
    integer,
    query_body,
    rows_body,
    table_map,
)
from tests.support.statements import as_logged

ORDERS = (
    Spec("id", Type.LONG, nullable=False),
    Spec("name", Type.VARCHAR, (400).to_bytes(2, "little"), charset=UTF8MB4),
    Spec("price", Type.NEWDECIMAL, bytes((10, 2))),
)
ITEMS = (Spec("id", Type.LONGLONG), Spec("blob", Type.BLOB, b"\2", charset=63))


def map_of(columns: tuple[Spec, ...], table: str, table_id: int) -> tuple[int, bytes]:
    return 19, table_map(columns, table=table, table_id=table_id)


ORDERS_MAP = map_of(ORDERS, "orders", 77)
ITEMS_MAP = map_of(ITEMS, "items", 78)


def orders(kind: int, *ids: int) -> tuple[int, bytes]:
    rows = [[integer(i, 4), encode_cell(ORDERS[1], f"näme {i}"), None] for i in ids]
    return kind, rows_body(kind, rows)


def items(kind: int, *ids: int) -> tuple[int, bytes]:
    rows = [[integer(i, 8), encode_cell(ITEMS[1], bytes((i & 255,)) * 5)] for i in ids]
    return kind, rows_body(kind, rows, table_id=78)


def history(*, checksum: bool = True) -> bytes:
    """A log with two tables, a statement that changes both, a DDL statement between changes, the end of an epoch, and a
    new FORMAT_DESCRIPTION."""
    log = Delivered(checksum=checksum)
    log.transaction(ORDERS_MAP, orders(30, 1, 2, 3), orders(30, 4))
    log.transaction(ORDERS_MAP, ITEMS_MAP, orders(31, 1, 2), items(30, 7, 8))
    log.transaction(ITEMS_MAP, items(32, 7))
    log.ddl("ALTER TABLE items ADD x INT")
    log.transaction(ITEMS_MAP, items(23, 9), ORDERS_MAP, orders(25, 4))
    log.file = "binlog.000008"
    log.out += fde(checksum=checksum, version="8.0.37")
    log.transaction(ORDERS_MAP, orders(24, 3, 5))
    log.epoch += 1
    log.transaction(ORDERS_MAP, orders(30, 6))
    return log.bytes()


def rows_of(found: Iterator[TableChanges | Ddl]) -> list[dict[str, Any]]:
    return [
        row for part in found if isinstance(part, TableChanges) for row in part.batch.to_pylist()
    ]


def test_changes_carry_their_position() -> None:
    found = list(delivered.changes(history()))
    shape = [
        (part.batch["table"][0].as_py(), part.batch.num_rows)
        if isinstance(part, TableChanges)
        else part.statement.text
        for part in found
    ]
    assert shape == [
        ("orders", 5), ("items", 3), "ALTER TABLE items ADD x INT", ("items", 1), ("orders", 2), ("orders", 1),
    ]  # fmt: skip
    rows = rows_of(iter(found))
    first = rows[0]
    assert first["after"] == {"id": 1, "name": "näme 1", "price": None}
    assert first["before"] is None
    assert (first["epoch"], first["seq"], first["ordinal"]) == (1, 1, 3 << 24)
    assert (first["gtid"], first["file"], first["pos"]) == (f"{SERVER}:1", "binlog.000007", 1500)
    assert first["committed_at"].timestamp() == 1_700_000_000.000001
    assert (first["database"], first["table"], first["op"]) == ("shop", "orders", "insert")
    assert [row["ordinal"] for row in rows[:5]] == [
        3 << 24,
        3 << 24 | 1,
        3 << 24 | 2,
        4 << 24,
        4 << 24,
    ]
    assert [row["file"] for row in rows if row["seq"] >= 6] == ["binlog.000008"] * 2
    assert [row["epoch"] for row in rows if row["seq"] == 7] == [2]


def test_ddl_carries_its_position() -> None:
    (ddl,) = (part for part in delivered.changes(history()) if isinstance(part, Ddl))
    assert ddl == Ddl(
        epoch=1,
        seq=4,
        ordinal=1 << 24,
        gtid=f"{SERVER}:4",
        file="binlog.000007",
        pos=3000,
        committed_at=1_700_000_000_000_004,
        header=ddl.header,
        statement=as_logged("ALTER TABLE items ADD x INT", "shop"),
    )


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("bytes_max", [1, 200, 1 << 20])
def test_slices_decode_to_the_same_rows(checksum: bool, bytes_max: int) -> None:
    data = history(checksum=checksum)
    key = ("epoch", "seq", "ordinal")
    wanted = sorted(rows_of(delivered.changes(data)), key=lambda row: [row[name] for name in key])
    found: list[dict[str, Any]] = []
    ddl_seen = []
    for part in delivered.split_by_table(data, max_payload_bytes=bytes_max):
        if isinstance(part, Ddl):
            ddl_seen.append(len(found))
            continue
        assert TableMap.parse(part.table_map).layout == part.layout
        rows = [row for batch in delivered.decode_table(part.payload) for row in batch.to_pylist()]
        assert len(rows) == part.rows
        assert {row["table"] for row in rows} == {part.table}
        assert (rows[0]["seq"], rows[-1]["seq"]) == (part.first_seq, part.last_seq)
        assert {row["epoch"] for row in rows} == {part.epoch}
        found += rows
    assert ddl_seen == [8]
    assert sorted(found, key=lambda row: [row[name] for name in key]) == wanted


def test_splitting_a_slice_returns_the_slice() -> None:
    for part in delivered.split_by_table(history()):
        if isinstance(part, TableSlice):
            (again,) = delivered.split_by_table(part.payload)
            assert again == part


@pytest.mark.parametrize("slice_bytes", [400, 4000, 1 << 20])
@pytest.mark.parametrize("bytes_max", [1, 1500, 1 << 20])
def test_payloads_decode_to_the_same_rows_if_they_are_joined(
    slice_bytes: int, bytes_max: int
) -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, *(orders(30, *range(n, n + 10)) for n in range(0, 300, 10)))
    log.transaction(ORDERS_MAP, orders(31, 1, 2), orders(32, 3))
    for data in (history(), log.bytes()):
        payloads: dict[tuple[str, str], list[bytes]] = {}
        for part in delivered.split_by_table(data, max_payload_bytes=slice_bytes):
            if isinstance(part, TableSlice):
                payloads.setdefault((part.table, part.layout), []).append(bytes(part.payload))
        for each in payloads.values():
            joined = list(delivered.joined_payloads(each, bytes_max))
            assert all(len(one) <= bytes_max for one in joined if len(joined) < len(each))
            assert rows_in(joined) == rows_in(each)


def rows_in(payloads: Iterable[bytes]) -> list[dict[str, Any]]:
    return [
        row
        for payload in payloads
        for batch in delivered.decode_table(payload)
        for row in batch.to_pylist()
    ]


def test_a_large_slice_is_split_between_events() -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, *(orders(30, *range(n, n + 10)) for n in range(0, 1000, 10)))
    parts = list(delivered.split_by_table(log.bytes(), max_payload_bytes=4000))
    assert len(parts) > 5
    for part in parts:
        assert isinstance(part, TableSlice)
        assert len(part.payload) <= 4000
        assert (part.first_seq, part.last_seq) == (1, 1)
    ids = [
        row["after"]["id"]
        for part in parts
        if isinstance(part, TableSlice)
        for batch in delivered.decode_table(part.payload)
        for row in batch.to_pylist()
    ]
    assert ids == list(range(1000))


def test_batches_are_limited_in_rows_and_bytes() -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, orders(30, *range(100)), orders(30, *range(100, 250)))
    sizes = [
        part.batch.num_rows
        for part in delivered.changes(log.bytes(), batch_rows=64)
        if isinstance(part, TableChanges)
    ]
    assert sizes == [64, 64, 64, 58]


def test_a_gap_keeps_ordinals() -> None:
    log = Delivered()
    log.seq = 5
    log.record()
    log.event(33, gtid_body(5))
    log.record(first_event=20)
    log.event(*ORDERS_MAP)
    log.event(*orders(30, 1))
    log.record(first_event=400)
    log.event(*orders(30, 2))
    rows = rows_of(delivered.changes(log.bytes()))
    assert [row["ordinal"] for row in rows] == [21 << 24, 400 << 24]
    assert {row["gtid"] for row in rows} == {f"{SERVER}:5"}


def test_gtids_of_every_kind() -> None:
    log = Delivered()
    for seq, (kind, body, server_id) in enumerate(
        [
            (162, struct.pack("<QIB", 2**64 - 1, 2**32 - 1, 0) + bytes(6), 4_000_000_000),
            (34, bytes(25), 1),
            (33, gtid_body(2**63 - 1), 1),
        ]
    ):
        log.seq = seq + 1
        log.record()
        log.event(kind, body, server_id=server_id)
        log.event(*ORDERS_MAP)
        log.event(*orders(23, 1))
    log.seq = 4
    log.record()  # a server without GTIDs writes no GTID event
    log.event(2, query_body("BEGIN"))
    log.event(*ORDERS_MAP)
    log.event(*orders(23, 1))
    assert [row["gtid"] for row in rows_of(delivered.changes(log.bytes()))] == [
        "4294967295-4000000000-18446744073709551615", "", f"{SERVER}:{2**63 - 1}", "",
    ]  # fmt: skip


def test_events_without_rows_are_skipped() -> None:
    log = Delivered()
    log.seq = 1
    log.record()
    log.event(33, gtid_body(1))
    log.event(2, query_body("BEGIN"))
    log.event(2, query_body("SAVEPOINT `a`"))
    log.event(29, b"\5INSERT")
    log.event(28, b"someone else's", flags=0x80)
    log.event(250, b"from the future", flags=0x80)
    log.event(*ORDERS_MAP)
    log.event(30, rows_body(30, [], table_id=0xFFFFFF, width=0))
    log.event(30, rows_body(30, [], width=3))
    log.event(*orders(30, 1))
    log.event(16, bytes(8))
    (row,) = rows_of(delivered.changes(log.bytes()))
    assert row["ordinal"] == 9 << 24
    (part,) = delivered.split_by_table(log.bytes())
    assert isinstance(part, TableSlice)
    assert part.rows == 1


def test_extra_row_data_is_skipped() -> None:
    log = Delivered()
    rows = [[integer(1, 4), None, None]]
    log.transaction(ORDERS_MAP, (30, rows_body(30, rows, extra=b"\7ndb data")))
    assert rows_of(delivered.changes(log.bytes()))[0]["after"]["id"] == 1


def test_one_table_in_two_layouts() -> None:
    log = Delivered()
    log.transaction(ORDERS_MAP, orders(30, 1))
    wider = (*ORDERS, Spec("more", Type.TINY))
    log.transaction(
        (19, table_map(wider, table_id=77)),
        (30, rows_body(30, [[integer(2, 4), None, None, b"\5"]])),
    )
    log.transaction(ORDERS_MAP, orders(30, 3))
    parts = list(delivered.split_by_table(log.bytes()))
    assert [(part.first_seq, part.last_seq, part.rows) for part in parts if isinstance(part, TableSlice)] == [
        (1, 3, 2), (2, 2, 1),
    ]  # fmt: skip
    assert rows_of(delivered.changes(log.bytes()))[2]["after"]["more"] == 5


def test_a_table_without_names_needs_a_definition() -> None:
    log = Delivered()
    bare = table_map(ORDERS, full=False)
    log.transaction((19, bare), orders(30, 1))
    with pytest.raises(BinlogError) as caught:
        list(delivered.changes(log.bytes()))
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    assert "shop.orders" in caught.value.what
    (part,) = delivered.split_by_table(log.bytes())  # `split_by_table` needs no names of columns
    definition = {
        "columns": [
            {"name": "id", "mysql_type": "int", "charset": None},
            {"name": "name", "mysql_type": "varchar(100)", "charset": "utf8mb4"},
            {"name": "price", "mysql_type": "decimal(10,2)", "charset": None},
        ],
        "key": ["id"],
    }
    assert isinstance(part, TableSlice)
    (batch,) = delivered.decode_table(part.payload, {"shop.orders": definition})
    assert batch.to_pylist()[0]["after"] == {"id": 1, "name": "näme 1", "price": None}


# -- data that must be refused, not skipped -----------------------------------------------------------------------


def caught(data: bytes) -> BinlogError:
    with pytest.raises(BinlogError) as error:
        list(delivered.changes(data))
    assert error.value.where.startswith("offset ")
    return error.value


def with_event(kind: int, body: bytes, *, flags: int = 0) -> bytes:
    log = Delivered()
    log.transaction(ORDERS_MAP)
    log.event(kind, body, flags=flags)
    return log.bytes()


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        (40, "binlog_transaction_compression"),
        (26, ""),
        (20, ""),
        (250, ""),
    ],
)
def test_unknown_events_that_may_carry_data_are_refused(kind: int, remedy: str) -> None:
    error = caught(with_event(kind, bytes(60)))
    assert error.kind is ErrorKind.UNSUPPORTED_EVENT
    assert remedy in error.remedy


def test_rows_without_any_column_are_refused() -> None:
    """Rows without columns have no bytes, so their number is unknown."""
    log = Delivered()
    body = rows_body(30, [[]], width=3, present=b"\0")
    log.transaction(ORDERS_MAP, (30, body))
    error = caught(log.bytes())
    assert error.kind is ErrorKind.ROW_IMAGE
    assert "shop.orders" in error.what
    assert "binlog_row_image=FULL" in error.remedy
    with pytest.raises(BinlogError) as split_error:
        list(delivered.split_by_table(log.bytes()))
    assert split_error.value.kind is ErrorKind.ROW_IMAGE


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda log: log.transaction(orders(30, 1)), "without a TABLE_MAP"),
        (lambda log: log.transaction(ORDERS_MAP) or log.transaction(orders(30, 1)), "without a TABLE_MAP"),
        (lambda log: log.event(*ORDERS_MAP), "no record precedes it"),
        (lambda log: log.transaction(ORDERS_MAP, items(30, 1)), "without a TABLE_MAP"),
        (lambda log: log.transaction(ITEMS_MAP, (30, rows_body(30, [[None] * 3], table_id=78))), "another number"),
        (lambda log: log.transaction(ORDERS_MAP, (30, orders(30, 1)[1][:-1])), "past the end"),
        (lambda log: log.transaction(ORDERS_MAP, orders(31, 1)), "past the end"),
        (lambda log: log.transaction((33, b"\1")), "cut short"),
        (lambda log: log.transaction((2, b"\1")), "cut short"),
        (lambda log: log.transaction((30, b"\1")), "cut short"),
        (lambda log: log.transaction((19, b"\1")), "cut short"),
    ],
)  # fmt: skip
def test_contradicting_events_are_refused(make: Callable[[Delivered], object], why: str) -> None:
    log = Delivered()
    make(log)
    error = caught(log.bytes())
    assert error.kind is ErrorKind.MALFORMED_EVENT
    assert why in error.what


def test_statements_that_change_rows_are_refused_without_their_values() -> None:
    log = Delivered()
    log.transaction((2, query_body("INSERT INTO t VALUES ('secret')")))
    error = caught(log.bytes())
    assert error.kind is ErrorKind.STATEMENT_FORMAT
    assert "secret" not in str(error)


def test_a_record_of_another_version_is_refused() -> None:
    log = Delivered(checksum=False)
    start = len(log.out)
    log.transaction(ORDERS_MAP)
    log.out[start + 21] = RECORD_VERSION + 1
    error = caught(log.bytes())
    assert error.kind is ErrorKind.UNSUPPORTED_EVENT
    assert f"version {RECORD_VERSION + 1}" in error.what


@pytest.mark.parametrize("data", [b"", b"\xfebi", b"PK\3\4" + bytes(200), b"\xfdbin" + bytes(200)])
def test_bytes_that_are_not_a_binlog_are_refused(data: bytes) -> None:
    with pytest.raises(BinlogError, match="not a binlog"):
        list(delivered.changes(data))


def test_a_file_in_use_is_read() -> None:
    log = Delivered()
    log.out[:] = b"\xfebin" + fde(flags=1)
    log.transaction(ORDERS_MAP, orders(30, 1))
    assert len(rows_of(delivered.changes(log.bytes()))) == 1


def test_checksums_detect_every_changed_byte() -> None:
    data = history()
    for at in range(4, len(data), 7):
        changed = data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :]
        assert caught(changed).kind in (
            ErrorKind.CHECKSUM_MISMATCH, ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_EVENT,
        )  # fmt: skip


@pytest.mark.parametrize("checksum", [True, False])
def test_truncation_is_an_error_except_between_events(checksum: bool) -> None:
    data = history(checksum=checksum)
    bounds, at = {4}, 4
    while at < len(data):
        at += int.from_bytes(data[at + 9 : at + 13], "little")
        bounds.add(at)
    for end in range(4, len(data)):
        if end in bounds:
            list(delivered.changes(data[:end]))
        else:
            assert caught(data[:end]).kind is ErrorKind.MALFORMED_EVENT


def all_of(data: bytes) -> None:
    """Decodes delivered bytes with every function, and asserts that they raise only typed errors."""
    try:
        for part in delivered.changes(data, batch_rows=7):
            if isinstance(part, TableChanges):
                part.batch.validate(full=True)
                json_text(part.batch)
    except BinlogError as error:
        assert error.kind is not ErrorKind.INTERNAL  # noqa: PT017 - only its type matters
    try:
        list(delivered.split_by_table(data, max_payload_bytes=300))
    except BinlogError as error:
        assert error.kind is not ErrorKind.INTERNAL  # noqa: PT017


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_changed_bytes_raise_only_typed_errors(seed: int, changes: int) -> None:
    data = bytearray(history(checksum=False))
    draw = random.Random(seed)
    for _ in range(changes):
        data[draw.randrange(4, len(data))] = draw.choice(
            (0, 1, 2, 127, 128, 252, 253, 254, 255, draw.randrange(256))
        )
    all_of(bytes(data))


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_changed_bytes_under_a_good_checksum_raise_only_typed_errors(seed: int) -> None:
    data = bytearray(history())
    draw = random.Random(seed)
    at, starts = 4, []
    while at < len(data):
        starts.append(at)
        at += int.from_bytes(data[at + 9 : at + 13], "little")
    start = draw.choice(starts)
    size = int.from_bytes(data[start + 9 : start + 13], "little")
    data[draw.randrange(start + 19, start + size - 4)] = draw.randrange(256)
    data[start + size - 4 : start + size] = zlib.crc32(data[start : start + size - 4]).to_bytes(
        4, "little"
    )
    all_of(bytes(data))


# -- statements -----------------------------------------------------------------------------------------------------


def test_a_statement_is_decoded_from_its_own_character_set() -> None:
    status = (
        b"\0"
        + bytes(4)
        + b"\1"
        + (4).to_bytes(8, "little")
        + b"\6\3std"
        + b"\4"
        + struct.pack("<HHH", 8, 8, 8)
    )
    body = query_body(
        "CREATE TABLE größe (a INT)".encode("latin-1"), "größe", status + b"\x63unknown"
    )
    query = parse_query(body)
    assert query.database == "größe"
    assert query.query == "CREATE TABLE größe (a INT)"
    assert query.status.sql_mode == 4


def test_invalid_bytes_of_a_statement_are_replaced() -> None:
    assert parse_query(query_body(b"CREATE TABLE \xff")).query == "CREATE TABLE \ufffd"


def test_truncated_status_variables_are_an_error() -> None:
    with pytest.raises(BinlogError, match="status variables"):
        parse_query(query_body("CREATE", status=b"\0\0"))


def test_importing_the_decoder_loads_no_needless_modules(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(history())
    program = (
        "import sys; from dispatcher.binlog.decode import delivered;"
        "list(delivered.changes(open(sys.argv[1], 'rb').read()));"
        "print([name for name in ('pandas', 'pydantic', 'pymysql', 'uvicorn', 'starlette', 'structlog')"
        " if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("value", "names"), [(0, ("Shop", "Orders")), (2, ("shop", "orders"))])
def test_tables_have_the_names_by_which_the_server_compares_them(
    value: int, names: tuple[str, str]
) -> None:
    log = Delivered(lower_case_table_names=value)
    mapped = 19, table_map([Spec("id", 3)], database="Shop", table="Orders")
    log.transaction(mapped, (30, rows_body(30, [[integer(1, 4)]])))
    log.transaction((2, query_body("DROP TABLE Orders", "Shop")), begin=False)
    part, ddl = delivered.split_by_table(log.bytes())
    assert isinstance(part, delivered.TableSlice) and (part.database, part.table) == names
    assert isinstance(ddl, Ddl) and parse_statement(ddl.statement).tables == (names,)
    (rows,) = delivered.decode_table(part.payload)
    assert (rows["database"][0].as_py(), rows["table"][0].as_py()) == names
    assert ddl.statement.facts.lower_case_table_names == value
