"""A server, the daemon and the mirror job. A test can kill and restart each of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pymysql

from deploy.demo import compare, delta
from spark_sink.mirror.rules.renames import folder_of
from spark_sink.mirror.values.names import folder_name
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.mirror.lake import is_copied, table_states
from tests.servers import Server
from tests.spark.conftest import killing
from tests.support.java import QUICK_SPARK

TIMEOUT_S = 600.0
COPY_USER = "copier"
COPY_GRANTS = ("SELECT ON *.*", "REPLICATION CLIENT ON *.*", "PROCESS ON *.*", "LOCK TABLES ON *.*")


@dataclass
class MirrorJob:
    """The job of one target. `kills`: a folder with a file for each point at which a process kills itself; `standby`: a
    second daemon with the same state."""

    server: Server
    daemon: Daemon
    home: Path
    kills: Path
    stack: ExitStack
    standby: Daemon | None = None
    copies: bool = True
    copy_settings: str = ""  # further settings of `copy`, each with a comma before it
    of_consumers: str = "{}"  # the settings of each consumer
    settings: str = ""  # further lines of the job's YAML file
    quick: bool = True  # True: Java and Spark compile less code than with default settings
    options: tuple[str, ...] = ()  # further options of `run`
    conf: tuple[str, ...] = ()  # further settings of Spark
    python: str = sys.executable
    environment: dict[str, str] | None = None  # replaces the environment of the tests
    # A target that is not local, and a function that copies this target into the local folder `target`.
    location: str = ""
    fetch: Callable[[], None] = lambda: None
    process: subprocess.Popen[bytes] | None = None
    logs: list[Path] = field(default_factory=list)

    @property
    def target(self) -> Path:
        return self.home / "target"

    @property
    def urls(self) -> str:
        """The addresses of all daemons."""
        return self.daemon.url if self.standby is None else f"{self.daemon.url},{self.standby.url}"

    def command(self, name: str, *arguments: str, consumers: tuple[str, ...]) -> list[str]:
        """Write the settings into a file. Returns the command line of a subcommand with this file."""
        copy = ""
        if self.copies:
            server = f"{COPY_USER}@{self.server.host}:{self.server.port}"
            copy = f'copy: {{mysql: "{server}", password: "{PASSWORD}"{self.copy_settings}}}\n'
        file = self.home / "mirror.yaml"
        file.write_text(
            f"url: {self.urls}\nconsumers: {{{', '.join(f'{c}: {self.of_consumers}' for c in consumers)}}}\n"
            f"target: {self.location or self.target}\nretry_timeout_seconds: 60\n{copy}{self.settings}",
            encoding="utf-8",
        )
        chosen = (*QUICK_SPARK, *self.conf) if self.quick else self.conf
        conf = [f"--conf={setting}" for setting in chosen]
        return [self.python, "-m", "spark_sink", name, f"--config={file}", *conf, *arguments]

    def start(self, *consumers: str, now: bool = True) -> subprocess.Popen[bytes]:
        """Start the job. With `now`, the job ends at the server's newest position."""
        more = ["--available-now"] if now else []
        self.logs.append(self.home / f"job{len(self.logs)}.log")
        with self.logs[-1].open("wb") as log:
            self.process = subprocess.Popen(
                self.command("run", *more, *self.options, consumers=consumers),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.job_environment(),
                cwd=self.home,
                start_new_session=True,
            )
        self.stack.callback(end_group, self.process)
        return self.process

    def job_environment(self) -> dict[str, str]:
        """Returns the environment of the job and of its commands."""
        if self.environment is not None:
            return self.environment
        return os.environ | (killing(self.kills) if self.quick else {})

    def run(self, *consumers: str) -> int:
        """Run the job up to the server's newest position. Returns the exit code."""
        return self.start(*consumers).wait(TIMEOUT_S)

    def stop(self) -> int:
        """End the job as systemd does. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(TIMEOUT_S)

    @property
    def log(self) -> str:
        """Returns the job's log since the last start, without Java's messages about its options."""
        lines = self.logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(line for line in lines if not line.startswith(("NOTE:", "WARNING: Using")))

    def differences(self, *databases: str) -> list[str]:
        """Compare every value of every table of the databases. Returns texts that describe the differences."""
        found = []
        self.fetch()
        with closing(self.server.connect()) as connection:
            for table in compare.tables_of(connection, databases):
                folder = f"{self.target}/{folder_of((table.database, table.name))}"
                mirrored = compare.rows_of_delta(Path(folder), table)
                result = compare.compare(table, compare.rows_of_mysql(connection, table), mirrored)
                if not result.fine:
                    found.append(f"{table.label}: {result.examples}")
        return found

    def verify(self, *consumers: str, exit_code: int = 0, timeout_s: float = 2 * TIMEOUT_S) -> str:
        """Run `verify`, and assert its exit code. Returns its output."""
        done = subprocess.run(
            self.command("verify", consumers=consumers),
            env=self.job_environment(),
            cwd=self.home,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout

    def leftovers(self, database: str) -> list[str]:
        """Returns the Delta tables of a database that have rows, but belong neither to a table of the server nor to a
        history of one."""
        with closing(self.server.connect(database)) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            names = [str(row[0]) for row in cursor.fetchall()]
        existing = {folder_name(name) for table in names for name in (table, f"{table}__history")}
        parent = self.target / folder_name(database)
        others = [f for f in parent.iterdir() if f.name not in existing] if parent.exists() else []
        return [
            f"{folder.name} has rows, and is no table of the server"
            for folder in others
            if delta.exists(folder) and delta.read(folder).num_rows
        ]

    def standing(self, *consumers: str) -> list[str]:
        """Returns the tables of the consumers that are not complete, as text."""
        self.fetch()
        states = [
            item for consumer in consumers for item in table_states(self.target, consumer).items()
        ]
        return [
            f"{label}: {row['state']}: {row['reason']}"
            for label, row in states
            if row["state"] != "complete"
        ]

    def until_equal(self, *databases: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all tables of the databases are equal, and no other tables have rows.

        The consumer of each database has the database's name. Raises AssertionError with the differences that remain.
        """
        last: list[str] = []

        def equal() -> bool:
            # A comparison takes processor time from the job, so the next comparison begins a second later.
            assert self.process is not None
            with suppress(subprocess.TimeoutExpired):
                last[:] = [f"the job has ended with {self.process.wait(1)}"]
                raise AssertionError
            try:
                last[:] = self.differences(*databases)
                last[:] = last or [text for name in databases for text in self.leftovers(name)]
            except (OSError, delta.UnreadableDelta, pymysql.MySQLError) as error:
                # The comparison failed because a step changes the files at this moment, or the server is starting.
                last[:] = [str(error)]
            return not last

        try:
            until(equal, "the mirror is equal", timeout_s=timeout_s)
        except AssertionError as error:
            text = "\n".join([*last, *self.standing(*databases), self.log])
            raise AssertionError(f"the mirror of {databases} is not equal: {text}") from error

    def until_copied(self, consumer: str, *tables: str) -> None:
        """Wait until the rows of these tables have been copied. Fails if the job ends before."""

        def copied() -> bool:
            assert self.process is not None
            with suppress(subprocess.TimeoutExpired):  # check the tables once a second
                assert self.process.wait(1) is None, self.log
            states = table_states(self.target, consumer)
            present = [states.get(f"{consumer}.{table}") for table in tables]
            return all(row is not None and is_copied(row) for row in present)

        until(copied, "the tables are copied", timeout_s=TIMEOUT_S)

    def until_complete(self, *consumers: str) -> None:
        """Wait until each table is complete. A copied table may equal the server's table before its state is
        complete."""
        until(lambda: not self.standing(*consumers), "all tables are complete", timeout_s=TIMEOUT_S)


@contextmanager
def mirror_job(
    server: Server, daemon: Daemon, home: Path, standby: Daemon | None = None
) -> Iterator[MirrorJob]:
    """Yields a job that is not started yet. At the end of the block, its processes are ended."""
    server.add_user(COPY_USER, PASSWORD, *COPY_GRANTS)
    kills = home / "kills"
    kills.mkdir()
    with ExitStack() as stack:
        yield MirrorJob(server, daemon, home, kills, stack, standby)


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` in a thread during the block, and wait for its end. Then raises the exception of `work`, if there was
    one."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        yield
    running.result()


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):  # all processes of the job have ended already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
