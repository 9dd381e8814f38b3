"""Runs the daemon as a user does, and reads from the daemon as a careful client does.

`Daemon` runs the command line with its own settings file, on a free port of the loopback interface, and ends the daemon
by its pid. It forks the daemon from a process that has imported the daemon's modules. If the daemon needs its own
environment, it starts the console script instead. `Api` makes single HTTP calls. `Reader` keeps its own checkpoint as
Spark does: it stores a range before it asks for the next range, so it can continue after the daemon is killed. `load`
writes to a server until its block ends.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pymysql

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.event.header import MAGIC, parse_format_description
from dispatcher.binlog.event.record import parse_record
from dispatcher.binlog.event.types import EventType
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import packed_seq
from tests.daemon.forking import Forked, fork
from tests.servers import Server
from tests.servers.ports import free_port
from tests.support.log_keys import documented_keys
from tests.support.secrets import secrets_in

DEADLINE_S = 40.0
TIMEOUT_S = 70.0  # the time limit of a call, in s; longer than the longest poll
PASSWORD = "reader's secret"
_SCRIPT = Path(sys.executable).with_name("binlog-dispatcher")
_KILLING = Path(__file__).with_name("killing")

Json = dict[str, Any]
T = TypeVar("T")


def until(condition: Callable[[], T], what: str, *, timeout_s: float = DEADLINE_S) -> T:
    """Call `condition` until it returns a true value, and return that value. An exception counts as a false value."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    last: object = None
    while time.monotonic() < deadline:
        try:
            last = answer = condition()
        except (OSError, http.client.HTTPException, pymysql.MySQLError, Problem) as error:
            last = error
        else:
            if answer:
                return answer
        pause.wait(0.02)
    raise AssertionError(f"not within {timeout_s:g} s: {what}; last answer: {last!r}")


class Problem(Exception):
    """A problem document: its `status`, its fields in `body`, and the headers."""

    def __init__(self, status: int, body: Json, headers: http.client.HTTPMessage) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.headers = headers

    @property
    def kind(self) -> str:
        return str(self.body.get("kind"))


