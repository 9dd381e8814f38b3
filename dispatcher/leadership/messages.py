"""What goes into `Leadership.step`, and the effects that it returns, which are executed in their order. Each thing that
can happen, and each thing to do, is one frozen class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.leadership.lease import LeaseRow
from dispatcher.model.errors import BinlogError

# -- requests to the database -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the row."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Take the lease if it is free. The answer is the row after that."""

    holder: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend the lease of this term. The answer is the row after that."""

    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class Release:
    """Give back the lease that this holder has in this term. The answer is None."""

    holder: str
    term: int


Request = ReadLease | Campaign | Renew | Release

# -- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WakeUp:
    """The daemon has started, or the time that `Leadership.next_wakeup` returned has come."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The database has answered the request of this number."""

    number: int
    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request of this number has failed. It may have been executed: the connection may be lost after a commit."""

    number: int
    error: BinlogError


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The store has refused a write of this term, because another daemon has taken the lease."""

    term: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """The daemon has executed a `Resign`: nothing of this term runs any more. `holder`: a new id, for the next term."""

    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class NotLed:
    """A `Lead` has failed, and nothing of this term runs. `holder`: a new id, for the next term. After a `Resign` this
    event is ignored."""

    term: int
    error: BinlogError
    holder: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """The daemon is to end."""


Event = WakeUp | Answered | Failed | WriteRefused | Resigned | NotLed | HandOver

# -- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request to the database. One is open at a time; `Answered`, `Failed` or `Abandon` ends it."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the connection on which the request of this number waits for an answer. The next request uses a new one."""

    number: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Open the state store under this term, and serve the consumers. A `NotLed` says that this failed."""

    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class Resign:
    """End everything that runs under this term: queues, connections and the store. Then a `Resigned` follows.

    `orderly`: True if this daemon still holds the lease. Then the daemon first stores what is queued.
    """

    term: int
    orderly: bool


@dataclass(frozen=True, slots=True)
class Exit:
    """Let the process end."""


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Write a line to the log."""

    level: str
    event: str
    fields: Mapping[str, object]


Effect = SendRequest | Abandon | Lead | Resign | Exit | LogEvent
