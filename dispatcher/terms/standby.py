"""Executes the effects of the rules of leadership: sends requests about the lease to the database, makes the daemon
lead and resign.

The requests have a session of their own with the database, and each runs in a thread. A daemon that no longer leads
becomes a standby again in the same process, without a restart. So the listener stays open, and the daemon answers
readers and probes all the time. The kernels stay loaded, so the next term begins in milliseconds. The supervisor counts
no restart: systemd allows only a few restarts (StartLimitBurst), and Kubernetes delays each further restart longer. A
thread of the ended term may still wait for a slow answer of a server. Nothing uses this answer, and the thread ends
when the answer has come (`loop.threads`, `StoreThread.abandon`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol
from uuid import uuid4

from dispatcher.leadership.leadership import Leadership
from dispatcher.leadership.lease import LeaseRow
from dispatcher.leadership.messages import (
    Abandon,
    Answered,
    Campaign,
    Effect,
    Event,
    Exit,
    Failed,
    HandOver,
    Lead,
    LogEvent,
    NotLed,
    ReadLease,
    Release,
    Renew,
    Request,
    Resign,
    Resigned,
    SendRequest,
    WakeUp,
    WriteRefused,
)
from dispatcher.leadership.role import Role
from dispatcher.leadership.states import Leading, StandingBy
from dispatcher.model.errors import BinlogError, NotLeaderError
from dispatcher.runtime.client.client_runner import Logger
from dispatcher.runtime.loop.tasks import Tasks
from dispatcher.runtime.loop.threads import in_thread
from dispatcher.terms.answer_times import AnswerTimes

JITTER_S = 0.1  # a standby delays each request by up to this time, so that standbys do not campaign at the same moment
_LEVELS = {"info": 20, "warning": 30, "error": 40}


class Lease(Protocol):
    """Reads and changes the row of the lease, over a session of its own. One thread at a time may call; any thread may
    call `interrupt`.

    Every method may raise BinlogError. The database may have executed the request nevertheless.
    """

    def campaign(self, holder: str, address: str, duration_s: float) -> LeaseRow: ...
    def renew(self, holder: str, term: int, duration_s: float) -> LeaseRow: ...
    def release(self, holder: str, term: int) -> None: ...
    def read(self) -> LeaseRow: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...


class Tenure(Protocol):
    """The part of a daemon that begins and ends a term."""

    async def lead(self, holder: str, term: int) -> None:
        """Open the store and serve the consumers. After a BinlogError nothing of the term runs. The caller may cancel
        the call."""

    async def resign(self, orderly: bool) -> None:
        """End the term that `lead` has begun. `orderly`: True to store first what the clients have queued."""

    def exit(self) -> None:
        """Let the process end."""


class Standby:
    """See the module."""

    def __init__(
        self,
        make_lease: Callable[[], Lease],
        tenure: Tenure,
        log: Logger,
        on_error: Callable[[str, BaseException], None],
        *,
        address: str,
        lease_s: float,
        answer_time_s: Callable[[], float],
    ) -> None:
        """`address`: the URL at which readers reach this daemon's API; `on_error` gets the name and the exception of
        each task that ends because of a defect; `answer_time_s`: see `AnswerTimes`."""
        self._leadership = Leadership(_new_id(), lease_s)
        self._make_lease = make_lease
        self._lease: Lease | None = None
        self._tenure = tenure
        self._log = log
        self._tasks = Tasks(on_error)
        self._answer_times = AnswerTimes(answer_time_s, lease_s, self._tasks, log)
        self._address = address
        self._lease_s = lease_s
        self._changed = asyncio.Event()
        self._leading: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()

    def start(self) -> None:
        self._tasks.start("leadership", self._run())

    def hand_over(self) -> None:
        """End the term if this daemon leads, give the lease back, and exit."""
        self._step(HandOver())

    async def gone(self) -> None:
        """After `hand_over`: wait until the rules order the exit, then cancel all tasks and close the session of the
        lease."""
        await self._gone.wait()
        await self._tasks.cancel_all()
        if self._lease is not None:
            self._lease.close()

    def write_refused(self, term: int) -> None:
        """Report to the rules that the store has refused a write of this term."""
        self._step(WriteRefused(term))

    # -- what others ask -------------------------------------------------------------------------------------

    def serves(self) -> bool:
        """True if this daemon may serve readers now, according to its own clock."""
        return self._leadership.serves(time.monotonic())

    def role(self) -> Role:
        match self._leadership.state:
            case Leading(term=term):
                return Role(True, term, self._address)
            case StandingBy():
                row = self._leadership.leader(time.monotonic())
                return Role(False, 0, "") if row is None else Role(False, row.term, row.address)
        return Role(False, 0, "")

    @property
    def trouble(self) -> str:
        """Why the daemon cannot ask the database about the lease, or cannot lead; "" if it can."""
        return self._answer_times.trouble or self._leadership.trouble

    def refusal(self) -> NotLeaderError:
        """Return the error with which calls are refused while this daemon does not lead."""
        return NotLeaderError.of(self.role().leader)

    # -- the rules -------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Send the event `WakeUp` to the rules whenever they need it, until they order the exit."""
        self._step(WakeUp())
        while not self._gone.is_set():
            self._changed.clear()
            pause_s = self._pause_s()
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                self._step(WakeUp())

    def _pause_s(self) -> float | None:
        wakeup = self._leadership.next_wakeup()
        if wakeup is None:
            return None
        waits = isinstance(self._leadership.state, StandingBy)
        jitter_s = random.uniform(0, JITTER_S) if waits else 0.0  # noqa: S311
        return max(0.0, wakeup - time.monotonic()) + jitter_s

    def _step(self, event: Event) -> None:
        for effect in self._leadership.step(event, time.monotonic()):
            self._execute(effect)
        self._changed.set()

    def _execute(self, effect: Effect) -> None:
        match effect:
            case SendRequest():
                self._tasks.start(f"lease {effect.number}", self._ask(effect))
            case Abandon():
                lease, self._lease = self._lease, None
                if lease is not None:
                    lease.interrupt()
                self._answer_times.given_up()
            case Lead():
                self._leading = self._tasks.start(f"term {effect.term}", self._lead(effect))
            case Resign():
                self._tasks.start(f"end of term {effect.term}", self._resign(effect))
            case Exit():
                self._gone.set()
                self._tenure.exit()
            case LogEvent():
                self._log.log(_LEVELS[effect.level], effect.event, **effect.fields)

    # -- the lease -------------------------------------------------------------------------------------------

    async def _ask(self, ask: SendRequest) -> None:
        lease = self._lease = self._lease or self._make_lease()
        asked_s = time.monotonic()
        try:
            row = await in_thread("lease", partial(self._call, lease, ask.request))
        except BinlogError as error:
            self._step(Failed(ask.number, error))
        except asyncio.CancelledError:
            lease.interrupt()  # closing the lease would wait for the answer, and block the event loop
            raise
        else:
            self._answer_times.answered(ask.request, row, time.monotonic() - asked_s)
            self._step(Answered(ask.number, row))
        finally:
            if lease is not self._lease:  # `Abandon` has discarded this lease object
                lease.close()

    def _call(self, lease: Lease, request: Request) -> LeaseRow | None:
        """Make a request. Runs in a thread."""
        match request:
            case ReadLease():
                return lease.read()
            case Campaign(holder):
                return lease.campaign(holder, self._address, self._lease_s)
            case Renew(holder, term):
                return lease.renew(holder, term, self._lease_s)
            case Release(holder, term):
                lease.release(holder, term)
        return None

    # -- terms -----------------------------------------------------------------------------------------------

    async def _lead(self, lead: Lead) -> None:
        try:
            await self._tenure.lead(lead.holder, lead.term)
        except BinlogError as error:
            self._step(NotLed(lead.term, error, _new_id()))

    async def _resign(self, resign: Resign) -> None:
        """End the term, even if the daemon has not begun to serve readers."""
        leading, self._leading = self._leading, None
        if leading is not None and not leading.done():
            leading.cancel()
            await asyncio.wait([leading])
        await self._tenure.resign(resign.orderly)
        self._step(Resigned(resign.term, _new_id()))


def _new_id() -> str:
    return uuid4().hex
