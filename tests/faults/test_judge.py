"""Random histories on a real server: each consumer gets what the server's own tool prints for it.

`JUDGE_HISTORIES=200` runs 200 histories. A failed history prints its seed, and `JUDGE_SEED=...` runs it again.

The test writes a history in three parts: before its consumers exist, while they read, and after more consumers were
added. It adds them mostly by a reload of the settings, otherwise by a restart or kill of the daemon. Consumers start
anywhere (see `Play._start`), have queues of one byte or more, and readers of different speed. The test compares the
data of a reader with the tool's output for the same start. Some histories end with a RESET, after which no consumer may
continue.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dispatcher.model.errors import ErrorKind
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
    """`start`: the GTID set after which the consumer begins. It is from the tool or chosen by the test, not from the
    daemon."""

    name: str
    databases: list[str]
    start: str
    appetite: float
    most: int | None
    settings: Json
    reader: Reader | None = None


@dataclass
class Play:
    """One history with its consumers."""

    seed: int
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
            name = f"h{self.seed}_{len(self.consumers)}"
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
        """Draws a start. Returns the GTID set that the start excludes, and the start's form in the settings."""
        rng = self.rng
        gtids = [group.gtid for group in before]
        kind = rng.choice(
            ("earliest", "latest", "prefix", "any set", "nearly all", "file", "timestamp")
        )
        if kind == "earliest":
            return self.purged, "earliest"
        settings: Json | str | None = None
        n = rng.randrange(len(gtids))
        held = gtids[: n + 1]
        if kind == "latest":
            held, settings = gtids, "latest"
        elif kind == "file":
            settings = {"file": before[n].file, "offset": before[n].end}
        elif kind == "timestamp":
            held = gtids[:n]
            moment = dt.datetime.fromtimestamp(before[n].committed_us / 1e6, dt.UTC)
            settings = {"timestamp": moment.isoformat().replace("+00:00", "Z")}
        elif kind != "prefix":
            share = 0.9 if kind == "nearly all" else rng.random()
            held = [gtid for gtid in gtids if rng.random() < share]
        # A consumer that begins between a prepare and its commit could not get the rows.
        whole = judge.without_open(before, held)
        executed = _set(self.purged, *whole)
        if settings is not None and whole == held:
            return executed, settings
        return executed, {"gtid": executed}

    def start(self) -> None:
        """The daemon has all consumers, and each has a reader."""
        if self.daemon.process is None:
            self.daemon.start()
        else:
            self.daemon.reload()
        for each in self.consumers:
            if each.reader is None:
                each.reader = Reader(self.daemon, each.name).open()

    def go_on(self, steps: int) -> None:
        """Write while the readers read, each reader at its own speed."""
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
            # After a restart, the daemon still fetches the range from the server; the reader retries.
            if problem.kind != ErrorKind.RANGE_UNAVAILABLE.name:
                raise

    def interrupt(self) -> None:
        choice = self.rng.random()
        if choice < 0.3:
            self.restarts += 1
            if choice < 0.2:
                self.daemon.kill()
            else:
                self.daemon.stop()

    def read_all(self) -> None:
        """Read all consumers in turn, because a full small queue without reads may delay other consumers for a
        while."""
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

        until(read, f"all have read to {wanted}")
        for each in self.consumers:
            assert each.reader is not None
            each.reader.acknowledge()
            assert each.reader.position["seq"] == wanted

    def check(self, folder: Path) -> int:
        """Compare all data of all consumers with the tool's output. Returns the number of transactions."""
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
    made = Play(seed, rng, server, history, daemon, source, purged)
    try:
        history.steps(rng.randint(5, 40))
        made.add_consumers(rng.randint(1, 3))
        made.start()
        made.go_on(rng.randint(5, 40))
        made.interrupt()
        history.steps(rng.randint(0, 20))
        made.add_consumers(rng.randint(0, 2))
        made.start()
        made.go_on(rng.randint(5, 40))
        history.finish()
        made.read_all()
        checked = made.check(daemon.folder)
        if rng.random() < 0.3:
            refused_after_a_reset(made)
        for each in made.consumers:
            del daemon.settings["consumers"][each.name]
        daemon.reload()
    finally:
        history.abandon()
    history.drop()
    return made, checked


def _clean(rng: random.Random, server: Instance) -> str:
    """Make the server begin with an empty log, or with a log whose beginning is purged. Returns the executed set."""
    if rng.random() < 0.5:
        server.execute("RESET BINARY LOGS AND GTIDS")
        return ""
    server.execute("FLUSH BINARY LOGS")
    newest = server.binlog_position()[0]
    server.execute(f"PURGE BINARY LOGS TO '{newest}'")
    return str(server.execute("SELECT @@GLOBAL.gtid_purged")[0][0]).replace("\n", "")


def refused_after_a_reset(made: Play) -> None:
    """After a reset, the server has another history, and consumers of the old history get nothing from it."""
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


@pytest.mark.rotate(1, of="loads")
@pytest.mark.timeout(30 + 30 * HISTORIES)
def test_consumers_get_what_the_servers_own_tool_prints(
    server_factory: ServerFactory, source: Source, tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    began = time.monotonic()
    plays = 0
    consumers = transactions = restarts = 0
    # A daemon needs at least one consumer.
    idle = {"idle": source(server, "idle")}
    with closing(Daemon(tmp_path / "daemon", {"consumers": idle})) as daemon:
        daemon.start()
        for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
            try:
                made, checked = play(seed, server, daemon, source)
            except BaseException as error:
                error.add_note(f"to repeat it: JUDGE_SEED={seed} JUDGE_HISTORIES=1")
                raise
            plays += 1
            consumers += len(made.consumers)
            transactions += checked
            restarts += made.restarts
            if plays % 20 == 0:
                print(f"{plays} histories, {time.monotonic() - began:.0f} s", flush=True)
        daemon.stop()
        daemon.start()  # check that a daemon also ends in order after a restart
    print(
        f"\n{plays} histories, {consumers} consumers, {transactions} transactions judged by"
        f" {judge.tool_version(server)}, {restarts} restarts, {time.monotonic() - began:.1f} s"
    )
