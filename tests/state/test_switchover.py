"""A planned switchover of the state's server: the former primary runs on, read-only, and the address leads to another
server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position
from dispatcher.settings.model import StateSettings
from dispatcher.state.database import DatabaseStore
from dispatcher.state.database_dump import dump_database
from dispatcher.state.lease import LeaseTable
from dispatcher.state.server.session import PRIVILEGES
from tests.servers.plugin import ServerFactory
from tests.servers.server import Instance, Server
from tests.support.proxy import Proxy
from tests.support.state_stores import ADDRESS, HOLDER

DATABASE, USER, PASSWORD = "state", "dispatcher", "streng-geheim"
LONG_S = 3600.0
DEADLINE_S = 20
LEASE_S = 60  # no session is idle for so long that its server ends it


def at(seq: int) -> Position:
    return Position("server", "", "binlog.000001", seq, seq, 1)


def settings_at(port: int) -> StateSettings:
    return StateSettings.model_validate(
        {"mysql": f"{USER}@127.0.0.1:{port}/{DATABASE}", "password": PASSWORD,
         "tls": {"mode": "disabled"}, "lease": LEASE_S}
    )  # fmt: skip


@pytest.fixture(scope="module", params=["mysql97", "mariadb118"])
def servers(
    request: pytest.FixtureRequest, module_server_factory: ServerFactory
) -> tuple[Instance, Instance]:
    """Two servers with the same account and an empty database."""
    servers = module_server_factory(request.param), module_server_factory(request.param)
    for server in servers:
        server.execute(f"CREATE DATABASE {DATABASE}")
        server.add_user(USER, PASSWORD, f"{', '.join(PRIVILEGES)} ON {DATABASE}.*")
    return servers


@dataclass
class Pair:
    """The address of the state leads to `old` until `switch_over`."""

    old: Server
    new: Server
    proxy: Proxy

    @property
    def settings(self) -> StateSettings:
        return settings_at(self.proxy.port)

    def demote(self) -> None:
        """Make the old primary read-only. It keeps its sessions."""
        self.old.execute("SET GLOBAL read_only = 1")

    def switch_over(self) -> None:
        """Demote the old primary, and let the address lead to the new one, which has the same term."""
        self.demote()
        with closing(LeaseTable(settings_at(self.new.port))) as table:
            assert table.campaign(HOLDER, ADDRESS, LONG_S).is_of(HOLDER, 1)
        self.proxy.lead_to(self.new.port)

    def await_sessions(self, number: int) -> None:
        """Wait until this number of sessions is open through the address."""
        deadline = time.monotonic() + DEADLINE_S
        while len(self.proxy.open_links) != number:
            assert time.monotonic() < deadline, f"{len(self.proxy.open_links)} sessions are open"


@pytest.fixture
def pair(servers: tuple[Instance, Instance]) -> Iterator[Pair]:
    old, new = servers
    with Proxy(old.port) as proxy:
        yield Pair(old, new, proxy)
    for server in servers:
        server.execute(
            "SET GLOBAL read_only = 0", f"DROP DATABASE {DATABASE}", f"CREATE DATABASE {DATABASE}"
        )


@contextmanager
def leading(pair: Pair) -> Iterator[LeaseTable]:
    with closing(LeaseTable(pair.settings)) as table:
        assert table.campaign(HOLDER, ADDRESS, LONG_S).is_of(HOLDER, 1)
        yield table


def test_the_leader_renews_its_lease_on_the_new_server(pair: Pair) -> None:
    with leading(pair) as table:
        pair.switch_over()
        assert table.renew(HOLDER, 1, LONG_S).is_of(HOLDER, 1)
        pair.await_sessions(1)
        table.release(HOLDER, 1)
    assert pair.new.execute(f"SELECT expires <= NOW(6) FROM {DATABASE}.lease") == ((1,),)


def test_the_leader_stores_on_the_new_server(pair: Pair) -> None:
    with leading(pair), closing(DatabaseStore(pair.settings, HOLDER, 1)) as store:
        pair.switch_over()
        store.save([("shop", at(1), at(1), 0)])
        assert pair.new.execute(f"SELECT name FROM {DATABASE}.consumer") == ((b"shop",),)


def test_a_standby_reads_and_takes_the_lease_of_the_new_server(pair: Pair) -> None:
    with leading(pair), closing(LeaseTable(pair.settings)) as standby:
        assert standby.read().is_of(HOLDER, 1)
        pair.switch_over()
        pair.new.execute(f"UPDATE {DATABASE}.lease SET term = 2, expires = NOW(6)")
        seen = standby.read()
        assert seen.free and seen.term == 2
        assert standby.campaign("another daemon", ADDRESS, LONG_S).term == 3


def test_a_standby_does_not_trust_a_server_that_refuses_writes(pair: Pair) -> None:
    """Such a server may replicate from the new primary, and then its row of the lease looks valid."""
    with leading(pair), closing(LeaseTable(pair.settings)) as standby:
        standby.read()
        pair.demote()
        calls = (
            (standby.read, "read_only=ON: the server refuses writes"),
            (partial(standby.campaign, "another daemon", ADDRESS, LONG_S), "1290"),
        )
        for call, what in calls:
            with pytest.raises(BinlogError, match=what) as caught:
                call()
            error = caught.value
            assert error.kind is ErrorKind.STATE_STORE and error.where == pair.settings.label
            assert (
                error.remedy == "let the address in state.mysql lead to the server that is writable"
            )
            pair.await_sessions(1)  # that of the leader
        pair.old.execute("SET GLOBAL read_only = 0")
        assert standby.read().is_of(HOLDER, 1)


def test_a_write_that_no_server_accepts_leaves_no_session(pair: Pair) -> None:
    with leading(pair) as table, closing(DatabaseStore(pair.settings, HOLDER, 1)) as store:
        table.close()
        pair.demote()
        with pytest.raises(BinlogError, match="1290") as caught:
            store.save([("shop", at(1), at(1), 0)])
        assert "the server that is writable" in caught.value.remedy
        pair.await_sessions(0)
        pair.old.execute("SET GLOBAL read_only = 0")
        store.save([("shop", at(1), at(1), 0)])


def test_a_replica_can_be_dumped(pair: Pair) -> None:
    with leading(pair):
        pair.demote()
        leader = {"address": ADDRESS, "term": 1}
        assert dump_database(settings_at(pair.old.port))["leader"] == leader
