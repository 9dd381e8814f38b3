"""The composition root: builds the daemon from its settings and runs it.

If the state is in a file, the daemon leads as soon as it has started. At the start it opens the state store, whose lock
keeps a second daemon out, creates the clients with their stored progress, and opens the connections and the listener. A
server that is down does not delay the connections to the other servers. At a shutdown it closes the listener, ends the
connections, stores the queued writes, and closes the state store.

If the state is in a database, the daemon starts as a standby with an open listener. The module `standby` lets the
daemon lead as long as the daemon has the lease. At the start of each term, the daemon opens the state store, creates
the clients and opens the connections. When the daemon ends, it gives the lease back before it closes the listener, so
that another daemon takes over at once.

SIGTERM and SIGINT shut the daemon down within `SHUTDOWN_S`: waiting polls are answered, and progress is stored. A
second signal exits immediately; acknowledged positions are already on disk. SIGHUP reads the same settings files and
options again and applies the differences; invalid settings change nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from uuid import NAMESPACE_URL, UUID, uuid5

import structlog
import uvloop

from dispatcher.access.listening import ListenerSockets, listener_sockets
from dispatcher.api.app import Api
from dispatcher.api.listener import Listener, api_access, api_limits
from dispatcher.front.dump.warmup import load_dump_kernels
from dispatcher.front.front import Front
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.timings import Durations, StoreTimings
from dispatcher.runtime.client.from_settings import client_decls
from dispatcher.runtime.client_registry import RegistryChanges
from dispatcher.runtime.kernels import Kernels
from dispatcher.runtime.live_status import LiveStatus
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.runtime.loop.time_slices import in_slices
from dispatcher.runtime.process import prepare_process
from dispatcher.runtime.status.timeline import Timeline
from dispatcher.settings.model import Settings
from dispatcher.settings.reload import until_restart
from dispatcher.state.database import DatabaseStore
from dispatcher.state.leader_settings import read_leader_settings
from dispatcher.state.lease import LeaseTable, answer_time_s
from dispatcher.state.spill import Spill
from dispatcher.state.store import StateStore
from dispatcher.stream.warmup import KERNEL_LOADS, KERNEL_PACKAGES
from dispatcher.telemetry import logs
from dispatcher.telemetry.exposition import ScrapeSamples
from dispatcher.telemetry.metrics import FrontTotals, Measured, Metrics
from dispatcher.telemetry.repeats import Repeats
from dispatcher.telemetry.systemd import ServiceManager
from dispatcher.terms.announcements import Announcements
from dispatcher.terms.leader import Leader
from dispatcher.terms.serving import Serving
from dispatcher.terms.settings_watch import SettingsWatch
from dispatcher.terms.standby import Standby

SHUTDOWN_S = 10
STORE_S = 5
"""How long a daemon that hands over may take to store queued writes. In the rest of `SHUTDOWN_S` the daemon gives its
lease back."""
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
    # Record a SIGHUP that comes before the loop handles signals. Without this handler the signal would kill the
    # process.
    reload_requested = threading.Event()
    signal.signal(signal.SIGHUP, lambda *_: reload_requested.set())
    _warn(settings)
    manager = ServiceManager()
    # Bind the addresses before anything that takes time, so that an address in use is reported at once.
    with _open_file(settings) as store, listener_sockets(settings) as sockets:
        manager.status("loading kernels")
        kernels = _kernels(with_dumps=settings.front is not None)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(
                Daemon(settings, load, store, kernels, manager, repeats, sockets).serve(
                    reload_requested
                )
            )


def _kernels(*, with_dumps: bool) -> Kernels:
    """Load the daemon's kernels, or begin to compile them."""
    *large, small = KERNEL_LOADS
    dumps = [load_dump_kernels] if with_dumps else []
    packages = (*KERNEL_PACKAGES, "dispatcher.front") if with_dumps else KERNEL_PACKAGES
    return Kernels([*large, *dumps, small], packages, structlog.get_logger("dispatcher"))


