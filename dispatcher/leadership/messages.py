"""The events that `Leadership.step` gets, and the effects that it returns. Each event, request and effect is one frozen
class. The caller executes the effects in their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.leadership.lease import LeaseRow
from dispatcher.model.errors import BinlogError

# -- requests to the database -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the lease's row. The answer is the row."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Take the lease if it is free. The answer is the resulting row."""

    holder: str


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend the lease of this term. The answer is the resulting row."""

    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class Release:
    """Release the lease that this holder has in this term. The answer is None."""

    holder: str
    term: int


Request = ReadLease | Campaign | Renew | Release

# -- events -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WakeUp:
    """The daemon has started, or the time that `Leadership.next_wakeup` returned has come."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The database has answered the request with this number."""

    number: int
    row: LeaseRow | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request with this number has failed. If the connection was lost during the commit, the database may have
    executed the request."""

    number: int
    error: BinlogError


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The store has refused a write of this term, because another daemon has taken the lease."""

    term: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """The daemon has executed a `Resign`, and nothing of this term runs any more. `holder`: the daemon's new id for its
    next term."""

    term: int
    holder: str


@dataclass(frozen=True, slots=True)
class NotLed:
    """A `Lead` has failed, and nothing of this term runs. `holder`: the daemon's new id for its next term. After a
    `Resign`, this event is ignored."""

    term: int
    error: BinlogError
    holder: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """The daemon is asked to end, and must release its lease first."""


Event = WakeUp | Answered | Failed | WriteRefused | Resigned | NotLed | HandOver

# -- effects ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send a request to the database. At most one request is open at a time. `Answered`, `Failed` or `Abandon` ends
    it."""

    number: int
    request: Request


@dataclass(frozen=True, slots=True)
class Abandon:
    """Close the connection on which the request with this number waits for an answer. The next request uses a new
    connection."""

    number: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Open the state store for this term, and serve the consumers. If this fails, a `NotLed` follows."""

    holder: str
    term: int


@dataclass(frozen=True, slots=True)
class Resign:
    """End everything that runs in this term: queues, connections and the store. A `Resigned` follows.

    `orderly`: True if this daemon still has the lease. Then it stores the queued writes first.
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
