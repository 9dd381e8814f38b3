"""A running server (`Server`), and a server that a test can start, restart and kill (`Instance`).

An instance is a child process, which this module identifies by its pid. It listens on a free port of 127.0.0.1 and on a
socket in its own folder. It is ready when it answers a statement over that socket, so this module never confuses it
with another server on the port. This module chooses the port before the server binds it. If another process binds the
port before the server, the start is repeated with another port.

When this process ends, no server and no folder remains, even if this process is killed. Each server has a guard: a
shell that reads from a pipe. Only this process has the writing end of the pipe. When the pipe is closed, the shell
kills the server and removes the server's folder. (PR_SET_PDEATHSIG would kill the server when the starting *thread*
ends, and would not remove the folder.)

At each commit, a server writes the redo log but does not flush it to disk, and MySQL 9.7 never flushes InnoDB's files.
So tests are fast, and SIGKILL loses no transaction; only a crash of the machine may lose transactions.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tests.servers.installs import (
    RECIPES,
    Installation,
    Kind,
    given_address,
    installation,
    variable,
)
from tests.servers.ports import free_port
from tests.servers.template import as_root, provision, redo_log_size, template
from tests.servers.tools import ServerUnavailable

Rows = tuple[tuple[Any, ...], ...]

REPLICATION_GRANTS = ("REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.*",)
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_GUARD = 'read -r _ || { grep -qsF -- "$2" "/proc/$1/cmdline" && kill -9 "$1"; rm -rf -- "$2"; }'

_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--secure-file-priv=",
    "--server-id=1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--sync-binlog=0",
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-buffer-pool-size=32M",
    "--performance-schema=OFF",
    "--max-connections=100",
    "--default-time-zone=+00:00",
    "--character-set-server=utf8mb4",
)
# Options with which a MySQL 9.7 flushes its files to disk, and its logs at each commit, as it does by default.
DURABLE = (
    "--sync-binlog=1",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-flush-method=O_DIRECT",
)
_MORE_OPTIONS: dict[Kind, tuple[str, ...]] = {
    "mysql97": (
        "--mysqlx=OFF",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--binlog-row-metadata=FULL",
        "--innodb-log-buffer-size=1M",
        "--innodb-use-native-aio=OFF",  # native AIO would use up the machine's limit of AIO requests
        "--innodb-doublewrite=OFF",
        # Otherwise each DDL statement flushes the files of the data dictionary several times.
        "--innodb-flush-method=nosync",
        "--table-open-cache=200",
    ),
    "mysql56": ("--gtid-mode=ON", "--enforce-gtid-consistency", "--log-slave-updates"),
    "mariadb1011": ("--gtid-strict-mode=ON", "--binlog-row-metadata=FULL", "--log-slave-updates"),
    "mariadb118": ("--gtid-strict-mode=ON", "--binlog-row-metadata=FULL", "--log-slave-updates"),
}


@dataclass(slots=True, weakref_slot=True)
class Server:
    """A running server, with root's account. `socket`: None for a server whose address the environment contains."""

    kind: Kind
    host: str
    port: int
    socket: Path | None
    root_user: str = "root"
    root_password: str = ""

    @property
    def mariadb(self) -> bool:
        return RECIPES[self.kind].mariadb

    @property
    def version(self) -> str:
        """Returns the version that the server reports, e.g. "9.7.4-2" or "11.8.6-MariaDB-0+deb13u1-log"."""
        return str(self.execute("SELECT @@version")[0][0])

    def connect(
        self,
        database: str | None = None,
        user: str | None = None,
        password: str = "",
        *,
        autocommit: bool = True,
        **options: Any,
    ) -> Connection[Cursor]:
        """Returns a connection as root (over the socket if there is one), or as `user` over TCP."""
        if user is None or user == self.root_user:
            user, password = self.root_user, self.root_password
            if self.socket is not None:
                options["unix_socket"] = str(self.socket)
                # Without this, each connection loads the system's certificate authorities, which takes longer than most
                # statements.
                options.setdefault("ssl_disabled", True)
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=user,
            password=password,
            database=database,
            charset="utf8mb4",
            autocommit=autocommit,
            connect_timeout=10,
            **options,
        )

    def execute(self, *statements: str, database: str | None = None) -> Rows:
        """Run statements as root on one new connection. Returns the rows of the last statement."""
        rows: Rows = ()
        with closing(self.connect(database)) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = tuple(cursor.fetchall())
        return rows

    def add_user(
        self, name: str, password: str, *grants: str, host: str = "%", require: str = ""
    ) -> None:
        """Create an account that can log in over TCP. Grants are "PRIVILEGES ON OBJECT"; without grants, the account
        may replicate.

        `require` is "SSL" for an account that must use TLS.
        """
        account = f"'{name}'@'{host}'"
        suffix = f" REQUIRE {require}" if require else ""
        with closing(self.connect()) as connection, connection.cursor() as cursor:
            secret = connection.escape(password)
            cursor.execute(f"CREATE USER {account} IDENTIFIED BY {secret}")
            for grant in grants or REPLICATION_GRANTS:
                cursor.execute(f"GRANT {grant} TO {account}")
            if suffix:
                verb = "GRANT USAGE ON *.* TO" if self.kind == "mysql56" else "ALTER USER"
                cursor.execute(f"{verb} {account}{suffix}")

    def binlogs(self) -> list[tuple[str, int]]:
        """Returns (name, size in bytes) of the server's binlog files, oldest first."""
        return [(str(row[0]), int(row[1])) for row in self.execute("SHOW BINARY LOGS")]

    def binlog_position(self) -> tuple[str, int]:
        """Returns the end of the server's log: (file, offset)."""
        what = "BINARY LOG" if self.kind == "mysql97" else "MASTER"
        row = self.execute(f"SHOW {what} STATUS")[0]
        return str(row[0]), int(row[1])

    def mysqlbinlog(
        self, *arguments: str | Path, remote: bool = False, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run the binlog tool that fits this server: the tool of MySQL 9.7 for MySQL, and for MariaDB the tool of the
        server's version.

        With `remote` the tool reads the log that the arguments name from this server, as root. Bytes that are not UTF-8
        are returned as surrogates. With `check`, an exit code other than 0 raises an error with the tool's output.
        """
        tool = installation(self.kind).mysqlbinlog or installation("mysql97").mysqlbinlog
        command = [*tool]
        if remote:
            command += ["--read-from-remote-server", f"--user={self.root_user}"]
            if self.socket is not None:
                command.append(f"--socket={self.socket}")
            else:
                command += [f"--host={self.host}", f"--port={self.port}", "--protocol=tcp"]
        with tempfile.TemporaryDirectory() as folder:  # for the tool's files of LOAD DATA
            done = subprocess.run(
                [*command, *(str(argument) for argument in arguments)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                check=False,
                env={
                    **os.environ,
                    "LC_ALL": "C",
                    "MYSQL_PWD": self.root_password,
                    "TMPDIR": folder,
                },
            )
        if check and done.returncode != 0:
            raise AssertionError(
                f"mysqlbinlog of {self.kind} ended with {done.returncode}: {done.stderr}"
            )
        return done


@dataclass(slots=True, weakref_slot=True)
class Instance(Server):
    """A throw-away server. `close` removes its folder and its data."""

    folder: Path = Path()
    options: tuple[str, ...] = ()
    installed: Installation | None = None
    process: subprocess.Popen[bytes] | None = None
    guard: subprocess.Popen[bytes] | None = None

    @property
    def datadir(self) -> Path:
        return self.folder / "data"

    @property
    def error_log(self) -> Path:
        return self.folder / "error.log"

    @property
    def ca_pem(self) -> Path:
        """Returns the path of the authority's certificate that signed this server's certificate. MySQL 9.7 makes both
        certificates itself."""
        path = self.datadir / "ca.pem"
        if not path.exists():
            raise ServerUnavailable(f"{self.kind} makes no certificates by itself")
        return path

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError(f"{self.kind} in {self.folder} is not running")
        return self.process.pid

    def start(self, *more_options: str) -> None:
        """Start the server, with the options of the constructor and `more_options`. Returns when it answers."""
        if self.process is not None:
            raise RuntimeError(f"{self.kind} in {self.folder} runs already")
        for _ in range(5):
            if self._start_once(more_options):
                return
            self.port = free_port()
        raise ServerUnavailable(f"{self.kind}: no free port could be bound; see {self.error_log}")

    def stop(self) -> None:
        """Ask the server to shut down (SIGTERM) and wait. If that takes longer than 30 s, kill it."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server (SIGKILL), as in a crash."""
        self._end(signal.SIGKILL)

    def restart(self, *more_options: str, kill: bool = False) -> None:
        """Stop or kill the server, then start it with the same port and data. `more_options` apply to this run only."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start(*more_options)

    def close(self) -> None:
        """End the server in any state, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        _RUNNING.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def _command(self, more_options: tuple[str, ...]) -> list[str]:
        if self.installed is None:
            raise RuntimeError("an instance is made by start_server or new_instance")
        return [
            *self.installed.mysqld,
            *as_root(),
            f"--datadir={self.datadir}",
            f"--socket={self.socket}",
            f"--port={self.port}",
            f"--pid-file={self.folder / 'pid'}",
            f"--tmpdir={self.folder / 'tmp'}",
            f"--log-error={self.error_log}",
            redo_log_size(self.kind),
            *_OPTIONS,
            *_MORE_OPTIONS[self.kind],
            *self.options,
            *more_options,
        ]

    def _start_once(self, more_options: tuple[str, ...]) -> bool:
        command = self._command(more_options)
        seen = self.error_log.stat().st_size if self.error_log.exists() else 0
        environment = self.installed.environment if self.installed is not None else {}
        with self.error_log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment, "LC_ALL": "C"},
                cwd=self.folder,
                start_new_session=True,
            )
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "guard", str(self.process.pid), str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._answers():
            return True
        self._end(signal.SIGKILL)
        said = self.error_log.read_bytes()[seen:].decode("utf-8", "replace")
        if "ddress already in use" in said:
            return False
        lines = said.splitlines()
        telling = [line for line in lines if "ERROR" in line] or lines
        raise ServerUnavailable("\n  ".join([f"{self.kind} did not start:", *telling[-15:]]))

    def _answers(self) -> bool:
        """True if the server answers a statement before it ends or a minute has passed."""
        assert self.process is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                # This probe does not use PyMySQL, because PyMySQL leaks the socket of a refused connection.
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.connect(str(self.socket))
                if self.execute("SELECT @@port") == ((self.port,),):
                    return True
            except (OSError, pymysql.MySQLError):
                pass  # not listening yet
            try:
                self.process.wait(_POLL_S)
            except subprocess.TimeoutExpired:
                continue
            return False
        return False

    def _end(self, by: signal.Signals) -> None:
        process, self.process = self.process, None
        guard, self.guard = self.guard, None
        if process is not None:
            process.send_signal(by)
            try:
                process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if guard is not None:
            guard.communicate(b"done\n")


