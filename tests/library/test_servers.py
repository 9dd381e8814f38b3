"""The library with real servers: transactions, values, shared connections, and the position at which a program
resumes."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from dispatcher import (
    Binlog,
    BinlogClient,
    BinlogError,
    ErrorKind,
    GtidSet,
    MariadbGtids,
    Position,
    Transaction,
)
from tests.daemon.harness import dumps, until
from tests.servers import Server

PASSWORD = "a program's secret"
DEADLINE_S = 30.0
_numbers = itertools.count(1)

Account = Callable[[Server], str]


@pytest.fixture
def account() -> Iterator[Account]:
    """Creates an account for the test; returns `user@host:port`."""
    made: dict[int, tuple[Server, str]] = {}

    def address(server: Server) -> str:
        if server.port not in made:
            name = f"lib{os.getpid() % 10**6}_{next(_numbers)}"
            server.add_user(name, PASSWORD)
            made[server.port] = server, name
        return f"{made[server.port][1]}@{server.host}:{server.port}"

    yield address
    for server, name in made.values():
        server.execute(f"DROP USER '{name}'@'%'")


@pytest.fixture(params=["mysql97", "mariadb118"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(request.param)
    return found


def table(server: Server, *databases: str) -> None:
    for database in databases:
        server.execute(
            f"DROP DATABASE IF EXISTS {database}",
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(2000))",
        )


def insert(server: Server, database: str, *ids: int, v: str = "x") -> None:
    """Inserts each row in a separate transaction."""
    server.execute(*(f"INSERT INTO {database}.t VALUES ({n}, '{v}')" for n in ids))


async def take(binlog: Binlog, count: int) -> list[Transaction]:
    """Returns the next `count` transactions."""
    taken: list[Transaction] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(taken) < count:
            taken.append(await anext(binlog))
    return taken


def ids(transactions: list[Transaction]) -> list[int]:
    return [
        change.after["id"]
        for transaction in transactions
        for change in transaction.changes()
        if change.after is not None
    ]


def user(address: str) -> str:
    return address.partition("@")[0]


async def test_binlogs_share_a_connection_and_end_with_their_client(
    server: Server, account: Account
) -> None:
    table(server, "lib_a", "lib_b")
    address = account(server)
    async with BinlogClient(address, password=PASSWORD) as client:
        a = await client.create_binlog("a", ["lib_a"])
        b = await client.create_binlog("b", ["lib_b"])
        both = await client.create_binlog("both", ["lib_a", "lib_b"])
        for n in range(3):
            insert(server, "lib_a", n)
            insert(server, "lib_b", 10 + n)
        assert ids(await take(a, 3)) == [0, 1, 2]
        assert ids(await take(b, 3)) == [10, 11, 12]
        assert ids(await take(both, 6)) == [0, 10, 1, 11, 2, 12]
        assert len(dumps(server, user(address))) == 1
        rows = {row["name"]: row for row in client.status()}
        assert list(rows) == ["a", "b", "both"]
        assert {row["dispatcher_name"] for row in rows.values()} == {"a:1"}
        assert {row["state"] for row in rows.values()} == {"streaming"}
        assert a.status()["binlog_client_name"] == address
        await both.close()
        assert [row["name"] for row in client.status()] == ["a", "b"]
        with pytest.raises(BinlogError, match="closed"):
            await both.read()
    until(lambda: not dumps(server, user(address)), "no dump is left")


async def test_starts_behind_a_gtid_set_with_gaps(mysql97: Server, account: Account) -> None:
    table(mysql97, "lib_gaps")
    address = account(mysql97)
    before = executed(mysql97)
    sets = []
    for n in range(5):
        insert(mysql97, "lib_gaps", n)
        sets.append(executed(mysql97))
    held = before.union(sets[1].subtract(sets[0])).union(sets[3].subtract(sets[2]))
    async with BinlogClient(address, password=PASSWORD) as client:
        binlog = await client.create_binlog("gaps", ["lib_gaps"], start=held)
        taken = await take(binlog, 3)
        assert ids(taken) == [0, 2, 4]
        added = held
        for transaction in taken:
            added = added.union(GtidSet.parse(transaction.gtid))
            assert GtidSet.parse(transaction.position.gtid).contains(added)
            age = datetime.now(UTC) - transaction.committed_at
            assert timedelta() < age < timedelta(minutes=3)
        assert added == GtidSet.parse(taken[-1].position.gtid) == executed(mysql97)


async def test_starts_behind_mariadb_gtids(mariadb118: Server, account: Account) -> None:
    table(mariadb118, "lib_gtids")
    address = account(mariadb118)
    insert(mariadb118, "lib_gtids", 1)
    held = str(mariadb118.execute("SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
    insert(mariadb118, "lib_gtids", 2, 3)
    async with BinlogClient(address, password=PASSWORD) as client:
        start = MariadbGtids.parse(held)
        binlog = await client.create_binlog("gtids", ["lib_gtids"], start=start)
        taken = await take(binlog, 2)
        assert ids(taken) == [2, 3]
        last = str(mariadb118.execute("SELECT @@GLOBAL.gtid_binlog_pos")[0][0])
        assert taken[-1].gtid == taken[-1].position.gtid == last


def executed(server: Server) -> GtidSet:
    return GtidSet.parse(str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0]))


async def test_transactions_not_acknowledged_come_again(
    server: Server, account: Account, tmp_path: Path
) -> None:
    table(server, "lib_again")
    address = account(server)
    state = tmp_path / "state.db"
    async with BinlogClient(address, password=PASSWORD, state=state) as client:
        binlog = await client.create_binlog("again", ["lib_again"])
        insert(server, "lib_again", 1, 2, 3)
        taken = await take(binlog, 3)
        await binlog.acknowledge(taken[1])
        await binlog.acknowledge(taken[0].position)  # this position is already acknowledged
        assert binlog.acknowledged == taken[1].position
    insert(server, "lib_again", 4)
    async with BinlogClient(address, password=PASSWORD, state=state) as client:
        binlog = await client.create_binlog("again", ["lib_again"], start="earliest")
        assert ids(await take(binlog, 2)) == [3, 4]
        await binlog.acknowledge()
        # After `close` the name is free again, and the stored position stays.
        await binlog.close()
        binlog = await client.create_binlog("again", ["lib_again"])
        insert(server, "lib_again", 5)
        assert ids(await take(binlog, 1)) == [5]
        # A position that the program passes overrides the stored position, and is stored.
        await binlog.close()
        binlog = await client.create_binlog("again", ["lib_again"], start=taken[0].position)
        assert ids(await take(binlog, 4)) == [2, 3, 4, 5]
    async with BinlogClient(address, password=PASSWORD, state=state) as client:
        binlog = await client.create_binlog("again", ["lib_again"])
        assert ids(await take(binlog, 4)) == [2, 3, 4, 5]


async def test_a_program_that_keeps_its_positions_itself(server: Server, account: Account) -> None:
    table(server, "lib_own", "lib_other")
    address = account(server)
    async with BinlogClient(address, password=PASSWORD) as client:
        binlog = await client.create_binlog("own", ["lib_own"], max_bytes_in_binlog_queue="64KiB")
        # The rows are far larger than the queue. Without a state store, each read acknowledges the transactions before.
        insert(server, "lib_own", *range(100), v="x" * 1500)
        assert ids(await take(binlog, 100)) == list(range(100))
        insert(server, "lib_other", 1)
        stored = Position.from_json(binlog.position.to_json())
    insert(server, "lib_own", 300)
    async with BinlogClient(address, password=PASSWORD) as client:
        binlog = await client.create_binlog("own", ["lib_own"], start=stored)
        assert ids(await take(binlog, 1)) == [300]


async def test_a_binlog_that_is_not_read_does_not_delay_others(
    mysql97: Server, account: Account
) -> None:
    table(mysql97, "lib_slow")
    async with BinlogClient(account(mysql97), password=PASSWORD) as client:
        slow = await client.create_binlog(
            "slow",
            ["lib_slow"],
            max_bytes_in_binlog_queue=1,
            max_milliseconds_to_wait_in_binlog_queue=0,
        )
        quick = await client.create_binlog("quick", ["lib_slow"])
        for n in range(5):
            insert(mysql97, "lib_slow", n)
            assert ids(await take(quick, 1)) == [n]
        assert slow.status()["detaches"] >= 1
        assert quick.status()["detaches"] == 0
        assert ids(await take(slow, 5)) == list(range(5))


async def test_a_cancelled_read_loses_nothing(mysql97: Server, account: Account) -> None:
    table(mysql97, "lib_wait")
    async with BinlogClient(account(mysql97), password=PASSWORD) as client:
        binlog = await client.create_binlog("wait", ["lib_wait"])
        assert await binlog.read(wait_s=0) == []
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(binlog)
        insert(mysql97, "lib_wait", 0, 1, 2)
        assert ids(await take(binlog, 3)) == [0, 1, 2]
        # Waiting reads return when the binlog is closed.
        rest = asyncio.gather(collect(binlog), collect(binlog))
        await asyncio.sleep(0)
        await binlog.close()
        first, second = await rest
        assert first == second == []


async def collect(binlog: AsyncIterator[Transaction]) -> list[Transaction]:
    return [transaction async for transaction in binlog]


async def test_values_are_python_types(server: Server, account: Account) -> None:
    table(server, "lib_values")
    async with BinlogClient(account(server), password=PASSWORD) as client:
        binlog = await client.create_binlog("values", ["lib_values"])
        server.execute(
            "SET time_zone = '+00:00'",
            "CREATE TABLE lib_values.v (id BIGINT UNSIGNED PRIMARY KEY, d DECIMAL(6,2), w DECIMAL(40,1), s VARCHAR(20),"
            " b VARBINARY(9), day DATE, at DATETIME(6), stamp TIMESTAMP(3) NULL, t TIME(2), f DOUBLE)",
            "INSERT INTO lib_values.v VALUES (18446744073709551615, 12.5, -1.5, 'käse', x'00ff', '2024-02-29',"
            " '2024-02-29 10:00:00.123456', '2024-02-29 10:00:00.5', '-25:00:01.25', 0.5)",
            "UPDATE lib_values.v SET d = NULL, w = NULL, s = NULL, b = NULL, day = NULL, at = NULL, stamp = NULL,"
            " t = NULL, f = NULL",
            "BEGIN",
            "INSERT INTO lib_values.t VALUES (1, 'a')",
            "DELETE FROM lib_values.v",
            "INSERT INTO lib_values.t VALUES (2, 'b')",
            "COMMIT",
        )
        ddl, inserted, updated, mixed = [list(t.changes()) for t in await take(binlog, 4)]
    values = {
        "id": 18446744073709551615,
        "d": Decimal("12.50"),
        "w": Decimal("-1.5"),
        "s": "käse",
        "b": b"\x00\xff",
        "day": date(2024, 2, 29),
        "at": datetime(2024, 2, 29, 10, 0, 0, 123456),  # noqa: DTZ001
        "stamp": datetime(2024, 2, 29, 10, 0, 0, 500000, tzinfo=UTC),
        "t": -timedelta(hours=25, seconds=1.25),
        "f": 0.5,
    }
    nulls = {**dict.fromkeys(values, None), "id": values["id"]}
    (created,) = ddl
    assert created.op == "ddl" and created.query.startswith("CREATE TABLE lib_values.v")
    assert [(c.op, c.table, c.before, c.after) for c in inserted] == [("insert", "v", None, values)]
    assert type(inserted[0].after["id"]) is int  # type: ignore[index]
    assert [(c.op, c.before, c.after) for c in updated] == [("update", values, nulls)]
    assert [(c.op, c.table, c.before, c.after) for c in mixed] == [
        ("insert", "t", None, {"id": 1, "v": "a"}),
        ("delete", "v", nulls, None),
        ("insert", "t", None, {"id": 2, "v": "b"}),
    ]


async def test_a_start_that_the_server_does_not_have_is_refused(
    mysql97: Server, account: Account
) -> None:
    address = account(mysql97)
    async with BinlogClient(address, password=PASSWORD) as client:
        never = GtidSet.parse("00000000-0000-0000-0000-00000000000a:1-5")
        starts: list[GtidSet | tuple[str, int]] = [
            executed(mysql97).union(never),
            ("binlog.999999", 4),
        ]
        for start in starts:
            with pytest.raises(BinlogError) as raised:
                await client.create_binlog("none", ["lib_a"], start=start)
            assert raised.value.kind is ErrorKind.HISTORY_DIFFERS
            assert client.status() == []
    async with BinlogClient(address, password="another") as client:
        with pytest.raises(BinlogError) as raised:
            await client.create_binlog("none", ["lib_a"])
        assert raised.value.kind is ErrorKind.ACCESS_DENIED
