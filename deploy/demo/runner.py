"""Starts everything, runs the demo and reports its result.

First MySQL starts, then the daemon and the mirror job in parallel (Spark needs about ten seconds, and waits for the
daemon). Then the demo creates the tables. The consumers begin at `earliest`, so the mirror contains all rows. While
writers write, the mirror copies a table that is older than the binlog, the demo adds columns to two tables, and
replaces one table by a shadow table. mysqlbinlog reads a consumer through the front.

With a standby, two daemons have their state on a second MySQL: each renewal of the lease is a transaction, and the demo
compares the mirror's progress with everything that the first MySQL has executed. In the middle of the load the demo
kills the leader, and mysqlbinlog continues at the front of the other daemon.

Then the demo waits for the mirror, and removes a file from a Delta table, as another program would: the mirror has to
find the lost rows, and to write them again. The mirror job acknowledges what is in its log. So when the `covered`
position of a consumer contains all that the server has executed, the mirror's log contains all changes. The job's
metrics say up to which entry of the log the tables are complete.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from rich.console import Console

from deploy.demo import compare
from deploy.demo.load import WriteCounts, Writers, make_existing_table
from deploy.demo.plant import lose_rows
from deploy.demo.processes import INTERRUPTS, DemoFailed, DemoProcess, tail
from deploy.demo.replication import STARTS_MAX, ReplicationClient, ReplicationResult
from deploy.demo.schema import DATABASES, EXISTING, STATEMENTS
from deploy.demo.settings import (
    CONSUMERS,
    COPY_GRANTS,
    MIRRORED,
    STATE_DATABASE,
    STATE_GRANTS,
    STATE_USER,
    daemon_settings,
    daemon_urls,
    mirror_settings,
    state_in_database,
    state_in_file,
)
from deploy.demo.view import NO_LEADER, View, ViewState, results_table, save_picture, size
from deploy.demo.watch import TOOL, DemoDaemon, Observation, Observer, Rules, SilentDaemon
from tests.servers import DURABLE, Instance, start_server
from tests.servers.ports import free_port

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

OBSERVE_EVERY_S = 0.5
LOOK_FOR_LEADER_EVERY_S = 0.05
# The first start on a machine compiles kernels; later starts take seconds.
START_TIMEOUT_S = 240.0
CATCH_UP_TIMEOUT_S = 600.0  # two quiet cores need a minute
TAKEOVER_TIMEOUT_S = 120.0  # two quiet cores need six seconds
PROVE_TIMEOUT_S = 300.0  # two quiet cores need half a minute
LOSES_ROWS = ("shop", "customers")  # the Delta table from which the demo removes rows
END_S = 10.0
ENDING_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """`target`: a folder for the Delta tables, which the demo leaves there; None: it removes them. `parts`: rows of the
    table that is copied. `picture`: an SVG file to write. `standby`: run two daemons, and kill the leader."""

    seconds: float
    seed: int
    keep: bool
    target: Path | None
    parts: int = 1_000_000
    picture: Path | None = None
    standby: bool = False


@dataclass(frozen=True, slots=True)
class Takeover:
    """A change of the leader. `load_s`: how long the load had run when the leader was killed; `after_s`: how long it
    took until the other daemon led."""

    killed: str
    leader: str
    load_s: float
    after_s: float

    def __str__(self) -> str:
        return (
            f"{self.killed.capitalize()} led until it was killed with SIGKILL, {self.load_s:.1f} s after the load had"
            f" begun; {self.after_s:.1f} s later {self.leader} led."
        )


@dataclass(frozen=True, slots=True)
class Planted:
    """Rows that were removed from a Delta table. `after_s`: how long it took until they were written again."""

    label: str
    rows: int
    after_s: float

    def __str__(self) -> str:
        return (
            f"{self.rows} rows were removed from the Delta table {self.label} behind the mirror's back;"
            f" {self.after_s:.1f} s later the mirror had found the difference and repaired it."
        )


@dataclass(slots=True)
class RunningDemo:
    """The running processes, and their observer. `server` is mirrored; `state_server` contains the state of two
    daemons."""

    server: Instance
    state_server: Instance | None
    daemons: Sequence[DemoDaemon]  # also those that were killed
    mirror: DemoProcess
    observer: Observer
    rules: Rules
    view: View
    load: Writers | None = None
    client: ReplicationClient | None = None
    takeover: Takeover | None = None
    planted: Planted | None = None
    observation: Observation | None = None
    writing: ViewState | None = None  # the last state under load

    def until(
        self, title: str, done: Callable[[Observation], bool], timeout_s: float
    ) -> Observation:
        """Observe and show until `done`. Raises DemoFailed for a violated rule, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            observation = self._observe()
            written = self.load.written if self.load else WriteCounts()
            state = ViewState(title, observation, self.rules, written)
            if observation:
                self.observation = observation
                if wrong := self.rules.wrong(observation):
                    raise self.leader.process.failed(f"violates a rule of the demo: {wrong}")
                if self.client:
                    killed = len(self.observer.daemons) < len(self.daemons)
                    self.client.keep_reading(self.leader.front, STARTS_MAX if killed else 1)
            self.view.show(state)
            if observation and title == "writing":
                self.writing = state
            if observation and done(observation):
                return observation
            if time.monotonic() > deadline:
                states = _states(observation) if observation else f"  {NO_LEADER}"
                raise DemoFailed(f"{title}: not done after {timeout_s:g} s\n{states}")
            time.sleep(OBSERVE_EVERY_S if observation else LOOK_FOR_LEADER_EVERY_S)

    @property
    def proved_s(self) -> dict[str, float]:
        """By table, the seconds since the mirror's last comparison with the server that found no difference."""
        mirrored = self.observation.mirrored.values() if self.observation else ()
        return {label: s for progress in mirrored for label, s in progress.proved_s.items()}

    @property
    def leader(self) -> DemoDaemon:
        """The daemon that led at the last observation."""
        assert self.observation is not None
        label = self.observation.leader
        return next(daemon for daemon in self.daemons if daemon.process.label == label)

    def check(self) -> None:
        """Raises DemoFailed if a process has ended or a writer has failed."""
        for part in (*(daemon.process for daemon in self.observer.daemons), self.mirror):
            part.check()
        for server in filter(None, (self.server, self.state_server)):
            if server.process is None or server.process.poll() is not None:
                raise DemoFailed(f"MySQL has ended\nThe end of its log:\n{tail(server.error_log)}")
        if self.load:
            self.load.check()

    def _observe(self) -> Observation | None:
        self.check()
        try:
            return self.observer.observe()
        except pymysql.MySQLError as error:
            self._await_end(self.server.process)
            said = tail(self.server.error_log)
            raise DemoFailed(
                f"MySQL does not answer: {error}\nThe end of its log:\n{said}"
            ) from error
        except SilentDaemon as silent:
            silent_part = silent.daemon.process
            self._await_end(silent_part.process)
            raise silent_part.failed(f"does not answer: {silent.__cause__!r}") from silent

    def _await_end(self, process: subprocess.Popen[bytes] | None) -> None:
        """Wait for a process that does not answer. If it is ending, its exit code is a better explanation."""
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
        self.check()


