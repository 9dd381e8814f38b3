"""Writes the transactions of the tests: in two databases of one server, of which a consumer reads one.

A history knows which rows a client must read, in the log's order, because each statement names its rows by key. A
history consists of parts. So if a client's library looks up the present columns of a table, the client can read a part
before the next `ALTER`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from tests.front.clients.readings import MARKS, Key, Start, Until
from tests.servers import Server

_COLUMNS = (
    "id INT UNSIGNED NOT NULL PRIMARY KEY, big BIGINT, tiny TINYINT, small SMALLINT UNSIGNED, price DECIMAL(20,6),"
    " ratio DOUBLE, single FLOAT, name VARCHAR(80) CHARACTER SET utf8mb4, code CHAR(10) CHARACTER SET latin1,"
    " note TEXT, data BLOB, raw VARBINARY(20), state ENUM('new','paid','sent'), tags SET('a','b','c'), day DATE,"
    " at DATETIME(6), seen TIMESTAMP(3) NULL, clock TIME(2), birth YEAR, bits BIT(10), doc {json}"
)
_NOTES = ("plain", "it''s \"quoted\"", "äöü 漢字 🙂", "line\\nline", "", "x" * 300)
# The largest packet has 16 MiB - 1 bytes, so an event of this size needs two packets.
_ONE_ROW = (16 << 20) + 12_345
_MANY_ROWS, _ROW_BYTES = 280, 64 << 10
RENAMED = "made"
TABLES = (MARKS, "typed", "orders", "altered", "large", RENAMED)
SERVER_OPTIONS = ("--max-allowed-packet=64M", "--log-output=TABLE")


@dataclass
class History:
    """`mine`: the consumer's database; `others`: the other database; `expected`: the keys of all rows of both
    databases."""

    server: Server
    mine: str
    others: str
    seed: int = 1
    expected: list[Key] = field(default_factory=list)
    _live: dict[str, set[int]] = field(default_factory=dict)
    _next: int = 1
    _mark: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def here(self, *, gtids: bool = False) -> Start:
        """Returns the end of the server's log."""
        file, offset = self.server.binlog_position()
        return Start(file, offset, self._gtids() if gtids else None)

    def _gtids(self) -> str:
        asked = "@@gtid_binlog_pos" if self.server.mariadb else "@@gtid_executed"
        return str(self.server.execute(f"SELECT {asked}")[0][0]).replace("\n", "")

    def keys_of(self, *databases: str) -> list[Key]:
        return [key for key in self.expected if key[0] in databases]

    @property
    def expected_of_present_tables(self) -> list[Key]:
        """Returns the keys that a client reads if it asks the server for the columns of each table. Rows of dropped
        tables are not included."""
        return [key for key in self.expected if key[1] != RENAMED]

    def create(self) -> None:
        """Make databases and tables."""
        json = "LONGTEXT" if self.server.mariadb else "JSON"
        for database in (self.mine, self.others):
            self.server.execute(
                f"CREATE DATABASE IF NOT EXISTS {database}",
                f"USE {database}",
                f"CREATE TABLE {MARKS} (id INT PRIMARY KEY)",
                f"CREATE TABLE typed ({_COLUMNS.format(json=json)})",
                "CREATE TABLE orders (id INT PRIMARY KEY, name VARCHAR(100), n INT)",
                "CREATE TABLE altered (id INT PRIMARY KEY, name VARCHAR(100))",
                "CREATE TABLE large (id INT PRIMARY KEY, body LONGBLOB)",
            )

    def write(self, transactions: int) -> None:
        """Execute transactions of inserts, updates and deletes in one database, in the other database, and in both."""
        with self._transactions() as run:
            for _ in range(transactions):
                databases = self._chance.choice(
                    [(self.mine,), (self.others,), (self.others,), (self.mine, self.others)]
                )
                run("BEGIN")
                for _ in range(self._chance.randint(1, 4)):
                    run(self._statement(self._chance.choice(databases)))
                run("COMMIT")

    def large(self) -> None:
        """Execute in both databases a transaction with one row of more than 16 MiB, and a transaction with many
        rows."""
        with self._transactions() as run:
            for database in (self.others, self.mine):
                one, *many = self._new(f"{database}.large", 1 + _MANY_ROWS)
                run("BEGIN")
                run(
                    f"INSERT INTO {database}.large VALUES ({one}, REPEAT('one row ', {_ONE_ROW // 8}))"
                )
                run("COMMIT")
                run("BEGIN")
                for first in range(0, _MANY_ROWS, 70):
                    values = ", ".join(
                        f"({key}, REPEAT('{key % 10}', {_ROW_BYTES}))"
                        for key in many[first : first + 70]
                    )
                    run(f"INSERT INTO {database}.large VALUES {values}")
                run("COMMIT")
                self._expect(database, "large", "insert", [one, *many])

    def rotate(self) -> None:
        self.server.execute("FLUSH BINARY LOGS")

    def alter(self) -> None:
        """Alter, create, rename and drop tables of both databases, with rows before and after."""
        for database in (self.mine, self.others):
            before, after, other = self._new(f"{database}.altered", 3)
            self.server.execute(
                f"USE {database}",
                f"INSERT INTO altered VALUES ({before}, 'before')",
                "ALTER TABLE altered ADD COLUMN more INT DEFAULT 7",
                f"INSERT INTO altered VALUES ({after}, 'after', 8)",
                f"CREATE TABLE {RENAMED} (id INT PRIMARY KEY, name VARCHAR(10))",
                f"INSERT INTO {RENAMED} VALUES ({other}, 'made')",
                f"RENAME TABLE {RENAMED} TO renamed",
                "CREATE TABLE short_lived (id INT PRIMARY KEY)",
                "DROP TABLE short_lived",
            )
            self._expect(database, "altered", "insert", [before, after])
            self._expect(database, RENAMED, "insert", [other])

    def mark(self) -> Until:
        """Insert a row at which a reading ends. Returns this end."""
        self._mark += 1
        self.server.execute(f"INSERT INTO {self.mine}.{MARKS} VALUES ({self._mark})")
        self._expect(self.mine, MARKS, "insert", [self._mark])
        return Until(self.mine, self._mark)

    @contextmanager
    def _transactions(self) -> Iterator[Callable[[str], None]]:
        with closing(self.server.connect(autocommit=False)) as connection:
            cursor = connection.cursor()

            def run(statement: str) -> None:
                cursor.execute(statement)

            yield run
            connection.commit()

    def _expect(self, database: str, table: str, op: str, keys: list[int]) -> None:
        self.expected += [(database, table, op, key) for key in keys]

    def _new(self, table: str, count: int) -> list[int]:
        keys = list(range(self._next, self._next + count))
        self._next += count
        self._live.setdefault(table, set()).update(keys)
        return keys

    def _statement(self, database: str) -> str:
        table = self._chance.choice(["typed", "orders"])
        live = self._live.setdefault(f"{database}.{table}", set())
        op = self._chance.choice(["insert", "insert", "update", "delete"]) if live else "insert"
        if op == "insert":
            keys = self._new(f"{database}.{table}", self._chance.randint(1, 5))
            self._expect(database, table, op, keys)
            values = ", ".join(self._values(table, key) for key in keys)
            return f"INSERT INTO {database}.{table} VALUES {values}"
        keys = sorted(self._chance.sample(sorted(live), min(len(live), self._chance.randint(1, 4))))
        self._expect(database, table, op, keys)
        where = f"WHERE id IN ({', '.join(map(str, keys))})"
        if op == "delete":
            live.difference_update(keys)
            return f"DELETE FROM {database}.{table} {where}"
        self._next += 1  # a value that no row has had, so that the UPDATE changes each row
        column = "big" if table == "typed" else "n"
        return f"UPDATE {database}.{table} SET {column} = {self._next}, name = 'updated {self._next}' {where}"

    def _values(self, table: str, key: int) -> str:
        pick = self._chance.choice
        note = pick(_NOTES)
        if table == "orders":
            return f"({key}, '{note[:80]}', {pick(['NULL', '0', '-5', '2147483647'])})"
        if pick([False, False, True]):
            return f"({key}{', NULL' * 20})"
        document = '{"a": [1, 2.5, null, "x"], "b": {"c": "ä"}}'
        return (
            f"({key}, {pick([-(2**63), 0, 2**63 - 1])}, {pick([-128, 127])}, {pick([0, 65535])},"
            f" {pick(['-12345678901234.567890', '0.000001'])}, {pick(['1e300', '-0.1'])}, {pick(['0.5', '-3.25'])},"
            f" '{note[:80]}', 'caf\u00e9', '{note}', x'00ff10{key % 256:02x}', x'{key % 256:02x}00', 'paid', 'a,c',"
            " '2024-02-29', '2026-01-02 03:04:05.678901', '2026-03-04 05:06:07.125', '-12:34:56.78', 2026,"
            f" b'1000000001', '{document}')"
        )
