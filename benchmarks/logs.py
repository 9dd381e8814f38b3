"""Logs that a real server writes, in five shapes; each log is one file.

* bulk: statements of 1000 rows; a reader's time depends on the number of bytes
* OLTP: transactions of one row; a reader's time depends on the number of events
* mixed64: transactions of one row, spread over 64 databases
* wide: rows of 200 columns, in statements of 100 rows
* blobs: rows of 1 MB, one in a transaction

The rows come from the server itself (INSERT … SELECT, or a procedure that loops), so that writing a log takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pymysql.cursors import Cursor

from benchmarks.figures import LogFacts
from dispatcher.model.gtid import GtidSet
from tests.servers import Instance, start_server

USER, PASSWORD = "bench", "bench"
DATABASES = ("bench_a", "bench_b")
MIXED_DATABASES = tuple(f"mixed_{number:02}" for number in range(64))
_SERVER_OPTIONS = (
    "--innodb-buffer-pool-size=256M",
    "--max-connections=1200",
    "--binlog-cache-size=1M",
    "--net-write-timeout=600",  # the server does not end the dump of a daemon that is stopped for a while
)
_TABLE = """CREATE TABLE {}.t (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, name VARCHAR(60), price DECIMAL(12,2),
    weight DOUBLE, created DATETIME(3), changed TIMESTAMP(6) NULL, token BINARY(16), state ENUM('new','paid','sent'),
    note VARCHAR(200))"""
_COLUMNS = "customer, name, price, weight, created, changed, token, state, note"
# Values of columns, as expressions in the row's number.
_ROW = (
    "{0}, CONCAT('customer number ', {0}), {0} + 0.25, {0} / 7, '2026-01-02 03:04:05.678',"
    " '2026-01-02 03:04:05.678901', UNHEX(LPAD(HEX({0}), 32, '5')), ELT({0} % 3 + 1, 'new', 'paid', 'sent'),"
    " IF({0} % 4, REPEAT('n', {0} % 50), NULL)"
)
_BULK_ROWS, _WIDE_ROWS = 1000, 100  # in a statement
# Types and values of the columns of `wide`, which repeat.
_WIDE_TYPES = (
    ("INT", "n.n * {0}"),
    ("VARCHAR(20)", "CONCAT('v', n.n % {0} + 10)"),
    ("BIGINT", "n.n * 1000003 + {0}"),
    ("DECIMAL(10,2)", "n.n % 997 + 0.{0}"),
    ("DATETIME", "'2026-01-01' + INTERVAL n.n + {0} SECOND"),
    ("DOUBLE", "n.n * {0}.5e0"),
    ("SMALLINT", "IF(n.n % 3, n.n % {0}, NULL)"),
    ("CHAR(8)", "LPAD(n.n % 1000, 8, '0')"),
)
_WIDE_COLUMNS = 199  # besides the key


@dataclass(frozen=True, slots=True)
class GeneratedLog:
    """One file of a server's log. `gtid_before`: the executed set at its beginning."""

    name: str
    databases: tuple[str, ...]
    gtid_before: str
    seq_before: int  # number of transactions in that set
    file: str
    bytes: int
    rows: int
    transactions: int

    @property
    def seq_after(self) -> int:
        return self.seq_before + self.transactions


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of log. `prepare` makes the tables; `write` writes a number of rows. The log contains no other rows."""

    name: str
    what: str
    databases: tuple[str, ...]
    prepare: Callable[[Cursor], None]
    write: Callable[[Cursor, int], None]
    full_rows: int
    quick_rows: int

    def rows(self, *, full: bool) -> int:
        return self.full_rows if full else self.quick_rows


def _prepare_numbers(cursor: Cursor) -> None:
    cursor.execute("CREATE DATABASE bench_numbers")
    cursor.execute("CREATE TABLE bench_numbers.n (n INT PRIMARY KEY)")
    values = ",".join(f"({number})" for number in range(_BULK_ROWS))
    cursor.execute(f"INSERT INTO bench_numbers.n VALUES {values}")


def _prepare_tables(cursor: Cursor, databases: tuple[str, ...], table: str = _TABLE) -> None:
    for database in databases:
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(table.format(database))


def _write_bulk(cursor: Cursor, rows: int) -> None:
    for start in range(0, rows, _BULK_ROWS):
        database = DATABASES[start // _BULK_ROWS % len(DATABASES)]
        count = min(_BULK_ROWS, rows - start)
        cursor.execute(
            f"INSERT INTO {database}.t ({_COLUMNS}) SELECT {_ROW.format(f'({start} + n.n)')}"
            f" FROM bench_numbers.n AS n WHERE n.n < {count} ORDER BY n.n"
        )


def prepare_one_by_one(databases: tuple[str, ...]) -> Callable[[Cursor], None]:
    """Returns a function that makes a table in each database, and in the first one a procedure for
    `write_one_by_one`."""

    def prepare(cursor: Cursor) -> None:
        _prepare_tables(cursor, databases)
        inserts = "".join(
            f" INSERT INTO {database}.t ({_COLUMNS}) VALUES ({_ROW.format('i')}); SET i = i + 1;"
            for database in databases
        )
        cursor.execute(
            f"CREATE PROCEDURE {databases[0]}.write_rows(count INT) BEGIN DECLARE i INT DEFAULT 0;"
            f" WHILE i < count DO {inserts} END WHILE; END"
        )

    return prepare


def write_one_by_one(database: str) -> Callable[[Cursor, int], None]:
    def write(cursor: Cursor, rows: int) -> None:
        cursor.execute(f"CALL {database}.write_rows({rows})")

    return write


def _prepare_wide(cursor: Cursor) -> None:
    columns = ", ".join(
        f"c{number} {_WIDE_TYPES[number % len(_WIDE_TYPES)][0]}" for number in range(_WIDE_COLUMNS)
    )
    _prepare_tables(cursor, DATABASES[:1], f"CREATE TABLE {{}}.t (id INT PRIMARY KEY, {columns})")


def _write_wide(cursor: Cursor, rows: int) -> None:
    values = ", ".join(
        _WIDE_TYPES[number % len(_WIDE_TYPES)][1].format(number + 1)
        for number in range(_WIDE_COLUMNS)
    )
    for start in range(0, rows, _WIDE_ROWS):
        cursor.execute(
            f"INSERT INTO {DATABASES[0]}.t SELECT {start} + n.n, {values} FROM bench_numbers.n AS n"
            f" WHERE n.n < {min(_WIDE_ROWS, rows - start)} ORDER BY n.n"
        )


def _prepare_blobs(cursor: Cursor) -> None:
    table = "CREATE TABLE {}.t (id INT PRIMARY KEY, content LONGBLOB)"
    _prepare_tables(cursor, DATABASES[:1], table)


def _write_blobs(cursor: Cursor, rows: int) -> None:
    for number in range(rows):
        cursor.execute(
            f"INSERT INTO {DATABASES[0]}.t VALUES ({number}, REPEAT(UNHEX(SHA2({number}, 256)), 31250))"
        )


def _prepare_bulk(cursor: Cursor) -> None:
    _prepare_tables(cursor, DATABASES)


BULK = Shape(
    "bulk", "1000-row statements", DATABASES, _prepare_bulk, _write_bulk, 1_000_000, 200_000
)
OLTP = Shape(
    "OLTP",
    "one-row transactions",
    DATABASES,
    prepare_one_by_one(DATABASES),
    write_one_by_one(DATABASES[0]),
    200_000,
    40_000,
)
MIXED64 = Shape(
    "mixed64",
    "one-row transactions over 64 databases",
    MIXED_DATABASES,
    prepare_one_by_one(MIXED_DATABASES),
    write_one_by_one(MIXED_DATABASES[0]),
    200_000,
    40_000,
)
WIDE = Shape("wide", "200 columns", DATABASES[:1], _prepare_wide, _write_wide, 70_000, 14_000)
BLOBS = Shape("blobs", "rows of 1 MB", DATABASES[:1], _prepare_blobs, _write_blobs, 100, 24)
SHAPES = (BULK, OLTP, MIXED64, WIDE, BLOBS)


@contextmanager
def server_with(shape: Shape, rows: int, *options: str) -> Iterator[tuple[Instance, GeneratedLog]]:
    """Start a server that has one log of this shape, and an account that may replicate."""
    with start_server("mysql97", *_SERVER_OPTIONS, *options) as server:
        server.add_user(USER, PASSWORD)
        with server.connect() as connection, connection.cursor() as cursor:
            _prepare_numbers(cursor)
            shape.prepare(cursor)
        yield server, generate(server, shape, rows)


def generate(server: Instance, shape: Shape, rows: int) -> GeneratedLog:
    """Write a log of this shape on a server that has its tables."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        file = str(cursor.fetchall()[-1][0])
        before = _executed(cursor)
        shape.write(cursor, rows)
        after = _executed(cursor)
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        sizes = {str(row[0]): int(row[1]) for row in cursor.fetchall()}
    seq_before, seq_after = len(GtidSet.parse(before)), len(GtidSet.parse(after))
    # Each log is one file, because the servers' default max_binlog_size is 1 GiB.
    return GeneratedLog(
        shape.name, shape.databases, before, seq_before, file, sizes[file], rows,
        seq_after - seq_before,
    )  # fmt: skip


def facts(shape: Shape, log: GeneratedLog) -> LogFacts:
    return LogFacts(shape.name, shape.what, log.bytes, log.rows, log.transactions)


def transactions_of(server: Instance) -> int:
    """Returns the number of transactions that the server has executed, which is the seq of the end of its log."""
    with server.connect() as connection, connection.cursor() as cursor:
        return executed_transactions(cursor)


def executed_transactions(cursor: Cursor) -> int:
    return len(GtidSet.parse(_executed(cursor)))


def _executed(cursor: Cursor) -> str:
    cursor.execute("SELECT @@GLOBAL.gtid_executed")
    row = cursor.fetchone()
    return str(row[0]).replace("\n", "") if row else ""


def prepare(server: Instance) -> None:
    """Make the tables of `bulk` on a server."""
    with server.connect() as connection, connection.cursor() as cursor:
        _prepare_numbers(cursor)
        BULK.prepare(cursor)


def generate_bulk(server: Instance, rows: int) -> GeneratedLog:
    return generate(server, BULK, rows)
