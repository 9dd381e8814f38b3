"""What is going on, looked at from outside, and what must hold meanwhile.

A look asks the daemon (`GET /v1/binlogs`), the server (its list of processes, its executed GTIDs), the kernel (the
daemon's memory) and the mirror job's log. `Rules` is pure: looks in, the first thing that is wrong out.

The server's list and the daemon's states cannot be read at one instant, and a server notices that a replica is gone
only when it next writes to it, at the latest with the next heartbeat. So a number of dump threads that does not fit is
wrong only when it stays so, with unchanged states, for longer than that.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from deploy.demo.parts import DemoFailed, resident_bytes
from dispatcher.model.gtid import GtidSet

MEMORY_BASE_BYTES = 250 * 10**6
GRACE_S = 3.0
ANSWER_S = 60.0  # the first start of a fresh machine compiles, and answers nobody meanwhile
_DUMP = ("Binlog Dump", "Binlog Dump GTID")
_BATCH = re.compile(
    r"INFO (\S+): batch \d+: (\d+) rows of \d+ tables, .* in ([\d.]+) s$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Declared:
    """A consumer as the demo's settings declare it."""

    name: str
    user: str
    databases: tuple[str, ...]
    queue_bytes_max: int
    shared: bool = True


@dataclass(slots=True)
class Mirrored:
    """What the mirror job's log tells of one consumer."""

    batches: int = 0
    rows: int = 0
    last_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """`rows`: of GET /v1/binlogs by consumer; `dumps`: the server's dump threads by user; `at`: monotonic, s."""

    at: float
    rows: Mapping[str, Mapping[str, Any]]
    dumps: Mapping[str, int]
    executed: GtidSet
    resident_bytes: int
    resident_bytes_max: int
    mirrored: Mapping[str, Mirrored]

    def state(self, consumer: str) -> str:
        return str(self.rows[consumer]["state"])

    def behind(self, consumer: str) -> int:
        """Transactions of the server that the consumer's reader has not acknowledged, or passed over."""
        covered = self.rows[consumer]["covered"]
        done = GtidSet.parse(covered["gtid"]) if covered else GtidSet()
        return len(self.executed.subtract(done))


class Watch:
    """Looks. Not thread-safe."""

    def __init__(
        self, port: int, server: Connection[Cursor], daemon_pid: int, mirror_log: Path
    ) -> None:
        self._port = port
        self._server = server
        self._daemon_pid = daemon_pid
        self._mirror_log = MirrorLog(mirror_log)

    def answers(self) -> bool:
        """Does the daemon listen yet?"""
        try:
            return self._get("/livez")[0] == http.client.OK
        except OSError:
            return False

    def look(self) -> Look:
        status, body = self._get("/v1/binlogs")
        if status != http.client.OK:
            raise DemoFailed(f"GET /v1/binlogs was answered with {status}: {body.decode()}")
        now, most = resident_bytes(self._daemon_pid)
        with self._server.cursor() as cursor:
            cursor.execute("SHOW PROCESSLIST")
            dumps = Counter(str(row[1]) for row in cursor.fetchall() if row[4] in _DUMP)
            cursor.execute("SELECT @@GLOBAL.gtid_executed")
            (row,) = cursor.fetchall()
        return Look(
            time.monotonic(),
            {one["name"]: one for one in json.loads(body)},
            dumps,
            GtidSet.parse(str(row[0])),
            now,
            most,
            self._mirror_log.read(),
        )

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise DemoFailed(f"the daemon has not answered GET {path} in {ANSWER_S:g} s") from None
        finally:
            connection.close()


class MirrorLog:
    """The mirror job's own lines, read as they come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._mirrored: dict[str, Mirrored] = {}

    def read(self) -> Mapping[str, Mirrored]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._at += len(whole)
        text = whole.decode("utf-8", "replace")
        for found in _BATCH.finditer(text):
            mirrored = self._mirrored.setdefault(found[1], Mirrored())
            mirrored.batches += 1
            mirrored.rows += int(found[2])
            mirrored.last_s = float(found[3])
        return self._mirrored


@dataclass(slots=True)
class Rules:
    """What must hold in every look. `wrong` is None as long as it does."""

    consumers: Sequence[Declared]
    closed_looks: int = (
        0  # the unshared consumer was disconnected, and the server had no thread for it
    )
    held_bytes_max: dict[str, int] = field(default_factory=dict)
    _states: Mapping[str, str] = field(default_factory=dict)
    _since: float = 0.0

    @property
    def memory_bytes_max(self) -> int:
        return MEMORY_BASE_BYTES + sum(one.queue_bytes_max for one in self.consumers)

    def expected_dumps(self, look: Look) -> dict[str, int]:
        """Dump threads by user that the daemon's states ask for: one per connection that is open."""
        open_ = {
            (one.user, "" if one.shared else one.name)
            for one in self.consumers
            if look.state(one.name) in ("streaming", "paused")
        }
        return dict(Counter(user for user, _ in open_))

    def wrong(self, look: Look) -> str | None:
        """The first thing that does not hold."""
        for one in self.consumers:
            held = int(look.rows[one.name]["bytes"])
            self.held_bytes_max[one.name] = max(self.held_bytes_max.get(one.name, 0), held)
        return (
            self._consumers(look) or self._waiting(look) or self._memory(look) or self._dumps(look)
        )

    def _consumers(self, look: Look) -> str | None:
        for one in self.consumers:
            row = look.rows[one.name]
            if row["state"] == "failed":
                return f"consumer {one.name} has failed: {row['last_error']}"
            if row["last_error"]:
                return f"consumer {one.name} is {row['state']}: {row['last_error']}"
        return None

    def _waiting(self, look: Look) -> str | None:
        """A shared connection waits for room in a queue of its own consumers only, not in the unshared one's."""
        paused = {
            one.user for one in self.consumers if one.shared and look.state(one.name) == "paused"
        }
        full = {
            one.user
            for one in self.consumers
            if one.shared and look.rows[one.name]["bytes"] >= look.rows[one.name]["max_bytes"]
        }
        for user in sorted(paused - full):
            return f"the connection of {user} waits, though no queue of its consumers is full"
        return None

    def _memory(self, look: Look) -> str | None:
        if look.resident_bytes_max < self.memory_bytes_max:
            return None
        return (
            f"the daemon's resident memory was {look.resident_bytes_max / 1e6:.0f} MB; the limit is"
            f" {self.memory_bytes_max / 1e6:.0f} MB, its queues' limits and {MEMORY_BASE_BYTES / 1e6:.0f} MB"
        )

    def _dumps(self, look: Look) -> str | None:
        states = {one.name: look.state(one.name) for one in self.consumers}
        expected = self.expected_dumps(look)
        fits = expected == dict(look.dumps)
        if fits or states != self._states:
            self._states, self._since = states, look.at
        unshared = [one.name for one in self.consumers if not one.shared]
        if fits and unshared and all(states[name] == "closed" for name in unshared):
            self.closed_looks += 1
        if look.at - self._since < GRACE_S:
            return None
        return (
            f"for {look.at - self._since:.1f} s the server has had other binlog dump threads than one per"
            f" connection: {_counts(look.dumps)} where there should be {_counts(expected)}"
        )


def _counts(dumps: Mapping[str, int]) -> str:
    return ", ".join(f"{user} {count}" for user, count in sorted(dumps.items())) or "none"
