"""Observes the running demo from outside, and checks the rules that must hold.

An observation combines the daemon's answer (`GET /v1/binlogs`), the server's process list and executed GTIDs, the
daemon's memory, and the mirror job's metrics. If there are several daemons, the one that leads is observed. `Rules` has
no side effects: it takes observations and returns the first violation.

The process list and the daemon's states are not read at the same time. Also, a server notices that a replica has
disconnected only when it writes to the connection, at the latest at the next heartbeat. So a wrong number of dump
threads is a violation only if it lasts for `GRACE_S` while the leader and the states do not change.
"""

from __future__ import annotations

import http.client
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from deploy.demo.processes import DemoFailed, DemoProcess, resident_bytes
from dispatcher.model.gtid import GtidSet

MEMORY_BASE_BYTES = 250 * 10**6
GRACE_S = 3.0
ANSWER_S = 60.0  # the first start on a machine compiles kernels before it answers
_DUMP = ("Binlog Dump", "Binlog Dump GTID")
_METRICS = "binlog_mirror_"
MIRROR, TOOL = "the mirror", "mysqlbinlog"


@dataclass(frozen=True, slots=True)
class DemoConsumer:
    """A consumer as the demo's settings declare it. `reader`: "" if no program reads it."""

    name: str
    user: str
    databases: tuple[str, ...]
    queue_bytes_max: int
    shared: bool = True
    reader: str = MIRROR

    @property
    def mirrored(self) -> bool:
        return self.reader == MIRROR


@dataclass(slots=True)
class MirrorProgress:
    """A consumer's progress, from the mirror job's metrics. `tables`: how many tables are in each state; `copied`,
    `to_copy`: rows that the running copies have read, and will have read at their end; `repaired`: how many rows that
    differed from the server's were rewritten; `proved_s`: by table, the seconds since the last comparison with the
    server began that found no difference."""

    rows: int = 0
    steps: int = 0
    applied_seq: int = 0
    tables: dict[str, int] = field(default_factory=dict)
    copied: int = 0
    to_copy: int = 0
    repaired: int = 0
    proved_s: dict[str, float] = field(default_factory=dict)

    def has(self, state: str) -> int:
        return self.tables.get(state, 0)


@dataclass(frozen=True, slots=True)
class Observation:
    """`rows`: of GET /v1/binlogs by consumer; `dumps`: the server's dump threads by user; `at`: monotonic, s; `leader`:
    the daemon that was observed."""

    at: float
    rows: Mapping[str, Mapping[str, Any]]
    dumps: Mapping[str, int]
    executed: GtidSet
    resident_bytes: int
    resident_bytes_max: int
    mirrored: Mapping[str, MirrorProgress]
    leader: str = "daemon"

    def state(self, consumer: str) -> str:
        return str(self.rows[consumer]["state"])

    def behind(self, consumer: str) -> int:
        """The number of the server's transactions that the consumer has neither acknowledged nor skipped."""
        covered = self.rows[consumer]["covered"]
        done = GtidSet.parse(covered["gtid"]) if covered else GtidSet()
        return len(self.executed.subtract(done))

    def unapplied(self, consumer: str) -> int:
        """The number of transactions that are in the mirror's log and not yet in its tables."""
        acknowledged = self.rows[consumer]["acknowledged"]
        progress = self.mirrored.get(consumer)
        if not acknowledged or progress is None:
            return 0
        return max(0, int(acknowledged["seq"]) - progress.applied_seq)


@dataclass(frozen=True, slots=True)
class DemoDaemon:
    """A daemon of the demo. `port`: of its API; `front`: of its front; `config`: its file of settings."""

    process: DemoProcess
    port: int
    front: int
    config: Path


class SilentDaemon(Exception):
    """Raised if a daemon refuses a connection, or if a connection to it breaks."""

    def __init__(self, daemon: DemoDaemon) -> None:
        super().__init__(daemon.process.name)
        self.daemon = daemon


class Observer:
    """Makes observations. Not thread-safe. `daemons`: those that run."""

    def __init__(
        self, daemons: Sequence[DemoDaemon], server: Connection[Cursor], mirror_port: int
    ) -> None:
        self.daemons = list(daemons)
        self._server = server
        self._mirror_port = mirror_port

    def answers(self, daemon: DemoDaemon, path: str) -> bool:
        """True if GET `path` of the daemon returns 200."""
        try:
            return self._get(path, daemon.port)[0] == http.client.OK
        except OSError:
            return False

    def observe(self) -> Observation | None:
        """Returns None if no daemon leads. Raises SilentDaemon."""
        for daemon in self.daemons:
            try:
                rows = consumers_of(*self._get("/v1/binlogs", daemon.port))
                if rows is not None:
                    return self._of_leader(daemon, rows)
            except OSError as error:
                raise SilentDaemon(daemon) from error
        return None

    def executed(self) -> GtidSet:
        """The GTIDs that the server has executed."""
        with self._server.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_executed")
            (row,) = cursor.fetchall()
        return GtidSet.parse(str(row[0]))

    def _of_leader(self, daemon: DemoDaemon, rows: Mapping[str, Mapping[str, Any]]) -> Observation:
        memory, peak = resident_bytes(daemon.process.pid)
        with self._server.cursor() as cursor:
            cursor.execute("SHOW PROCESSLIST")
            dumps = Counter(str(row[1]) for row in cursor.fetchall() if row[4] in _DUMP)
        return Observation(
            time.monotonic(),
            rows,
            dumps,
            self.executed(),
            memory,
            peak,
            self._mirrored(),
            daemon.process.label,
        )

    def _mirrored(self) -> dict[str, MirrorProgress]:
        try:
            _, text = self._get("/metrics", self._mirror_port)
        except OSError:  # Spark is still starting
            return {}
        return mirror_progress(text.decode())

    @staticmethod
    def _get(path: str, port: int) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except TimeoutError:
            raise DemoFailed(f"the daemon has not answered GET {path} in {ANSWER_S:g} s") from None
        finally:
            connection.close()


