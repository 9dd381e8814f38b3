"""A look-up reads the log up to the definition's position, keeps the statements on its tables, and can be cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Sequence

import pytest

from dispatcher.dispatch.messages.effects import FetchSchema
from dispatcher.dispatch.tables.versions import FetchedDefinition, LogPosition
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.mysql.table_schema import Definition, SchemaAt, TableName
from dispatcher.runtime.client.table_lookup import look_up, look_up_failed
from dispatcher.stream.batch import Batch
from dispatcher.stream.routes import Routes
from dispatcher.stream.splitter import Splitter
from tests.support.event_encoder import LogWriter

ORDERS, ITEMS = ("shop", "orders"), ("shop", "items")
FILE = "binlog.000001"
WAIT_S = 10


class SchemaServer:
    """A server whose log is in memory. `end`: the position of its definitions."""

    def __init__(self, log: LogWriter) -> None:
        self.log = log
        self.end = log.file.size
        self.reads = 0
        self.closed = threading.Event()

    def table_columns(self, database: str, table: str) -> Definition:
        raise NotImplementedError

    def picture(self, earlier: Picture | None) -> Picture:
        raise NotImplementedError

    def look_up(self, statement: str) -> ServerAnswer:
        raise NotImplementedError

    def dump_refusal(self, asked: AskedDump) -> DumpRefusal | None:
        raise NotImplementedError

    def definitions(self, tables: Sequence[TableName]) -> list[SchemaAt]:
        return [SchemaAt(table, {"table": table[1]}, FILE, self.end) for table in tables]

    def read_log(
        self, file: str, offset: int, routes: Routes
    ) -> Generator[tuple[Batch, int], None, None]:
        assert (file, offset) == (FILE, 4)
        self.reads += 1
        splitter = Splitter(routes, packets=False, checksum=True, buffer_bytes=1 << 16)
        splitter.file = file
        try:
            for batch in splitter.feed(self.log.file.raw[4:]):
                assert isinstance(batch, Batch)
                yield batch, splitter.created.get(batch.file, 0)
        finally:
            self.closed.set()


@pytest.fixture
def server() -> SchemaServer:
    log = LogWriter()
    log.ddl("ALTER TABLE orders ADD b INT", "shop")
    log.ddl("ALTER TABLE items ADD b INT", "shop")
    log.ddl("TRUNCATE TABLE orders", "shop")
    return SchemaServer(log)


def order(*tables: TableName, start: int = 4, all_tables: bool = False) -> FetchSchema:
    return FetchSchema(1, 1, tables, LogPosition(FILE, start, 0), all_tables)


async def test_it_returns_the_definition_and_the_statements_before_it(server: SchemaServer) -> None:
    fetched = await look_up(server, order(ORDERS))
    created = server.log.file.created
    position = LogPosition(FILE, server.end, created)
    assert fetched.definitions == (FetchedDefinition(ORDERS, position, {"table": "orders"}),)
    assert [touched.altered.tables for touched in fetched.statements] == [{ORDERS}]
    assert server.closed.is_set()


async def test_it_returns_the_statements_on_all_tables(server: SchemaServer) -> None:
    fetched = await look_up(server, order(ORDERS, all_tables=True))
    assert [touched.altered.tables for touched in fetched.statements] == [{ORDERS}, {ITEMS}]


async def test_it_does_not_read_the_log_at_its_end(server: SchemaServer) -> None:
    fetched = await look_up(server, order(ORDERS, start=server.end))
    assert (fetched.statements, server.reads) == ((), 0)


async def test_a_dump_that_ends_before_the_definition_is_an_error_to_retry(
    server: SchemaServer,
) -> None:
    server.end += 1
    with pytest.raises(BinlogError) as caught:
        await look_up(server, order(ORDERS))
    assert caught.value.kind is ErrorKind.CONNECTION_LOST


async def test_a_cancelled_look_up_stops_reading(server: SchemaServer) -> None:
    server.end += 1
    reading, go_on = threading.Event(), threading.Event()
    read_log = server.read_log

    def slow(file: str, offset: int, routes: Routes) -> Generator[tuple[Batch, int], None, None]:
        for item in read_log(file, offset, routes):
            reading.set()
            assert go_on.wait(WAIT_S)
            yield item
            pytest.fail("the look-up went on after its cancellation")

    server.read_log = slow  # type: ignore[method-assign]
    task = asyncio.get_running_loop().create_task(look_up(server, order(ORDERS)))
    await asyncio.to_thread(reading.wait, WAIT_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert await asyncio.to_thread(server.closed.wait, WAIT_S)


def test_a_permanent_error_is_the_answer_for_each_table() -> None:
    error = BinlogError(ErrorKind.METADATA_MISSING, "no such table")
    fetched = look_up_failed(order(ORDERS, ITEMS), error)
    assert [(found.name, found.definition) for found in fetched.definitions] == [
        (ORDERS, error),
        (ITEMS, error),
    ]
