"""Measures how fast rows are decoded to Arrow, compared with MySQL's tool and with the readers of other projects, on
one log.

This project's decoder reads delivered bytes from memory, as in one of Spark's executors. `mysqlbinlog` reads the file.
The readers of other projects read from a connection to the server, because they have no other input. CPU times are
compared, because they depend little on the load of other cores. For this project, the CPU time is that of decoding,
after a pass that loads the kernels. For `mysqlbinlog` it is the CPU time of the whole process, and for the other
readers the CPU time of the process from the first row on. Slow readers read only the first rows of the log;
`benchmarks.peers` says how many. Before the measurement, the decoded values are compared with the values that SELECT
returns.

`python -m benchmarks.decode FILE ROUNDS` decodes a file of a server's log ROUNDS times, and prints the CPU seconds as
JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa

from benchmarks import peers, tools
from benchmarks.figures import Run
from benchmarks.logs import BULK, OLTP, GeneratedLog
from benchmarks.processes import CommandFailed, run, run_module
from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.event.header import MAGIC
from tests.servers import Instance
from tests.support.server_log import with_records

PART = "decoding"
ARROW, TEXT, MARIADB_TEXT = "to Arrow", "mysqlbinlog -v", "mariadb-binlog -v"
INSPECT, EMPTY = "inspect", "inspect of an empty file"
_TEXT_TARGET, _PEER_TARGET, _INSPECT_TARGET = 10.0, 200.0, 1.0
_RATE = "rows per CPU second"
_COMPARED_BATCHES = 1
# This project's decoder takes a hundredth of the time of the other readers, so each process measures it several times.
_ROUNDS_OF_PROCESS = 3


def measure(run_: Run, server: Instance, log: GeneratedLog) -> None:
    """Measure on a log, if its shape is bulk or OLTP."""
    if log.name not in (BULK.name, OLTP.name):
        return
    file = server.datadir / log.file
    if log.name == BULK.name:
        _compare_with_select(run_, server, file)
    arrow, text, inspected, text_user = [], [], [], []
    for _ in range(run_.rounds):
        found = run_module("decode", file, _ROUNDS_OF_PROCESS)
        _expect(found["rows"], log)
        arrow += [log.rows / cpu_s for cpu_s in found["cpu_seconds"]]
        usage = tools.text(file)
        text.append(log.rows / usage.cpu_s)
        text_user.append(usage.user_s)
        inspected.append(_inspect(file))
    ours = run_.series(PART, log.name, ARROW, _RATE, "rows/s", arrow)
    theirs = run_.series(PART, log.name, TEXT, _RATE, "rows/s", text)
    run_.target(
        f"P5 {log.name} text", "to Arrow ÷ mysqlbinlog -v", ours / theirs, ">=", _TEXT_TARGET
    )
    inspect_s = run_.series(INSPECT, log.name, INSPECT, "user CPU", "s", inspected)
    text_s = run_.series(INSPECT, log.name, TEXT, "user CPU", "s", text_user)
    with TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.binlog"
        empty.write_bytes(MAGIC)
        start = [_inspect(empty) for _ in range(run_.rounds)]
    run_.series(INSPECT, log.name, EMPTY, "user CPU", "s", start)
    run_.target(
        f"P13 {log.name}", "inspect ÷ mysqlbinlog -v, user CPU", inspect_s / text_s, "<=",
        _INSPECT_TARGET,
    )  # fmt: skip
    _measure_mariadb(run_, log, file)
    _measure_peers(run_, server, log, ours)


def _inspect(file: Path) -> float:
    command = [sys.executable, "-m", "dispatcher", "inspect", str(file)]
    usage, _ = run(command, stdout=Path("/dev/null"))
    return usage.user_s


def _measure_mariadb(run_: Run, log: GeneratedLog, file: Path) -> None:
    try:
        rates = [log.rows / tools.mariadb_text(file).cpu_s for _ in range(run_.rounds)]
    except CommandFailed as failure:
        run_.not_run(f"{MARIADB_TEXT} on {log.name}", str(failure))
        return
    run_.series(PART, log.name, MARIADB_TEXT, _RATE, "rows/s", rates)


def _measure_peers(run_: Run, server: Instance, log: GeneratedLog, ours: float) -> None:
    for peer in peers.PEERS:
        if peer.full_only and not run_.full:
            continue
        rows = min(log.rows, peer.rows(full=run_.full))
        rates, walls = [], []
        try:
            for _ in range(peer.rounds(run_.rounds)):
                found = peers.read(peer, server, log, rows)
                rates.append(found["rows"] / found["cpu_seconds"])
                walls.append(found["rows"] / found["seconds"])
        except peers.PeerFailed as failure:
            run_.not_run(f"{peer.name} on {log.name}", str(failure))
        if not rates:
            continue
        run_.report.versions[peer.name] = peer.version
        rate = run_.series(PART, log.name, peer.name, _RATE, "rows/s", rates)
        run_.series(PART, log.name, peer.name, "rows per second", "rows/s", walls)
        if peer.name == peers.PYTHON_MYSQL_REPLICATION:
            run_.target(
                f"P5 {log.name} Python", f"to Arrow ÷ {peer.name}", ours / rate, ">=", _PEER_TARGET
            )


def _expect(rows: int, log: GeneratedLog) -> None:
    if rows != log.rows:
        raise CommandFailed(f"{rows} rows read of {log.rows} in {log.name}")


# -- decoding, in a process of its own ------------------------------------------------------------------------


def decode(file: Path, rounds: int) -> dict[str, Any]:
    data = with_records(file.read_bytes(), file.name)
    rows = sum(batch.num_rows for batch in _batches(data))  # also loads the kernels
    cpu_seconds = []
    for _ in range(rounds):
        started = time.process_time()
        for _batch in _batches(data):
            pass
        cpu_seconds.append(time.process_time() - started)
    return {"rows": rows, "cpu_seconds": cpu_seconds}


def _batches(data: bytes) -> Iterable[pa.RecordBatch]:
    return (part.batch for part in delivered.changes(data) if isinstance(part, TableChanges))


# -- comparing decoded values with those of the server ---------------------------------------------------------

Values = Iterable[tuple[str, tuple[Any, ...]]]


def _compare_with_select(run_: Run, server: Instance, file: Path) -> None:
    """Raises CommandFailed if a value of the first batches differs from that of SELECT."""
    batches = []
    for batch in _batches(with_records(file.read_bytes(), file.name)):
        batches.append(batch)
        if len(batches) == _COMPARED_BATCHES:
            break
    decoded, selected = _checksum(_values(batches)), _checksum(_selected(server, batches))
    if decoded != selected:
        raise CommandFailed(f"decoded values have checksum {decoded}, SELECT's {selected}")
    rows = sum(batch.num_rows for batch in batches)
    run_.say(f"{rows:,} decoded rows equal those of SELECT, checksum {decoded}")


def _values(batches: Iterable[pa.RecordBatch]) -> Values:
    for batch in batches:
        images = [row.values() for row in batch.column("after").to_pylist()]
        yield from zip(batch.column("database").to_pylist(), map(tuple, images), strict=True)


def _selected(server: Instance, batches: Iterable[pa.RecordBatch]) -> Values:
    for batch in batches:
        database = batch.column("database")[0].as_py()
        keys = [str(key) for key in batch.column("after").field("id").to_pylist()]
        rows = server.execute(
            "SET time_zone = '+00:00'", f"SELECT * FROM {database}.t WHERE id IN ({','.join(keys)})"
        )
        yield from ((database, row) for row in rows)


def _checksum(values: Values) -> str:
    digest = hashlib.sha256()
    for database, row in sorted(values, key=lambda entry: (entry[0], int(entry[1][0]))):
        digest.update(f"{database}{tuple(map(_plain, row))}\n".encode())
    return digest.hexdigest()[:16]


def _plain(value: Any) -> str:
    # PyMySQL returns TIMESTAMP without a time zone, and BIGINT UNSIGNED as int instead of Decimal. The texts are equal.
    if hasattr(value, "tzinfo"):
        value = value.replace(tzinfo=None)
    return str(value)


if __name__ == "__main__":
    print(json.dumps(decode(Path(sys.argv[1]), int(sys.argv[2]))))
