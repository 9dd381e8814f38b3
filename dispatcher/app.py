"""Composition root: the only file that knows every class. Settings in, a running daemon out.

Order of the start: state store (its lock keeps a second daemon away), clients with their stored progress, listener,
then the connections. A server that is down keeps nobody waiting. Order of the end: listener, connections, what is left
to store, store.

Signals: SIGTERM and SIGINT end the daemon, within `SHUTDOWN_S`: readers that wait are answered with what there is, and
what is to be stored is stored. A second one ends it at once, which loses nothing but time. SIGHUP reads the settings
again, from the same files and options, and applies what is different; settings that are wrong change nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog
import uvicorn
import uvloop

from dispatcher.api.app import Access, Api
from dispatcher.api.auth import Scope, Token
from dispatcher.api.limits import Limits
from dispatcher.api.protocol import bounded_protocol
from dispatcher.binlog.stream.warmup import load_kept_kernels, load_kernels
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.runtime.administration import Administration
from dispatcher.runtime.client_registry import ClientRegistry
from dispatcher.runtime.from_settings import client_decls
from dispatcher.runtime.store_thread import StoreThread
from dispatcher.runtime.tasks import Tasks
from dispatcher.runtime.threads import in_thread
from dispatcher.runtime.time_slices import in_slices
from dispatcher.settings.model import Settings, TokenSettings
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore
from dispatcher.telemetry import logs
from dispatcher.telemetry.metrics import Metrics, Snapshot

SHUTDOWN_S = 10
STORE_CHECK_EVERY_S = 1.0
EXIT_FAULT = 1
FILES_RESERVED = 256  # file descriptors for all but the API's connections
_ENDING = (signal.SIGTERM, signal.SIGINT)

LoadSettings = Callable[[], Settings]


def run_daemon(settings: Settings, load: LoadSettings) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code. Raises BinlogError for what keeps it from starting.

    `load` reads the settings again, as they were read for the start.
    """
    os.umask(0o077)  # for every file that is made from here on, also by libraries
    logs.configure(settings.log.level, settings.log.format, settings.secrets())
    # Until the loop takes it: the daemon must not end for being told to reload while it starts.
    hung_up = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: hung_up.set())
    _raise_file_limit()
    _warn(settings)
    store = StateStore(settings.state.path)
    try:
        for path in store.exposed:
            structlog.get_logger("dispatcher").warning(
                "others may read the state, and its file is another user's",
                file=str(path),
                remedy="make the daemon's user its owner, then: chmod 600",
            )
        _warm_up()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Daemon(settings, load, store).serve(hung_up))
    finally:
        store.close()


def _warn(settings: Settings) -> None:
    log = structlog.get_logger("dispatcher")
    for warning in settings.warnings:
        log.warning("settings", warning=warning)


