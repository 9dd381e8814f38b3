"""Marker rows show when a transaction has arrived somewhere.

Each transaction of a load has a number, its marker, in the column `note` of one of its rows. No later statement changes
this row's note. So a reader has the transaction when it has the bytes of the marker (`benchmarks.marker_readers`); for
a mirror, see `benchmarks.arrivals`.

`python -m benchmarks.markers PORT USER PASSWORD DATABASE` writes a load; see `main`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field

import pymysql
from pymysql.cursors import Cursor

from benchmarks.processes import CommandFailed
from tests.servers import Instance

ROWS_IN_TRANSACTION = 100
COLUMNS = (
    "id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, name VARCHAR(60), price DECIMAL(12,2), weight DOUBLE,"
    " created DATETIME(3), changed TIMESTAMP(6) NULL, quantity INT UNSIGNED, state ENUM('new','paid','sent'),"
    " note VARCHAR(200)"
)
_VALUES = "7, 'customer', 12.25, 1.5, NOW(3), NOW(6), 3, 'paid'"
_NOTE = "a note of some length for this row"
_MARKER = re.compile(rb"marker (\d{8})")
_IDS_OF_TRANSACTION = 1000  # its most rows


def markers_in(data: bytes | memoryview) -> Iterator[int]:
    """Yields the markers in bytes of a binlog or of rows."""
    return (int(found[1]) for found in _MARKER.finditer(data))


@dataclass
class Writer:
    """Writes transactions in one session, whose autocommit is on. `number`: the marker of the newest transaction; `at`:
    when the server had committed each transaction since `begin`, by marker."""

    cursor: Cursor
    database: str
    number: int = 0
    at: dict[int, float] = field(default_factory=dict)

    def begin(self) -> Writer:
        self.at = {}
        return self

    def insert(self, table: str, rows: int) -> int:
        """Insert rows in one transaction. Returns the marker of the transaction, which the first row contains."""
        self.number += 1
        first = self.number * _IDS_OF_TRANSACTION
        notes = [_note(self.number), *[_NOTE] * (rows - 1)]
        values = ", ".join(f"({first + n}, {_VALUES}, '{note}')" for n, note in enumerate(notes))
        self._write(
            f"INSERT INTO {self.database}.{table} (id, customer, name, price, weight, created, changed, quantity,"
            f" state, note) VALUES {values}"
        )
        return self.number

    def update(self, table: str, inserted: int, rows: int) -> int:
        """Update rows of the transaction with the marker `inserted`. Returns the marker of the update. The second row
        gets this marker, so that the first row keeps the marker of the INSERT."""
        self.number += 1
        first = inserted * _IDS_OF_TRANSACTION
        self._write(
            f"UPDATE {self.database}.{table} SET quantity = quantity + 1,"
            f" note = IF(id = {first + 1}, '{_note(self.number)}', note)"
            f" WHERE id BETWEEN {first} AND {first + rows - 1}"
        )
        return self.number

    def _write(self, statement: str) -> None:
        self.cursor.execute(statement)
        self.at[self.number] = time.time()


def _note(marker: int) -> str:
    return f"marker {marker:08}"


@dataclass(frozen=True, slots=True)
class Load:
    """A load: `per_second` transactions of `rows` rows, for `seconds`. Half of the transactions insert rows into one of
    `tables` tables, the other half update these rows. The first one has the marker `after` + 1."""

    tables: int
    rows: int
    per_second: float
    seconds: float
    after: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a load has written: the last marker, and how long it took."""

    last: int
    transactions: int
    seconds: float


def table_name(number: int) -> str:
    return f"t{number:04}"


def write_load(cursor: Cursor, database: str, load: Load) -> Written:
    writer = Writer(cursor, database, load.after)
    inserted: dict[str, int] = {}
    began = time.monotonic()
    count = max(2, round(load.per_second * load.seconds))
    for number in range(count):
        if (pause_s := began + number / load.per_second - time.monotonic()) > 0:
            time.sleep(pause_s)
        table = table_name(number % load.tables)
        if number // load.tables % 2 == 0:
            inserted[table] = writer.insert(table, load.rows)
        else:
            writer.update(table, inserted[table], load.rows)
        if time.monotonic() > began + 1.5 * load.seconds:
            break  # the server is too slow for this rate
    return Written(writer.number, writer.number - load.after, time.monotonic() - began)


@contextmanager
def loading(
    server: Instance, user: str, password: str, database: str, load: Load
) -> Iterator[subprocess.Popen[str]]:
    """Write a load in a process of its own; `written` waits for its end."""
    command = [sys.executable, "-m", "benchmarks.markers", str(server.port), user, password]
    command += [database, json.dumps(asdict(load))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()  # does nothing if it has ended


def written(process: subprocess.Popen[str]) -> Written:
    """Wait until a load has been written."""
    printed, _ = process.communicate()
    if process.returncode != 0:
        raise CommandFailed(f"the writer ended with {process.returncode}")
    return Written(**json.loads(printed))


def main(port: str, user: str, password: str, database: str, load: str) -> None:
    """Write a load, and print as JSON what was written. `load`: the fields of `Load` as JSON."""
    connection = pymysql.connect(
        host="127.0.0.1", port=int(port), user=user, password=password, autocommit=True
    )
    with closing(connection), connection.cursor() as cursor:
        print(json.dumps(asdict(write_load(cursor, database, Load(**json.loads(load))))))


if __name__ == "__main__":
    main(*sys.argv[1:])