def run(options: Options, console: Console) -> int:
    """Run the demo and return its exit code. Raises DemoFailed, ServerUnavailable or KeyboardInterrupt, after all
    processes have ended."""
    began = time.monotonic()
    with _work_folder() as work, ExitStack() as running:
        target = options.target or work / "delta"
        with View(console) as view:
            demo = _start(running, view, work, target, options)
            results, replicated = _perform(demo, options, target)
        fine = replicated.same and all(result.fine for result in results)
        verdict = _verdict(demo, results, replicated, time.monotonic() - began)
        _report(console, results, demo.proved_s, verdict, target)
        if options.picture and demo.writing:
            save_picture(options.picture, demo.writing, results, verdict, demo.proved_s)
        if options.target:
            console.print(f"The Delta tables stay in {target}.", soft_wrap=True)
        elif not options.keep:
            console.print(
                f"They are removed now, as is everything else in {work}; --keep or --target DIR keeps them.",
                soft_wrap=True,
                highlight=False,
            )
        if options.keep:
            _keep(console, demo, target)
        return 0 if fine else 1


@contextmanager
def _work_folder() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="binlog-dispatcher-demo-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


# -- starting ------------------------------------------------------------------------------------------------


def _start(
    running: ExitStack, view: View, work: Path, target: Path, options: Options
) -> RunningDemo:
    view.say("starting MySQL")
    server = running.enter_context(start_server("mysql97"))
    password = secrets.token_hex(16)
    for user in dict.fromkeys(consumer.user for consumer in CONSUMERS):
        server.add_user(user, password)
    server.add_user("copy", password, *COPY_GRANTS)
    state_server = _start_state_server(running, view, password) if options.standby else None
    environment = {"DEMO_PASSWORD": password}
    started = "two daemons" if state_server else "the daemon"
    view.say(f"MySQL {server.version} on {server.host}:{server.port}; starting {started} and Spark")
    parts = _daemon_parts(state_server, work)
    ports, metrics = [free_port() for _ in parts], free_port()

    def start_daemon(part: DaemonPart, port: int) -> DemoDaemon:
        front = free_port()
        settings = daemon_settings(server.port, port, front, part.state)
        part.config.write_text(settings, encoding="utf-8")
        process = _part(
            running,
            part.name,
            [BIN / "binlog-dispatcher", "run", "--config", part.config],
            work,
            environment,
        )
        return DemoDaemon(process, port, front, part.config)

    mirror_config = work / "mirror.yaml"
    mirror_config.write_text(mirror_settings(server.port, ports, metrics, target), encoding="utf-8")
    daemons = [start_daemon(parts[0], ports[0])]
    mirror = _part(
        running,
        "The mirror job",
        [sys.executable, "-m", "spark_sink", "run", "--config", mirror_config],
        work,
        environment,
    )
    observer = Observer(daemons, running.enter_context(closing(_connect(server))), metrics)
    demo = RunningDemo(server, state_server, daemons, mirror, observer, Rules(CONSUMERS), view)
    _await_daemon(demo, daemons[0], "/readyz" if state_server else "/livez")
    # The first daemon leads. On a new machine it has compiled the kernels, so the other daemon finds them in the cache.
    for part, port in zip(parts[1:], ports[1:], strict=True):
        daemons.append(start_daemon(part, port))
        observer.daemons.append(daemons[-1])
        _await_daemon(demo, daemons[-1], "/readyz?standby")
    demo.until(
        "connecting",
        lambda observation: all(observation.state(c.name) == "streaming" for c in CONSUMERS),
        START_TIMEOUT_S,
    )
    view.say(f"{_roles(demo)}; making the tables")
    server.execute(*STATEMENTS)
    view.say(f"writing {options.parts} rows that no binlog holds into {EXISTING}")
    with closing(_connect(server)) as connection:
        make_existing_table(connection, options.parts)
    (read,) = (consumer for consumer in CONSUMERS if consumer.reader == TOOL)
    demo.client = ReplicationClient(
        server,
        read.name,
        read.databases,
        work / "replication",
        lambda name, command: _part(running, name, command, work, {}),
    )
    return demo


