"""Some tables, some of their columns, and metadata: what is decoded, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.changes.metadata import CutTransaction
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.columns import column_decoders
from dispatcher.binlog.decode.columns.column_decoders import Decoded
from dispatcher.binlog.decode.delivered import Ddl
from dispatcher.binlog.decode.events.row_walk import INSERT
from dispatcher.binlog.decode.selected import (
    LayoutEvents,
    LayoutPlan,
    SelectedDdl,
    SelectedRows,
    cut_share,
    selected_changes,
)
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import (
    Delivered,
    Spec,
    integer,
    query_body,
    rows_body,
    table_map,
    text,
)

WRITE, UPDATE, DELETE = 30, 31, 32
INT = Spec("id", Type.LONG)
NAME = Spec("name", Type.VARCHAR, b"\x50\0", charset=45)
NUMBER = Spec("n", Type.LONGLONG)
COLUMNS = [INT, NAME, NUMBER]


def cells(number: int, name: str | None, n: int = 0) -> list[bytes | None]:
    return [integer(number, 4), None if name is None else text(name, 1), integer(n, 8)]


def map_event(table: str = "orders", table_id: int = 77, key: Sequence[int] = (0,)) -> Any:
    return 19, table_map(COLUMNS, table=table, table_id=table_id, key=key)


def rows_event(kind: int, *images: Sequence[bytes | None], flags: int = 1, **more: Any) -> Any:
    return kind, rows_body(kind, images, flags=flags, **more)


def query_event(statement: str, kind: int = EventType.ROWS_QUERY) -> tuple[int, bytes]:
    return kind, (b"\0" if kind == EventType.ROWS_QUERY else b"") + statement.encode()


class Chosen:
    """Selects tables and columns by name, statements that hold a word, and kinds of changes by their numbers."""

    def __init__(
        self,
        tables: Sequence[str] = ("orders",),
        columns: Sequence[int] = (0, 1, 2),
        *,
        operations: Sequence[int] = (0, 1, 2),
        newest: bool = False,
    ) -> None:
        self._tables, self._columns = tables, tuple(columns)
        self._operations, self._newest = operations, newest
        self.layouts = 0

    def chosen_events(self, events: LayoutEvents) -> NDArray[np.bool_]:
        return np.isin(events.operations, self._operations)

    def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
        self.layouts += 1
        if table_map.table not in self._tables:
            return None
        return LayoutPlan(self._columns, table_map.key, newest=self._newest)

    def selects_statement(self, ddl: Ddl) -> bool:
        return "skip" not in ddl.statement.text


def rows_of(data: bytes, selection: Chosen, *metadata: Metadata, **more: Any) -> list[Any]:
    """Rows as dicts, with their metadata; statements as (query, metadata)."""
    found: list[Any] = []
    for item in selected_changes(data, selection, metadata, **more):
        if isinstance(item, SelectedDdl):
            found.append((item.ddl.statement.text, dict(item.metadata)))
            continue
        assert isinstance(item, SelectedRows)
        item.batch.validate(full=True)
        columns = {str(name): array.to_pylist() for name, array in item.metadata.items()}
        for i, row in enumerate(item.batch.to_pylist()):
            found.append(row | {name: values[i] for name, values in columns.items()})
    return found


def history() -> bytes:
    log = Delivered()
    log.ddl("CREATE TABLE orders (skip)")
    log.ddl("CREATE TABLE orders")
    log.transaction(
        query_event("INSERT all"),
        map_event(),
        map_event("other", 78),
        rows_event(WRITE, cells(1, "a"), cells(2, None), flags=0),
        rows_event(WRITE, cells(9, "o"), table_id=78),
        map_event(),
        rows_event(UPDATE, cells(1, "a", 1), cells(1, "b", 1), cells(2, None), cells(2, "", 5)),
    )
    log.transaction(query_event("DELETE one"), map_event(), rows_event(DELETE, cells(1, "b")))
    return log.bytes()


def test_all_that_is_selected_is_as_without_a_selection() -> None:
    every = Chosen(("orders", "other"))
    plain = [p.batch.to_pylist() for p in delivered.changes(history()) if not isinstance(p, Ddl)]
    chosen = [row for row in rows_of(history(), every) if not isinstance(row, tuple)]
    assert chosen == [row for batch in plain for row in batch]
    assert rows_of(history(), every, batch_bytes=1) == rows_of(history(), every)


def test_tables_and_statements_that_are_not_selected_are_left_out() -> None:
    selection = Chosen(("other",))
    statement, row = rows_of(history(), selection)
    assert statement == ("CREATE TABLE orders", {})
    assert (row["table"], row["after"]["id"]) == ("other", 9)
    assert selection.layouts == 2, "each layout was asked for once"


def test_the_place_of_the_first_row_is_added_to_the_error_of_a_plan() -> None:
    class Refusing(Chosen):
        def layout_plan(self, table_map: TableMap) -> LayoutPlan | None:
            raise BinlogError(ErrorKind.UNSUPPORTED_CHANGE, f"no {table_map.table}")

    with pytest.raises(BinlogError, match=r"epoch 1, seq 3, before binlog.000007:2500"):
        rows_of(history(), Refusing())


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the cells that are decoded, by column."""
    counted: Counter[str] = Counter()
    made = column_decoders.column_decoder

    def counting(column: Column, dates: InvalidDates) -> tuple[Any, Callable[..., Decoded]]:
        target, decode = made(column, dates)

        def decode_and_count(buf: Any, at: Any) -> Decoded:
            counted[column.name] += len(at)
            return decode(buf, at)

        return target, decode_and_count

    monkeypatch.setattr(column_decoders, "column_decoder", counting)
    return counted