def consumers_of(status: int, body: bytes) -> dict[str, Mapping[str, Any]] | None:
    """Returns the consumers by name from a daemon's answer to GET /v1/binlogs; None if the daemon does not lead."""
    if status == http.client.OK:
        return {row["name"]: row for row in json.loads(body)}
    if status == http.client.SERVICE_UNAVAILABLE and json.loads(body)["kind"] == "NOT_LEADER":
        return None
    raise DemoFailed(f"GET /v1/binlogs returned {status}: {body.decode()}")


def mirror_progress(text: str) -> dict[str, MirrorProgress]:
    """Returns the progress of each consumer from the mirror's metrics in Prometheus text format."""
    mirrored: dict[str, MirrorProgress] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.startswith(_METRICS):
                continue
            progress = mirrored.setdefault(sample.labels["consumer"], MirrorProgress())
            value = int(sample.value)
            match sample.name.removeprefix(_METRICS):
                case "applied_rows_total":
                    progress.rows = value
                case "steps_total":
                    progress.steps = value
                case "applied_seq":
                    progress.applied_seq = value
                case "tables":
                    progress.tables[sample.labels["state"]] = value
                case "repaired_rows_total":
                    progress.repaired = value
                case "proof_age_seconds":
                    progress.proved_s[sample.labels["table"]] = sample.value
                case "copy_rows":
                    progress.copied += value
                case "copy_rows_estimated":
                    progress.to_copy += value
    return mirrored


@dataclass(slots=True)
class Rules:
    """Rules that every observation must satisfy."""

    consumers: Sequence[DemoConsumer]
    closed_observations: int = (
        0  # the unshared consumer was disconnected, and the server had no thread for it
    )
    held_bytes_max: dict[str, int] = field(default_factory=dict)
    resident_bytes_max: int = 0  # of all daemons that have led
    _seen: tuple[str, Mapping[str, str]] = ("", {})  # the leader, and the states of consumers
    _since: float = 0.0

    @property
    def memory_bytes_max(self) -> int:
        return MEMORY_BASE_BYTES + sum(consumer.queue_bytes_max for consumer in self.consumers)

    def expected_dumps(self, observation: Observation) -> dict[str, int]:
        """The number of dump threads by user that the daemon's states imply: one per open connection."""
        open_ = {
            (consumer.user, "" if consumer.shared else consumer.name)
            for consumer in self.consumers
            if observation.state(consumer.name) in ("streaming", "paused")
        }
        return dict(Counter(user for user, _ in open_))

    def wrong(self, observation: Observation) -> str | None:
        """The first violation, or None."""
        for consumer in self.consumers:
            held = int(observation.rows[consumer.name]["bytes"])
            self.held_bytes_max[consumer.name] = max(
                self.held_bytes_max.get(consumer.name, 0), held
            )
        self.resident_bytes_max = max(self.resident_bytes_max, observation.resident_bytes_max)
        return (
            self._consumers(observation)
            or self._waiting(observation)
            or self._memory(observation)
            or self._dumps(observation)
        )

    def _consumers(self, observation: Observation) -> str | None:
        for consumer in self.consumers:
            row = observation.rows[consumer.name]
            if row["state"] == "failed":
                return f"consumer {consumer.name} has failed: {row['last_error']}"
            if row["last_error"]:
                return f"consumer {consumer.name} is {row['state']}: {row['last_error']}"
        return None

    def _waiting(self, observation: Observation) -> str | None:
        """A shared connection may pause only for the queues of its own consumers."""
        paused = {
            consumer.user
            for consumer in self.consumers
            if consumer.shared and observation.state(consumer.name) == "paused"
        }
        full = {
            consumer.user
            for consumer in self.consumers
            if consumer.shared
            and observation.rows[consumer.name]["bytes"]
            >= observation.rows[consumer.name]["max_bytes"]
        }
        for user in sorted(paused - full):
            return f"the connection of {user} is paused, but no queue of its consumers is full"
        return None

    def _memory(self, observation: Observation) -> str | None:
        if observation.resident_bytes_max < self.memory_bytes_max:
            return None
        return (
            f"the daemon's resident memory was {observation.resident_bytes_max / 1e6:.0f} MB; the limit is"
            f" {self.memory_bytes_max / 1e6:.0f} MB, its queues' limits and {MEMORY_BASE_BYTES / 1e6:.0f} MB"
        )

    def _dumps(self, observation: Observation) -> str | None:
        states = {consumer.name: observation.state(consumer.name) for consumer in self.consumers}
        expected = self.expected_dumps(observation)
        fits = expected == dict(observation.dumps)
        seen = (observation.leader, states)
        if fits or seen != self._seen:
            self._seen, self._since = seen, observation.at
        unshared = [consumer.name for consumer in self.consumers if not consumer.shared]
        if fits and unshared and all(states[name] == "closed" for name in unshared):
            self.closed_observations += 1
        if observation.at - self._since < GRACE_S:
            return None
        return (
            f"for {observation.at - self._since:.1f} s the server has had other binlog dump threads than one per"
            f" connection: {_counts(observation.dumps)} where there should be {_counts(expected)}"
        )


def _counts(dumps: Mapping[str, int]) -> str:
    return ", ".join(f"{user} {count}" for user, count in sorted(dumps.items())) or "none"
