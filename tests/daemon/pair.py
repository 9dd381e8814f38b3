"""Two daemons that share one state in a database, and a reader that reads from the leader."""

from __future__ import annotations

import http.client
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.daemon.harness import Daemon, Json, Problem, Reader, dumps, until
from tests.servers import Instance

LEASE_S = 2
LONG_LEASE_S = 10  # for tests under load, where a daemon may wait seconds for a processor
PASSING = ("NOT_LEADER", "RANGE_UNAVAILABLE", "SESSION_FENCED")
"""The kinds of problems for which a reader goes to the next daemon and opens a session again."""
ROLES_S = 120.0  # time limit for `roles`: on a busy machine, a daemon that takes the lease may lose the lease again
NEVER_S = 3600  # a lease so long that it ends only when a daemon hands over


@dataclass
class Pair:
    """At first, `a` is the leader and `b` the standby. `store`: the server with the state; `server`: the server that
    the daemons read."""

    a: Daemon
    b: Daemon
    store: Instance
    server: Instance

    def start(self) -> Pair:
        self.a.start()
        until_leads(self.a)
        self.b.start()
        return self

    @property
    def database(self) -> str:
        """The name of the state's database."""
        return str(self.a.settings["state"]["mysql"]).rpartition("/")[2]

    def lease(self) -> tuple[str, int]:
        """Returns (address of the leader, term) from the lease."""
        ((address, term),) = self.store.execute(
            "SELECT address, term FROM lease", database=self.database
        )
        return str(address), int(term)

    def stored(self, consumer: str) -> Json:
        """The consumer's acknowledged position in the state's database."""
        query = f"SELECT acknowledged FROM consumer WHERE name = '{consumer}'"
        ((text,),) = self.store.execute(query, database=self.database)
        position: Json = json.loads(text)
        return position

    def roles(self) -> tuple[Daemon, Daemon]:
        """Wait until one daemon leads and the other one stands by. Returns the leader and the standby."""

        def found() -> tuple[Daemon, Daemon] | None:
            for leader, standby in ((self.a, self.b), (self.b, self.a)):
                if leads(leader) and stands_by(standby, leader):
                    return leader, standby
            return None

        what = "one daemon leads, the other one stands by"
        found_roles = until(found, what, timeout_s=ROLES_S)
        assert found_roles is not None
        return found_roles

    def kill_the_leader(self) -> None:
        """Kill the leader, and start it again when the other daemon is the leader."""
        leader, standby = self.roles()
        leader.kill()
        self._come_back(leader, standby)

    def end_the_leader(self) -> None:
        """End the leader with SIGTERM, and start it again when the other daemon is the leader."""
        leader, standby = self.roles()
        leader.stop()
        self._come_back(leader, standby)

    def _come_back(self, before: Daemon, now: Daemon) -> None:
        until_leads(now)
        before.start()
        self.roles()

    def until_one_dump(self) -> None:
        until(lambda: len(dumps(self.server)) == 1, "one daemon reads the server's log")


def role_of(daemon: Daemon) -> Json:
    role: Json = daemon.api.get("/v1/leader")
    return role


def leads(daemon: Daemon) -> bool:
    return daemon.api.request("GET", "/readyz")[0] == 200


def stands_by(daemon: Daemon, leader: Daemon) -> bool:
    role = role_of(daemon)
    return (role["role"], role["leader"]) == ("standby", leader.url)


def until_leads(daemon: Daemon) -> None:
    until(lambda: leads(daemon), f"{daemon.url} leads", timeout_s=ROLES_S)


def until_stands_by(daemon: Daemon, leader: Daemon) -> None:
    until(lambda: stands_by(daemon, leader), f"{daemon.url} stands by, and {leader.url} leads")


def reach_state_through(daemon: Daemon, port: int) -> None:
    """Change the settings of a daemon that is not started yet: it will connect to its state at this port."""
    state = daemon.settings["state"]
    user, _, place = state["mysql"].partition("@")
    state["mysql"] = f"{user}@127.0.0.1:{port}/{place.partition('/')[2]}"


@contextmanager
def suspended(daemon: Daemon) -> Iterator[None]:
    """Suspend the daemon's process (SIGSTOP), and continue it at the end of the block."""
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        daemon.process.send_signal(signal.SIGCONT)


@contextmanager
def stopped(server: Instance) -> Iterator[None]:
    """Stop the server, and start it again at the end of the block."""
    server.stop()
    try:
        yield
    finally:
        server.start()


def refusal(daemon: Daemon, consumer: str = "d") -> Problem:
    """Makes a reader's call that the daemon must refuse. Returns the daemon's error."""
    try:
        daemon.api.session(consumer)
    except Problem as problem:
        return problem
    raise AssertionError(f"{daemon.url} has opened a session")


class Follower:
    """A reader with its own checkpoint, which reads from the leader. `refusals` counts, by kind, the answers and errors
    after which the reader tried the other daemon."""

    passing: tuple[str, ...] = PASSING

    def __init__(self, *daemons: Daemon, consumer: str = "d") -> None:
        self.reader = Reader(daemons[0], consumer)
        self.refusals: Counter[str] = Counter()
        self._daemons = daemons

    def read_to(self, ids: int) -> None:
        """Read until all leaders together have delivered this number of transactions."""
        until(lambda: self._read(ids), f"{ids} transactions are read and acknowledged")

    def attempt(self, read: Callable[[], object]) -> bool:
        """Call `read`. If the daemon refuses or does not answer, change to the other daemon and return False."""
        try:
            read()
        except Problem as problem:
            if problem.kind not in self.passing:
                raise
            self.refusals[problem.kind] += 1
        except (OSError, http.client.HTTPException) as error:
            self.refusals[type(error).__name__] += 1
        else:
            return True
        at = self._daemons.index(self.reader.daemon)
        self.reader.daemon = self._daemons[(at + 1) % len(self._daemons)]
        return False

    def _read(self, wanted: int) -> bool:
        reader = self.reader

        def read() -> None:
            if not reader.session:
                reader.open()
            while len(reader.transactions) < wanted:
                reader.step(wait_ms=100)
            reader.acknowledge()

        if self.attempt(read):
            return True
        reader.session = 0
        return False
