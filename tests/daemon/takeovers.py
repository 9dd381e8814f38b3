"""Events by which another daemon may become the leader. Each method of `Takeovers` causes one such event for two
running daemons, and returns when one daemon is the leader and the other daemon is the standby.

Each daemon connects to the state through its own proxy. Both daemons connect through one common proxy to the server
that they read, because that server's address is part of the identity that they share there.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.daemon.harness import Daemon, until
from tests.daemon.pair import Pair, role_of, stopped, suspended, until_leads
from tests.daemon.steady_reader import SteadyReader, at_rest, order
from tests.support.proxy import NORMAL, SWALLOWING, Conditions, Proxy

LONG_PAUSE_S = 60.0
# A time longer than the lease, the time-outs of calls and the pauses between attempts.
ABSENCE_S = 120.0


@dataclass
class Takeovers:
    pair: Pair
    to_state: Mapping[Daemon, Proxy]
    to_source: Proxy
    readers: Sequence[SteadyReader]
    chance: random.Random

    def leader_killed(self) -> None:
        self.pair.kill_the_leader()

    def leader_ended(self) -> None:
        self.pair.end_the_leader()

    def leader_suspended(self, at_least_s: float = 0.0) -> None:
        leader, standby = self.pair.roles()
        with suspended(leader):
            until_leads(standby)
            self.pair.until_one_dump()
            threading.Event().wait(at_least_s)
            assert self.pair.lease()[0] == standby.url

    def leader_suspended_for_long(self) -> None:
        self.leader_suspended(LONG_PAUSE_S)

    def leader_cut_off_from_the_state(self) -> None:
        leader, standby = self.pair.roles()
        with conditions(self.to_state[leader], SWALLOWING):
            until_leads(standby)
            until(lambda: knows_no_leader(leader), "the former leader has resigned")
            self.pair.until_one_dump()

    def leader_cut_off_from_the_source(self) -> None:
        """This event causes no takeover: the leader keeps the lease, and its consumers wait."""
        leader, _ = self.pair.roles()
        before = self.pair.lease()
        with conditions(self.to_source, SWALLOWING):
            leader.api.until_state(self._consumer, "connecting")
        # Any of these states may follow: a dispatcher also pauses while it asks for the columns of a table.
        leader.api.until_state(self._consumer, "streaming", "paused", "closed")
        assert self.pair.lease() == before

    def state_restarted(self) -> None:
        """Possibly without a takeover: the state's server may run again before the lease expires."""
        self.pair.store.restart(kill=self.chance.random() < 0.5)
        self._follow_the_state()

    def state_absent_for_long(self) -> None:
        with stopped(self.pair.store):
            for daemon in (self.pair.a, self.pair.b):
                until(partial(knows_no_leader, daemon), f"{daemon.url} stands by")
            threading.Event().wait(ABSENCE_S)
            assert knows_no_leader(self.pair.a) and knows_no_leader(self.pair.b)
        self._follow_the_state()

    def state_loses_its_newest_commits(self) -> None:
        """Restore an older state, as if a lagging replica had replaced the state's server. The stored positions become
        older, and the leader gives up its term."""
        _, term = self.pair.lease()
        with copy_of(self.pair) as restore:
            for reader in self.readers:
                more = order(self.pair.stored(reader.consumer))[1] + 1
                until(partial(reader.has_acknowledged, more), "it acknowledges more")
            with at_rest(self.readers):
                restore()
                for reader in self.readers:
                    reader.set_back(self.pair.stored(reader.consumer))
        until(lambda: self.pair.lease()[1] > term, "there is a new term")

    @property
    def _consumer(self) -> str:
        return self.readers[0].consumer

    def _follow_the_state(self) -> None:
        """Set the proxies' target to the state's server, which may have another port after a restart."""
        for proxy in self.to_state.values():
            proxy.lead_to(self.pair.store.port)


ONCE = ("leader_suspended_for_long", "state_absent_for_long")
OFTEN = (
    "leader_killed",
    "leader_ended",
    "leader_suspended",
    "leader_cut_off_from_the_state",
    "leader_cut_off_from_the_source",
    "state_restarted",
    "state_loses_its_newest_commits",
)


def drawn(chance: random.Random, number: int) -> list[str]:
    """Returns at least `number` names of methods in a random order: each of `ONCE` once, and each of `OFTEN` at least
    twice."""
    names = [*ONCE, *OFTEN, *OFTEN]
    names += chance.choices(OFTEN, k=number - len(names))
    chance.shuffle(names)
    return names


def knows_no_leader(daemon: Daemon) -> bool:
    role = role_of(daemon)
    return (role["role"], role["leader"]) == ("standby", None)


@contextmanager
def copy_of(pair: Pair) -> Iterator[Callable[[], None]]:
    """Copy the tables of the state. Yields a function that restores the tables, except the lease's holder and end."""
    state, copy = pair.database, f"{pair.database}_copy"
    execute = pair.store.execute
    tables = [str(name) for (name,) in execute("SHOW TABLES", database=state)]
    rows = [table for table in tables if table != "lease"]
    # Lock the lease first, as each write of a daemon does.
    begin = ("BEGIN", f"SELECT * FROM {state}.lease FOR UPDATE")
    execute(
        f"CREATE DATABASE {copy}",
        *(f"CREATE TABLE {copy}.{table} LIKE {state}.{table}" for table in tables),
        *begin,
        *(f"INSERT INTO {copy}.{table} SELECT * FROM {state}.{table}" for table in tables),
        "COMMIT",
    )

    def restore() -> None:
        execute(
            *begin,
            *(f"DELETE FROM {state}.{table}" for table in rows),
            *(f"INSERT INTO {state}.{table} SELECT * FROM {copy}.{table}" for table in rows),
            f"UPDATE {state}.lease SET writes = (SELECT writes FROM {copy}.lease)",
            "COMMIT",
        )

    try:
        yield restore
    finally:
        execute(f"DROP DATABASE {copy}")


@contextmanager
def conditions(proxy: Proxy, bad: Conditions) -> Iterator[None]:
    proxy.set(bad)
    try:
        yield
    finally:
        proxy.set(NORMAL)
