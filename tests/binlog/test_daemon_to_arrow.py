"""A server's log passes through the daemon's splitter and is decoded to Arrow: each consumer gets the rows of its
databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.event.header import MAGIC
from dispatcher.stream.batch import Batch
from dispatcher.stream.consumer_log import ConsumerLog
from dispatcher.stream.routes import Filter, Routes
from dispatcher.stream.splitter import Splitter
from tests.servers import Server
from tests.support.server_log import fresh_log, read_log, with_records


def delivered_to(consumer: Filter, log: bytes, chunk: int) -> bytes:
    """Returns the bytes that the daemon delivers to a consumer of this log file."""
    split = Splitter(Routes(), packets=False, checksum=True, buffer_bytes=1 << 14)
    taken, seq = ConsumerLog(), 0
    for at in range(len(MAGIC), len(log), chunk):
        for batch in split.feed(log[at : at + chunk]):
            assert isinstance(batch, Batch)
            assert batch.fault is None
            wants = consumer.route_mask(split.routes)
            _, seq = taken.append(batch, wants, None, epoch=1, seq=seq, packed=False)
    assert split.format is not None
    return b"".join((MAGIC, split.format.raw, *taken.read(0, taken.committed)))


def told(data: bytes | memoryview, databases: set[str]) -> list[Any]:
    """Returns values, operation and transaction of every change in these databases, without values that a filter may
    change."""
    out: list[Any] = []
    for part in delivered.changes(data):
        if isinstance(part, Ddl):
            if part.statement.database in databases:
                out.append((part.seq, part.gtid, part.statement.database, part.statement.text))
        elif part.batch["database"][0].as_py() in databases:
            out += [
                (row["seq"], row["gtid"], row["table"], row["op"], row["before"], row["after"])
                for row in part.batch.to_pylist()
            ]
    return sorted(out, key=repr)


def test_each_consumer_gets_its_databases(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    server = any_server
    one, two = new_database(server), new_database(server)
    definition = "(id INT PRIMARY KEY, n VARCHAR(300))"
    file = fresh_log(server)
    server.execute(
        f"USE `{one}`",
        f"CREATE TABLE t {definition}",
        f"USE `{two}`",
        f"CREATE TABLE t {definition}",
        f"INSERT INTO {one}.t VALUES {','.join(f'({i}, REPEAT(CHAR(97 + {i} % 26), 200))' for i in range(200))}",
        f"INSERT INTO {two}.t SELECT id, 'x' FROM {one}.t WHERE id < 5",
        "BEGIN",
        f"UPDATE {one}.t a, {two}.t b SET a.n = 'both', b.n = 'both' WHERE a.id = b.id",
        f"DELETE FROM {one}.t WHERE id > 190",
        "COMMIT",
        f"ALTER TABLE {two}.t ADD COLUMN more INT",
        "BEGIN",
        f"DELETE FROM {two}.t WHERE id = 1",
        "ROLLBACK",
        f"UPDATE {one}.t SET n = NULL WHERE id = 7",
    )
    log = read_log(server, file)
    bare = server.kind == "mysql56"  # MySQL 5.6 writes no column names
    for database in (one, two):
        for chunk in (997, 1 << 20):
            data = delivered_to(Filter([database]), log, chunk)
            parts = list(delivered.split_by_table(data))
            assert parts
            if not bare:
                assert told(data, {database}) == told(with_records(log, file), {database})
                slices = [part.payload for part in parts if isinstance(part, delivered.TableSlice)]
                rows = [row for data in slices for row in told(data, {database})]
                whole = [
                    row
                    for part in delivered.changes(data)
                    if isinstance(part, TableChanges)
                    for row in part.batch.to_pylist()
                ]
                assert len(rows) == len(whole) > 3
            tables = {part.database for part in parts if isinstance(part, delivered.TableSlice)}
            assert tables == {database}
