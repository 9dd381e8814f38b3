"""What is started in which order, and what ends the demo.

MySQL, then the daemon and the mirror job side by side (Spark needs some ten seconds to start, and waits for a daemon
that does not listen yet), then the tables: the consumers begin at `earliest`, before there are any, so the mirror holds
all rows. Writers write for a while; then the mirror is waited for, by position: a consumer's `covered` set holds all
that the server had executed when the last writer stopped only if every transaction of it that concerns the consumer was
acknowledged, and the mirror job acknowledges a batch after its last table's commit.
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
from deploy.demo.load import Load, Written
from deploy.demo.parts import INTERRUPTS, DemoFailed, Part, tail
from deploy.demo.schema import DATABASES, STATEMENTS
from deploy.demo.view import Scene, View, results, save_picture, size
from deploy.demo.watch import Declared, Look, Rules, Watch
from tests.servers import Instance, start_server

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MIB = 1 << 20
CONSUMERS = (
    Declared("shop", "repl", ("shop",), 64 * MIB),
    Declared("billing", "repl", ("billing",), 64 * MIB),
    Declared("warehouse", "depot", ("warehouse",), 64 * MIB),
    Declared("never_reads", "repl", DATABASES, MIB // 4, shared=False),
)
MIRRORED = tuple(one.name for one in CONSUMERS if one.shared)

LOOK_EVERY_S = 0.5
# The first start of a fresh machine compiles; later ones take seconds.
START_TIMEOUT_S = 240.0
CATCH_UP_TIMEOUT_S = 240.0
END_S = 10.0
ENDING_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """`target`: keeps the Delta tables there; None: they are removed with everything else. `picture`: an SVG file to
    write."""

    seconds: float
    seed: int
    keep: bool
    target: Path | None
    picture: Path | None = None


@dataclass(slots=True)
class Stage:
    """Everything that runs, and what is needed to look at it."""

    server: Instance
    daemon: Part
    mirror: Part
    watch: Watch
    rules: Rules
    view: View
    port: int
    load: Load | None = None
    look: Look | None = None
    writing: Scene | None = None  # the last scene under load

    def until(self, title: str, done: Callable[[Look], bool], timeout_s: float) -> Look:
        """Look and show until `done`. Raises DemoFailed when something is wrong, or when it takes too long."""
        deadline = time.monotonic() + timeout_s
        while True:
            look = self.look = self._look()
            if wrong := self.rules.wrong(look):
                raise self.daemon.failed(f"does not do what it should: {wrong}")
            written = self.load.written if self.load else Written()
            scene = Scene(title, look, self.rules, written)
            self.view.show(scene)
            if title == "writing":
                self.writing = scene
            if done(look):
                return look
            if time.monotonic() > deadline:
                raise DemoFailed(f"{title}: not done after {timeout_s:g} s\n{_states(look)}")
            time.sleep(LOOK_EVERY_S)

    def check(self) -> None:
        """Raises DemoFailed if a part has ended, or a writer has failed."""
        for part in (self.daemon, self.mirror):
            part.check()
        if self.server.process is None or self.server.process.poll() is not None:
            raise DemoFailed(f"MySQL has ended\nThe end of its log:\n{tail(self.server.error_log)}")
        if self.load:
            self.load.check()

    def _look(self) -> Look:
        self.check()
        try:
            return self.watch.look()
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
        """One that broke off is probably ending: how it ended says more than that it does not answer."""
        if process is not None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
        self.check()


def run(options: Options, console: Console) -> int:
    """The demo; its exit code. Raises DemoFailed, ServerUnavailable, KeyboardInterrupt, with everything ended."""
    began = time.monotonic()
    with _work_folder() as work, ExitStack() as running:
        target = options.target or work / "delta"
        with View(console) as view:
            stage = _start(running, view, work, target)
            found = _perform(stage, options, target)
        fine = all(one.fine for one in found)
        verdict = _verdict(stage, found, time.monotonic() - began)
        _report(console, found, verdict, target)
        if options.picture and stage.writing:
            save_picture(options.picture, stage.writing, found, verdict)
        if options.target:
            console.print(f"The Delta tables stay in {target}.", soft_wrap=True)
        elif not options.keep:
            console.print(
                f"They are removed now, as is everything else in {work}; --keep or --target DIR keeps them.",
                soft_wrap=True,
                highlight=False,
            )
        if options.keep:
            _keep(console, stage, work, target)
        return 0 if fine else 1


@contextmanager
def _work_folder() -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix="binlog-dispatcher-demo-"))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


# -- starting ------------------------------------------------------------------------------------------------


def _start(running: ExitStack, view: View, work: Path, target: Path) -> Stage:
    view.say("starting MySQL")
    server = running.enter_context(start_server("mysql97"))
    password = secrets.token_hex(16)
    for user in dict.fromkeys(one.user for one in CONSUMERS):
        server.add_user(user, password)
    view.say(
        f"MySQL {server.version} on {server.host}:{server.port}; starting the daemon and Spark"
    )
    port = _free_port()
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
    mirror = _part(running, "The mirror job", _mirror_command(port, work, target), work, {})
    watch = Watch(port, running.enter_context(closing(_connect(server))), daemon.pid, mirror.log)
    stage = Stage(server, daemon, mirror, watch, Rules(CONSUMERS), view, port)
    _await_daemon(stage)
    stage.until(
        "connecting",
        lambda look: all(look.state(one.name) == "streaming" for one in CONSUMERS),
        START_TIMEOUT_S,
    )
    view.say(
        f"the daemon serves {len(CONSUMERS)} consumers on http://127.0.0.1:{port}; making the tables"
    )
    server.execute(*STATEMENTS)
    return stage


def settings(mysql_port: int, port: int, state: Path) -> str:
    """The daemon's settings, as a user would write them."""
    lines = ["consumers:"]
    for one in CONSUMERS:
        lines += [
            f"  {one.name}:",
            f'    mysql: "{one.user}@127.0.0.1:{mysql_port}"',
            '    password: "${DEMO_PASSWORD}"',
            f"    databases: [{', '.join(one.databases)}]",
            "    start: earliest",
            f"    max_bytes_in_binlog_queue: {one.queue_bytes_max // 1024}KiB",
        ]
        if not one.shared:
            lines.append("    use_binlog_client: false")
    lines += [f"api: {{listen: 127.0.0.1:{port}}}", f"state: {{path: {state}}}"]
    return "\n".join(lines) + "\n"


