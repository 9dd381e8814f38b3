"""Starts everything, runs the demo and reports its result.

First MySQL starts, then the daemon and the mirror job in parallel (Spark needs about ten seconds, and waits for the
daemon). Then the tables are created: the consumers begin at `earliest`, so the mirror contains all rows. Writers write
for a while. Meanwhile the mirror copies a table that is older than the binlog, two tables get columns, and one is
replaced by a shadow table.

Then the demo waits for the mirror. The mirror job acknowledges what is in its log. So when a consumer's `covered` set
contains all that the server has executed, the mirror's log holds all changes; the job's metrics say how far the tables
have applied the log.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from rich.console import Console

from deploy.demo import compare
from deploy.demo.load import WriteCounts, Writers, make_existing_table
from deploy.demo.processes import INTERRUPTS, DemoFailed, DemoProcess, tail
from deploy.demo.schema import DATABASES, EXISTING, STATEMENTS
from deploy.demo.view import View, ViewState, results_table, save_picture, size
from deploy.demo.watch import DemoConsumer, Observation, Observer, Rules
from tests.servers import Instance, start_server

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MIB = 1 << 20
CONSUMERS = (
    DemoConsumer("shop", "repl", ("shop",), 64 * MIB),
    DemoConsumer("billing", "repl", ("billing",), 64 * MIB),
    DemoConsumer("warehouse", "depot", ("warehouse",), 64 * MIB),
    DemoConsumer("never_reads", "repl", DATABASES, MIB // 4, shared=False),
)
COPY_GRANTS = ("SELECT ON *.*", "REPLICATION CLIENT ON *.*", "PROCESS ON *.*")
MIRRORED = tuple(consumer.name for consumer in CONSUMERS if consumer.shared)

OBSERVE_EVERY_S = 0.5
# The first start on a machine compiles kernels; later starts take seconds.
START_TIMEOUT_S = 240.0
CATCH_UP_TIMEOUT_S = 600.0  # two quiet cores need a minute
END_S = 10.0
ENDING_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """`target`: a folder for the Delta tables, which the demo leaves there; None: it removes them. `parts`: rows of the
    table that is copied. `picture`: an SVG file to write."""

    seconds: float
    seed: int
    keep: bool
    target: Path | None
    parts: int = 1_000_000
    picture: Path | None = None


@dataclass(slots=True)
class RunningDemo:
    """The running processes, and their observer."""

    server: Instance
    daemon: DemoProcess
    mirror: DemoProcess
    observer: Observer
    rules: Rules
    view: View
    port: int
    load: Writers | None = None
    observation: Observation | None = None
    writing: ViewState | None = None  # the last state under load

    def until(
        self, title: str, done: Callable[[Observation], bool], timeout_s: float
    ) -> Observation:
        """Observe and show until `done`. Raises DemoFailed for a violated rule, or after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            observation = self.observation = self._observe()
            if wrong := self.rules.wrong(observation):
                raise self.daemon.failed(f"violates a rule of the demo: {wrong}")
            written = self.load.written if self.load else WriteCounts()
            state = ViewState(title, observation, self.rules, written)
            self.view.show(state)
            if title == "writing":
                self.writing = state
            if done(observation):
                return observation
            if time.monotonic() > deadline:
                raise DemoFailed(f"{title}: not done after {timeout_s:g} s\n{_states(observation)}")
            time.sleep(OBSERVE_EVERY_S)

    def check(self) -> None:
        """Raises DemoFailed if a process has ended or a writer has failed."""
        for part in (self.daemon, self.mirror):
            part.check()
        if self.server.process is None or self.server.process.poll() is not None:
            raise DemoFailed(f"MySQL has ended\nThe end of its log:\n{tail(self.server.error_log)}")
        if self.load:
            self.load.check()

    def _observe(self) -> Observation:
        self.check()
        try:
            return self.observer.observe()
        except pymysql.MySQLError as error:
            self._await_end(self.server.process)
            said = tail(self.server.error_log)
            raise DemoFailed(
                f"MySQL does not answer: {error}\nThe end of its log:\n{said}"
            ) from error
        except OSError as error:
            self._await_end(self.daemon.process)
            raise self.daemon.failed(f"does not answer: {error!r}") from error

    def _await_end(self, process: subprocess.Popen[bytes] | None) -> None:
        """Wait for a process that does not answer: if it is ending, its exit code says more."""
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
            demo = _start(running, view, work, target, options.parts)
            results = _perform(demo, options, target)
        fine = all(result.fine for result in results)
        verdict = _verdict(demo, results, time.monotonic() - began)
        _report(console, results, verdict, target)
        if options.picture and demo.writing:
            save_picture(options.picture, demo.writing, results, verdict)
        if options.target:
            console.print(f"The Delta tables stay in {target}.", soft_wrap=True)
        elif not options.keep:
            console.print(
                f"They are removed now, as is everything else in {work}; --keep or --target DIR keeps them.",
                soft_wrap=True,
                highlight=False,
            )
        if options.keep:
            _keep(console, demo, work, target)
        return 0 if fine else 1