def test_columns_that_are_not_selected_are_not_decoded(decoded: Counter[str]) -> None:
    rows = rows_of(history(), Chosen(columns=(2, 0)))
    assert decoded == {"id": 10, "n": 10}, "two images of five rows"
    assert [list(row["after"] or {}) for row in rows[1:]] == [["n", "id"]] * 4 + [[]]
    assert [row["after"] and row["after"]["n"] for row in rows[1:]] == [0, 0, 1, 5, None]
    decoded.clear()
    assert [row["key"] for row in rows_of(history(), Chosen(columns=(1,)), Metadata.KEY)[1:]] == [
        {"id": 1}, {"id": 2}, {"id": 1}, {"id": 2}, {"id": 1},
    ]  # fmt: skip
    assert decoded == {"id": 10, "name": 10}


def test_events_that_are_not_chosen_are_not_decoded_and_not_counted(
    decoded: Counter[str],
) -> None:
    inserts = Chosen(operations=[INSERT])
    statement, *rows = rows_of(history(), inserts, Metadata.TRANSACTION_ROWS)
    assert statement[0] == "CREATE TABLE orders"
    assert [(row["op"], row["transaction_rows"]) for row in rows] == [("insert", 2)] * 2
    assert decoded == {"id": 2, "name": 2, "n": 2}
    none = Chosen(("orders", "other"), operations=[])
    assert rows_of(history(), none) == [("CREATE TABLE orders", {})]
    assert none.layouts == 0, "a layout without chosen events cannot raise an error"


def test_the_newest_image_of_each_row(decoded: Counter[str]) -> None:
    _, *both = rows_of(history(), Chosen(), *Metadata)
    decoded.clear()
    _, *newest = rows_of(history(), Chosen(newest=True), *Metadata)
    assert decoded == {"id": 10, "name": 5, "n": 5}, "one image, and the key"
    for one, two in zip(newest, both, strict=True):
        image, before, after = one.pop("row"), two.pop("before"), two.pop("after")
        assert image == (before if two["op"] == "delete" else after)
        assert one.pop("absent") is two.pop("before_absent") is two.pop("after_absent") is None
        assert one == two
    _, *without = rows_of(history(), Chosen(columns=(), newest=True), batch_bytes=1)
    assert [row["row"] for row in without] == [{}] * 5


@pytest.mark.parametrize(
    ("kind", "absent", "image"),
    [
        (UPDATE, ["id", "n"], {"id": None, "name": "b", "n": None}),
        (DELETE, ["name", "n"], {"id": 1, "name": None, "n": None}),
    ],
)
def test_the_columns_that_the_newest_image_lacks(
    kind: int, absent: list[str], image: dict[str, Any]
) -> None:
    log = Delivered()
    images: list[list[bytes | None]] = [[integer(1, 4)], [text("b", 1)]]
    second = b"\x02" if kind == UPDATE else None
    body = rows_body(
        kind, images[: 2 if kind == UPDATE else 1], width=3, present=b"\x01", present_after=second
    )
    log.transaction(map_event(), (kind, body))
    log.transaction(map_event(), rows_event(WRITE, cells(7, "whole")))
    row, whole = rows_of(log.bytes(), Chosen(newest=True), Metadata.KEY)
    assert (row["absent"], row["row"], row["key"]) == (absent, image, {"id": 1})
    assert (whole["absent"], whole["key"]) == (None, {"id": 7})