def _mirror_command(port: int, work: Path, target: Path) -> list[str | Path]:
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "spark_sink",
        "--url",
        f"http://127.0.0.1:{port}",
    ]
    for name in MIRRORED:
        command += ["--consumer", name]
    return [*command, "--target", target, "--checkpoint", work / "checkpoints"]


def _part(
    running: ExitStack,
    name: str,
    command: list[str | Path],
    work: Path,
    environment: Mapping[str, str],
) -> Part:
    temporary = work / "tmp"
    temporary.mkdir(exist_ok=True)
    # Spark leaves temporary files where it is killed, and a JVM a file of figures in /tmp. In a minute of work the
    # optimising compiler costs more than it saves.
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
        part = Part(name, words, log=log, folder=work, environment=given)
        running.callback(part.end, END_S)
    return part


def _await_daemon(stage: Stage) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not stage.watch.answers():
        stage.check()
        if time.monotonic() > deadline:
            raise stage.daemon.failed(f"does not listen after {START_TIMEOUT_S:g} s")
        time.sleep(0.1)


def _connect(server: Instance) -> Connection[Cursor]:
    return server.connect()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


# -- the main job --------------------------------------------------------------------------------------------


def _perform(stage: Stage, options: Options, target: Path) -> list[compare.Result]:
    view, server = stage.view, stage.server
    load = stage.load = Load(lambda: server.connect(autocommit=False), seed=options.seed)
    load.start()
    try:
        stage.until("waiting for Spark's first batches", _mirror_works, START_TIMEOUT_S)
        view.say(f"the mirror works; writing for {options.seconds:g} s (seed {options.seed})")
        load.go_on()
        _write_for(stage, load, options.seconds)
    finally:
        load.stop()
    written = load.written
    view.say(
        f"{written.rows} rows written in {written.transactions} transactions, {written.statements} statements;"
        " waiting for the mirror"
    )
    _catch_up(stage)
    view.say("comparing every value of every table")
    with closing(_connect(server)) as connection:
        tables = compare.tables_of(connection, DATABASES)
        return [_compare(connection, table, target) for table in tables]