@contextmanager
def _work_folder() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="binlog-dispatcher-demo-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


# -- starting ------------------------------------------------------------------------------------------------


def _start(running: ExitStack, view: View, work: Path, target: Path, parts: int) -> RunningDemo:
    view.say("starting MySQL")
    server = running.enter_context(start_server("mysql97"))
    password = secrets.token_hex(16)
    for user in dict.fromkeys(consumer.user for consumer in CONSUMERS):
        server.add_user(user, password)
    server.add_user("copy", password, *COPY_GRANTS)
    view.say(
        f"MySQL {server.version} on {server.host}:{server.port}; starting the daemon and Spark"
    )
    port, metrics = _free_port(), _free_port()
    mirror_config = work / "mirror.yaml"
    mirror_config.write_text(mirror_settings(server.port, port, metrics, target), encoding="utf-8")
    config = work / "dispatcher.yaml"
    config.write_text(settings(server.port, port, work / "state.db"), encoding="utf-8")
    environment = {"DEMO_PASSWORD": password}
    daemon = _part(
        running,
        "The daemon",
        [BIN / "binlog-dispatcher", "run", "--config", config],
        work,
        environment,
    )
    mirror = _part(
        running,
        "The mirror job",
        [sys.executable, "-m", "spark_sink", "run", "--config", mirror_config],
        work,
        environment,
    )
    observer = Observer(port, running.enter_context(closing(_connect(server))), daemon.pid, metrics)
    demo = RunningDemo(server, daemon, mirror, observer, Rules(CONSUMERS), view, port)
    _await_daemon(demo)
    demo.until(
        "connecting",
        lambda observation: all(observation.state(c.name) == "streaming" for c in CONSUMERS),
        START_TIMEOUT_S,
    )
    view.say(
        f"the daemon serves {len(CONSUMERS)} consumers on http://127.0.0.1:{port}; making the tables"
    )
    server.execute(*STATEMENTS)
    view.say(f"writing {parts} rows that no binlog holds into {EXISTING}")
    with closing(_connect(server)) as connection:
        make_existing_table(connection, parts)
    return demo


def settings(mysql_port: int, port: int, state: Path) -> str:
    """The daemon's settings, as a user would write them."""
    lines = ["consumers:"]
    for consumer in CONSUMERS:
        lines += [
            f"  {consumer.name}:",
            f'    mysql: "{consumer.user}@127.0.0.1:{mysql_port}"',
            '    password: "${DEMO_PASSWORD}"',
            f"    databases: [{', '.join(consumer.databases)}]",
            "    start: earliest",
            f"    max_bytes_in_binlog_queue: {consumer.queue_bytes_max // 1024}KiB",
        ]
        if not consumer.shared:
            lines.append("    use_binlog_client: false")
    lines += [f"api: {{listen: 127.0.0.1:{port}}}", f"state: {{path: {state}}}"]
    return "\n".join(lines) + "\n"


def mirror_settings(mysql_port: int, port: int, metrics: int, target: Path) -> str:
    """The mirror's settings, as a user would write them."""
    return f"""url: http://127.0.0.1:{port}
consumers: [{", ".join(MIRRORED)}]
target: {target}
metrics: 127.0.0.1:{metrics}
copy: {{mysql: "copy@127.0.0.1:{mysql_port}", password: "${{DEMO_PASSWORD}}"}}
"""


def _part(
    running: ExitStack,
    name: str,
    command: list[str | Path],
    work: Path,
    environment: Mapping[str, str],
) -> DemoProcess:
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    # A killed Spark leaves temporary files, and a JVM leaves a file of performance data in /tmp; these options put them
    # into the work folder. In a run of a minute the JVM's optimizing compiler costs more time than it saves.
    java = f"-Djava.io.tmpdir={temporary} -XX:-UsePerfData -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    given = {
        **environment,
        "TMPDIR": str(temporary),
        "SPARK_LOCAL_DIRS": str(temporary),
        "JAVA_TOOL_OPTIONS": f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {java}".strip(),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONUNBUFFERED": "1",
    }
    log = work / f"{name.lower().replace('the ', '').replace(' ', '-')}.log"
    words = [str(word) for word in command]
    with INTERRUPTS.held():
        part = DemoProcess(name, words, log=log, folder=work, environment=given)
        running.callback(part.end, END_S)
    return part


def _await_daemon(demo: RunningDemo) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not demo.observer.answers():
        demo.check()
        if time.monotonic() > deadline:
            raise demo.daemon.failed(f"does not listen after {START_TIMEOUT_S:g} s")
        time.sleep(0.1)


