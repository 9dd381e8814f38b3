"""The effects of the rules of leadership, executed on a database in memory: one daemon leads, the other waits."""

# ruff: noqa: ARG002

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from dispatcher.leadership.lease import LeaseRow, campaigned, released, renewed
from dispatcher.leadership.role import Role
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.terms.standby import Standby
from tests.support.fake_clients import until

LEASE_S = 3600.0  # nothing expires within a test


@dataclass
class Row:
    """The row in the database. `down`: no call succeeds; `held`: calls wait until it is cleared."""

    row: LeaseRow = field(default_factory=partial(LeaseRow, "", "", 0, 0.0))
    down: bool = False
    held: threading.Event = field(default_factory=threading.Event)
    sessions: list[FakeLease] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.held.set()

    def expire(self) -> None:
        self.row = LeaseRow(self.row.holder, self.row.address, self.row.term, 0.0)


class FakeLease:
    def __init__(self, table: Row) -> None:
        self._table = table
        self.waits = False
        self.closed = False
        table.sessions.append(self)

    def _call(self) -> None:
        self.waits = True
        self._table.held.wait()
        self.waits = False
        if self._table.down:
            raise BinlogError(ErrorKind.STATE_STORE, "the server is down")

    def read(self) -> LeaseRow:
        self._call()
        return self._table.row

    def campaign(self, holder: str, address: str, duration_s: float) -> LeaseRow:
        self._call()
        self._table.row = campaigned(self._table.row, holder, address, duration_s)
        return self._table.row

    def renew(self, holder: str, term: int, duration_s: float) -> LeaseRow:
        self._call()
        self._table.row = renewed(self._table.row, holder, term, duration_s)
        return self._table.row

    def release(self, holder: str, term: int) -> None:
        self._call()
        self._table.row = released(self._table.row, holder, term)

    def interrupt(self) -> None:
        self.waits = False
        self._table.held.set()

    def close(self) -> None:
        assert not self.waits, "a real session waits for the answer"
        self.closed = True


class FakeDaemon:
    """`done`: the actions that the rules have caused. `opening`: a term waits for its store until this is set."""

    def __init__(self, table: Row, address: str) -> None:
        self.done: list[Any] = []
        self.lines: list[str] = []
        self.errors: list[BaseException] = []
        self.opening = asyncio.Event()
        self.opening.set()
        self.fault: BinlogError | None = None
        self.standby = Standby(
            lambda: FakeLease(table),
            self,
            self,
            lambda _, error: self.errors.append(error),
            address=address,
            lease_s=LEASE_S,
            answer_time_s=lambda: 0.0,
        )

    def log(self, level: int, event: str, **fields: Any) -> None:
        self.lines.append(event)

    async def lead(self, holder: str, term: int) -> None:
        self.done.append(term)
        await self.opening.wait()
        if self.fault is not None:
            raise self.fault
        self.done.append("serves")

    async def resign(self, orderly: bool) -> None:
        self.done.append("stored" if orderly else "dropped")

    def exit(self) -> None:
        self.done.append("exits")


@asynccontextmanager
async def daemons(table: Row, *addresses: str) -> AsyncIterator[list[FakeDaemon]]:
    """Daemons that are started one after the other. At the end they hand over."""
    made = [FakeDaemon(table, address) for address in addresses]
    for daemon in made:
        daemon.standby.start()
        await until(partial(getattr, daemon, "lines"), "it knows who leads")
    yield made
    for daemon in made:
        daemon.standby.hand_over()
        await daemon.standby.gone()
        assert daemon.errors == []
    assert table.row.free
    assert all(session.closed for session in table.sessions)


async def test_the_first_daemon_leads_and_the_second_names_it() -> None:
    async with daemons(Row(), "http://a", "http://b") as (a, b):
        await until(lambda: a.done == [1, "serves"], "a leads")
        assert a.standby.serves() and not b.standby.serves()
        assert a.standby.role() == Role(True, 1, "http://a")
        assert b.standby.role() == Role(False, 1, "http://a")
        assert b.standby.refusal().leader == "http://a"


async def test_a_daemon_that_ends_hands_over() -> None:
    async with daemons(Row(), "http://a", "http://b") as (a, b):
        await until(lambda: a.done == [1, "serves"], "a leads")
        a.standby.hand_over()
        await until(lambda: b.done == [2, "serves"], "b leads")
        assert a.done == [1, "serves", "stored", "exits"]


async def test_a_write_that_is_refused_ends_the_term() -> None:
    table = Row()
    async with daemons(table, "http://a") as (a,):
        await until(lambda: a.done == [1, "serves"], "a leads")
        holder = table.row.holder
        a.standby.write_refused(1)
        await until(lambda: a.done[2:] == ["dropped", 2, "serves"], "a leads the next term")
        assert table.row.holder != holder


async def test_a_term_that_is_lost_before_its_store_is_open_ends() -> None:
    a = FakeDaemon(Row(), "http://a")
    a.opening.clear()
    a.standby.start()
    await until(lambda: a.done == [1], "the term begins")
    a.standby.write_refused(1)
    await until(lambda: a.done[1:] == ["dropped", 2], "the next term begins")
    a.opening.set()
    await until(lambda: a.done[-1] == "serves", "a leads")
    a.standby.hand_over()
    await a.standby.gone()


async def test_a_daemon_that_cannot_open_the_store_gives_the_lease_back() -> None:
    table = Row()
    a, b = FakeDaemon(table, "http://a"), FakeDaemon(table, "http://b")
    a.fault = BinlogError(ErrorKind.STATE_STORE, "the tables are of a newer version")
    a.standby.start()
    await until(lambda: "cannot lead" in a.lines, "a cannot lead")
    b.standby.start()
    await until(lambda: b.done == [2, "serves"], "b leads")
    for daemon in (a, b):
        daemon.standby.hand_over()
        await daemon.standby.gone()


async def test_a_database_that_is_down_is_told_and_asked_again() -> None:
    table = Row(down=True)
    async with daemons(table, "http://a") as (a,):
        assert a.lines == ["lease not reached"] and "the server is down" in a.standby.trouble
        table.down = False
        await until(lambda: a.done == [1, "serves"], "a leads")
        assert a.standby.trouble == ""


async def test_a_daemon_ends_while_its_database_does_not_answer() -> None:
    table = Row()
    a = FakeDaemon(table, "http://a")
    table.held.clear()
    a.standby.start()
    await until(lambda: any(lease.waits for lease in table.sessions), "it asks")
    a.standby.hand_over()
    assert a.done == ["exits"]
    await a.standby.gone()
    assert [lease.closed for lease in table.sessions] == [True]
