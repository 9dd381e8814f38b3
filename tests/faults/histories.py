"""Random histories of a real MySQL server, each made from a seed: everything that can be in its log, in any order.

Statements name their tables with the database, or run in a default database. They never read from one database to
define an object in another, because it is not clear which database such a statement concerns. XA transactions have
tables of their own, since a prepared transaction keeps its locks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pymysql
from pymysql.cursors import Cursor

from dispatcher.model.gtid import GtidSet
from tests.servers import Instance

OTHERS = (
    "0a0a0a0a-1111-2222-3333-444444444444",
    "c0ffee00-1111-2222-3333-444444444444",
    "f0f0f0f0-1111-2222-3333-444444444444",
)
_TABLE = (
    "(id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(300), n BIGINT, d DECIMAL(12,3), f DOUBLE, j JSON, b BLOB,"
    " e ENUM('a','b','c'), at DATETIME(6))"
)


@dataclass
class Table:
    database: str
    name: str
    added: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"`{self.database}`.`{self.name}`"


class History:
    """`step()` runs a random statement or transaction; `finish()` ends what is open. `log`: the statements that ran."""

    def __init__(self, rng: random.Random, server: Instance, number: int) -> None:
        self.rng = rng
        self.server = server
        self.number = number
        self.databases = [f"j{number}_{letter}" for letter in "abcd"[: rng.randint(2, 4)]]
        self.log: list[str] = []
        self.uuid = str(server.execute("SELECT @@server_uuid")[0][0])
        self._connection = server.connect()
        self._cursor: Cursor = self._connection.cursor()
        self._numbers = 0
        self._others = {uuid: rng.randrange(1, 2**62) for uuid in OTHERS}
        self.tables: list[Table] = []
        self._xids: list[str] = []
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (14, self._insert), (10, self._update), (5, self._delete), (8, self._transaction),
            (3, self._rolled_back), (4, self._two_databases), (4, self._by_trigger), (4, self._empty),
            (6, self._other_uuid), (3, self._own_uuid_ahead), (4, self._tagged), (4, self._compressed),
            (4, self._images), (2, self._with_text), (4, self._alter), (2, self._create), (2, self._drop),
            (2, self._rename), (2, self._truncate), (2, self._create_select), (2, self._default_database),
            (4, self._rotate), (3, self._checksum), (4, self._xa), (5, self._xa_decide), (1, self._large),
        ]  # fmt: skip
        self.run("SET SESSION binlog_rows_query_log_events = OFF")
        for database in self.databases:
            self.run(f"CREATE DATABASE `{database}`", f"CREATE TABLE `{database}`.x {_TABLE}")
            self._create(database)
        one, two = self.databases[:2]
        self.run(
            f"CREATE TABLE `{one}`.source (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(300))",
            f"CREATE TABLE `{two}`.target (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(300))",
            f"USE `{one}`",
            "CREATE TRIGGER copied AFTER INSERT ON source FOR EACH ROW"
            f" INSERT INTO `{two}`.target (v) VALUES (NEW.v)",
        )

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.log.append(statement)
            try:
                self._cursor.execute(statement)
                self._cursor.fetchall()
            except pymysql.Error as error:
                raise AssertionError(f"{statement:.300}: {error}") from error

    def step(self) -> None:
        weights, steps = zip(*self._steps, strict=True)
        self.rng.choices(steps, weights)[0]()

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def finish(self) -> None:
        """Commit or roll back the prepared transactions, and restore global settings."""
        while self._xids:
            self._xa_decide()
        self.run("SET GLOBAL binlog_checksum = CRC32")
        self._connection.close()

    def drop(self) -> None:
        self.server.execute(*(f"DROP DATABASE IF EXISTS `{name}`" for name in self.databases))

    # -- statements and transactions ------------------------------------------------------------------------------

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _table(self) -> Table:
        return self.rng.choice(self.tables)

    def _value(self) -> str:
        rng = self.rng
        return rng.choice(
            [
                "NULL",
                f"'text {rng.randrange(10**6)} é 🐬'",
                f"REPEAT('{rng.choice('xyz')}', {rng.choice((1, 20, 290))})",
                "'### INSERT INTO `j`.`t`\\n# at 4\\nBEGIN'",
                f"'{rng.randrange(10**9)}'",
            ]
        )

    def _values(self) -> str:
        rng = self.rng
        return (
            f"({self._value()}, {rng.choice(('NULL', rng.randrange(-(2**63), 2**63)))},"
            f" {rng.randrange(-(10**9), 10**9) / 1000}, {rng.random() * 10 ** rng.randrange(-5, 9)!r},"
            f' \'{{"k": [{rng.randrange(100)}, null, "s"], "o": {{"a": {rng.random()!r}}}}}\','
            f" X'{rng.randbytes(rng.choice((0, 3, 500))).hex()}', '{rng.choice('abc')}',"
            f" '2026-11-2{rng.randrange(10)} 01:02:03.{rng.randrange(10**6):06}')"
        )

    def _inserting(self, table: Table | str, rows: int) -> str:
        values = ", ".join(self._values() for _ in range(rows))
        return f"INSERT INTO {table} (v, n, d, f, j, b, e, at) VALUES {values}"

    def _insert(self) -> None:
        self.run(self._inserting(self._table(), self.rng.choice((1, 1, 1, 3, 20))))

    def _updating(self) -> str:
        rng = self.rng
        change = rng.choice(
            (
                f"v = {self._value()}",
                "n = n DIV 2, d = d + 1",
                "j = JSON_SET(j, '$.k[0]', id)",
                "b = NULL",
            )
        )
        return f"UPDATE {self._table()} SET {change} WHERE id % {rng.randint(1, 4)} = 0"

    def _update(self) -> None:
        self.run(self._updating())

    def _delete(self) -> None:
        self.run(f"DELETE FROM {self._table()} WHERE id % {self.rng.randint(2, 5)} = 1")

    def _statement(self) -> str:
        rng = self.rng
        if rng.random() < 0.5:
            return self._inserting(self._table(), rng.randint(1, 4))
        return self._updating()

    def _transaction(self) -> None:
        self.run("BEGIN")
        for n in range(self.rng.randint(1, 6)):
            choice = self.rng.random()
            if choice < 0.2:
                self.run(f"SAVEPOINT s{n}", self._statement(), f"ROLLBACK TO SAVEPOINT s{n}")
            elif choice < 0.3:
                self.run(f"SAVEPOINT s{n}", self._statement(), f"RELEASE SAVEPOINT s{n}")
            else:
                self.run(self._statement())
        self.run("COMMIT")

    def _rolled_back(self) -> None:
        self.run("BEGIN", self._statement(), self._statement(), "ROLLBACK")

    def _two_databases(self) -> None:
        one, two = self._table(), self._table()
        if str(one) == str(two):
            return
        self.run(
            f"UPDATE {one} p, {two} q SET p.v = 'both', q.v = {self._value()} WHERE p.id = q.id"
        )

    def _by_trigger(self) -> None:
        self.run(f"INSERT INTO `{self.databases[0]}`.source (v) VALUES ({self._value()}), ('2')")

    def _empty(self) -> None:
        uuid = self.rng.choice(OTHERS)
        self._others[uuid] += self.rng.choice((1, 1, 3, 1000))
        self._as(f"{uuid}:{self._others[uuid]}", "BEGIN", "COMMIT")

    def _other_uuid(self) -> None:
        uuid = self.rng.choice(OTHERS)
        self._others[uuid] += self.rng.choice((1, 1, 2, 7))
        tag = self.rng.choice(("", "", ":night", ":t2"))
        self._as(f"{uuid}{tag}:{self._others[uuid]}", "BEGIN", self._statement(), "COMMIT")

    def _own_uuid_ahead(self) -> None:
        """Leave a GTID gap that later transactions fill, so that GTIDs are out of order in the log."""
        executed = GtidSet.parse(str(self.server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))
        newest = max((end for _, end in executed.sources().get(self.uuid, ())), default=0)
        gtid = f"{self.uuid}:{newest + self.rng.randint(2, 12)}"
        self._as(gtid, "BEGIN", self._statement(), "COMMIT")

    def _tagged(self) -> None:
        self._as(f"AUTOMATIC:tag{self.rng.randrange(2)}", self._statement())

    def _as(self, gtid: str, *statements: str) -> None:
        self.run(f"SET gtid_next = '{gtid}'", *statements, "SET gtid_next = 'AUTOMATIC'")

    def _compressed(self) -> None:
        self._with("binlog_transaction_compression = ON", "binlog_transaction_compression = OFF")

    def _images(self) -> None:
        image = self.rng.choice(("MINIMAL", "NOBLOB"))
        if self.rng.random() < 0.5:
            self._with(f"binlog_row_image = {image}", "binlog_row_image = FULL")
        else:
            options = "binlog_row_value_options"
            self._with(f"{options} = PARTIAL_JSON", f"{options} = ''")

    def _with_text(self) -> None:
        name = "binlog_rows_query_log_events"
        self._with(f"{name} = ON", f"{name} = OFF")

    def _with(self, on: str, off: str) -> None:
        self.run(f"SET SESSION {on}")
        self.rng.choice(
            (self._transaction, self._two_databases, self._update, self._insert, self._by_trigger)
        )()
        self.run(f"SET SESSION {off}")

    def _alter(self) -> None:
        table = self._table()
        if table.added and self.rng.random() < 0.4:
            column = table.added.pop(self.rng.randrange(len(table.added)))
            self.run(f"ALTER TABLE {table} DROP COLUMN {column}")
            return
        column = f"c{self._number()}"
        table.added.append(column)
        place = self.rng.choice(("", " FIRST", " AFTER v"))
        kind = self.rng.choice(
            ("INT DEFAULT 7", "VARCHAR(20) CHARACTER SET latin1", "TIMESTAMP(3) NULL")
        )
        self.run(f"/* a comment */ ALTER TABLE {table} ADD COLUMN {column} {kind}{place}")

    def _create(self, database: str = "") -> None:
        table = Table(database or self.rng.choice(self.databases), f"t{self._number()}")
        self.run(f"CREATE TABLE {table} {_TABLE}")
        self.tables.append(table)

    def _drop(self) -> None:
        if len(self.tables) < 4:
            return
        dropped = [
            self.tables.pop(self.rng.randrange(len(self.tables)))
            for _ in range(self.rng.randint(1, 2))
        ]
        self.run(f"DROP TABLE {', '.join(map(str, dropped))}")

    def _rename(self) -> None:
        table = self._table()
        old = str(table)
        table.database, table.name = self.rng.choice(self.databases), f"t{self._number()}"
        self.run(f"RENAME TABLE {old} TO {table}")

    def _truncate(self) -> None:
        self.run(f"TRUNCATE TABLE {self._table()}")

    def _create_select(self) -> None:
        table = self._table()
        self.run(
            f"CREATE TABLE `{table.database}`.s{self._number()} AS SELECT id, v, n FROM {table}"
        )

    def _default_database(self) -> None:
        """The default database is that of the table, or another one."""
        table = self._table()
        if self.rng.random() < 0.5:
            self.run(f"USE `{self.rng.choice(self.databases)}`", f"ALTER TABLE {table} COMMENT 'x'")
        else:
            index = f"i{self._number()}"
            self.run(f"USE `{table.database}`", f"CREATE INDEX {index} ON `{table.name}` (n)")

    def _rotate(self) -> None:
        self.run("FLUSH BINARY LOGS")

    def _checksum(self) -> None:
        self.run(f"SET GLOBAL binlog_checksum = {self.rng.choice(('NONE', 'CRC32'))}")

    def _large(self) -> None:
        rows = ", ".join(f"(REPEAT('{self.rng.choice('lmn')}', 300))" for _ in range(800))
        self.run(f"INSERT INTO {self._table()} (v) VALUES {rows}")

    # -- XA -------------------------------------------------------------------------------------------------------

    def _xa(self) -> None:
        xid = f"'x{self.number}_{self._number()}{self.rng.choice(('', chr(34)))}', 'branch', {self.rng.randrange(9)}"
        tables = [f"`{name}`.x" for name in self.rng.sample(self.databases, self.rng.randint(1, 2))]
        self.run(f"XA START {xid}", *(self._inserting(t, self.rng.randint(1, 5)) for t in tables))
        self.run(f"XA END {xid}")
        if self.rng.random() < 0.2:
            self.run(f"XA COMMIT {xid} ONE PHASE")
            return
        if self.rng.random() < 0.2:
            self.run(f"XA ROLLBACK {xid}")
            return
        self.run(f"XA PREPARE {xid}")
        self._xids.append(xid)

    def _xa_decide(self) -> None:
        if self._xids:
            xid = self._xids.pop(self.rng.randrange(len(self._xids)))
            self.run(f"XA {self.rng.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} {xid}")

    def abandon(self) -> None:
        """End the connection and the prepared transactions after the history has failed."""
        with suppress(pymysql.Error, OSError):
            self._connection.close()
        for xid in self._xids:
            with suppress(pymysql.Error, OSError):
                self.server.execute(f"XA ROLLBACK {xid}")
