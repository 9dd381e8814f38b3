"""Two daemons with one state in a database, and a reader that reads from the leader."""

from __future__ import annotations

import http.client
from dataclasses import dataclass

from tests.daemon.harness import Daemon, Json, Problem, Reader, dumps, until
from tests.servers import Instance

LEASE_S = 2
PASSING = ("NOT_LEADER", "RANGE_UNAVAILABLE", "SESSION_FENCED")
"""The kinds of problems for which a reader goes to the next daemon and opens a session again."""
NEVER_S = 3600  # a lease that only a daemon that hands over gives back


@dataclass
class Pair:
    """`a` leads at first, `b` stands by. `store`: the server of the state; `server`: the one that is read."""

    a: Daemon
    b: Daemon
    store: Instance
    server: Instance

    def start(self) -> Pair:
        self.a.start()
        until_leads(self.a)
        self.b.start()
        return self

    def lease(self) -> tuple[str, int]:
        """(address of the holder, term)"""
        database = str(self.a.settings["state"]["mysql"]).rpartition("/")[2]
        ((address, term),) = self.store.execute(
            "SELECT address, term FROM lease", database=database
        )
        return str(address), int(term)

    def until_one_dump(self) -> None:
        until(lambda: len(dumps(self.server)) == 1, "one daemon reads the server's log")


def role_of(daemon: Daemon) -> Json:
    role: Json = daemon.api.get("/v1/leader")
    return role


def until_leads(daemon: Daemon) -> None:
    def leads() -> bool:
        return daemon.api.request("GET", "/readyz")[0] == 200

    until(leads, f"{daemon.url} leads")


def until_stands_by(daemon: Daemon, leader: Daemon) -> None:
    def stands_by() -> bool:
        role = role_of(daemon)
        return (role["role"], role["leader"]) == ("standby", leader.url)

    until(stands_by, f"{daemon.url} stands by, and {leader.url} leads")


def refusal(daemon: Daemon, consumer: str = "d") -> Problem:
    """The error with which a daemon refuses a reader's call."""
    try:
        daemon.api.session(consumer)
    except Problem as problem:
        return problem
    raise AssertionError(f"{daemon.url} has opened a session")


class Follower:
    """A reader with a checkpoint of its own. It reads from the daemon that leads."""

    def __init__(self, *daemons: Daemon, consumer: str = "d") -> None:
        self.reader = Reader(daemons[0], consumer)
        self._daemons = daemons

    def read_to(self, ids: int) -> None:
        """Read until this number of transactions has come, from all leaders together."""
        until(lambda: self._read(ids), f"{ids} transactions are read and acknowledged")

    def _read(self, wanted: int) -> bool:
        reader = self.reader
        try:
            if not reader.session:
                reader.open()
            while len(reader.transactions) < wanted:
                reader.step(wait_ms=100)
            reader.acknowledge()
        except Problem as problem:
            if problem.kind not in PASSING:
                raise
        except (OSError, http.client.HTTPException):
            pass
        else:
            return True
        at = self._daemons.index(reader.daemon)
        reader.daemon, reader.session = self._daemons[(at + 1) % len(self._daemons)], 0
        return False