def _connect(server: Instance) -> Connection[Cursor]:
    return server.connect()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# -- the main job --------------------------------------------------------------------------------------------


def _perform(demo: RunningDemo, options: Options, target: Path) -> list[compare.Result]:
    view, server = demo.view, demo.server
    load = demo.load = Writers(
        lambda: server.connect(autocommit=False), seed=options.seed, parts=options.parts
    )
    load.start()
    try:
        demo.until("waiting for Spark's first steps", _mirror_runs, START_TIMEOUT_S)
        view.say(f"the mirror is running; writing for {options.seconds:g} s (seed {options.seed})")
        load.go_on()
        _write_for(demo, load, options.seconds)
    finally:
        load.stop()
    written = load.written
    view.say(
        f"{written.rows} rows written in {written.transactions} transactions, {written.statements} statements;"
        " waiting for the mirror"
    )
    _catch_up(demo)
    view.say("comparing every value of every table")
    with closing(_connect(server)) as connection:
        tables = compare.tables_of(connection, DATABASES)
        return [_compare(connection, table, target) for table in tables]


def _write_for(demo: RunningDemo, load: Writers, seconds: float) -> None:
    began = time.monotonic()

    def write_until(share: float) -> None:
        demo.until("writing", lambda _: time.monotonic() >= began + seconds * share, seconds + 60)

    write_until(0.4)
    load.add_columns()
    write_until(0.6)
    load.change_by_shadow()
    write_until(1.0)


def _mirror_runs(observation: Observation) -> bool:
    return all(
        name in observation.mirrored and observation.mirrored[name].steps for name in MIRRORED
    )


def _catch_up(demo: RunningDemo) -> None:
    began = time.monotonic()
    assert demo.observation is not None
    tip = demo.observer.observe().executed

    def done(observation: Observation) -> bool:
        # The writers have stopped, so the server's executed set does not change.
        assert observation.executed == tip, "another client writes to the demo's server"
        caught_up = all(_caught_up(observation, name) for name in MIRRORED)
        return caught_up and demo.rules.closed_observations > 0

    demo.until("waiting for the mirror", done, CATCH_UP_TIMEOUT_S)
    demo.view.say(f"the mirror has caught up after {time.monotonic() - began:.1f} s")


def _caught_up(observation: Observation, name: str) -> bool:
    mirrored = observation.mirrored[name]
    copying = mirrored.has("copying") + mirrored.has("creating")
    return observation.behind(name) == observation.unapplied(name) == copying == 0


def _compare(connection: Connection[Cursor], table: compare.Table, target: Path) -> compare.Result:
    rows = compare.rows_of_delta(target / table.database / table.name, table)
    return compare.compare(table, compare.rows_of_mysql(connection, table), rows)


# -- the end -------------------------------------------------------------------------------------------------


def _verdict(demo: RunningDemo, results: list[compare.Result], seconds: float) -> str:
    assert demo.observation is not None
    (unshared,) = (consumer for consumer in CONSUMERS if not consumer.shared)
    held = demo.rules.held_bytes_max[unshared.name]
    connections = len({consumer.user for consumer in CONSUMERS})
    differ = sum(not result.fine for result in results)
    verdict = f"all {len(results)} tables are equal"
    if differ:
        verdict = f"[red]{differ} of {len(results)} tables differ[/]"
    return (
        f"[bold]{verdict}[/], {sum(result.mysql for result in results)} rows, in {seconds:.0f} s.\n"
        f"One binlog dump thread for each of {connections} connections and, while it was connected, one for the"
        f" unshared consumer:\n{unshared.name} never reads, held at most {size(held)}, and was disconnected when its"
        f" queue was full; no other consumer waited for it.\n"
        f"The daemon's resident memory was {demo.observation.resident_bytes_max / 1e6:.0f} MB at most"
        f" (limit {demo.rules.memory_bytes_max / 1e6:.0f} MB)."
    )


def _report(console: Console, results: list[compare.Result], verdict: str, target: Path) -> None:
    console.print(results_table(results))
    for result in results:
        for example in result.examples:
            console.print(f"{result.table.label}: {example}", markup=False, soft_wrap=True)
    console.print(verdict, highlight=False, soft_wrap=True)
    console.print(f"Delta tables: {target}/DATABASE/TABLE", highlight=False, soft_wrap=True)


def _keep(console: Console, demo: RunningDemo, work: Path, target: Path) -> None:
    """Keep everything running until Ctrl-C, or until a process ends."""
    console.print(
        f"\nEverything keeps running until Ctrl-C:\n"
        f"  MySQL      mysql --socket={demo.server.socket} --user=root\n"
        f"  daemon     {BIN / 'binlog-dispatcher'} binlogs --url http://127.0.0.1:{demo.port}\n"
        f"  settings   {work / 'dispatcher.yaml'}\n"
        f"  logs       {demo.daemon.log} {demo.mirror.log}\n"
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