def test_metadata_of_rows_and_statements() -> None:
    everything = tuple(Metadata)
    statement, *rows = rows_of(history(), Chosen(), *everything)
    assert statement == (
        "CREATE TABLE orders",
        {"server_id": 0, "query": "CREATE TABLE orders", "transaction_rows": 1, "transaction_end": True},
    )  # fmt: skip
    assert [row["query"] for row in rows] == ["INSERT all"] * 2 + [None] * 2 + ["DELETE one"]
    assert [row["changed"] for row in rows] == [None, None, ["name"], ["name", "n"], None]
    assert [row["transaction_rows"] for row in rows] == [4, 4, 4, 4, 1]
    assert [row["transaction_end"] for row in rows] == [False, False, False, True, True]
    both = rows_of(history(), Chosen(("orders", "other")), Metadata.TRANSACTION_ROWS)[1:]
    assert sorted(row["transaction_rows"] for row in both) == [1, 5, 5, 5, 5, 5]


def test_a_server_id_is_that_of_the_transaction() -> None:
    log = Delivered()
    for server in (7, 4_294_967_295):
        log.seq += 1
        at = len(log.out)
        log.record()
        record = bytearray(log.out[at:])
        record[5:9] = server.to_bytes(4, "little")
        del log.out[at:]
        log.event(28, bytes(record[19:-4]), flags=0x80, server_id=server)
        for kind, body in (map_event(), rows_event(WRITE, cells(server % 100, "x"))):
            log.event(kind, body, server_id=server)
    rows = rows_of(log.bytes(), Chosen(), Metadata.SERVER_ID)
    assert [row["server_id"] for row in rows] == [7, 4_294_967_295]


def test_a_table_without_a_key_has_none() -> None:
    log = Delivered()
    log.transaction(map_event(key=()), rows_event(WRITE, cells(1, "a")))
    (row,) = rows_of(log.bytes(), Chosen(), Metadata.KEY, Metadata.CHANGED)
    assert "key" not in row and row["changed"] is None


def test_mariadb_s_texts_of_statements() -> None:
    log = Delivered()
    annotate = query_event("INSERT é", EventType.MARIADB_ANNOTATE_ROWS)
    log.transaction(annotate, map_event(), rows_event(WRITE, cells(1, "a")))
    (row,) = rows_of(log.bytes(), Chosen(), Metadata.QUERY)
    assert row["query"] == "INSERT é"


def test_columns_that_only_one_image_holds() -> None:
    log = Delivered()
    minimal = rows_body(
        UPDATE,
        [[integer(1, 4)], [text("b", 1)]],
        width=3,
        present=b"\x01",
        present_after=b"\x02",
    )
    log.transaction(map_event(), (UPDATE, minimal))
    (row,) = rows_of(log.bytes(), Chosen(), Metadata.CHANGED, Metadata.KEY)
    assert (row["changed"], row["key"]) == (["name"], {"id": 1})


def parts_of_one_transaction() -> tuple[bytes, bytes, bytes]:
    """The whole log, and two parts of its second transaction as the daemon delivers them."""
    first = [map_event(), rows_event(WRITE, cells(1, "a"), flags=0)]
    second = [rows_event(WRITE, cells(2, "b"), cells(3, "c"))]
    third = [query_event("next"), map_event(), rows_event(WRITE, cells(4, "d"))]
    whole, head, tail = Delivered(), Delivered(), Delivered()
    for log in (whole, head):
        log.transaction(map_event(), rows_event(WRITE, cells(0, "before")))
    whole.transaction(query_event("long"), *first, *second, *third)
    head.transaction(query_event("long"), *first, begin=True)
    tail.seq, tail.offset = 1, head.offset - 500
    tail.transaction((EventType.QUERY, query_body("BEGIN")), begin=False)
    for number, event in ((3, first[0]), (5, second[0]), (6, third[0])):
        tail.record(number)
        tail.event(*event)
    tail.event(*third[1])
    tail.event(*third[2])
    return whole.bytes(), head.bytes(), tail.bytes()


def test_parts_of_a_transaction_have_the_metadata_of_the_whole() -> None:
    whole, head, tail = parts_of_one_transaction()
    wanted = (Metadata.QUERY, Metadata.TRANSACTION_ROWS, Metadata.TRANSACTION_END)
    shares = [cut_share(head, Chosen(), 1, 2, None)]
    shares.append(cut_share(tail, Chosen(), 1, 2, shares[0][2]))
    assert [(rows, query) for rows, _, query in shares] == [(1, "long"), (3, None)]
    rows, last = sum(share[0] for share in shares), max(share[1] for share in shares)
    read = []
    for data, query in ((head, None), (tail, "long")):
        cut = [CutTransaction(1, 2, rows, last, query)]
        read += rows_of(data, Chosen(), *wanted, cut=cut)
    names = ("query", "transaction_rows", "transaction_end")
    expected = rows_of(whole, Chosen(), *wanted)
    assert [[row[name] for name in names] for row in read] == [
        [row[name] for name in names] for row in expected
    ]
    assert [row["query"] for row in read] == [None, "long", "long", "long", "next"]