@contextlib.contextmanager
def _open_file(settings: Settings) -> Iterator[StateStore | None]:
    """The open state store; None if the state is in a database."""
    if settings.state.mysql is not None:
        yield None
        return
    with contextlib.closing(StateStore(settings.state.path)) as store:
        for path in store.exposed:
            structlog.get_logger("dispatcher").warning(
                "other users can read the state, and its file belongs to another user",
                file=str(path),
                remedy="make the daemon's user its owner and run: chmod 600",
            )
        yield store


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
        state: StateStore | None,
        kernels: Kernels,
        manager: ServiceManager,
        repeats: Repeats,
        sockets: ListenerSockets,
    ) -> None:
        """`state`: None if the state is in a database."""
        self._kernels = kernels
        self._sockets = sockets
        self._settings = settings  # the settings at the start
        self._newest = settings  # the settings of the last reload
        self._load = load
        self._log = structlog.get_logger("dispatcher")
        self._state = state
        self._crash: BaseException | None = None
        self._tasks = Tasks(self._on_task_error)
        # If the state is in a file, the spill files are next to it. The lock of the state file also protects the spill
        # files from other daemons.
        self._spill = spill = Spill(settings.state.spill_folder, settings.state.max_bytes_in_spill)
        self._serving = serving = Serving(kernels=lambda: kernels.status)
        self._announcements = Announcements(
            self._log, _name_of_state(settings, state), self._on_task_error, serving.role
        )
        self._timeline = timeline = Timeline(self._announcements.log)
        if state is None:
            serving.standby = self._make_standby(settings)
        self._watch = SettingsWatch(
            partial(read_leader_settings, settings.state),
            lambda: self._newest,
            serving.role,
            timeline,
        )
        # A reload, and the start of a term, hold this lock while they change the consumers.
        self._changing = asyncio.Lock()
        self._ending = False
        self._live = LiveStatus(serving.sessions, serving.clients, timeline)
        self._timings = StoreTimings()
        self._measured = Measured(
            serving.connection_timings,
            store=self._timings,
            store_up=lambda: not serving.store_faults(),
            store_path=settings.state.path if state is not None else None,
            spill=lambda: (spill.bytes, settings.state.max_bytes_in_spill),
            mqtt=self._announcements.counts,
            webhook=self._announcements.webhook_counts,
            role=serving.role,
            settings_different=self._count_differences,
        )
        self._metrics = Metrics(
            version("binlog-dispatcher"), serving.rows, serving.clients, self._measured
        )
        self._rendering = asyncio.Lock()
        self._api = Api(
            serving.consumers,
            api_access(settings.api),
            api_limits(settings.api),
            administrator=serving.administration,
            declarer=serving.declarations,
            owners=serving.owners,
            role=serving.role,
            live=self._live,
            listen=settings.api.listen.host,
            version=version("binlog-dispatcher"),
            metrics=self._render_metrics,
            ready=serving.not_ready,
            settings_differences=lambda: self._watch.differences or {},
            timings=self._measured.requests,
        )
        self._front: Front | None = None
        if settings.front is not None:
            self._front = Front(
                settings.front, self._api.tokens, self._api.guesses, serving.consumers
            )
            self._measured.front = partial(_front_counts, self._front)
        self._secrets = dict.fromkeys(settings.secrets())
        self._reload = asyncio.Event()
        self._manager = manager
        self._repeats = repeats
        self._server = Listener(
            self._api.asgi, settings.api, shutdown_s=SHUTDOWN_S, on_started=manager.ready
        )

    def _make_standby(self, settings: Settings) -> Standby:
        return Standby(
            partial(LeaseTable, settings.state),
            self,
            self._timeline,
            self._on_standby_error,
            address=settings.api.address,
            lease_s=settings.state.lease,
            answer_time_s=partial(answer_time_s, settings.state),
        )

    def _count_differences(self) -> int | None:
        differences = self._watch.differences
        return None if differences is None else len(differences)

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
        if self._state is not None:
            self._serving.leader = self._make_leader(self._state)
            await self._serving.leader.apply(self._settings)
        await self._announce(self._settings)
        self._announcements.log.daemon("started", version=version("binlog-dispatcher"))
        if self._serving.leader is not None:
            self._serving.leader.start()
        self._tasks.start("kernels", self._kernels.run())
        self._tasks.start("begin", self._begin())
        self._tasks.start("reload", self._reload_on_request())
        self._tasks.start("history", self._live.sample_regularly())
        self._tasks.start("loop lag", measure_loop_lag(self._measured.loop_lag))
        self._tasks.start("repeated faults", self._repeats.say_regularly())
        self._tasks.start("service manager", self._manager.keep_informed(self._serving.status))
        address = str(self._settings.api.listen)
        self._log.info("starting", listen=address, consumers=len(self._settings.consumers))
        await self._server.listen(self._sockets.api)

    async def _begin(self) -> None:
        """Wait until the kernels are loaded. Then start the standby, which may become the leader, and open the front's
        listener. A leader without kernels would keep readers waiting."""
        await self._kernels.wait()
        if self._serving.standby is not None and not self._ending:
            self._serving.standby.start()
            self._tasks.start("settings of the leader", self._watch.run())
        if self._front is not None:
            await self._front.listen(self._sockets.front)

    async def _end(self) -> None:
        try:
            await self._tasks.cancel_all()
            if self._front is not None:
                await self._front.close()
            if self._serving.standby is not None:
                await self._give_back(self._serving.standby)
            elif self._serving.leader is not None:
                await self._serving.leader.stop()
        finally:
            self._announcements.log.daemon("stopped")
            await self._announcements.stop()
            if self._serving.leader is not None:
                await self._serving.leader.close()
            self._repeats.say(final=True)
            self._log.info("stopped")

    async def _give_back(self, standby: Standby) -> None:
        """Give the lease back. If a signal ends the daemon, `_end_soon` has called `hand_over` already."""
        standby.hand_over()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_S):
                await standby.gone()

    def _stop(self) -> None:
        if self._ending:
            self._exit_now("second signal")
        self._manager.stopping()
        self._api.close()
        self._end_soon()
        # Without this timer, a disk or a database that does not respond would block the shutdown for ever.
        reason = f"the shutdown took more than {SHUTDOWN_S} s"
        timer = threading.Timer(SHUTDOWN_S, self._exit_now, [reason])
        timer.daemon = True
        timer.start()

    def _end_soon(self) -> None:
        """End the daemon. A daemon that may have the lease first hands it over."""
        self._ending = True
        if self._serving.standby is not None:
            self._serving.standby.hand_over()
            return
        if self._serving.leader is not None:
            self._serving.leader.sessions.close()
        self._server.should_exit = True

    def _exit_now(self, reason: str) -> None:
        self._log.error("exiting immediately", reason=reason)
        os._exit(EXIT_FAULT)

    def _on_task_error(self, name: str, error: BaseException) -> None:
        """Shut down, because a task fails only if the program has a defect. The supervisor then starts the daemon
        again."""
        self._log.error("task failed", task=name, exc_info=error)
        self._crash = error
        self._end_soon()

    def _on_standby_error(self, name: str, error: BaseException) -> None:
        """Exit immediately: the task that would hand the lease over has failed."""
        self._log.error("task failed", task=name, exc_info=error)
        os._exit(EXIT_FAULT)

    # -- terms -----------------------------------------------------------------------------------------------

    def _make_leader(
        self, state: StateStore | DatabaseStore, on_refused: Callable[[], None] = lambda: None
    ) -> Leader:
        return Leader(
            self._settings.state,
            state,
            self._spill.allocate,
            self._timeline,
            self._on_task_error,
            timings=self._timings,
            kernels_loaded=self._kernels.wait,
            on_refused=on_refused,
        )

    async def lead(self, holder: str, term: int) -> None:
        """Open the store under this term and serve the consumers. Raises BinlogError."""
        standby = self._serving.standby
        assert standby is not None
        async with self._changing:
            open_ = partial(DatabaseStore, self._settings.state, holder, term)
            state = await in_thread("state store", open_, lambda store: store.close())
            leader = self._make_leader(state, partial(standby.write_refused, term))
            try:
                await leader.apply(self._newest)
            except BaseException:
                await leader.resign(self._serving.refusal)
                raise
            self._serving.leader = leader
            self._watch.store = state
            await self._announce(self._newest)
            leader.start()
        for warning in state.warnings:
            self._log.warning("state store", warning=warning)

    async def resign(self, orderly: bool) -> None:
        """End the term, and refuse all calls from now on. `orderly`: True to store the queued writes first."""
        leader, self._serving.leader, self._watch.store = self._serving.leader, None, None
        if leader is None:
            return
        if orderly:
            leader.sessions.close()
            try:
                async with asyncio.timeout(STORE_S):
                    await leader.stop()
                    await leader.close()
            except BinlogError as error:
                self._log.error("state not stored", error=str(error))
            except TimeoutError:
                what = f"the database of the state has not answered for {STORE_S} s"
                self._log.error("state not stored", error=f"{what}; what is lost is read again")
        await leader.resign(self._serving.refusal)
        await self._announce(self._newest)

    def exit(self) -> None:
        self._server.should_exit = True

    async def _announce(self, settings: Settings) -> None:
        await self._announcements.apply(settings, self._serving.sessions(), self._secrets)

    # -- reload ----------------------------------------------------------------------------------------------

    async def _reload_on_request(self) -> None:
        while True:
            await self._reload.wait()
            self._reload.clear()
            self._manager.reloading()
            async with self._changing:
                await self._reload_settings()
            self._manager.ready()

    async def _reload_settings(self) -> None:
        try:
            written = await in_thread("settings", self._load)
            settings = until_restart(written, self._settings)
            await self._check(settings)
        except BinlogError as error:
            lines = "; ".join(str(error).splitlines())
            self._log.error("settings not reloaded, nothing was changed", error=lines)
            self._measured.reloaded = False
            self._announcements.log.daemon("reload_failed", error=lines)
            return
        self._measured.reloaded = True
        self._configure(written)
        _warn(written)
        changes = await self._apply(settings)
        await self._announce(settings)
        self._announcements.log.daemon("reloaded", **asdict(changes))
        self._log.info(
            "settings reloaded",
            added=changes.added,
            removed=changes.removed,
            changed=changes.changed,
        )

    async def _check(self, settings: Settings) -> None:
        """Raises BinlogError if the settings cannot be applied."""
        if self._serving.leader is not None:
            await self._serving.leader.check(settings)
        else:
            client_decls(settings, UUID(int=0))

    async def _apply(self, settings: Settings) -> RegistryChanges:
        """Apply the settings to the consumers: now if this daemon leads, otherwise at the start of its next term."""
        self._newest = settings
        if self._serving.leader is None:
            return RegistryChanges((), (), ())
        try:
            return await self._serving.leader.apply(settings)
        except BinlogError as error:
            if error.kind is not ErrorKind.NOT_LEADER:
                raise
            return RegistryChanges((), (), ())  # the next term begins with these settings

    def _configure(self, settings: Settings) -> None:
        # Errors of a server may still contain earlier passwords.
        self._secrets |= dict.fromkeys(settings.secrets())
        log, secrets = settings.log, tuple(self._secrets)
        logs.configure(log.level, log.format, secrets, repeats=self._repeats)
        self._api.replace(api_access(settings.api))
        running = self._settings
        fixed = {
            "api.listen": (running.api.listen, settings.api.listen),
            "api.advertise": (running.api.advertise, settings.api.advertise),
            "api.proxies": (running.api.proxies, settings.api.proxies),
            "api.tls": (running.api.tls, settings.api.tls),
            "front": (running.front, settings.front),
            "the limits of api": (api_limits(running.api), api_limits(settings.api)),
            "state": (running.state, settings.state),
        }
        if changed := [key for key, (current, new) in fixed.items() if current != new]:
            self._log.warning("restart the daemon to apply these settings", settings=changed)


def _front_counts(front: Front) -> FrontTotals:
    counts = front.counts()
    return FrontTotals(
        counts.open,
        counts.logged_in,
        {str(reason): count for reason, count in counts.refused.items()},
    )


def _name_of_state(settings: Settings, state: StateStore | None) -> str:
    """Return an id of the state store. A standby does not read the id that is stored in the database, so for a database
    this function computes an id from the database's address."""
    if state is not None:
        return str(state.installation_id)
    return str(uuid5(NAMESPACE_URL, f"binlog-dispatcher:{settings.state.label}"))


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
