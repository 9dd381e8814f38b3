"""Two replicas of one server, through STOP and START, kills of the replicas and of the daemon, and lost connections.

One replica reads from the front, the other from the server itself. At the end both have the server's tables.

`FRONT_MINUTES` sets the length of each run. If a replica's server crashes, the run tells which of the two it was.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from pymysql.cursors import DictCursor

from tests.daemon.conftest import MakeDaemon
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.faults.churn import churn, create
from tests.servers import DURABLE, Instance, Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.support.proxy import Proxy

MINUTES = float(os.environ.get("FRONT_MINUTES", "0.5"))
SEED = int(os.environ.get("FRONT_SEED", "0"))
DEADLINE_S = 240.0
TOKEN = "token-of-the-replicas"
PAUSE_S = (
    0.01  # between two transactions of the source, so that a replica can follow on a busy machine
)
_ERRORS = ("Last_IO_Error", "Last_SQL_Error")
CASES: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "mysql97, no workers": ("mysql97", ("--replica-parallel-workers=0",)),
    "mysql97, 4 workers": ("mysql97", ("--replica-parallel-workers=4",)),
    "mariadb1011": ("mariadb1011", ("--skip-log-bin",)),
    "mariadb118": ("mariadb118", ("--skip-log-bin",)),
}


@dataclass
class Replica:
    """`proxy`: the way to its source."""

    name: str
    server: Instance
    proxy: Proxy
    crashes: int = 0
    restarts: int = 0
    account: tuple[str, str] = ("", "")

    @property
    def _word(self) -> str:
        return "SLAVE" if self.server.mariadb else "REPLICA"

    def begin(self, user: str, password: str) -> None:
        self.account = user, password
        mariadb = self.server.mariadb
        prefix = "MASTER" if mariadb else "SOURCE"
        settings: dict[str, object] = {
            "HOST": "'127.0.0.1'", "PORT": self.proxy.port, "USER": f"'{user}'", "PASSWORD": f'"{password}"', "SSL": 0,
            "CONNECT_RETRY": 1, "HEARTBEAT_PERIOD": 0.5,
        }  # fmt: skip
        settings |= {"USE_GTID": "slave_pos"} if mariadb else {"AUTO_POSITION": 1, "RETRY_COUNT": 0}
        chosen = ", ".join(f"{prefix}_{name} = {value}" for name, value in settings.items())
        change = "MASTER" if mariadb else "REPLICATION SOURCE"
        more = "" if mariadb else ", GET_SOURCE_PUBLIC_KEY = 1"
        self.server.execute(f"CHANGE {change} TO {chosen}{more}", f"START {self._word}")

    def stop_and_start(self) -> None:
        self.server.execute(f"STOP {self._word}")
        self.server.execute(f"START {self._word}")

    def kill(self) -> None:
        self.server.kill()
        self.server.start()
        if self.server.mariadb:
            # MariaDB keeps its source in a file that a kill may cut. Its GTIDs are in a table.
            self.server.execute("STOP SLAVE", "RESET SLAVE ALL")
            self.begin(*self.account)

    def cut(self) -> None:
        self.proxy.cut()

    def require_running(self) -> None:
        """Start the replica's server again if it has crashed. Fail if replication has ended with an error."""
        process = self.server.process
        if process is None or process.poll() is not None:
            self.crashes += 1
            print(f"{self.name} crashed:\n{self.server.error_log.read_text()[-6000:]}")
            self.server.start()
        status = self.status()
        errors = [status[name] for name in _ERRORS if status[name]]
        # While the daemon starts, the replica cannot connect.
        lost = [error for error in errors if "connect" in error.lower()]
        # A replica with workers reports this error if a kill has cut its relay log, even if it reads from the server
        # itself.
        if any("could not queue event" in error for error in errors):
            self.restarts += 1
            self.stop_and_start()
            return
        told = {name: status[name] for name in ("Using_Gtid", *_ERRORS) if name in status}
        assert errors == lost, (self.name, told, self.server.error_log.read_text()[-4000:])

    def status(self) -> dict[str, Any]:
        with closing(self.server.connect()) as connection, connection.cursor(DictCursor) as cursor:
            cursor.execute(f"SHOW {self._word} STATUS")
            return dict(cursor.fetchall()[0])

    def until_equal(self, source: Instance) -> int:
        """Wait until the replica has the source's rows. Returns their number."""
        wanted = rows(source)

        def is_equal() -> bool:
            self.require_running()
            return rows(self.server) == wanted

        until(is_equal, f"{self.name} has the rows of its source", timeout_s=DEADLINE_S)
        return len(wanted)