@dataclass(frozen=True, slots=True)
class DaemonPart:
    """A daemon to start. `state`: the value of the settings' key `state`."""

    name: str
    config: Path
    state: str


def _daemon_parts(state_server: Instance | None, work: Path) -> list[DaemonPart]:
    """One daemon with its state in a file, or two with their state in a database."""
    if state_server is None:
        state = state_in_file(work / "state.db")
        return [DaemonPart("The daemon", work / "dispatcher.yaml", state)]
    return [
        DaemonPart(
            f"Daemon {letter}",
            work / f"dispatcher-{letter}.yaml",
            state_in_database(state_server.port, work / f"spill-{letter}"),
        )
        for letter in ("a", "b")
    ]


def _start_state_server(running: ExitStack, view: View, password: str) -> Instance:
    """Start a MySQL with a database for the state of two daemons, durable as docs/high-availability.md recommends."""
    server = running.enter_context(start_server("mysql97", *DURABLE))
    server.execute(f"CREATE DATABASE {STATE_DATABASE}")
    server.add_user(STATE_USER, password, *STATE_GRANTS)
    view.say(f"a second MySQL on {server.host}:{server.port} has the state of the daemons")
    return server


def _roles(demo: RunningDemo) -> str:
    """A text that says which daemon serves the consumers, and which daemons stand by."""
    leader = demo.leader
    serves = f"serves {len(CONSUMERS)} consumers on {daemon_urls([leader.port])}"
    standbys = [daemon for daemon in demo.daemons if daemon is not leader]
    if not standbys:
        return f"the daemon {serves}"
    stand_by = "".join(
        f", {daemon.process.label} stands by on {daemon_urls([daemon.port])}" for daemon in standbys
    )
    return f"{leader.process.label} leads and {serves}{stand_by}"


