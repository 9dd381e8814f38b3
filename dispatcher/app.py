"""Composition root: the only file that knows every class. Settings in, a running daemon out.

Order of the start: state store (its lock keeps a second daemon away), clients with their stored progress, listener,
then the connections. A server that is down keeps nobody waiting. Order of the end: listener, connections, what is left
to store, store.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog
import uvicorn
import uvloop

from dispatcher.api.app import create_app
from dispatcher.api.auth import Token, Tokens
from dispatcher.binlog.prepared import Changes, Prepared
from dispatcher.binlog.warm import load_kernels
from dispatcher.dispatch.client import Client
from dispatcher.dispatch.inputs import ConsumerSpec, Progress, Start
from dispatcher.model.errors import BinlogError, Kind
from dispatcher.net.files import files_source
from dispatcher.net.readers import Reader, Readers
from dispatcher.net.runner import ClientRunner
from dispatcher.net.server import endpoints_of
from dispatcher.net.source import ServerSource, Source
from dispatcher.net.tasks import Tasks
from dispatcher.settings import Consumer, Settings
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore
from dispatcher.telemetry import logs
from dispatcher.telemetry.metrics import Metrics

SHUTDOWN_S = 10


def run(settings: Settings) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises BinlogError for what keeps it from starting."""
    logs.configure(settings.log.level, settings.log.format, settings.secrets())
    store = StateStore(settings.state.path)
    try:
        _warm_up()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Daemon(settings, store).serve())
    finally:
        store.close()


def _warm_up() -> None:
    """Have the kernels loaded before anybody waits for them.

    Compiling them, on a machine where nobody has, leaves some 100 MB of the compiler's behind in the process that did
    it. So a child does it, and this process loads what the child has kept; where nothing can be kept it compiles too.
    """
    structlog.get_logger("dispatcher").debug("loading kernels")
    child = multiprocessing.get_context("fork").Process(target=load_kernels, daemon=True)
    child.start()
    child.join()
    load_kernels()


def groups(settings: Settings) -> list[list[tuple[str, Consumer]]]:
    """Consumers by connection: one group per connection key, and one for each that shares with nobody."""
    shared: dict[object, list[tuple[str, Consumer]]] = {}
    for name, consumer in settings.consumers.items():
        key = consumer.connection_key if consumer.use_binlog_client else ("unshared", name)
        shared.setdefault(key, []).append((name, consumer))
    return list(shared.values())


def spec_of(name: str, consumer: Consumer) -> ConsumerSpec:
    tables = None
    if consumer.tables is not None:
        split = (table.partition(".") for table in consumer.tables)
        tables = tuple((database, table) for database, _, table in split)
    start = consumer.start
    return ConsumerSpec(
        name,
        tuple(consumer.databases),
        tables,
        consumer.max_bytes_in_binlog_queue,
        Start(start.at, start.gtid, start.file, start.offset),
        consumer.assume_current_schema,
    )