def rows(server: Instance) -> tuple[Any, ...]:
    churned = server.execute("SELECT id, n, SHA2(t, 256) FROM shop.churn ORDER BY id")
    return *churned, *server.execute("SELECT id, v FROM shop.xa ORDER BY id")


@dataclass
class Run:
    source: Instance
    daemon: Daemon
    front: Replica
    beside: Replica

    @property
    def replicas(self) -> tuple[Replica, Replica]:
        return self.front, self.beside


@pytest.fixture(params=CASES)
def run(
    request: pytest.FixtureRequest, server_factory: ServerFactory, make_daemon: MakeDaemon
) -> Iterator[Run]:
    kind, options = CASES[request.param]
    source = server_factory(kind)
    source.add_user("reader", PASSWORD)
    create(source, ["shop", "other"])
    source.execute("CREATE TABLE shop.xa (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    port = free_port()
    settings = {
        "mysql": f"reader@127.0.0.1:{source.port}",
        "password": PASSWORD,
        "databases": ["shop"],
        "start": "earliest",
    }
    daemon = make_daemon(
        {"shop": settings},
        front={"listen": f"127.0.0.1:{port}"},
        api={"tokens": [{"token": TOKEN, "consumers": ["shop"]}]},
    )
    daemon.token = TOKEN
    daemon.start()
    daemon.api.until_state("shop", "streaming")
    with Proxy(port) as to_front, Proxy(source.port) as to_source:
        replicas = []
        for number, (name, proxy) in enumerate((("front", to_front), ("beside", to_source)), 2):
            more = () if source.mariadb else ("--relay-log-recovery=ON",)
            server = server_factory(kind, f"--server-id={number}", *DURABLE, *options, *more)
            if not source.mariadb:
                server.execute("RESET BINARY LOGS AND GTIDS")
            replicas.append(Replica(name, server, proxy))
        yield Run(source, daemon, *replicas)


@pytest.mark.deep
@pytest.mark.timeout(MINUTES * 60 + 900)
def test_replicas_of_front_and_server_stay_equal(run: Run) -> None:
    run.front.begin("shop", TOKEN)
    run.beside.begin("reader", PASSWORD)
    chance = random.Random(SEED)
    done: Counter[str] = Counter()
    end = time.monotonic() + MINUTES * 60
    with churn(run.source, ["shop", "other"], seed=SEED, pause_s=PAUSE_S, text=900) as writing:
        while time.monotonic() < end:
            action = chance.choice(
                (
                    "stop and start",
                    "stop and start",
                    "cut",
                    "kill",
                    "kill the daemon",
                    "rotate",
                    "xa",
                )
            )
            print(action, flush=True)
            disturb(run, action, chance)
            done[action] += 1
            writing.until_written(chance.choice((1, 20, 100)))
            for replica in run.replicas:
                replica.require_running()
    count = [replica.until_equal(run.source) for replica in run.replicas]
    print(
        f"{run.source.kind}: {MINUTES:g} minutes, {writing.written} transactions, {count} rows equal, {dict(done)},"
        f" crashes and restarts: {[(r.name, r.crashes, r.restarts) for r in run.replicas]}"
    )
    assert not run.front.crashes or run.beside.crashes, "only the replica of the front has crashed"


def disturb(run: Run, action: str, chance: random.Random) -> None:
    match action:
        case "stop and start":
            for replica in run.replicas:
                replica.stop_and_start()
        case "cut":
            for replica in run.replicas:
                replica.cut()
        case "kill":
            for replica in run.replicas:
                replica.kill()
        case "kill the daemon":
            run.daemon.kill()
            run.daemon.start()
        case "rotate":
            run.source.execute("FLUSH BINARY LOGS")
        case "xa":
            xid = f"'x{chance.getrandbits(60)}'"
            last = "COMMIT" if chance.random() < 0.7 else "ROLLBACK"
            run.source.execute(
                f"XA START {xid}",
                f"INSERT INTO shop.xa (v) VALUES ({chance.randrange(1000)})",
                f"XA END {xid}",
                f"XA PREPARE {xid}",
                f"XA {last} {xid}",
            )
