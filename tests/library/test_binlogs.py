"""The library on a folder of binlog files, without a server: reading, acknowledging, errors, imports."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvloop

import dispatcher
from dispatcher import (
    Binlog,
    BinlogClient,
    BinlogError,
    ErrorKind,
    GtidSet,
    InvalidDates,
    Position,
    Transaction,
    UserError,
)
from dispatcher.binlog.event.types import EventType
from tests.daemon.harness import transactions
from tests.support.event_encoder import LogWriter, Statement, incident_body
from tests.support.rows_encoder import Delivered, Spec, encode_cell, integer, rows_body, table_map

DEADLINE_S = 20.0
ALL = ["mysql", "tagged", "5.6", "anonymous", "none", "mariadb"]


def insert(log: LogWriter, database: str = "shop", *, size: int = 30) -> None:
    log.begin()
    log.statement(Statement(((database, "orders"),), ((0, size),)))
    log.commit()


def written(
    folder: Path, *, gtid: str = "mysql", files: int = 3, each: int = 4, size: int = 30
) -> LogWriter:
    """Writes transactions of `shop` and `billing` in turn, beginning with `shop`."""
    log = LogWriter(gtid=gtid)
    for n in range(files):
        if n:
            log.rotate()
        for m in range(each):
            insert(log, "billing" if m % 2 else "shop", size=size)
    put(folder, log)
    return log


def put(folder: Path, log: LogWriter) -> None:
    folder.mkdir(exist_ok=True)
    for file in log.files:
        (folder / file.name).write_bytes(file.raw)


def of(folder: Path, *, follow: bool = False, **more: Any) -> BinlogClient:
    return BinlogClient(files={"path": folder, "follow": follow}, **more)


async def collect(binlog: AsyncIterator[Transaction]) -> list[Transaction]:
    async with asyncio.timeout(DEADLINE_S):
        return [transaction async for transaction in binlog]


def places(log: LogWriter, database: str) -> list[tuple[str, int]]:
    """Returns file and end offset of each transaction of a database."""
    wanted = {"shop": 0, "billing": 1}[database]
    shown = [t for t in log.transactions if not t.aborted]
    return [(t.file, t.end) for n, t in enumerate(shown) if n % 2 == wanted]


@pytest.mark.parametrize("gtid", ALL)
async def test_iterates_all_transactions_of_its_database_then_ends(
    tmp_path: Path, gtid: str
) -> None:
    log = written(tmp_path / "log", gtid=gtid)
    async with of(tmp_path / "log") as client:
        shop = await client.create_binlog("shop", ["shop"], start="earliest")
        taken = await collect(shop)
        assert [(t.file, t.offset) for t in taken] == places(log, "shop")
        assert [(t.position.file, t.position.offset) for t in taken] == places(log, "shop")
        assert [t.seq for t in taken] == sorted({t.position.seq for t in taken})
        if gtid in ("mysql", "tagged", "5.6", "mariadb"):
            ours = [t for n, t in enumerate(log.transactions) if n % 2 == 0]
            name = "-" if gtid == "mariadb" else ":"
            assert [t.gtid for t in taken] == [f"{t.source}{name}{t.gno}" for t in ours]
        else:
            assert {t.gtid for t in taken} == {""}
        exact = [datetime.fromtimestamp(0, UTC) + timedelta(microseconds=t.commit_us)
                 for n, t in enumerate(log.transactions) if n % 2 == 0]  # fmt: skip
        assert [t.committed_at for t in taken] == exact
        # The position is at the end of the log, after the other database's last transaction.
        assert shop.position.offset == log.transactions[-1].end
        assert await shop.read() == []


async def test_the_bytes_of_a_transaction_are_a_binlog(tmp_path: Path) -> None:
    written(tmp_path)
    async with of(tmp_path) as client:
        taken = await collect(await client.create_binlog("shop", ["shop"], start="earliest"))
    for transaction in taken:
        (alone,) = transactions(transaction.data)
        assert (alone.epoch, alone.seq) == (transaction.epoch, transaction.seq)
        assert (alone.file, alone.offset) == (transaction.file, transaction.offset)
        head = len(transaction.data) - transaction.size
        assert transaction.data[head:].endswith(alone.data)
        assert repr(transaction) == f"<Transaction {transaction.gtid}, {transaction.size} bytes>"


async def test_read_returns_a_list_bounded_in_bytes(tmp_path: Path) -> None:
    written(tmp_path, files=1, each=20)
    async with of(tmp_path) as client:
        binlog = await client.create_binlog("shop", ["shop"], start="earliest")
        first = await binlog.read(max_bytes=1)
        assert len(first) == 1 and binlog.position == first[0].position
        second = await anext(binlog)  # returns the remaining data
        third = await binlog.read(max_bytes=2 * second.size)
        assert len(third) == 2 and binlog.position == third[-1].position
        rest = await binlog.read()
        assert len(rest) == 6
        everything = [*first, second, *third, *rest]
        assert [t.seq for t in everything] == list(range(1, 20, 2))


@pytest.mark.parametrize("gtid", ALL)
async def test_starts_at_any_position_time_file_or_gtid_set(tmp_path: Path, gtid: str) -> None:
    log = written(tmp_path, gtid=gtid)
    async with of(tmp_path) as client:
        taken = await collect(await client.create_binlog("all", ["shop"], start="earliest"))
        starts: list[tuple[Any, int]] = [(t.position, n + 1) for n, t in enumerate(taken)]
        starts.append((log.transactions[4].commit_us, 2))
        starts.append(((log.transactions[4].file, log.transactions[4].end), 3))
        if gtid == "mysql":
            starts.append((GtidSet.parse(taken[2].position.gtid), 3))
        for n, (start, passed) in enumerate(starts):
            if isinstance(start, int):
                start = datetime.fromtimestamp(start / 1e6, UTC)  # noqa: PLW2901
            binlog = await client.create_binlog(f"from{n}", ["shop"], start=start)
            again = await collect(binlog)
            assert [t.seq for t in again] == [t.seq for t in taken][passed:], start
            await binlog.close()


async def test_transactions_before_a_fault_are_returned_before_it(tmp_path: Path) -> None:
    log = written(tmp_path, files=1, each=6)
    log.add(EventType.INCIDENT, incident_body("lost some"))
    insert(log)
    put(tmp_path, log)
    async with of(tmp_path) as client:
        binlog = await client.create_binlog("shop", ["shop"], start="earliest")
        taken = [await anext(binlog) for _ in range(3)]
        assert [(t.file, t.offset) for t in taken] == places(log, "shop")[:3]
        for _ in range(2):
            with pytest.raises(BinlogError) as raised:
                await anext(binlog)
            assert raised.value.kind is ErrorKind.UNSUPPORTED_EVENT
        with pytest.raises(BinlogError):
            await binlog.read(wait_s=0)
        # The returned transactions can still be acknowledged.
        await binlog.acknowledge()
        assert binlog.status()["state"] == "failed"


@pytest.mark.parametrize("gtid", ["mysql", "none"])
async def test_a_position_is_valid_in_another_process(tmp_path: Path, gtid: str) -> None:
    written(tmp_path, gtid=gtid)
    async with of(tmp_path) as client:
        taken = await collect(await client.create_binlog("a", ["shop"], start="earliest"))
    position = Position.from_json(taken[3].position.to_json())
    async with of(tmp_path) as client:
        again = await collect(await client.create_binlog("b", ["shop"], start=position))
    assert [t.seq for t in again] == [t.seq for t in taken[4:]]


async def test_forget_removes_the_stored_position(tmp_path: Path) -> None:
    written(tmp_path / "log")
    async with of(tmp_path / "log", state=tmp_path / "state.db") as client:
        for _ in range(2):
            binlog = await client.create_binlog("shop", ["shop"], start="earliest")
            taken = await collect(binlog)
            assert len(taken) == 6
            await binlog.acknowledge()
            with pytest.raises(UserError, match="in use"):
                await client.forget("shop")
            await binlog.close()
            await client.forget("shop")


def test_it_runs_on_uvloop(tmp_path: Path) -> None:
    written(tmp_path)

    async def read() -> list[Transaction]:
        async with of(tmp_path) as client:
            return await collect(await client.create_binlog("a", ["shop"], start="earliest"))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert len(runner.run(read())) == 6


async def test_rows_decoded_together_are_returned_by_transaction(tmp_path: Path) -> None:
    columns = (Spec("id", 3), Spec("day", 10))
    log = LogWriter()
    for n in range(6):
        if n == 3:
            log.rotate(checksum=False)
        log.begin()
        for table_id, table in ((7, "orders"), (8, "lines"), (7, "orders")):
            log.add(EventType.TABLE_MAP, table_map(columns, table=table, table_id=table_id))
            rows = [[integer(10 * n + m, 4), bytes(3)] for m in range(2)]
            damaged = b"\0\1" if n == 4 else None  # an incomplete row
            log.add(30, rows_body(30, rows, table_id=table_id, data=damaged))
        log.commit()
    put(tmp_path, log)
    async with of(tmp_path) as client:
        taken = await collect(await client.create_binlog("shop", ["shop"], start="earliest"))
    ids = [10 * n + m for n in (0, 1, 2, 3, 5) for _ in range(3) for m in range(2)]
    for _ in range(2):
        changes = []
        for n, transaction in enumerate(taken):
            if n == 4:
                with pytest.raises(BinlogError) as raised:
                    list(transaction.changes())
                assert raised.value.kind is ErrorKind.MALFORMED_EVENT
            else:
                changes.append(list(transaction.changes()))
        assert [change.after for those in changes for change in those] == [
            {"id": n, "day": None} for n in ids
        ]
        assert {tuple(change.table for change in those) for those in changes} == {
            ("orders", "orders", "lines", "lines", "orders", "orders")
        }
    first, *_ = taken[0].changes(invalid_dates=InvalidDates.TEXT)
    assert first.after == {"id": 0, "day": "0000-00-00"}
    first, *_ = taken[0].changes()
    assert first.after == {"id": 0, "day": None}
    with pytest.raises(BinlogError) as raised:
        list(taken[0].changes(invalid_dates=InvalidDates.ERROR))
    assert raised.value.kind is ErrorKind.INVALID_VALUE


async def test_a_transaction_larger_than_its_queue_is_spilled(tmp_path: Path) -> None:
    log = LogWriter()
    for size in (100, 3 << 20, 100):
        insert(log, size=size)
    put(tmp_path / "log", log)
    state = {"path": tmp_path / "state.db", "max_bytes_in_spill": "64MiB"}
    async with of(tmp_path / "log", state=state) as client:
        binlog = await client.create_binlog(
            "shop", ["shop"], start="earliest", max_bytes_in_binlog_queue=1
        )
        sizes = []
        async with asyncio.timeout(DEADLINE_S):
            async for transaction in binlog:
                sizes.append(transaction.size)
                if transaction.size > 3 << 20:
                    assert binlog.status()["spilled_bytes"] >= transaction.size
                assert len(transaction.data) == sum(map(len, transaction.parts()))
                await binlog.acknowledge(transaction)
        assert [size > 3 << 20 for size in sizes] == [False, True, False]
        assert binlog.status()["spilled_bytes"] == 0


async def test_warns_of_a_queue_full_of_unacknowledged_transactions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path / "log", files=1, each=200, size=30_000)
    caplog.set_level(logging.WARNING, "dispatcher")
    async with of(tmp_path / "log", state=tmp_path / "state.db") as client:
        binlog = await client.create_binlog(
            "shop", ["shop"], start="earliest", max_bytes_in_binlog_queue="64KiB"
        )
        taken: list[Transaction] = []
        while more := await binlog.read(wait_s=0.3):
            taken += more
        assert 1 <= len(taken) < 100
        assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
            "the queue is full of transactions not acknowledged yet"
        ]
        await binlog.acknowledge()
        assert len(await binlog.read()) >= 1


async def test_acknowledging_a_foreign_position_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    async with of(tmp_path) as client:
        binlog = await client.create_binlog("shop", ["shop"], start="earliest")
        taken = await collect(await client.create_binlog("other", ["shop"], start="earliest"))
        first = await anext(binlog)
        await binlog.acknowledge(first)
        await binlog.acknowledge(first)
        for position, why in [
            (taken[1].position, "not returned yet"),
            (replace(first.position, epoch=3), "epoch 3"),
            (replace(first.position, seq=1000), "seq does not fit"),
        ]:
            with pytest.raises(UserError, match=why) as raised:
                await binlog.acknowledge(position)
            assert raised.value.kind is ErrorKind.POSITION_UNKNOWN
        assert binlog.acknowledged == first.position


async def test_a_state_store_has_one_client_at_a_time(tmp_path: Path) -> None:
    written(tmp_path / "log")
    async with of(tmp_path / "log", state=tmp_path / "state.db") as client:
        with pytest.raises(BinlogError, match="in use by another process"):
            await of(tmp_path / "log", state=tmp_path / "state.db").open()
        with pytest.raises(UserError, match="open already"):
            await client.open()
    await client.close()
    async with client:
        assert client.status() == []
    with pytest.raises(UserError, match="not open"):
        client.status()
    with pytest.raises(UserError, match="not open"):
        await client.create_binlog("shop", ["shop"])


async def test_a_defect_is_raised_by_every_waiting_read(tmp_path: Path) -> None:
    written(tmp_path)
    async with of(tmp_path, follow=True) as client:
        binlog = await client.create_binlog("shop", ["shop"])
        waits = asyncio.gather(anext(binlog))
        await asyncio.sleep(0.01)
        client._on_error("clock", ZeroDivisionError("of no use"))
        with pytest.raises(BinlogError, match="of no use") as raised:
            await waits
        assert raised.value.kind is ErrorKind.INTERNAL
        assert isinstance(raised.value.__cause__, ZeroDivisionError)


async def test_a_cancelled_create_binlog_leaves_no_binlog(tmp_path: Path) -> None:
    async with BinlogClient("repl@127.0.0.1:1", password="x") as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.create_binlog("shop", ["shop"])
        assert client.status() == []
        with pytest.raises(BinlogError) as raised:
            await client.create_binlog("shop", ["shop"], wait_s=0.1)
        assert raised.value.kind is ErrorKind.CONNECT_FAILED
        assert client.status() == []


def test_wrong_options_of_a_client_are_named() -> None:
    for options, why in [
        ({"mysql": "repl"}, "mysql: expected user@host:port"),
        ({"mysql": "repl:hidden@db1"}, "must not contain a password"),
        ({"mysql": "repl@db1"}, "the password is missing"),
        ({}, "the source is missing"),
        ({"mysql": "repl@db1", "password": "x", "heartbeat_ms": 3}, "did you mean 'heartbeat_mill"),
        ({"mysql": "repl@db1", "password": "x", "max_bytes_to_merge": "much"}, "max_bytes_to_merge"),
        ({"mysql": "repl@db1", "password": "x", "state": {"paht": "s"}}, "state: paht: unknown key"),
    ]:  # fmt: skip
        with pytest.raises(UserError) as raised:
            BinlogClient(**options)  # type: ignore[arg-type]
        assert raised.value.kind is ErrorKind.SETTINGS
        assert why in str(raised.value) and "hidden" not in str(raised.value)
    client = BinlogClient("repl@db1,db2:3307", password="hidden", tls={"mode": "required"})
    assert repr(client) == "<BinlogClient repl@db1:3306,db2:3307>"


async def test_wrong_options_of_a_binlog_are_named(tmp_path: Path) -> None:
    written(tmp_path)
    async with of(tmp_path) as client:
        binlog = await client.create_binlog("there", ["shop"])
        assert type(binlog) is Binlog
        assert repr(binlog) == "<Binlog 'there'>"
        for name, databases, options, why in [
            ("there", ["shop"], {}, "there is a binlog 'there' already"),
            ("not/one", ["shop"], {}, "not a valid name of a binlog"),
            ("none", [], {}, "databases: must not be empty"),
            (
                "none",
                ["shop"],
                {"tables": ["billing.x"]},
                "the database of 'billing.x' is not in databases",
            ),
            ("none", ["shop"], {"start": "here"}, "expected earliest, latest"),
            ("none", ["shop"], {"start": ("binlog.000001", 1)}, "offset must be at least 4"),
            ("none", ["shop"], {"start": datetime(2026, 1, 1)}, "without a time zone"),  # noqa: DTZ001
            ("none", ["shop"], {"start": 4}, "int is not a position"),
            ("none", ["shop"], {"on_purged": "weep"}, "on_purged: must be 'fail' or 'latest'"),
            ("none", ["shop"], {"wait": 3}, "wait: unknown key"),
        ]:
            with pytest.raises(UserError) as raised:
                await client.create_binlog(name, databases, **options)  # type: ignore[arg-type]
            assert why in str(raised.value), raised.value
        assert [row["name"] for row in client.status()] == ["there"]


def test_imports_are_lazy_and_no_kernel_compiles_late() -> None:
    columns = (Spec("id", 3), Spec("v", 15, (80).to_bytes(2, "little"), charset=45))
    log = Delivered()
    rows = rows_body(30, [[integer(1, 4), encode_cell(columns[1], "x")]])
    log.transaction((19, table_map(columns)), (30, rows))
    program = """