def _write_for(stage: Stage, load: Load, seconds: float) -> None:
    began = time.monotonic()
    half = began + seconds / 2
    stage.until("writing", lambda _: time.monotonic() >= half, seconds + 60)
    load.add_column()
    stage.until("writing", lambda _: time.monotonic() >= began + seconds, seconds + 60)


def _mirror_works(look: Look) -> bool:
    return all(name in look.mirrored and look.mirrored[name].batches for name in MIRRORED)


def _catch_up(stage: Stage) -> None:
    began = time.monotonic()
    assert stage.look is not None
    tip = stage.watch.look().executed

    def done(look: Look) -> bool:
        # Nobody writes any more, so the server's set is still `tip`.
        assert look.executed == tip, "somebody writes to the demo's server"
        caught_up = all(look.behind(name) == 0 for name in MIRRORED)
        return caught_up and stage.rules.closed_looks > 0

    stage.until("waiting for the mirror", done, CATCH_UP_TIMEOUT_S)
    stage.view.say(f"the mirror has caught up after {time.monotonic() - began:.1f} s")


def _compare(connection: Connection[Cursor], table: compare.Table, target: Path) -> compare.Result:
    rows = compare.rows_of_delta(target / table.database / table.name, table)
    return compare.compare(table, compare.rows_of_mysql(connection, table), rows)


# -- the end -------------------------------------------------------------------------------------------------


def _verdict(stage: Stage, found: list[compare.Result], seconds: float) -> str:
    assert stage.look is not None
    (unshared,) = (one for one in CONSUMERS if not one.shared)
    held = stage.rules.held_bytes_max[unshared.name]
    connections = len({one.user for one in CONSUMERS})
    differ = sum(not one.fine for one in found)
    verdict = f"all {len(found)} tables are equal"
    if differ:
        verdict = f"[red]{differ} of {len(found)} tables differ[/]"
    return (
        f"[bold]{verdict}[/], {sum(one.mysql for one in found)} rows, in {seconds:.0f} s.\n"
        f"One binlog dump thread for each of {connections} connections and, while it was connected, one for the"
        f" unshared consumer:\n{unshared.name} never reads, held at most {size(held)}, and was disconnected when its"
        f" queue was full; no other consumer waited for it.\n"
        f"The daemon's resident memory was {stage.look.resident_bytes_max / 1e6:.0f} MB at most"
        f" (limit {stage.rules.memory_bytes_max / 1e6:.0f} MB)."
    )


def _report(console: Console, found: list[compare.Result], verdict: str, target: Path) -> None:
    console.print(results(found))
    for one in found:
        for example in one.examples:
            console.print(f"{one.table.label}: {example}", markup=False, soft_wrap=True)
    console.print(verdict, highlight=False, soft_wrap=True)
    console.print(f"Delta tables: {target}/DATABASE/TABLE", highlight=False, soft_wrap=True)


def _keep(console: Console, stage: Stage, work: Path, target: Path) -> None:
    """Until Ctrl-C, or until a part ends by itself."""
    console.print(
        f"\nEverything keeps running until Ctrl-C:\n"
        f"  MySQL      mysql --socket={stage.server.socket} --user=root\n"
        f"  daemon     {BIN / 'binlog-dispatcher'} binlogs --url http://127.0.0.1:{stage.port}\n"
        f"  settings   {work / 'dispatcher.yaml'}\n"
        f"  logs       {stage.daemon.log} {stage.mirror.log}\n"
        f"  tables     {target}",
        highlight=False,
        soft_wrap=True,
    )
    try:
        while True:
            stage.check()
            time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        console.print("ending everything")


def _states(look: Look) -> str:
    return "\n".join(
        f"  {name}: {row['state']}, {row['unacknowledged_bytes']} bytes unacknowledged,"
        f" {look.behind(name)} transactions behind, last error: {row['last_error']}"
        for name, row in look.rows.items()
    )
