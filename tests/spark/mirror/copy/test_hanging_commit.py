"""A copy begins while a commit waits for a semisynchronous replica (AFTER_SYNC): the log has the transaction, and no
session sees its rows yet."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position
from dispatcher.mysql.answers import fetch
from spark_sink.source.table_rows.positions import contains_executed
from spark_sink.source.table_rows.table_server import (
    executed_position,
    snapshot_at,
    wait_until_executed,
)
from tests.daemon.harness import until
from tests.servers import Server
from tests.servers.plugin import ServerFactory
from tests.spark.mirror.copy.test_server import copy_server


@contextmanager
def hanging(server: Server) -> Iterator[None]:
    """In the block, the commit of row 1 hangs. After the block the row is committed."""
    server.execute(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (0)"
    )
    name = "rpl_semi_sync_master" if server.mariadb else "rpl_semi_sync_source"
    if not server.mariadb:
        server.execute(f"INSTALL PLUGIN {name} SONAME 'semisync_source.so'")
    server.execute(
        f"SET GLOBAL {name}_timeout = 600000",
        f"SET GLOBAL {name}_wait_point = 'AFTER_SYNC'",
        f"SET GLOBAL {name}_enabled = ON",
    )
    writer = threading.Thread(target=server.execute, args=("INSERT INTO d.t VALUES (1)",))
    before = server.binlog_position()
    writer.start()
    try:
        until(lambda: server.binlog_position() > before, "the transaction is in the log")
        until(
            lambda: "semi-sync ACK" in str(server.execute("SHOW PROCESSLIST")), "the commit hangs"
        )
        yield
        assert writer.is_alive()
    finally:
        server.execute(f"SET GLOBAL {name}_enabled = OFF")
        writer.join()


def with_row_one(server: Server, before: Position, file: str, offset: int) -> Position:
    """Returns the position after the transaction that hangs, as the daemon reads it from the log."""
    gtid = before.gtid
    if server.mariadb:
        gtid = str(server.execute("SELECT @@gtid_binlog_pos")[0][0])
    else:
        owned = str(server.execute("SELECT @@GLOBAL.gtid_owned")[0][0])
        gtid = str(GtidSet.parse(gtid).union(GtidSet.parse(owned.partition("#")[0])))
    return replace(before, gtid=gtid, file=file, offset=offset)


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011", "mariadb118"])
def test_a_copy_waits_for_a_commit_that_hangs(server_factory: ServerFactory, kind: str) -> None:
    """The log stage has read the transaction, so the copy's position S contains it."""
    server = server_factory(kind)  # type: ignore[arg-type]
    reader = copy_server(server)
    with reader.session() as connection:
        with hanging(server):
            before = executed_position(connection)
            read = with_row_one(server, before, *server.binlog_position())
            with pytest.raises(BinlogError, match="has not executed the position") as caught:
                wait_until_executed(connection, read, timeout_s=0.3)
            assert caught.value.kind is ErrorKind.RANGE_UNAVAILABLE
            if server.mariadb:  # its snapshots know their position
                with snapshot_at(reader, time.monotonic() + 20) as (other, position):
                    assert fetch(other, "SELECT id FROM d.t") == [("0",)]
                    assert not contains_executed(position, read)
            else:
                with (
                    pytest.raises(BinlogError, match="or a commit hangs"),
                    snapshot_at(reader, time.monotonic() + 0.3),
                ):
                    pass
        assert wait_until_executed(connection, read, timeout_s=20)
        with snapshot_at(reader, time.monotonic() + 20) as (other, position):
            assert fetch(other, "SELECT id FROM d.t") == [("0",), ("1",)]
            assert contains_executed(position, read)
