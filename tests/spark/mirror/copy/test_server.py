"""What a copy needs from servers: positions, waiting for a position, snapshots, load, tables without a key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, packed_seq
from dispatcher.mysql.answers import fetch
from spark_sink.mirror.copy.server import CopyServer, server_load
from spark_sink.source.table_rows.positions import contains_executed
from spark_sink.source.table_rows.table_server import (
    executed_position,
    locked_snapshot,
    snapshot_at,
    wait_until_executed,
)
from tests.daemon.harness import until
from tests.servers import Server
from tests.servers.plugin import ServerFactory
from tests.spark.mirror.copy.conftest import READER, add_reader, copy_settings

NewDatabase = Callable[[Server], str]


def copy_server(server: Server, *grants: str) -> CopyServer:
    name = "copy_locker" if grants else READER
    add_reader(server, name, *grants)
    return CopyServer.of_settings(copy_settings(server, name))


def test_a_position_covers_what_was_committed_before(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    reader = copy_server(server)
    with reader.session() as connection:
        server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        before = executed_position(connection)
        server.execute(f"INSERT INTO {database}.t VALUES (1)")
        after = executed_position(connection)
        assert contains_executed(after, before)
        assert not contains_executed(before, after)
        assert contains_executed(after, after)
        assert wait_until_executed(connection, after, timeout_s=20)
        assert (after.file, after.offset) == server.binlog_position()
        if not server.mariadb:
            assert after.seq == len(GtidSet.parse(after.gtid)) == before.seq + 1


def test_a_position_that_the_server_does_not_reach(any_server: Server) -> None:
    reader = copy_server(any_server)
    with reader.session() as connection:
        now = executed_position(connection)
        offset = now.offset + 1000
        future = replace(now, offset=offset, seq=packed_seq(now.file, offset))
        if now.gtid and not any_server.mariadb:
            future = replace(now, gtid=str(GtidSet.parse(now.gtid).add(now.server, 10**9)))
        asked = time.monotonic()
        with pytest.raises(BinlogError, match="has not executed the position") as caught:
            wait_until_executed(connection, future, timeout_s=0.3)
        assert caught.value.kind is ErrorKind.RANGE_UNAVAILABLE
        assert time.monotonic() - asked < 10
        assert not wait_until_executed(connection, future, timeout_s=60, stopping=lambda: True)


def test_a_transaction_that_is_prepared_is_waited_for(
    mariadb118: Server, new_database: NewDatabase
) -> None:
    """MariaDB says at which position a snapshot was taken, so later transactions do not change this position."""
    database = new_database(mariadb118)
    mariadb118.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    with snapshot_at(copy_server(mariadb118), time.monotonic() + 20) as (connection, position):
        mariadb118.execute(f"INSERT INTO {database}.t VALUES (1)")
        assert fetch(connection, f"SELECT * FROM {database}.t") == []
        assert (position.file, position.offset) < mariadb118.binlog_position()
    with snapshot_at(copy_server(mariadb118), time.monotonic() + 20) as (connection, position):
        assert (position.file, position.offset) == mariadb118.binlog_position()


def test_a_snapshot_of_mysql(mysql97: Server, new_database: NewDatabase) -> None:
    database = new_database(mysql97)
    mysql97.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    reader = copy_server(mysql97)
    with snapshot_at(reader, time.monotonic() + 20) as (connection, position):
        mysql97.execute(f"INSERT INTO {database}.t VALUES (1)")
        assert fetch(connection, f"SELECT * FROM {database}.t") == []
        with reader.session() as other:
            later = executed_position(other)
    assert contains_executed(later, position)
    assert not contains_executed(position, later)
    assert later.seq == position.seq + 1


@pytest.fixture
def without_gtids(server_factory: ServerFactory) -> Server:
    return server_factory("mysql97", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")


def test_without_gtids_a_copy_waits_for_a_new_file(without_gtids: Server) -> None:
    server = without_gtids
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    with copy_server(server).session() as connection:
        position = executed_position(connection)
        assert position.gtid == "" and position.seq & 0xFFFFFFFFFF == position.offset
        with pytest.raises(BinlogError, match="lacks the privilege to begin a file") as caught:
            wait_until_executed(connection, position, timeout_s=5)
        assert caught.value.kind is ErrorKind.GRANT_MISSING
        server.execute("FLUSH BINARY LOGS")
        assert wait_until_executed(connection, position, timeout_s=5)
    with copy_server(server, "RELOAD ON *.*").session() as connection:
        position = executed_position(connection)
        server.execute("INSERT INTO d.t VALUES (1)")
        position = executed_position(connection)
        assert wait_until_executed(connection, position, timeout_s=20)
        assert server.binlog_position()[0] > position.file
        elsewhere = replace(position, server="11111111-1111-1111-1111-111111111111")
        with pytest.raises(BinlogError, match="cannot be compared"):
            wait_until_executed(connection, elsewhere, timeout_s=5)


def test_positions_of_two_servers() -> None:
    uuid, other = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "11111111-1111-1111-1111-111111111111"
    log = Position(uuid, f"{uuid}:1-10", "binlog.000002", 500, 10, 1)
    # Files and offsets of another server's binlog are not comparable, so the GTIDs decide.
    assert contains_executed(log, Position(other, f"{uuid}:1-9", "binlog.000009", 4, 9, 0))
    assert not contains_executed(log, Position(other, f"{uuid}:1-11", "binlog.000001", 4, 11, 0))
    # In the binlog of the same server, file and offset decide: the GTIDs of earlier transactions may not be executed
    # yet.
    assert not contains_executed(log, Position(uuid, f"{uuid}:1-9", "binlog.000002", 501, 9, 0))
    assert contains_executed(log, Position(uuid, f"{uuid}:1-9", "binlog.000001", 900, 9, 0))
    maria = Position("mariadb-1", "0-1-10", "binlog.000002", 500, 0, 1)
    assert contains_executed(maria, Position("mariadb-2", "0-1-9", "binlog.000009", 4, 0, 0))
    assert not contains_executed(maria, Position("mariadb-2", "0-2-11", "binlog.000001", 4, 0, 0))
    with pytest.raises(BinlogError, match="cannot be compared") as caught:
        contains_executed(log, Position(other, "", "binlog.000001", 4, 0, 0))
    assert caught.value.kind is ErrorKind.SERVER_SETTING


def test_the_load_of_a_server_that_is_no_replica(any_server: Server) -> None:
    with copy_server(any_server).session() as connection:
        assert server_load(connection, with_lag=False).threads_running >= 1
        if any_server.mariadb:
            with pytest.raises(BinlogError, match="GRANT SLAVE MONITOR"):
                server_load(connection, with_lag=True)
    monitor = ("SLAVE MONITOR ON *.*",) if any_server.mariadb else ()
    with copy_server(any_server, *monitor).session() as connection:
        load = server_load(connection, with_lag=True)
    assert load.threads_running >= 1 and load.lag_s is None


def test_a_locked_snapshot_is_of_its_position(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    server.execute(
        f"CREATE TABLE {database}.t (a INT)",
        f"INSERT INTO {database}.t VALUES (1), (1)",
        f"CREATE TABLE {database}.m (a INT) ENGINE=MyISAM",
    )
    reader = copy_server(server, "LOCK TABLES ON *.*")
    source = reader.table(database, "t")
    assert source.key == () and source.from_clause == f"`{database}`.`t`"
    with locked_snapshot(reader, source) as (connection, position):
        # The lock is released: other sessions can write at once, and the snapshot does not show their rows.
        with closing(server.connect()) as writer, writer.cursor() as cursor:
            cursor.execute("SET SESSION lock_wait_timeout = 1")
            cursor.execute(f"INSERT INTO {database}.t VALUES (2)")
        assert len(fetch(connection, f"SELECT * FROM {database}.t")) == 2
        with reader.session() as other:
            later = executed_position(other)
        assert contains_executed(later, position) and not contains_executed(position, later)
        assert later.seq > position.seq
    myisam = reader.table(database, "m")
    with (
        pytest.raises(BinlogError, match="MyISAM has no snapshots"),
        locked_snapshot(reader, myisam),
    ):
        pass
    with (
        pytest.raises(BinlogError, match="may not lock it"),
        locked_snapshot(copy_server(server), source),
    ):
        pass


def test_a_locked_snapshot_waits_for_open_transactions(
    any_server: Server, new_database: NewDatabase
) -> None:
    """Otherwise an open transaction could commit between the snapshot and the position. Then the position would include
    the transaction, but the snapshot would not."""
    server, database = any_server, new_database(any_server)
    server.execute(f"CREATE TABLE {database}.t (a INT)")
    reader = copy_server(server, "LOCK TABLES ON *.*")
    source = reader.table(database, "t")
    rows: list[Any] = []

    def read() -> None:
        with locked_snapshot(reader, source) as (connection, _):
            rows.append(fetch(connection, f"SELECT * FROM {database}.t"))

    locking = threading.Thread(target=read)
    with closing(server.connect(database)) as writer, writer.cursor() as cursor:
        writer.autocommit(False)
        cursor.execute("INSERT INTO t VALUES (1)")
        locking.start()
        until(lambda: rows or waiting_locks(server, database), "the snapshot waits, or is made")
        writer.commit()
    locking.join()
    assert [len(read) for read in rows] == [1]


def waiting_locks(server: Server, database: str) -> tuple[Any, ...]:
    return server.execute(
        "SELECT id FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
        f" AND info LIKE 'LOCK TABLES `{database}`%'"
    )


@pytest.mark.parametrize("address", ["db1:3306", "u:p@db1", "u@db1:3306,db2:3306"])
def test_an_address_that_names_no_server(address: str, mysql97: Server) -> None:
    settings = copy_settings(mysql97).model_copy(update={"mysql": address})
    with pytest.raises(UserError, match=r"copy\.mysql") as caught:
        CopyServer.of_settings(settings)
    assert "u:p" not in str(caught.value)
