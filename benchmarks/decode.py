"""Decoding to Arrow ÷ python-mysql-replication, in rows per second over the same log of a real server.

Both start from their usual input: ours from delivered bytes in memory, in the batches of an executor; theirs from its
connection, which takes about 1 % of its time. Runs alternate, medians are compared, and the decoded values are first
compared with those of SELECT.

`python -m benchmarks.decode [ROWS]`
"""

from __future__ import annotations

import hashlib
import statistics
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

from benchmarks.logs import DATABASES, GeneratedLog, generate_bulk, prepare
from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableChanges
from tests.servers import Instance, start_server
from tests.support.server_log import with_records

_SERVER_ID = 0xB0000002
_OURS_PER_THEIRS = 3  # ours takes a hundredth of the time, so its median is taken over more runs


@dataclass(frozen=True, slots=True)
class Result:
    """Rows per second of both, medians of the alternating runs. `checksum`: of all values, equal to that of SELECT."""

    rows: int
    ours: float
    theirs: float
    checksum: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def run(server: Instance, log: GeneratedLog, *, rounds: int = 3) -> Result:
    """Raises AssertionError if a reader misses rows, or if a decoded value differs from that of SELECT."""
    data = with_records((server.datadir / log.file).read_bytes(), log.file)
    batches = _decode(data)  # also loads the kernels
    checksum, selected = _checksum(_values(batches)), _checksum(_selected(server, batches))
    if checksum != selected:
        raise AssertionError(f"decoded values have checksum {checksum}, SELECT's {selected}")
    ours, theirs = [], []
    for _ in range(rounds):
        for _ in range(_OURS_PER_THEIRS):
            started = time.perf_counter()
            rows = sum(batch.num_rows for batch in _decode(data))
            ours.append(rows / (time.perf_counter() - started))
            _expect(rows, log)
        started = time.perf_counter()
        rows = _read_with_mysql_replication(server, log)
        theirs.append(rows / (time.perf_counter() - started))
        _expect(rows, log)
    return Result(log.rows, statistics.median(ours), statistics.median(theirs), checksum)


def _decode(data: bytes) -> list[pa.RecordBatch]:
    return [part.batch for part in delivered.changes(data) if isinstance(part, TableChanges)]


def _read_with_mysql_replication(server: Instance, log: GeneratedLog) -> int:
    stream = BinLogStreamReader(
        connection_settings={
            "unix_socket": str(server.socket),
            "host": server.host,
            "port": server.port,
            "user": server.root_user,
            "passwd": server.root_password,
        },
        server_id=_SERVER_ID,
        log_file=log.file,
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent],
    )
    try:
        rows = 0
        for event in stream:
            for _ in event.rows:
                rows += 1
            if rows >= log.rows:
                break
        return rows
    finally:
        stream.close()


def _expect(rows: int, log: GeneratedLog) -> None:
    if rows != log.rows:
        raise AssertionError(f"{rows} rows read of {log.rows} in {log.file}")


Values = Iterable[tuple[str, tuple[Any, ...]]]


def _values(batches: Iterable[pa.RecordBatch]) -> Values:
    for batch in batches:
        images = [row.values() for row in batch.column("after").to_pylist()]
        yield from zip(batch.column("database").to_pylist(), map(tuple, images), strict=True)


def _selected(server: Instance, batches: Iterable[pa.RecordBatch]) -> Values:
    """Selects the same rows: those between the least and the greatest id of the log."""
    ids: dict[str, list[int]] = {database: [] for database in DATABASES}
    for batch in batches:
        keys = batch.column("after").field("id").to_pylist()
        ids[batch.column("database")[0].as_py()] += (int(key) for key in keys)
    for database, of_database in ids.items():
        low, high = min(of_database), max(of_database)
        where = f"WHERE id BETWEEN {low} AND {high}"
        rows = server.execute(
            "SET time_zone = '+00:00'", f"SELECT * FROM {database}.t {where} ORDER BY id"
        )
        yield from ((database, row) for row in rows)


def _checksum(values: Values) -> str:
    digest = hashlib.sha256()
    for database, row in sorted(values, key=lambda entry: (entry[0], int(entry[1][0]))):
        digest.update(f"{database}{tuple(map(_plain, row))}\n".encode())
    return digest.hexdigest()[:16]


def _plain(value: Any) -> str:
    # PyMySQL's TIMESTAMP has no zone, and its BIGINT UNSIGNED is an int where ours is a Decimal; the texts are equal.
    if hasattr(value, "tzinfo"):
        value = value.replace(tzinfo=None)
    return str(value)


def main(rows: int) -> None:
    with start_server("mysql97") as server:
        prepare(server)
        log = generate_bulk(server, rows)
        result = run(server, log)
    print(f"{result.rows:,} rows, values equal SELECT's (checksum {result.checksum})")
    print(f"decoding to Arrow        {result.ours:12,.0f} rows/s")
    print(f"python-mysql-replication {result.theirs:12,.0f} rows/s")
    print(f"ratio                    {result.ratio:12,.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
