"""The same seed makes the same transactions, and no two writers insert the same key."""

from __future__ import annotations

import itertools
import random
import re

from deploy.demo.operations import Shop, Statement, first_rows, operations
from deploy.demo.schema import DATABASES


def statements(writer: int, seed: int, count: int = 300) -> list[Statement]:
    shop = Shop(writer, random.Random(f"{seed}/{writer}"))
    found = []
    for transaction in itertools.chain(first_rows(shop), itertools.islice(operations(shop), count)):
        found += transaction.statements
        if not transaction.undo:
            transaction.done()
    return found


def test_a_seed_repeats() -> None:
    assert statements(0, 7) == statements(0, 7)
    assert statements(0, 7) != statements(0, 8)
    assert statements(0, 7) != statements(1, 7)


def test_all_operations_and_databases_occur() -> None:
    text = "\n".join(statement.sql for statement in statements(0, 1))
    for pattern in (
        r"INSERT INTO shop\.customers .*\), \(",  # several rows
        r"DELETE FROM shop\.customers",
        r"DELETE shop\.orders, billing\.invoices FROM",
        r"UPDATE shop\.orders o JOIN billing\.invoices",
        r"JOIN warehouse\.stock",
        r"UPDATE shop\.customers SET id =",
        r"SET line = line \+ 1",
        r"INSERT INTO billing\.payments",
    ):
        assert re.search(pattern, text), pattern
    assert all(f"{database}." in text for database in DATABASES)


def test_ids_of_two_writers_are_never_the_same() -> None:
    shops = [Shop(writer, random.Random(0)) for writer in range(3)]
    ids = [shop.new_id() for shop in shops for _ in range(1000)]
    assert len(set(ids)) == 3000
