"""A range that is saved as a file is a binlog: from this file, the server's own tool prints the rows of the server's
log that the consumer's filter accepts.

The reference is the server's log: the same tool prints the log, and the test filters the rows by name. The tests also
count the rows with python-mysql-replication, which shares no code with this project.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import PASSWORD, Api, Daemon, Json, events, tip_seq, transactions
from tests.servers import Server

# The beginning of the first line of a printed row, which names the table.
Printed = dict[str, list[str]]
_GTID = re.compile(r"GTID_NEXT= ?'([^']+)'|\bGTID (\d+-\d+-\d+)\b")
_ROW = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) `([^`]+)`\.`([^`]+)`")


def write_history(
    server: Server, a: str, b: str, before_altering: Callable[[], object] = lambda: None
) -> None:
    """Execute statements in two databases: with triggers that write into the other database, cascades, savepoints, many
    rows, and rotations. The last statement alters a table."""
    cascade = (
        f"CONSTRAINT fk_{a} FOREIGN KEY (customer) REFERENCES {a}.customer (id)"
        " ON DELETE CASCADE ON UPDATE CASCADE"
    )
    ordered = f"INSERT INTO {b}.audit (what) VALUES (CONCAT('order ', NEW.id))"
    changed = f"INSERT INTO {b}.audit (what) VALUES (CONCAT('changed ', NEW.id))"
    moved = f"INSERT INTO {a}.log (what) VALUES (CONCAT('stock ', NEW.item, REPEAT('.', 800)))"
    statements = f"""
        CREATE TABLE {a}.customer (id INT PRIMARY KEY, name VARCHAR(50)) ENGINE=InnoDB
        CREATE TABLE {a}.orders (id INT PRIMARY KEY, customer INT, item INT, n INT, {cascade}) ENGINE=InnoDB
        CREATE TABLE {a}.log (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(900)) ENGINE=InnoDB
        CREATE TABLE {b}.stock (item INT PRIMARY KEY, n INT, note VARCHAR(900)) ENGINE=InnoDB
        CREATE TABLE {b}.audit (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(100)) ENGINE=InnoDB
        CREATE TRIGGER {a}.ordered AFTER INSERT ON {a}.orders FOR EACH ROW {ordered}
        CREATE TRIGGER {a}.changed AFTER UPDATE ON {a}.orders FOR EACH ROW {changed}
        CREATE TRIGGER {b}.moved AFTER UPDATE ON {b}.stock FOR EACH ROW {moved}
        INSERT INTO {a}.customer VALUES (1, 'one'), (2, 'two'), (3, 'three'), (4, 'four')
        INSERT INTO {b}.stock VALUES {", ".join(f"({n}, 1000, REPEAT('n', 800))" for n in range(60))}
        INSERT INTO {a}.orders VALUES {", ".join(f"({n}, {n % 4 + 1}, {n % 60}, 1)" for n in range(120))}
        UPDATE {a}.orders o JOIN {b}.stock s ON o.item = s.item SET o.n = o.n + 1, s.n = s.n - 1 WHERE o.id < 50
        FLUSH BINARY LOGS
        UPDATE {b}.stock s JOIN {a}.orders o ON o.item = s.item SET s.note = REPEAT('m', 900), o.n = 5
        BEGIN
        INSERT INTO {a}.log (what) VALUES ('kept')
        SAVEPOINT one
        INSERT INTO {b}.audit (what) VALUES ('undone')
        ROLLBACK TO SAVEPOINT one
        INSERT INTO {b}.audit (what) VALUES ('kept too')
        SAVEPOINT two
        UPDATE {a}.log SET what = 'kept, changed' WHERE what = 'kept'
        RELEASE SAVEPOINT two
        COMMIT
        DELETE FROM {a}.customer WHERE id = 4
        UPDATE {a}.customer SET id = 30 WHERE id = 3
        DELETE o, s FROM {a}.orders o JOIN {b}.stock s ON o.item = s.item WHERE o.id BETWEEN 20 AND 25
        FLUSH BINARY LOGS
        BEGIN
        INSERT INTO {b}.audit (what) SELECT what FROM {b}.audit
        UPDATE {b}.audit SET what = CONCAT(what, '!')
        DELETE FROM {a}.log WHERE id % 3 = 0
        UPDATE {b}.stock SET n = n + 1
        COMMIT
        ALTER TABLE {b}.audit ADD COLUMN more INT DEFAULT 7
        INSERT INTO {b}.audit (what) VALUES ('with more')
        TRUNCATE TABLE {a}.log
        INSERT INTO {a}.log (what) VALUES ('after truncate')
        """
    lines = [line.strip() for line in statements.splitlines() if line.strip()]
    altering = next(n for n, line in enumerate(lines) if line.startswith("ALTER"))
    server.execute(*lines[:altering], database=a)
    before_altering()
    server.execute(*lines[altering:], database=a)


def printed(text: str) -> Printed:
    """Returns the printed rows by GTID ('' for servers without GTIDs). Each row is a tuple of its lines."""
    found: Printed = {}
    gtid = ""
    for line in text.splitlines():
        if line.startswith("### "):
            if _ROW.match(line[4:]):
                found.setdefault(gtid, []).append(line[4:])
            else:
                found[gtid][-1] += "\n" + line[4:]
        elif (match := _GTID.search(line)) and not line.startswith("# at"):
            gtid = match[1] or match[2]
    return found


def only(rows: Printed, *wanted: str) -> Printed:
    """Returns the rows of the named databases and tables. A name is a database or `database.table`."""

    def mine(row: str) -> bool:
        match = _ROW.match(row)
        assert match
        return match[1] in wanted or f"{match[1]}.{match[2]}" in wanted

    kept = {gtid: [row for row in listed if mine(row)] for gtid, listed in rows.items()}
    return {gtid: listed for gtid, listed in kept.items() if listed}


def joined(parts: list[Printed]) -> Printed:
    found: Printed = {}
    for part in parts:
        for gtid, rows in part.items():
            found.setdefault(gtid, []).extend(rows)
    return found


@dataclass
class Saved:
    """Fetches ranges without acknowledging them, saves them as files, and prints them with the tool."""

    server: Server
    api: Api
    folder: Path

    def raw(self, consumer: str, start: Json, end: Json) -> bytes:
        return self.api.binlog(consumer, 0, start, end)

    def print(self, data: bytes) -> Printed:
        path = self.folder / "range.binlog"
        path.write_bytes(data)
        done = self.server.mysqlbinlog(
            "--verify-binlog-checksum", "-v", "--base64-output=decode-rows", path
        )
        assert done.stderr == ""
        return printed(done.stdout)

    def range(self, consumer: str, start: Json, end: Json) -> Printed:
        return self.print(self.raw(consumer, start, end))

    def positions(self, consumer: str, start: Json, max_bytes: int) -> Iterator[Json]:
        wanted = tip_seq(self.server)
        yield start
        while start["seq"] < wanted:
            start = self.api.poll(
                consumer, 0, start, max_bytes=max_bytes, wait_ms=5000, markers=True
            )["end"]
            yield start


def servers_log(server: Server, first: str) -> Printed:
    files = [name for name, _ in server.binlogs() if name >= first]
    done = server.mysqlbinlog("-v", "--base64-output=decode-rows", *files, remote=True)
    return printed(done.stdout)


def test_ranges_are_the_servers_log_filtered(
    any_server: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> None:
    a, b = new_database(any_server), new_database(any_server)
    wanted = {"a": [a], "b": [b], "both": [a, b], "table": [f"{b}.audit"]}
    consumers = {
        "a": source(any_server, a),
        "b": source(any_server, b),
        "both": source(any_server, a, b),
        "table": source(any_server, b, tables=[f"{b}.audit"]),
    }
    daemon: Daemon = make_daemon(consumers)
    api = daemon.start()
    begin = {name: api.session(name, read_only=True)["position"] for name in consumers}
    first, _ = any_server.binlog_position()
    saved = Saved(any_server, api, tmp_path)

    def all_is_read() -> None:
        """Read everything. If the server does not log column names, the daemon thus looks up the names before the table
        is altered."""
        for name in consumers:
            list(saved.positions(name, begin[name], 1 << 20))

    write_history(any_server, a, b, all_is_read)
    reference = servers_log(any_server, first)
    for name, names in wanted.items():
        expected = only(reference, *names)
        assert sum(map(len, expected.values())) > 100
        positions = list(saved.positions(name, begin[name], 1))
        assert len(positions) > 5
        start, end = positions[0], positions[-1]
        whole = saved.raw(name, start, end)
        assert saved.print(whole) == expected
        check_slices(saved, name, whole, start, end)
        check_parts(saved, name, whole, positions)
    # Positions have the same meaning for every consumer of the server.
    halfway = list(saved.positions("both", begin["both"], 1))[6]
    end = list(saved.positions("a", begin["a"], 1 << 20))[-1]
    halves = [saved.range("a", begin["a"], halfway), saved.range("a", halfway, end)]
    assert joined(halves) == only(reference, a)
    assert saved.range("a", begin["a"], halfway) == only(
        saved.range("both", begin["both"], halfway), a
    )


def check_slices(saved: Saved, name: str, whole: bytes, start: Json, end: Json) -> None:
    for n in (1, 2, 5, 100):
        answer = saved.api.call(name, "slices", session=0, start=start, end=end, n=n)
        edges = [start, *answer["cuts"], end]
        assert len(edges) <= n + 1
        parts = [saved.raw(name, *edge) for edge in pairwise(edges)]
        assert [t for part in parts for t in transactions(part)] == transactions(whole)
        if n == 5:
            assert joined([saved.print(part) for part in parts]) == saved.print(whole)


def check_parts(saved: Saved, name: str, whole: bytes, positions: list[Json]) -> None:
    """Assert that a range between two positions has exactly the transactions of the whole log between them, and begins
    with the header events."""
    order = random.Random(0)
    everything = transactions(whole)
    pairs = [sorted(order.sample(range(len(positions)), 2)) for _ in range(12)]
    for lo, hi in [*pairs, [3, 3]]:
        start, end = positions[lo], positions[hi]
        data = saved.raw(name, start, end)
        assert transactions(data) == [t for t in everything if start["seq"] < t.seq <= end["seq"]]
        assert next(events(data))[0] == 15
    lo, hi = pairs[0]
    assert saved.range(name, positions[lo], positions[hi])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_independent_reader_counts_the_same_rows(
    mysql97: Server,
    new_database: Callable[[Server], str],
    make_daemon: MakeDaemon,
    source: Source,
    tmp_path: Path,
) -> None:
    a, b = new_database(mysql97), new_database(mysql97)
    consumers = {"a": source(mysql97, a), "both": source(mysql97, a, b)}
    daemon: Daemon = make_daemon(consumers)
    api = daemon.start()
    begin = {name: api.session(name, read_only=True)["position"] for name in consumers}
    write_history(mysql97, a, b)
    expected = Counter(independent(mysql97, consumers["a"]["mysql"].split("@")[0], begin["a"]))
    saved = Saved(mysql97, api, tmp_path)
    for name, databases in (("a", (a,)), ("both", (a, b))):
        *_, end = saved.positions(name, begin[name], 1 << 20)
        counted: Counter[tuple[str, str, str, str]] = Counter()
        for gtid, rows in saved.range(name, begin[name], end).items():
            for row in rows:
                match = _ROW.match(row)
                assert match
                counted[gtid, match[1], match[2], row.split()[0].lower()] += 1
        assert counted == {key: n for key, n in expected.items() if key[1] in databases}


def independent(server: Server, user: str, start: Json) -> Iterator[tuple[str, str, str, str]]:
    """Yields (gtid, database, table, operation) of each row from a position in the server's log on."""
    verbs = {WriteRowsEvent: "insert", UpdateRowsEvent: "update", DeleteRowsEvent: "delete"}
    stream = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": user, "passwd": PASSWORD},
        server_id=4711,
        log_file=start["file"],
        log_pos=start["offset"],
        resume_stream=True,
        only_events=[GtidEvent, *verbs],
    )
    gtid = ""
    try:
        for event in stream:
            if isinstance(event, GtidEvent):
                gtid = event.gtid
                continue
            for _ in event.rows:
                yield gtid, event.schema, event.table, verbs[type(event)]
    finally:
        stream.close()