class _Listener(uvicorn.Server):
    """uvicorn would take the signals, and raise them again when it has ended; they are the daemon's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Daemon:
    """Everything that runs on the loop."""

    def __init__(self, settings: Settings, store: StateStore) -> None:
        self._settings = settings
        self._store = store
        # Beside the store, whose lock keeps other daemons away from both.
        self._spill = Spill(Path(f"{settings.state.path}.spill"), settings.state.max_bytes_in_spill)
        self._log = structlog.get_logger("dispatcher")
        # One thread for the store: its calls are made in the order in which the loop asked for them.
        self._store_thread = ThreadPoolExecutor(1, "store")
        self._crash: BaseException | None = None
        self._tasks = Tasks(self._on_task_error)
        self._runners: list[ClientRunner] = []
        self._store_fault: BinlogError | None = None
        readers = [reader for group in groups(settings) for reader in self._client(group)]
        self.readers = Readers(readers, store.next_session, self._store_thread)
        self._server = self._listener()

    def _client(self, group: list[tuple[str, Consumer]]) -> list[Reader]:
        source = self._source(*group[0])
        progress = {}
        for name, _ in group:
            if known := self._store.load(name):
                progress[name] = Progress(known.acknowledged, known.covered, known.file_created)
        key = source.label if group[0][1].use_binlog_client else f"{source.label}/{group[0][0]}"
        client = Client(
            source.label,
            [spec_of(name, consumer) for name, consumer in group],
            progress,
            self._store.load_versions(key),
            self._spill.lend,
            Prepared(self._settings.state.max_bytes_in_prepared, self._store.load_prepared(key)),
        )
        runner = ClientRunner(
            client,
            source,
            save=partial(self._save, key),
            save_versions=partial(self._store.save_versions, key),
            store_thread=self._store_thread,
            log=self._log,
            buffer_bytes=group[0][1].max_bytes_in_binlog_dispatcher_buffer,
        )
        self._runners.append(runner)
        return [
            Reader(
                runner,
                client.consumers[name],
                self._store.session(name),
                consumer.max_seconds_between_markers,
            )
            for name, consumer in group
        ]

    def _source(self, name: str, consumer: Consumer) -> Source:
        """Where a group of consumers reads from, as its first one says it; they agree, or stand alone."""
        installation = self._store.installation_id
        if consumer.files is not None:
            return files_source(consumer.files, installation)
        # A name for what is shared, and one for each that is not.
        name = consumer.label if consumer.use_binlog_client else f"{consumer.label}/{name}"
        heartbeat_s = consumer.heartbeat_milliseconds / 1000
        return ServerSource(endpoints_of(consumer), installation, name, heartbeat_s=heartbeat_s)

    def _save(
        self, client: str, progress: Sequence[tuple[str, Progress]], prepared: Changes | None
    ) -> None:
        rows = [(name, p.acknowledged, p.covered, p.created) for name, p in progress]
        try:
            self._store.save(rows, client, prepared)
        except BinlogError as error:
            self._store_fault = error
            raise
        self._store_fault = None

    def _listener(self) -> uvicorn.Server:
        api = self._settings.api
        tokens = Tokens(
            [
                Token(t.secret, None if t.consumers == "all" else frozenset(t.consumers))
                for t in api.tokens
            ]
        )
        metrics = Metrics(version("binlog-dispatcher"), self.readers.rows, self._runners_status)
        app = create_app(
            self.readers,
            tokens,
            version=version("binlog-dispatcher"),
            metrics=metrics.render,
            ready=lambda: [str(self._store_fault)] if self._store_fault else [],
        )
        config = uvicorn.Config(
            app,
            host=api.listen.host,
            port=api.listen.port,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=SHUTDOWN_S,
            ssl_certfile=api.tls.cert if api.tls else None,
            ssl_keyfile=api.tls.key if api.tls else None,
        )
        return _Listener(config)

    def _runners_status(self) -> list[Client]:
        return [runner.client for runner in self._runners]

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        for runner in self._runners:
            self._tasks.start(f"client {runner.client.label}", runner.run())
            self._tasks.start(f"clock {runner.client.label}", runner.tick())
            self._tasks.start(f"look-ups {runner.client.label}", runner.look_up())
        listen = self._settings.api.listen
        self._log.info(
            "starting",
            listen=f"{listen.host}:{listen.port}",
            consumers=len(self._settings.consumers),
        )
        try:
            try:
                await self._server.serve()
            except SystemExit:  # how uvicorn says that it cannot listen
                raise BinlogError(
                    Kind.SETTINGS,
                    f"cannot listen on {listen.host}:{listen.port}",
                    remedy="another program has the port, or the address is not this machine's; change api.listen",
                ) from None
        finally:
            await self._tasks.cancel_all()
            for runner in self._runners:
                await runner.flush()
            self._store_thread.shutdown()
            self._log.info("stopped")
        if self._crash is not None:
            raise self._crash
        return 0

    def _stop(self) -> None:
        self._server.should_exit = True
        self.readers.close()

    def _on_task_error(self, name: str, error: BaseException) -> None:
        """A task that ends by itself is a defect: rather than serve half, end, so that the supervisor restarts all."""
        self._log.error("task failed", task=name, exc_info=error)
        self._crash = error
        self._server.should_exit = True
