"""Rows are read in pages of bounded size, each row once and in order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from dispatcher.mysql.driver import ANSWER_BYTES_MAX
from dispatcher.state import pages
from dispatcher.state.pages import PAGE_BYTES, rows_in_pages

LARGE, SMALL = 3 * PAGE_BYTES // 5, 10


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (client TEXT, number INTEGER, name TEXT, data BLOB)")
        yield db


def insert(db: sqlite3.Connection, *sizes: int, client: str = "a") -> list[tuple[str, int]]:
    rows = [(client, n, f"n{n:06}", bytes(size)) for n, size in enumerate(sizes, start=1)]
    db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    return [(name, len(data)) for _, _, name, data in rows]


def read(db: sqlite3.Connection, key: str, client: str | None = None) -> list[tuple[str, int]]:
    return [
        (name, len(data or b""))
        for name, data in rows_in_pages(db, "t", "name, data", key, client=client)
    ]


@pytest.mark.parametrize("key", ["number", "name"])
@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (SMALL,),
        (LARGE,) * 4,
        (SMALL, 2 * PAGE_BYTES, SMALL, SMALL, PAGE_BYTES, SMALL),
        (SMALL,) * 5000,
    ],
    ids=["none", "one", "large", "mixed", "many"],
)
def test_each_row_is_read_once_and_in_order(
    db: sqlite3.Connection, key: str, sizes: tuple[int, ...]
) -> None:
    rows = insert(db, *sizes)
    assert read(db, key) == rows


def test_a_client_gets_its_own_rows(db: sqlite3.Connection) -> None:
    insert(db, LARGE, LARGE, client="b")
    rows = insert(db, SMALL, LARGE, LARGE)
    assert read(db, "number", "a") == rows
    assert read(db, "number", "c") == []


def test_a_value_may_be_missing(db: sqlite3.Connection) -> None:
    db.execute("INSERT INTO t VALUES ('a', 1, 'x', NULL)")
    assert read(db, "number") == [("x", 0)]


def test_sizes_are_read_in_pages_too(
    db: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_SIZES", 3)
    for number in range(1, 8):
        rows = insert(db, *(SMALL,) * number)
        assert read(db, "number") == rows, number
        db.execute("DELETE FROM t")


def test_a_page_is_smaller_than_the_limit_of_an_answer(db: sqlite3.Connection) -> None:
    insert(db, *(LARGE, SMALL) * 3, *(SMALL,) * 5000)
    statements: list[str] = []
    db.set_trace_callback(statements.append)
    read(db, "number")
    db.set_trace_callback(None)
    queries = [statement for statement in statements if "LENGTH" not in statement]
    answers = [db.execute(query).fetchall() for query in queries]
    assert len(answers) > 3
    for answer in answers:
        assert sum(len(data) + 1000 for _, data, _ in answer) <= PAGE_BYTES < ANSWER_BYTES_MAX / 4
