"""The composition root: builds the daemon from its settings and runs it.

Start: state store (its lock excludes a second daemon), clients with their stored progress, then connections and
listener. A server that is down does not delay the others. Shutdown: listener, connections, pending writes, state store.

SIGTERM and SIGINT shut the daemon down within `SHUTDOWN_S`: waiting polls are answered, and progress is stored. A
second signal exits immediately; acknowledged positions are already on disk. SIGHUP reads the same settings files and
options again and applies the differences; invalid settings change nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path

import structlog
import uvloop

from dispatcher.announcements import Announcements
from dispatcher.api.app import Api
from dispatcher.api.listener import Listener, api_access, api_limits
from dispatcher.model.errors import BinlogError
from dispatcher.model.timings import Durations
from dispatcher.runtime.administration import Administration
from dispatcher.runtime.client.from_settings import client_decls
from dispatcher.runtime.client_registry import ClientRegistry
from dispatcher.runtime.live_status import LiveStatus
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.runtime.loop.time_slices import in_slices
from dispatcher.runtime.process import prepare_process, warm_up_kernels
from dispatcher.runtime.status.timeline import Timeline
from dispatcher.runtime.store.store_thread import StoreThread
from dispatcher.settings.model import Settings
from dispatcher.state.newest import log_losses
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore
from dispatcher.telemetry import logs
from dispatcher.telemetry.exposition import ScrapeSamples
from dispatcher.telemetry.metrics import Measured, Metrics
from dispatcher.telemetry.repeats import Repeats
from dispatcher.telemetry.systemd import ServiceManager, states_in_words

SHUTDOWN_S = 10
STORE_CHECK_EVERY_S = 1.0
LOOP_CHECK_EVERY_S = 1.0
EXIT_FAULT = 1

LoadSettings = Callable[[], Settings]


def run_daemon(settings: Settings, load: LoadSettings) -> int:
    """Run until SIGTERM or SIGINT and return the exit code. Raises BinlogError if the daemon cannot start.

    `load` reads the settings again, from the same sources.
    """
    prepare_process()
    repeats = Repeats()
    logs.configure(settings.log.level, settings.log.format, settings.secrets(), repeats=repeats)
    # Note a SIGHUP that comes before the loop handles the signal: by default it would kill the process.
    reload_requested = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: reload_requested.set())
    _warn(settings)
    manager = ServiceManager()
    store = StateStore(settings.state.path)
    try:
        for path in store.exposed:
            structlog.get_logger("dispatcher").warning(
                "other users can read the state, and its file belongs to another user",
                file=str(path),
                remedy="make the daemon's user its owner and run: chmod 600",
            )
        manager.status("loading kernels")
        warm_up_kernels()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(
                Daemon(settings, load, store, manager, repeats).serve(reload_requested)
            )
    finally:
        store.close()


def _warn(settings: Settings) -> None:
    log = structlog.get_logger("dispatcher")
    for warning in settings.warnings:
        log.warning("settings", warning=warning)


class Daemon:
    """The daemon on the event loop."""

    def __init__(
        self,
        settings: Settings,
        load: LoadSettings,
        state: StateStore,
        manager: ServiceManager,
        repeats: Repeats,
    ) -> None:
        self._settings = settings
        self._load = load
        self._log = structlog.get_logger("dispatcher")
        self._state = state
        self._store = StoreThread(state, settings.state.max_bytes_in_prepared)
        self._crash: BaseException | None = None
        self._tasks = Tasks(self._on_task_error)
        # The spill files are next to the state store, whose lock keeps other daemons out of both.
        spill = Spill(Path(f"{settings.state.path}.spill"), settings.state.max_bytes_in_spill)
        self._announcements = Announcements(
            self._log, str(state.installation_id), self._on_task_error
        )
        self._timeline = timeline = Timeline(self._announcements.log)
        self._clients = ClientRegistry(self._store, spill.allocate, timeline, self._on_task_error)
        self._live = LiveStatus(self._clients.sessions, self._clients.clients, timeline)
        self._measured = Measured(
            self._clients.timings,
            store=self._store.timings,
            store_up=lambda: not self._not_ready(),
            store_path=Path(settings.state.path),
            spill=lambda: (spill.bytes, settings.state.max_bytes_in_spill),
            mqtt=self._announcements.counts,
        )
        self._metrics = Metrics(
            version("binlog-dispatcher"),
            self._clients.sessions.rows_with_consumers,
            self._clients.clients,
            self._measured,
        )
        self._rendering = asyncio.Lock()
        self._api = Api(
            self._clients.sessions,
            api_access(settings.api),
            api_limits(settings.api),
            administrator=Administration(self._clients.sessions, self._store),
            live=self._live,
            listen=settings.api.listen.host,
            version=version("binlog-dispatcher"),
            metrics=self._render_metrics,
            ready=self._not_ready,
            timings=self._measured.requests,
        )
        self._secrets = dict.fromkeys(settings.secrets())
        self._reload = asyncio.Event()
        self._manager = manager
        self._repeats = repeats
        self._server = Listener(
            self._api.asgi, settings.api, shutdown_s=SHUTDOWN_S, on_started=manager.ready
        )

    async def _render_metrics(self) -> tuple[bytes, str]:
        async with self._rendering:  # one scrape at a time
            return await render_metrics(self._metrics)

    # -- start and shutdown ----------------------------------------------------------------------------------

    async def serve(self, reload_requested: threading.Event) -> int:
        """Run until a signal; returns the exit code. `reload_requested`: set if a SIGHUP came before the loop ran."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        if reload_requested.is_set():
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
        await self._announcements.apply(self._settings, self._clients.sessions, self._secrets)
        self._announcements.log.daemon("started", version=version("binlog-dispatcher"))
        self._clients.start()
        log_losses(self._state.losses, self._state.unreadable, self._timeline.log)
        self._tasks.start("reload", self._reload_on_request())
        self._tasks.start("state store", self._check_store())
        self._tasks.start("history", self._live.sample_regularly())
        self._tasks.start("loop lag", measure_loop_lag(self._measured.loop_lag))
        self._tasks.start("repeated faults", self._repeats.say_regularly())
        self._tasks.start("service manager", self._manager.keep_informed(self._status))
        address = str(self._settings.api.listen)
        self._log.info("starting", listen=address, consumers=len(self._settings.consumers))
        await self._server.listen()

    def _status(self) -> str:
        return states_in_words(self._clients.sessions.states())

    def _not_ready(self) -> list[str]:
        return [str(fault) for fault in self._store.faults]

    async def _check_store(self) -> None:
        """Check the store's file regularly, so that its deletion or replacement is logged soon, not only at the next
        acknowledgement."""
        logged, rewritten = ("", ""), 0
        while True:
            await asyncio.sleep(STORE_CHECK_EVERY_S)
            await self._store.check()
            errors = str(self._store.misplaced or ""), str(self._store.not_checkpointed or "")
            replaced, stuck = errors
            if replaced and replaced != logged[0]:
                self._timeline.log(logging.ERROR, "state store was replaced", error=replaced)
            if stuck and stuck != logged[1]:
                self._timeline.log(logging.ERROR, "state store cannot be checkpointed", error=stuck)
            logged = errors
            if self._state.rewritten != rewritten:
                rewritten = self._state.rewritten
                self._timeline.log(
                    logging.ERROR,
                    "state store was deleted and has been rewritten",
                    file=str(self._settings.state.path),
                )

    async def _end(self) -> None:
        try:
            await self._tasks.cancel_all()
            await self._clients.stop()
        finally:
            self._announcements.log.daemon("stopped")
            await self._announcements.stop()
            await self._store.close()
            self._repeats.say(final=True)
            self._log.info("stopped")

    def _stop(self) -> None:
        if self._server.should_exit:
            self._exit_now("second signal")
        self._server.should_exit = True
        self._manager.stopping()
        self._clients.sessions.close()
        self._api.close()
        # A disk that does not respond would block the shutdown for ever.
        reason = f"the shutdown took more than {SHUTDOWN_S} s"
        timer = threading.Timer(SHUTDOWN_S, self._exit_now, [reason])
        timer.daemon = True
        timer.start()

    def _exit_now(self, reason: str) -> None:
        self._log.error("exiting immediately", reason=reason)
        os._exit(EXIT_FAULT)

    def _on_task_error(self, name: str, error: BaseException) -> None:
        """Shut down, because a failed task is a defect; the supervisor then starts the whole daemon again."""
        self._log.error("task failed", task=name, exc_info=error)
        self._crash = error
        self._server.should_exit = True

    # -- reload ----------------------------------------------------------------------------------------------

    async def _reload_on_request(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            self._manager.reloading()
            await self._reload_settings()
            self._manager.ready()

    async def _reload_settings(self) -> None:
        try:
            settings = await in_thread("settings", self._load)
            new_decls = client_decls(settings, self._store.installation_id)
            await self._clients.check(new_decls)
        except BinlogError as error:
            lines = "; ".join(str(error).splitlines())
            self._log.error("settings not reloaded, nothing was changed", error=lines)
            self._measured.reloaded = False
            self._announcements.log.daemon("reload_failed", error=lines)
            return
        self._measured.reloaded = True
        self._configure(settings)
        _warn(settings)
        changes = await self._clients.apply(new_decls)
        await self._announcements.apply(settings, self._clients.sessions, self._secrets)
        self._announcements.log.daemon("reloaded", **asdict(changes))
        self._log.info(
            "settings reloaded",
            added=changes.added,
            removed=changes.removed,
            changed=changes.changed,
        )

    def _configure(self, settings: Settings) -> None:
        # Errors of a server may still contain earlier passwords.
        self._secrets |= dict.fromkeys(settings.secrets())
        log, secrets = settings.log, tuple(self._secrets)
        logs.configure(log.level, log.format, secrets, repeats=self._repeats)
        self._api.replace(api_access(settings.api))
        running = self._settings
        fixed = {
            "api.listen": (running.api.listen, settings.api.listen),
            "api.proxies": (running.api.proxies, settings.api.proxies),
            "api.tls": (running.api.tls, settings.api.tls),
            "the limits of api": (api_limits(running.api), api_limits(settings.api)),
            "state": (running.state, settings.state),
        }
        if changed := [key for key, (current, new) in fixed.items() if current != new]:
            self._log.warning("restart the daemon to apply these settings", settings=changed)


async def measure_loop_lag(lag: Durations) -> None:
    """Measure every `LOOP_CHECK_EVERY_S` seconds how late the event loop runs a timer. Never returns."""
    while True:
        due = time.monotonic() + LOOP_CHECK_EVERY_S
        await asyncio.sleep(LOOP_CHECK_EVERY_S)
        lag.add(time.monotonic() - due)


async def render_metrics(metrics: Metrics) -> tuple[bytes, str]:
    """Collect the samples on the loop in slices, then render the text in a thread."""
    snapshot = ScrapeSamples()
    async for _ in in_slices(metrics.fill(snapshot)):
        pass
    return await in_thread("metrics", partial(metrics.render, snapshot))
