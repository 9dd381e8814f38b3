"""Random histories on a real server: each consumer got what the server's own tool says is its own.

`JUDGE_HISTORIES=200` runs that many; each prints its seed when it fails, and `JUDGE_SEED=...` runs that one again. A
history is written in three parts: before the daemon is there, while it streams, and after it was restarted or killed
under its readers and has got further consumers. Consumers start anywhere (`Start`), have queues from one byte up, and
readers of different appetites; what a reader got is compared with the tool's word for exactly its start.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dispatcher.model.errors import Kind
from tests.daemon.conftest import Source
from tests.daemon.harness import Daemon, Json, Problem, Reader, tip_seq, until
from tests.faults import judge
from tests.faults.histories import History
from tests.servers import Instance
from tests.servers.plugin import ServerFactory

HISTORIES = int(os.environ.get("JUDGE_HISTORIES", "6"))
FIRST_SEED = int(os.environ.get("JUDGE_SEED", "0"))
QUEUES = (1, 1000, 20_000, 300_000, 64 << 20)


@dataclass
class Consumer:
    """`start`: the GTID set that it begins with, known from the tool or chosen, never asked of the daemon."""

    name: str
    databases: list[str]
    start: str
    appetite: float
    most: int | None
    settings: Json
    reader: Reader | None = None


@dataclass
class Play:
    """One history, and those who read it."""

    rng: random.Random
    server: Instance
    history: History
    daemon: Daemon
    source: Source
    purged: str
    consumers: list[Consumer] = field(default_factory=list)
    restarts: int = 0

    def add_consumers(self, count: int) -> None:
        before = judge.executed(self.server, self.purged)
        for _ in range(count):
            name = f"c{len(self.consumers)}"
            rng = self.rng
            databases = rng.sample(
                self.history.databases, rng.randint(1, len(self.history.databases))
            )
            start, settings = self._start(before)
            more = {"max_bytes_in_binlog_queue": rng.choice(QUEUES), "start": settings}
            if rng.random() < 0.1:
                more["use_binlog_client"] = False
            made = self.source(self.server, *databases, "nobodys", **more)
            appetite, most = rng.choice((0.0, 0.1, 0.5)), rng.choice((None, None, 1, 5000))
            self.consumers.append(Consumer(name, databases, start, appetite, most, made))
            self.daemon.settings["consumers"][name] = made

    def _start(self, before: list[judge.Group]) -> tuple[str, Json | str]:
        """A start: what it excludes, and how settings say it."""
        rng = self.rng
        gtids = [group.gtid for group in before]
        kind = rng.choice(("earliest", "latest", "prefix", "any set", "nearly all"))
        if kind == "earliest":
            return self.purged, "earliest"
        if kind == "latest":
            return _set(self.purged, *gtids), "latest"
        if kind == "prefix":
            held = gtids[: rng.randrange(len(gtids) + 1)]
        elif kind == "any set":
            share = rng.random()
            held = [gtid for gtid in gtids if rng.random() < share]
        elif kind == "nearly all":
            held = [gtid for gtid in gtids if rng.random() < 0.9]
        else:
            n = rng.randrange(len(before))
            settings = {"file": before[n].file, "offset": before[n].end}
            return _set(self.purged, *gtids[: n + 1]), settings
        executed = _set(self.purged, *held)
        return executed, {"gtid": executed}

    def start(self) -> None:
        self.daemon.start()
        for each in self.consumers:
            if each.reader is None:
                each.reader = Reader(self.daemon, each.name).open()

    def go_on(self, steps: int) -> None:
        """Write while the readers read, each as it likes to."""
        for _ in range(steps):
            self.history.step()
            for each in self.consumers:
                if self.rng.random() < each.appetite:
                    self._read(each, wait_ms=0)

    def _read(self, consumer: Consumer, *, wait_ms: int) -> None:
        assert consumer.reader is not None
        try:
            consumer.reader.step(max_bytes=consumer.most, wait_ms=wait_ms)
        except Problem as problem:
            # A range that is not in memory after a restart is being fetched; a reader asks again.
            if problem.kind != Kind.RANGE_UNAVAILABLE.name:
                raise

    def restart(self) -> None:
        self.restarts += 1
        if self.rng.random() < 0.5:
            self.daemon.kill()
        else:
            self.daemon.stop()

    def read_all(self) -> None:
        """By turns: a small queue that nobody reads may hold up others for a while."""
        wanted = tip_seq(self.server)

        def read() -> bool:
            behind = [
                each
                for each in self.consumers
                if each.reader is not None and each.reader.position["seq"] < wanted
            ]
            for each in behind:
                self._read(each, wait_ms=20)
            return not behind

        until(read, f"everybody has read to {wanted}")
        for each in self.consumers:
            assert each.reader is not None
            each.reader.acknowledge()
            assert each.reader.position["seq"] == wanted

    def check(self, folder: Path) -> int:
        """How many transactions all consumers got, all of them rightly."""
        checked = 0
        for each in self.consumers:
            assert each.reader is not None
            wanted = judge.expected(judge.executed(self.server, each.start), each.databases)
            found = judge.got(judge.delivered(self.server, each.reader.chunks, folder))
            if parting := judge.difference(wanted, found):
                pytest.fail(f"{each.name}, {each.settings}:\n{parting}")
            seqs = [transaction.seq for transaction in each.reader.transactions]
            assert seqs == sorted(set(seqs)), each.name
            checked += len(wanted)
        return checked


def _set(*gtids: str) -> str:
    return ",".join(gtid for gtid in gtids if gtid)


def play(seed: int, server: Instance, daemon: Daemon, source: Source) -> tuple[Play, int]:
    rng = random.Random(seed)
    purged = _clean(rng, server)
    history = History(rng, server, seed)
    history.without_xa()
    made = Play(rng, server, history, daemon, source, purged)
    try:
        history.steps(rng.randint(5, 40))
        made.add_consumers(rng.randint(1, 3))
        made.start()
        made.go_on(rng.randint(5, 40))
        made.restart()
        history.steps(rng.randint(0, 20))
        made.add_consumers(rng.randint(0, 2))
        made.start()
        made.go_on(rng.randint(5, 40))
        history.finish()
        made.read_all()
        checked = made.check(daemon.folder)
        if rng.random() < 0.3:
            refused_after_a_reset(made)
        daemon.stop()
    finally:
        history.abandon()
    history.drop()
    return made, checked


def _clean(rng: random.Random, server: Instance) -> str:
    """Begin with no log at all, or with one whose beginning is purged; the set that is."""
    if rng.random() < 0.5:
        server.execute("RESET BINARY LOGS AND GTIDS")
        return ""
    server.execute("FLUSH BINARY LOGS")
    newest = server.binlog_position()[0]
    server.execute(f"PURGE BINARY LOGS TO '{newest}'")
    return str(server.execute("SELECT @@GLOBAL.gtid_purged")[0][0]).replace("\n", "")


def refused_after_a_reset(made: Play) -> None:
    """The server's history is another one: no consumer of the old one gets anything of it."""
    server, daemon = made.server, made.daemon
    created = time.time()
    until(lambda: time.time() > created + 1.1, "the log's second is over")
    if running := made.rng.random() < 0.5:
        daemon.stop()
    server.execute("RESET BINARY LOGS AND GTIDS")
    one = made.history.databases[0]
    for n in range(30):
        server.execute(f"CREATE TABLE `{one}`.r{n} (id INT)")
    if running:
        daemon.start()
    for each in made.consumers:
        reader = each.reader
        assert reader is not None
        row = daemon.api.until_state(each.name, "failed")
        assert "server history differs" in row["last_error"], row
        before = len(reader.chunks)
        with pytest.raises(Problem) as caught:
            reader.step(wait_ms=0)
        assert caught.value.kind == "HISTORY_DIFFERS"
        assert len(reader.chunks) == before


@pytest.mark.timeout(30 + 30 * HISTORIES)
def test_consumers_get_what_the_servers_own_tool_says(
    server_factory: ServerFactory, source: Source, tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    began = time.monotonic()
    total = consumers = transactions = restarts = 0
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        daemon = Daemon(tmp_path / f"daemon{seed}", {"consumers": {}})
        try:
            made, checked = play(seed, server, daemon, source)
        except BaseException as error:
            error.add_note(f"to repeat it: JUDGE_SEED={seed} JUDGE_HISTORIES=1")
            raise
        finally:
            daemon.close()
        total += 1
        consumers += len(made.consumers)
        transactions += checked
        restarts += made.restarts
    print(
        f"{total} histories, {consumers} consumers, {transactions} transactions judged,"
        f" {restarts} restarts, {time.monotonic() - began:.1f} s"
    )
