"""Logs written by a real server, in two shapes.

`bulk`: few large transactions, where the time depends on bytes. `small`: one-row transactions, where it depends on the
number of events.
"""

from __future__ import annotations

from dataclasses import dataclass

from pymysql.cursors import Cursor

from dispatcher.model.gtid import GtidSet
from tests.servers import Instance

DATABASES = ("bench_a", "bench_b")
_TABLE = """CREATE TABLE {}.t (
    id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, name VARCHAR(60), price DECIMAL(12,2),
    weight DOUBLE, created DATETIME(3), changed TIMESTAMP(6) NULL, token BINARY(16), state ENUM('new','paid','sent'),
    note VARCHAR(200))"""
_COLUMNS = "customer, name, price, weight, created, changed, token, state, note"
_ROW = (
    "({0}, 'customer number {0}', {0}.25, {0} / 7, '2026-01-02 03:04:05.678', '2026-01-02 03:04:05.678901',"
    " UNHEX(LPAD(HEX({0}), 32, '5')), ELT({0} % 3 + 1, 'new', 'paid', 'sent'), IF({0} % 4, REPEAT('n', {0} % 50),"
    " NULL))"
)


@dataclass(frozen=True, slots=True)
class GeneratedLog:
    """The files of a server's log from `gtid_before` on; sizes in bytes."""

    name: str
    gtid_before: str
    seq_before: int  # number of transactions in that set
    file: str
    bytes: int
    rows: int


def _executed(cursor: Cursor) -> str:
    cursor.execute("SELECT @@GLOBAL.gtid_executed")
    row = cursor.fetchone()
    return str(row[0]).replace("\n", "") if row else ""


def prepare(server: Instance) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for database in DATABASES:
            cursor.execute(f"CREATE DATABASE {database}")
            cursor.execute(_TABLE.format(database))
        connection.commit()


def generate_bulk(server: Instance, rows: int) -> GeneratedLog:
    """Writes `rows` rows in statements of 1000, in each database in turn."""
    with server.connect() as connection, connection.cursor() as cursor:
        before, file = _begin(cursor)
        for start in range(0, rows, 1000):
            database = DATABASES[start // 1000 % len(DATABASES)]
            values = ",".join(_ROW.format(n) for n in range(start, start + 1000))
            cursor.execute(f"INSERT INTO {database}.t ({_COLUMNS}) VALUES {values}")
            connection.commit()
        return _end(cursor, "bulk", before, file, rows)


def generate_small(server: Instance, transactions: int) -> GeneratedLog:
    """Writes one-row transactions, in each database in turn."""
    with server.connect() as connection, connection.cursor() as cursor:
        before, file = _begin(cursor)
        connection.autocommit(True)
        for n in range(transactions):
            database = DATABASES[n % len(DATABASES)]
            cursor.execute(f"INSERT INTO {database}.t ({_COLUMNS}) VALUES {_ROW.format(n)}")
        return _end(cursor, "small", before, file, transactions)


def _begin(cursor: Cursor) -> tuple[str, str]:
    cursor.execute("FLUSH BINARY LOGS")
    cursor.execute("SHOW BINARY LOGS")
    file = str(cursor.fetchall()[-1][0])
    return _executed(cursor), file


def _end(cursor: Cursor, name: str, before: str, file: str, rows: int) -> GeneratedLog:
    cursor.execute("FLUSH BINARY LOGS")
    cursor.execute("SHOW BINARY LOGS")
    sizes = {str(row[0]): int(row[1]) for row in cursor.fetchall()}
    # One file each: the servers' default max_binlog_size is 1 GiB.
    return GeneratedLog(name, before, len(GtidSet.parse(before)), file, sizes[file], rows)