import json, sys
import dispatcher
before = set(sys.modules)
dispatcher.GtidSet, dispatcher.Position, dispatcher.BinlogError, dispatcher.ErrorKind
light = set(sys.modules)
dispatcher.BinlogClient
everything = set(sys.modules)

from numba.core.registry import CPUDispatcher
from dispatcher.binlog.decode import delivered
from dispatcher.library.warm import load_decoder

def compiled():
    modules = [module for name, module in sys.modules.items() if name.startswith("dispatcher.binlog")]
    values = {id(value): value for module in modules for value in vars(module).values()}
    return sum(len(v.signatures) for v in values.values() if isinstance(v, CPUDispatcher))

load_decoder()
ready = compiled()
(change,) = delivered.changes(bytes.fromhex(sys.argv[1]))
assert change.batch.num_rows == 1
print(json.dumps([sorted(before), sorted(light), sorted(everything), compiled() - ready]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, log.bytes().hex()],
        capture_output=True,
        text=True,
        check=True,
    )
    *modules, compiled_late = json.loads(done.stdout)
    before, light, everything = map(set, modules)
    assert not {name for name in before if name.startswith("dispatcher.")}
    assert not light & {"asyncio", "numpy", "numba", "pyarrow", "pydantic", "pymysql"}
    assert "dispatcher.library" in everything
    unwanted = {"starlette", "uvicorn", "uvloop", "structlog", "prometheus_client", "typer"}
    assert not everything & unwanted
    assert compiled_late == 0


def test_the_names_of_the_package() -> None:
    assert dir(dispatcher) == sorted(dispatcher.__all__)
    assert all(getattr(dispatcher, name).__name__ == name for name in dispatcher.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Binlogs'"):
        dispatcher.Binlogs  # noqa: B018