def _raise_file_limit() -> None:
    """Readers' connections and segments on disk take a descriptor each; what systemd or a shell allows at first is for
    programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _warm_up() -> None:
    """Have the kernels loaded before anybody waits for them.

    Compiling them, on a machine where nobody has, leaves some 100 MB of the compiler's behind in the process that did
    it. So a child does it, and this process loads what the child has kept; where nothing can be kept it compiles too.
    """
    log = structlog.get_logger("dispatcher")
    log.debug("loading kernels")
    if load_kept_kernels():
        return
    log.info("compiling kernels", once="for this version on this machine")
    child = multiprocessing.get_context("fork").Process(target=load_kernels, daemon=True)
    child.start()
    child.join()
    load_kernels()


class _Listener(uvicorn.Server):
    """uvicorn would take the signals, and raise them again when it has ended; they are the daemon's."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Daemon:
    """Everything that runs on the loop."""

    def __init__(self, settings: Settings, load: LoadSettings, state: StateStore) -> None:
        self._settings = settings
        self._load = load
        self._log = structlog.get_logger("dispatcher")
        self._state = state
        self._store = StoreThread(state, settings.state.max_bytes_in_prepared)
        self._crash: BaseException | None = None
        self._tasks = Tasks(self._on_task_error)
        # Beside the store, whose lock keeps other daemons away from both.
        spill = Spill(Path(f"{settings.state.path}.spill"), settings.state.max_bytes_in_spill)
        self._clients = ClientRegistry(self._store, spill.allocate, self._log, self._on_task_error)
        self._metrics = Metrics(
            version("binlog-dispatcher"),
            self._clients.sessions.rows_with_consumers,
            self._clients.clients,
        )
        self._rendering = asyncio.Lock()
        self._api = self._make_api()
        self._secrets = dict.fromkeys(settings.secrets())
        self._reload = asyncio.Event()
        self._server = self._listener()

    def _make_api(self) -> Api:
        settings = self._settings.api
        return Api(
            self._clients.sessions,
            _access(self._settings),
            _limits(self._settings),
            administrator=Administration(self._clients.sessions, self._store),
            listen=settings.listen.host,
            version=version("binlog-dispatcher"),
            metrics=self._render_metrics,
            ready=self._not_ready,
        )

    async def _render_metrics(self) -> tuple[bytes, str]:
        async with self._rendering:  # one scrape at a time
            return await render_metrics(self._metrics)

    def _listener(self) -> uvicorn.Server:
        api = self._settings.api
        config = uvicorn.Config(
            self._api.asgi,
            host=api.listen.host,
            port=api.listen.port,
            http=bounded_protocol(_limits(self._settings)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            headers=[("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")],
            timeout_keep_alive=75,
            timeout_graceful_shutdown=SHUTDOWN_S,
            ssl_certfile=api.tls.cert if api.tls else None,
            ssl_keyfile=api.tls.key if api.tls else None,
        )
        return _Listener(config)

    # -- from the start to the end ---------------------------------------------------------------------------

    async def serve(self, hung_up: threading.Event) -> int:
        """`hung_up`: a SIGHUP came before."""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        if hung_up.is_set():
            self._reload.set()
        try:
            await self._run()
        finally:
            await self._end()
        if self._crash is not None:
            raise self._crash
        return 0

    async def _run(self) -> None:
        await self._clients.apply(client_decls(self._settings, self._store.installation_id))
        self._clients.start()
        self._tasks.start("reload", self._reload_when_told())
        self._tasks.start("state store", self._check_store())
        listen = self._settings.api.listen
        address = f"{listen.host}:{listen.port}"
        self._log.info("starting", listen=address, consumers=len(self._settings.consumers))
        try:
            await self._server.serve()
        except SystemExit:  # how uvicorn says that it cannot listen
            raise BinlogError(
                ErrorKind.SETTINGS,
                f"cannot listen on {address}",
                remedy="another program has the port, or the address is not this machine's; change api.listen",
            ) from None

    def _not_ready(self) -> list[str]:
        faults = (self._store.misplaced, self._store.fault)
        return list(dict.fromkeys(str(fault) for fault in faults if fault))

    async def _check_store(self) -> None:
        """Notice soon, not with the next acknowledgement only, that somebody has deleted or replaced the file."""
        told, rewritten = "", 0
        while True:
            await asyncio.sleep(STORE_CHECK_EVERY_S)
            await self._store.check()
            said = str(self._store.misplaced or "")
            if said and said != told:
                self._log.error("state store misplaced", error=said)
            told = said
            if self._state.rewritten != rewritten:
                rewritten = self._state.rewritten
                path = str(self._settings.state.path)
                self._log.error("state store was deleted, and is written anew", path=path)

    async def _end(self) -> None:
        try:
            await self._tasks.cancel_all()
            await self._clients.stop()
        finally:
            await self._store.close()
            self._log.info("stopped")

    def _stop(self) -> None:
        if self._server.should_exit:
            self._end_at_once("told twice to end")
        self._server.should_exit = True
        self._clients.sessions.close()
        # A disk that does not answer would keep the process for ever.
        timer = threading.Timer(
            SHUTDOWN_S, self._end_at_once, [f"it did not end within {SHUTDOWN_S} s"]
        )
        timer.daemon = True
        timer.start()

    def _end_at_once(self, why: str) -> None:
        self._log.error("ended at once", why=why)
        os._exit(EXIT_FAULT)

    def _on_task_error(self, name: str, error: BaseException) -> None:
        """A task that ends by itself is a defect: rather than serve half, end, so that the supervisor restarts all."""
        self._log.error("task failed", task=name, exc_info=error)
        self._crash = error
        self._server.should_exit = True

    # -- settings that change --------------------------------------------------------------------------------

    async def _reload_when_told(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            try:
                settings = await in_thread("settings", self._load)
                wanted = client_decls(settings, self._store.installation_id)
                await self._clients.check(wanted)
            except BinlogError as error:
                lines = "; ".join(str(error).splitlines())
                self._log.error("settings not reloaded, nothing is changed", error=lines)
                continue
            self._configure(settings)
            _warn(settings)
            changes = await self._clients.apply(wanted)
            self._log.info(
                "settings reloaded",
                added=changes.added,
                removed=changes.removed,
                changed=changes.changed,
            )

    def _configure(self, settings: Settings) -> None:
        # Passwords of before may still turn up in what a server says.
        self._secrets |= dict.fromkeys(settings.secrets())
        logs.configure(settings.log.level, settings.log.format, tuple(self._secrets))
        self._api.replace(_access(settings))
        ours = self._settings
        fixed = {
            "api.listen": (ours.api.listen, settings.api.listen),
            "api.tls": (ours.api.tls, settings.api.tls),
            "the limits of api": (_limits(ours), _limits(settings)),
            "state": (ours.state, settings.state),
        }
        if differ := [key for key, (before, now) in fixed.items() if before != now]:
            self._log.warning("settings that a restart is needed for", settings=differ)


async def render_metrics(metrics: Metrics) -> tuple[bytes, str]:
    """Samples are taken on the loop in slices; the text is made of them in a thread."""
    snapshot = Snapshot()
    async for _ in in_slices(metrics.fill(snapshot)):
        pass
    return await in_thread("metrics", partial(metrics.render, snapshot))


def _access(settings: Settings) -> Access:
    return Access(
        [_token(token) for token in settings.api.tokens],
        settings.api.hosts,
        frozenset(settings.api.open),
    )


def _token(token: TokenSettings) -> Token:
    everywhere = token.consumers == "all"
    if token.scopes is not None:
        scopes = frozenset(Scope(name) for name in token.scopes)
    else:
        scopes = frozenset(
            {Scope.READ, Scope.ACKNOWLEDGE} | ({Scope.METRICS} if everywhere else set())
        )
    return Token(token.secret, None if everywhere else frozenset(token.consumers), scopes)


def _limits(settings: Settings) -> Limits:
    api = settings.api
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        connections_max=min(api.max_connections, max(files_max - FILES_RESERVED, FILES_RESERVED)),
        polls_max=api.max_polls_per_consumer,
        answers_max=api.max_answers_per_consumer,
        request_bytes_max=api.max_bytes_in_request,
        header_timeout_s=float(api.header_timeout_seconds),
        body_timeout_s=float(api.body_timeout_seconds),
        write_timeout_s=float(api.write_timeout_seconds),
    )
