"""Threads that execute the shop's transactions at a fixed rate, each on its own connection."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from deploy.demo.operations import Shop, Statement, Transaction, first_rows, operations
from deploy.demo.processes import DemoFailed
from deploy.demo.schema import (
    ADD_COLUMNS,
    DOUBLE_EXISTING_TABLE,
    EXISTING_TABLE,
    SHADOW_TABLE,
)

Connect = Callable[[], "Connection[Cursor]"]

TRANSACTIONS_PER_S = 40.0  # of each writer
_RETRIED = (1205, 1213)  # lock wait timeout, deadlock


@dataclass(slots=True)
class WriteCounts:
    """Counts what one writer, or all writers together, have written. Each writer has its own counts, so no writer waits
    for a lock."""

    transactions: int = 0
    statements: int = 0
    rows: int = 0
    retried: int = 0


def make_existing_table(connection: Connection[Cursor], parts: int) -> None:
    """Create a table of `parts` rows that are not in the binlog. The account needs the right to set sql_log_bin."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_log_bin = 0")
        for statement in EXISTING_TABLE:
            cursor.execute(statement)
        rows = 1
        while rows < parts:
            cursor.execute(DOUBLE_EXISTING_TABLE.format(rows=rows, most=min(rows, parts - rows)))
            rows = min(2 * rows, parts)
        connection.commit()
        cursor.execute("SET SESSION sql_log_bin = 1")


class Writers:
    """Writer threads, each with its own connection."""

    def __init__(self, connect: Connect, *, seed: int, parts: int, writers: int = 3) -> None:
        """`parts`: rows of warehouse.parts."""
        self._connect, self._parts = connect, parts
        self._go_on = threading.Event()
        self._stop = threading.Event()
        self._written = [WriteCounts() for _ in range(writers)]
        self._failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._write, args=(n, seed), name=f"writer-{n}", daemon=True)
            for n in range(writers)
        ]

    def start(self) -> None:
        """Start the threads. They write the first rows, and then wait for `go_on`."""
        for thread in self._threads:
            thread.start()

    def go_on(self) -> None:
        """Let the threads write until `stop`."""
        self._go_on.set()

    def stop(self) -> None:
        """Stop all writers after their current transaction. Raises DemoFailed if one has failed."""
        self._stop.set()
        self._go_on.set()
        for thread in self._threads:
            thread.join()
        self.check()

    def check(self) -> None:
        """Raises DemoFailed if a writer has failed."""
        if self._failures:
            raise DemoFailed(f"a writer failed: {self._failures[0]!r}") from self._failures[0]

    @property
    def written(self) -> WriteCounts:
        counts = self._written
        return WriteCounts(
            sum(count.transactions for count in counts),
            sum(count.statements for count in counts),
            sum(count.rows for count in counts),
            sum(count.retried for count in counts),
        )

    def add_columns(self) -> None:
        """Alter tables while the writers write to them."""
        self._execute(ADD_COLUMNS)

    def change_by_shadow(self) -> None:
        """Change a table by a shadow table that takes its place, while the writers write to it."""
        self._execute(SHADOW_TABLE)

    def _execute(self, statements: Iterable[str]) -> None:
        with closing(self._connect()) as connection:
            for statement in statements:
                self._run(connection, Transaction([Statement(statement)]), WriteCounts())

    def _write(self, writer: int, seed: int) -> None:
        chance = random.Random(f"{seed}/{writer}")  # noqa: S311 - repeatable on purpose
        shop = Shop(writer, chance, parts=self._parts)
        try:
            with closing(self._connect()) as connection:
                for transaction in first_rows(shop):
                    self._run(connection, transaction, self._written[writer])
                self._go_on.wait()
                began = time.monotonic()
                for number, transaction in enumerate(operations(shop)):
                    due = began + number / TRANSACTIONS_PER_S
                    if self._stop.wait(max(0.0, due - time.monotonic())):
                        return
                    self._run(connection, transaction, self._written[writer])
        except Exception as error:  # noqa: BLE001 - raised by `check` in the main thread
            self._failures.append(error)

    @staticmethod
    def _run(
        connection: Connection[Cursor], transaction: Transaction, written: WriteCounts
    ) -> None:
        while True:
            rows = 0
            try:
                with connection.cursor() as cursor:
                    for statement in transaction.statements:
                        cursor.execute(statement.sql, tuple(statement.values) or None)
                        rows += cursor.rowcount
                if transaction.undo:
                    connection.rollback()
                else:
                    connection.commit()
                break
            except pymysql.OperationalError as error:
                if error.args[0] not in _RETRIED:
                    raise
                connection.rollback()
                written.retried += 1
        if not transaction.undo:
            transaction.done()
            written.transactions += 1
            written.statements += len(transaction.statements)
            written.rows += rows
