"""Lets a test kill the daemon at a named point. Python imports this module if its folder is on PYTHONPATH.

`KILL_AT` names the point. `KILL_AFTER` says how often the process passes the point before it kills itself with SIGKILL.
As in a crash, nothing is flushed, closed or answered. The daemon's own code has no part in this.

    read          bytes were read from the server, but not routed
    routed        a transaction is routed in part; its end is not read yet
    committed     an acknowledgement is in SQLite, but not answered
    begun         the number of a new session is stored, but not answered
"""

from __future__ import annotations

import os
import signal
from typing import Any

from dispatcher.dispatch.messages.events import Acknowledged, BatchReceived, Input
from dispatcher.runtime.client.client_runner import ClientRunner
from dispatcher.state.store import StateStore
from dispatcher.stream.batch import OPEN

_point = os.environ.get("KILL_AT", "")
_left = int(os.environ.get("KILL_AFTER", "0"))
_step = ClientRunner.step
_next_session = StateStore.next_session


def _pass() -> None:
    global _left  # noqa: PLW0603 - one count per process
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    _left -= 1


def _killing_step(self: ClientRunner, what: Input) -> None:
    if isinstance(what, BatchReceived) and _point == "read" and len(what.batch.tx.first):
        _pass()
    if isinstance(what, Acknowledged) and _point == "committed":
        _pass()
    _step(self, what)
    if isinstance(what, BatchReceived) and _point == "routed":
        flags = what.batch.tx.flags
        if len(flags) and flags[-1] & OPEN:
            _pass()


def _killing_next_session(self: StateStore, consumer: str) -> int:
    number = _next_session(self, consumer)
    if _point == "begun":
        _pass()
    return number


if _point:
    patched: Any = ClientRunner
    patched.step = _killing_step
    patched = StateStore
    patched.next_session = _killing_next_session