class Api:
    """The daemon's HTTP API. Every call opens a new connection, with TLS if `ca` names the certificate file of an
    authority."""

    def __init__(
        self, port: int, token: str = "", ca: Path | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.port = port
        self.token = token
        self.ca = ca
        self.timeout_s = timeout_s

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        if self.ca is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=str(self.ca))
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout_s, context=context
        )

    def request(
        self, method: str, path: str, body: Any = None, *, timeout_s: float | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        with closing(self._connection(timeout_s or self.timeout_s)) as http_:
            http_.request(method, path, data, headers)
            answer = http_.getresponse()
            return answer.status, answer.headers, answer.read()

    def raw(self, method: str, path: str, body: Any = None) -> bytes:
        status, headers, data = self.request(method, path, body)
        if status >= 400:
            raise Problem(status, json.loads(data), headers)
        return data

    def get(self, path: str) -> Any:
        return json.loads(self.raw("GET", path))

    def text(self, path: str) -> str:
        return self.raw("GET", path).decode()

    def call(self, consumer: str, name: str, **body: Any) -> Json:
        value = json.loads(self.raw("POST", f"/v1/consumers/{consumer}/{name}", body))
        assert isinstance(value, dict)
        return value

    def session(self, consumer: str, after: Json | None = None, *, read_only: bool = False) -> Json:
        return self.call(consumer, "session", after=after, read_only=read_only)

    def poll(self, consumer: str, session: int, after: Json, **more: Any) -> Json:
        return self.call(consumer, "poll", session=session, after=after, **more)

    def binlog(self, consumer: str, session: int, start: Json, end: Json) -> bytes:
        body = {"session": session, "start": start, "end": end}
        return self.raw("POST", f"/v1/consumers/{consumer}/binlog", body)

    def rows(self) -> dict[str, Json]:
        return {row["name"]: row for row in self.get("/v1/binlogs")}

    def row(self, consumer: str) -> Json:
        return self.rows()[consumer]

    def until_state(self, consumer: str, *states: str) -> Json:
        """Wait until the consumer is in one of these states. Returns its row."""

        def reached() -> Json | None:
            row = self.row(consumer)
            return row if row["state"] in states else None

        row = until(reached, f"{consumer} is {' or '.join(states)}")
        assert row is not None
        return row


class Daemon:
    """One daemon with its settings, state and log in `folder`.

    `settings`: the content of the YAML file, without state, log and address of the API, which this class adds.
    """

    def __init__(self, folder: Path, settings: Json) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.settings = settings
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.port = free_port()
        self.token = ""  # the token that `api` sends
        self.ca: Path | None = None  # for `api`, if the settings have a certificate
        self.timeout_s = TIMEOUT_S  # the time limit of a call of `api`, in s
        self.environment: dict[str, str] = {}  # additional environment variables
        self.state = folder / "state.db"
        self.within: tuple[
            str, ...
        ] = ()  # a command that runs the daemon's command in a separate environment
        self._secrets = {PASSWORD}  # all secrets that the settings have contained so far
        self._said = 0  # length of the log at the last start

    @property
    def api(self) -> Api:
        return Api(self.port, self.token, self.ca, self.timeout_s)

    @property
    def url(self) -> str:
        return f"{'https' if self.ca else 'http'}://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the daemon does not run"
        return self.process.pid

    @property
    def log(self) -> str:
        """Everything that the daemon has written to stderr, in all its runs."""
        path = self.folder / "stderr"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    @property
    def resident_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def stored(self, consumer: str) -> Json:
        """Returns the consumer's row in the state store, with acknowledged and covered position."""
        with closing(sqlite3.connect(f"file:{self.state}?mode=ro", uri=True)) as db:
            query = "SELECT acknowledged, covered FROM consumer WHERE name = ?"
            acknowledged, covered = db.execute(query, (consumer,)).fetchone()
        return {"acknowledged": json.loads(acknowledged), "covered": json.loads(covered)}

    def store(self, consumer: str, position: Json | str) -> None:
        """Write a position, or an invalid text instead, into the state store of a stopped daemon."""
        text = (
            position if isinstance(position, str) else json.dumps(position, separators=(",", ":"))
        )
        with closing(sqlite3.connect(self.state)) as db, db:
            query = (
                "UPDATE consumer SET acknowledged = ?, covered = ?, file_created = 0 WHERE name = ?"
            )
            assert db.execute(query, (text, text, consumer)).rowcount == 1

    def start(self, *, kill_at: str = "", kill_after: int = 0) -> Api:
        """Start the daemon and wait until it answers. With `kill_at` (see killing/sitecustomize.py) the daemon may kill
        itself before it answers."""
        config = self._write_settings()
        environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        environment |= {"PYTHONFAULTHANDLER": "1", **self.environment}
        if kill_at:
            environment |= {
                "PYTHONPATH": f"{_KILLING}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
                "KILL_AT": kill_at,
                "KILL_AFTER": str(kill_after),
            }
        self._said = len(self.log)
        arguments, log = ["run", "--config", str(config)], self.folder / "stderr"
        if kill_at or self.within:
            with log.open("ab") as output:
                self.process = subprocess.Popen(
                    [*self.within, str(_SCRIPT), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    cwd=self.folder,
                )
        else:
            self.process = fork(arguments, environment, self.folder, log)
        until(self._lives_or_died, "the daemon answers /livez")
        if not kill_at:
            assert self.process.poll() is None, f"the daemon ended at once:\n{self.log}"
        return self.api

    def _write_settings(self) -> Path:
        settings = {
            **self.settings,
            "api": {"listen": f"127.0.0.1:{self.port}", **self.settings.get("api", {})},
            "state": self._state_settings(),
            "log": {"level": "debug", "format": "json", **self.settings.get("log", {})},
        }
        self._secrets |= secrets_in(settings)
        # JSON is YAML.
        config = self.folder / "dispatcher.yaml"
        config.write_text(json.dumps(settings, indent=1), encoding="utf-8")
        return config

    def _state_settings(self) -> Json:
        given: Json = self.settings.get("state", {})
        if "mysql" in given:
            return {"spill_path": str(self.folder / "spill"), **given}
        return {"path": str(self.state), **given}

    def _lives_or_died(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            return True
        # Another process may use the port, and would also answer.
        listening = [f"Uvicorn running on {self.url}"]
        if "front" in self.settings:
            listening.append('"front listens"')  # after the kernels were loaded
        log = self.log[self._said :]
        return all(text in log for text in listening) and self.api.text("/livez") == "ok\n"

    def stop(self) -> None:
        """Send SIGTERM, and assert that the exit code is 0."""
        assert self._end(signal.SIGTERM) == 0, self.log

    def stop_at_once(self, while_: str) -> int:
        """Send SIGTERM, and a second SIGTERM when the log contains `while_`, the name of an event that delays the
        daemon's end. Returns the exit code."""
        assert self.process is not None
        said = len(self.log)
        self.process.send_signal(signal.SIGTERM)
        until(lambda: while_ in self.log[said:], while_)
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> Api:
        if kill:
            self.kill()
        else:
            self.stop()
        return self.start()

    def reload(self) -> Json:
        """Write the present settings and send SIGHUP. Returns the log line that reports that the daemon has applied the
        settings."""
        return self.hang_up("settings reloaded")

    def hang_up(self, event: str) -> Json:
        """Write the present settings and send SIGHUP. Returns the log line of the event."""
        self._write_settings()
        said = len(self.log)
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

        def matching() -> list[Json]:
            whole = self.log[said:].rpartition("\n")[0]  # the last line may be incomplete
            lines = [json.loads(line) for line in whole.splitlines() if line[:1] == "{"]
            return [line for line in lines if line["event"].startswith(event)]

        return until(matching, event)[0]

    def until_killed(self) -> None:
        """Wait until the daemon has killed itself at the point `kill_at` of `start`."""
        process, self.process = self.process, None
        assert process is not None
        assert process.wait(DEADLINE_S) == -signal.SIGKILL, self.log

    def _end(self, by: signal.Signals) -> int:
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(by)
        try:
            return process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise

    def close(self) -> None:
        """End the daemon if it runs. Assert that its log has only documented keys, no traceback and no secret."""
        if self.process is not None:
            died = self.process.poll()
            self.kill()
            assert died is None, f"it ended with {died}:\n{self.log}"
        log = self.log
        assert "Traceback" not in log, log
        assert [secret for secret in self._secrets if secret in log] == []
        lines = (json.loads(line) for line in log.splitlines() if line[:1] == "{")
        assert {key for line in lines for key in line} <= set(documented_keys())


@dataclass
class Reader:
    """Reads one consumer. A real reader would store `position` and `chunks` durably."""

    daemon: Daemon
    consumer: str
    session: int = 0
    position: Json = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)

    def open(self, after: Json | None = None) -> Reader:
        answer = self.daemon.api.session(self.consumer, after or self.position or None)
        self.session, self.position = answer["session"], answer["position"]
        return self

    def step(
        self, *, max_bytes: int | None = None, wait_ms: int = 500, markers: bool = True
    ) -> int:
        """Acknowledge the stored position, read the next range, and store it. Returns the range's number of
        transactions."""
        api = self.daemon.api
        answer = api.poll(
            self.consumer,
            self.session,
            self.position,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            markers=markers,
        )
        if answer["transactions"]:
            data = api.binlog(self.consumer, self.session, self.position, answer["end"])
            self.chunks.append(data)
        self.position = answer["end"]
        return int(answer["transactions"])

    def read_to(self, server: Server, *, max_bytes: int | None = None) -> Reader:
        """Read up to the present end of the server's log."""
        wanted = tip_seq(server)
        deadline = time.monotonic() + DEADLINE_S
        while self.position["seq"] < wanted:
            assert time.monotonic() < deadline, (
                f"{self.position} is not {wanted}; {self.daemon.log}"
            )
            self.step(max_bytes=max_bytes)
        self.acknowledge()
        return self

    def acknowledge(self) -> None:
        api = self.daemon.api
        api.call(self.consumer, "ack", session=self.session, position=self.position)

    @property
    def transactions(self) -> list[Transaction]:
        return [transaction for chunk in self.chunks for transaction in transactions(chunk)]

    def changes(self, *tables: str) -> list[delivered.TableChanges | delivered.Ddl]:
        """Returns the decoded changes. `tables`: the tables whose columns the reader fetches from the daemon."""
        api = self.daemon.api
        known = {
            table: api.get(f"/v1/consumers/{self.consumer}/tables/{table}") for table in tables
        }
        return [change for chunk in self.chunks for change in delivered.changes(chunk, known)]


@dataclass(frozen=True)
class Transaction:
    """The fields of a record event, and the bytes of the transaction after it."""

    epoch: int
    seq: int
    file: str
    offset: int
    data: bytes


def events(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields (type, event) of a binlog. The function splits the binlog by the sizes in the event headers, without the
    code under test."""
    assert data[:4] == MAGIC
    at = 4
    while at < len(data):
        size = int.from_bytes(data[at + 9 : at + 13], "little")
        yield data[at + 4], data[at : at + size]
        at += size
    assert at == len(data)


def transactions(data: bytes) -> list[Transaction]:
    found: list[Transaction] = []
    checksum = False
    for code, event in events(data):
        if code == EventType.FORMAT_DESCRIPTION:
            checksum = parse_format_description(event).checksum
            continue
        record = None
        if code == EventType.IGNORABLE:
            record = parse_record(event[19 : len(event) - 4 * checksum])
        if record is not None:
            found.append(Transaction(record.epoch, record.seq, record.file, record.offset, b""))
            continue
        last = found.pop()
        found.append(Transaction(last.epoch, last.seq, last.file, last.offset, last.data + event))
    return found


def tip_seq(server: Server) -> int:
    """Returns the seq of the end of the server's log."""
    if uses_gtids(server):
        return len(GtidSet.parse(str(server.execute("SELECT @@GLOBAL.gtid_executed")[0][0])))
    return packed_seq(*server.binlog_position())


def uses_gtids(server: Server) -> bool:
    return not server.mariadb and str(server.execute("SELECT @@GLOBAL.gtid_mode")[0][0]) == "ON"


def dumps(server: Server, user: str = "") -> list[int]:
    """Returns the ids of the server's threads that send a binlog, to this user or to all users."""
    shown = server.execute("SHOW PROCESSLIST")
    return [
        int(row[0])
        for row in shown
        if "Binlog Dump" in str(row[4]) and (not user or row[1] == user)
    ]


@contextmanager
def load(server: Server, database: str, *, rows: int = 3) -> Iterator[Load]:
    """Write transactions of `rows` rows into the table `database`.load until the block or the server ends."""
    made = Load(server, database, rows)
    made.thread.start()
    try:
        yield made
    finally:
        made.stop()


class Load:
    def __init__(self, server: Server, database: str, rows: int) -> None:
        self.server = server
        self.database = database
        self.rows = rows
        self.written = 0
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, name="load")
        server.execute(
            "CREATE TABLE IF NOT EXISTS `load` (id INT AUTO_INCREMENT PRIMARY KEY, t VARCHAR(200))",
            database=database,
        )

    def _run(self) -> None:
        values = ", ".join(["(REPEAT('x', 200))"] * self.rows)
        try:
            with closing(self.server.connect(self.database)) as connection:
                while not self.stopping.wait(0.001):
                    with connection.cursor() as cursor:
                        cursor.execute(f"INSERT INTO `load` (t) VALUES {values}")
                    self.written += 1
        except pymysql.MySQLError:
            pass  # a test has killed the server

    def until_written(self, count: int) -> None:
        until(lambda: self.written >= count, f"{count} transactions are written")

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(DEADLINE_S)

    def ids(self) -> list[int]:
        rows = self.server.execute("SELECT id FROM `load` ORDER BY id", database=self.database)
        return [int(row[0]) for row in rows]


def inserted_ids(reader: Reader, *tables: str) -> list[int]:
    """Returns the ids of all inserted rows, ordered by (seq, ordinal). Asserts that no such pair occurs twice."""
    found: list[tuple[int, int, int]] = []
    for change in reader.changes(*tables):
        if isinstance(change, delivered.TableChanges):
            rows = change.batch.select(["seq", "ordinal", "after"]).to_pylist()
            found += [(row["seq"], row["ordinal"], row["after"]["id"]) for row in rows]
    assert found == sorted(found)
    assert len({(seq, ordinal) for seq, ordinal, _ in found}) == len(found)
    return [number for _, _, number in found]