def _part(
    running: ExitStack,
    name: str,
    command: Sequence[str | Path],
    work: Path,
    environment: Mapping[str, str],
) -> DemoProcess:
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    # A killed Spark leaves temporary files, so put them into the work folder. A JVM leaves a file of performance data
    # in /tmp, so make none. In a run of a minute the JVM's optimizing compiler costs more time than it saves, so do not
    # use it.
    java = f"-Djava.io.tmpdir={temporary} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    given = {
        **environment,
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java}".strip(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
    }
    words = [str(word) for word in command]
    with INTERRUPTS.held():
        part = DemoProcess(name, words, folder=work, environment=given)
        running.callback(part.end, END_S)
    return part


def _await_daemon(demo: RunningDemo, daemon: DemoDaemon, probe: str) -> None:
    """Wait until GET `probe` of the daemon returns 200."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not demo.observer.answers(daemon, probe):
        demo.check()
        if time.monotonic() > deadline:
            raise daemon.process.failed(f"is not ready after {START_TIMEOUT_S:g} s")
        time.sleep(0.1)


def _connect(server: Instance) -> Connection[Cursor]:
    return server.connect()


# -- the main job --------------------------------------------------------------------------------------------


def _perform(
    demo: RunningDemo, options: Options, target: Path
) -> tuple[list[compare.Result], ReplicationResult]:
    view, server = demo.view, demo.server
    load = demo.load = Writers(
        lambda: server.connect(autocommit=False), seed=options.seed, parts=options.parts
    )
    load.start()
    try:
        demo.until("waiting for Spark's first steps", _mirror_runs, START_TIMEOUT_S)
        view.say(f"the mirror is running; writing for {options.seconds:g} s (seed {options.seed})")
        load.go_on()
        _write_for(demo, load, options)
    finally:
        load.stop()
    written = load.written
    view.say(
        f"{written.rows} rows written in {written.transactions} transactions, {written.statements} statements;"
        " waiting for the mirror"
    )
    _catch_up(demo)
    demo.planted = _plant(demo, target)
    view.say("comparing every value of every table")
    with closing(_connect(server)) as connection:
        tables = compare.tables_of(connection, DATABASES)
        results = [_compare(connection, table, target) for table in tables]
    assert demo.client is not None
    return results, demo.client.compared()


def _write_for(demo: RunningDemo, load: Writers, options: Options) -> None:
    began, seconds = time.monotonic(), options.seconds

    def write_until(share: float) -> None:
        demo.until("writing", lambda _: time.monotonic() >= began + seconds * share, seconds + 60)

    write_until(0.4)
    load.add_columns()
    if options.standby:
        write_until(0.5)
        demo.takeover = _kill_leader(demo, began)
    write_until(0.6)
    load.change_by_shadow()
    write_until(1.0)


def _kill_leader(demo: RunningDemo, load_began: float) -> Takeover:
    """Kill the daemon that leads, and wait until the other one leads."""
    killed = demo.leader
    killed.process.kill()
    killed_at = time.monotonic()
    demo.observer.daemons.remove(killed)
    name = killed.process.label
    demo.view.say(f"{name}, which leads, was killed with SIGKILL")
    found = demo.until("takeover", lambda _: True, TAKEOVER_TIMEOUT_S)
    takeover = Takeover(name, found.leader, killed_at - load_began, found.at - killed_at)
    demo.view.say(f"{found.leader} leads, {takeover.after_s:.1f} s later")
    return takeover


def _mirror_runs(observation: Observation) -> bool:
    return all(
        name in observation.mirrored and observation.mirrored[name].steps for name in MIRRORED
    )


def _catch_up(demo: RunningDemo) -> None:
    began = time.monotonic()
    tip = demo.observer.executed()

    def done(observation: Observation) -> bool:
        # The writers have stopped, so the server's executed set does not change.
        assert observation.executed == tip, "another client writes to the demo's server"
        caught_up = all(_caught_up(observation, name) for name in MIRRORED)
        caught_up = caught_up and all(
            observation.behind(c.name) == 0 for c in CONSUMERS if c.reader
        )
        return caught_up and demo.rules.closed_observations > 0

    demo.until("waiting for the mirror", done, CATCH_UP_TIMEOUT_S)
    demo.view.say(f"the mirror has caught up after {time.monotonic() - began:.1f} s")


def _plant(demo: RunningDemo, target: Path) -> Planted:
    """Remove rows from a Delta table, and wait until the mirror has found and repaired this, and has proved each
    table."""
    rows = lose_rows(target / LOSES_ROWS[0] / LOSES_ROWS[1])
    began = time.monotonic()
    label = ".".join(LOSES_ROWS)
    demo.view.say(f"removed {rows} rows from the Delta table {label}; waiting for the mirror")
    repaired = demo.until("repairing", lambda found: _repaired(found) >= rows, PROVE_TIMEOUT_S)
    planted = Planted(label, rows, repaired.at - began)
    demo.view.say(str(planted))

    def proved(found: Observation) -> bool:
        tables = sum(progress.has("complete") for progress in found.mirrored.values())
        return len(demo.proved_s) >= tables and label in demo.proved_s

    demo.until("proving", proved, PROVE_TIMEOUT_S)
    return planted


def _repaired(observation: Observation) -> int:
    return sum(progress.repaired for progress in observation.mirrored.values())


def _caught_up(observation: Observation, name: str) -> bool:
    mirrored = observation.mirrored[name]
    copying = mirrored.has("copying") + mirrored.has("creating")
    return observation.behind(name) == observation.unapplied(name) == copying == 0


def _compare(connection: Connection[Cursor], table: compare.Table, target: Path) -> compare.Result:
    rows = compare.rows_of_delta(target / table.database / table.name, table)
    return compare.compare(table, compare.rows_of_mysql(connection, table), rows)


# -- the end -------------------------------------------------------------------------------------------------


def _verdict(
    demo: RunningDemo,
    results: list[compare.Result],
    replicated: ReplicationResult,
    seconds: float,
) -> str:
    (unshared,) = (consumer for consumer in CONSUMERS if not consumer.shared)
    held = demo.rules.held_bytes_max[unshared.name]
    connections = len({consumer.user for consumer in CONSUMERS})
    differ = sum(not result.fine for result in results)
    verdict = f"all {len(results)} tables are equal"
    if differ:
        verdict = f"[red]{differ} of {len(results)} tables differ[/]"
    whose = "The daemon's" if demo.takeover is None else "Each daemon's"
    takeover = "" if demo.takeover is None else f"{demo.takeover}\n"
    planted = "" if demo.planted is None else f"{demo.planted}\n"
    return (
        f"[bold]{verdict}[/], {sum(result.mysql for result in results)} rows, in {seconds:.0f} s.\n{takeover}{planted}"
        f"One binlog dump thread for each of {connections} connections and, while it was connected, one for the"
        f" unshared consumer:\n{unshared.name} never reads, held at most {size(held)}, and was disconnected when its"
        f" queue was full; no other consumer waited for it.\n{replicated}\n"
        f"{whose} resident memory was {demo.rules.resident_bytes_max / 1e6:.0f} MB at most"
        f" (limit {demo.rules.memory_bytes_max / 1e6:.0f} MB)."
    )


def _report(
    console: Console,
    results: list[compare.Result],
    proved_s: Mapping[str, float],
    verdict: str,
    target: Path,
) -> None:
    console.print(results_table(results, proved_s))
    for result in results:
        for example in result.examples:
            console.print(f"{result.table.label}: {example}", markup=False, soft_wrap=True)
    console.print(verdict, highlight=False, soft_wrap=True)
    console.print(f"Delta tables: {target}/DATABASE/TABLE", highlight=False, soft_wrap=True)


def _keep(console: Console, demo: RunningDemo, target: Path) -> None:
    """Keep everything running until Ctrl-C, or until a process ends."""
    urls = daemon_urls([daemon.port for daemon in demo.daemons])
    configs = " ".join(str(daemon.config) for daemon in demo.daemons)
    fronts = ", ".join(f"127.0.0.1:{daemon.front}" for daemon in demo.daemons)
    logs = " ".join(str(part.log) for part in (*(d.process for d in demo.daemons), demo.mirror))
    console.print(
        f"\nEverything keeps running until Ctrl-C:\n"
        f"  MySQL      mysql --socket={demo.server.socket} --user=root\n"
        f"  daemon     {BIN / 'binlog-dispatcher'} binlogs --url {urls}\n"
        f"  front      {fronts}, users {', '.join(consumer.name for consumer in CONSUMERS)}\n"
        f"  settings   {configs}\n"
        f"  logs       {logs}\n"
        f"  tables     {target}",
        highlight=False,
        soft_wrap=True,
    )
    try:
        while True:
            demo.check()
            time.sleep(OBSERVE_EVERY_S)
    except KeyboardInterrupt:
        console.print("stopping all processes")


def _states(observation: Observation) -> str:
    return "\n".join(
        f"  {name}: {row['state']}, {row['unacknowledged_bytes']} bytes unacknowledged,"
        f" {observation.behind(name)} transactions behind, last error: {row['last_error']}"
        for name, row in observation.rows.items()
    )