_RUNNING: weakref.WeakSet[Instance] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for instance in list(_RUNNING):
        instance.close()


def new_instance(kind: Kind, *options: str) -> Instance:
    """Returns a throw-away instance that is not started yet, so that a test can prepare its data directory."""
    installed = provision(kind)
    folder = Path(tempfile.mkdtemp(prefix=f"bd-{kind}-"))
    instance = Instance(
        kind,
        "127.0.0.1",
        free_port(),
        folder / "socket",
        folder=folder,
        options=options,
        installed=installed,
    )
    _RUNNING.add(instance)
    (folder / "tmp").mkdir()
    source = template(installed, options)
    copy = ["cp", "-a", "--sparse=always", "--reflink=auto", str(source), str(instance.datadir)]
    subprocess.run(copy, check=True, stdin=subprocess.DEVNULL)
    return instance


@contextmanager
def start_server(kind: Kind, *options: str) -> Iterator[Instance]:
    """Starts a throw-away server, and removes it at the end of the block. `options`: further arguments of mysqld."""
    with new_instance(kind, *options) as instance:
        instance.start()
        yield instance


def external_server(kind: Kind) -> Server | None:
    """Returns the server whose address the environment contains for `kind`, after a check of the server; None without
    an address."""
    address = given_address(kind)
    if address is None:
        return None
    parts = urlsplit(address)
    if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not parts.username:
        raise ServerUnavailable(f"{variable(kind)} must be mysql://user:password@host:port")
    server = Server(
        kind,
        parts.hostname,
        parts.port or 3306,
        None,
        unquote(parts.username),
        unquote(parts.password or ""),
    )
    try:
        version = server.version
        log_bin, binlog_format = server.execute("SELECT @@log_bin, @@binlog_format")[0]
    except pymysql.MySQLError as error:
        raise ServerUnavailable(
            f"the server of {variable(kind)} does not answer: {error}"
        ) from error
    wanted = RECIPES[kind].version
    if f"{wanted}." not in version or ("MariaDB" in version) != server.mariadb:
        raise ServerUnavailable(f"{variable(kind)} names a server {version}, not {wanted}")
    if not log_bin or binlog_format != "ROW":
        raise ServerUnavailable(
            f"the server of {variable(kind)} needs log_bin and binlog_format=ROW"
        )
    return server
