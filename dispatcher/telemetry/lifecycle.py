"""Events of the daemon, of its connections and of its consumers, made from the lines of the log.

The rules report each action by a `Note` effect. The runtime logs this effect through an `AnnouncingLog`. The
`AnnouncingLog` writes each line to the log, and makes an event of each line that `EVENTS` contains. So the log and the
events cannot differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dispatcher.model.lifecycle_kinds import LifecycleKind

# Maps a line of the log to the kind of its event. docs/mqtt.md describes each kind.
EVENTS: Mapping[str, LifecycleKind] = {
    "attached": "attached",
    "detached": "detached",
    "queue forgotten, all queues are full": "detached",
    "consumer failed": "failed",
    "consumer waits": "waiting",
    "consumer removed": "removed",
    "purge gap skipped": "gap",
    "sought": "moved",
    "merged": "merged",
    "streaming": "connected",  # or reconnected
    "not connected": "disconnected",
    "ended": "ended",
    "leading": "leading",
    "standby": "standby",
    "lease lost": "lease_lost",
}


@dataclass(frozen=True, slots=True)
class LifecycleEvent:
    """`kind`: see `EVENTS`. The event concerns `consumer` if it is set, else `connection` (user@host:port), else the
    daemon.

    `details`: the fields of the log's line, which contain no values of rows.
    """

    kind: LifecycleKind
    at_s: float  # since 1970 UTC
    connection: str = ""
    consumer: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


class LineLog(Protocol):
    """The part of structlog's bound logger that `AnnouncingLog` uses."""

    def log(self, level: int, event: str, **fields: Any) -> Any: ...


class AnnouncingLog:
    """A log that passes its events to `log` and to `listener`. The listener must not wait."""

    def __init__(self, log: LineLog, listener: Callable[[LifecycleEvent], None]) -> None:
        self._log = log
        self._listener = listener
        self._disconnected: set[tuple[str, object]] = set()  # connection and dispatcher

    def log(self, level: int, event: str, **fields: Any) -> None:
        """Write a line, and announce its event if `EVENTS` contains the line."""
        self._log.log(level, event, **fields)
        if (kind := EVENTS.get(event)) is not None:
            self._announce_line(kind, fields)

    def daemon(self, kind: LifecycleKind, **details: Any) -> None:
        """Announce an event of the daemon: `started`, `stopped`, `reloaded` or `reload_failed`."""
        self._announce(kind, details=details)

    def _announce_line(self, kind: LifecycleKind, fields: dict[str, Any]) -> None:
        connection, consumer = str(fields.pop("client", "")), str(fields.pop("consumer", ""))
        place = connection, fields.get("dispatcher")
        if kind == "connected" and place in self._disconnected:
            kind = "reconnected"
            self._disconnected.discard(place)
        elif kind == "disconnected":
            if place in self._disconnected:
                return  # further attempts are only lines of the log, not events
            self._disconnected.add(place)
        caught_up = fields.pop("caught_up", ())
        self._announce(kind, connection, consumer, fields)
        for name in caught_up:
            self._announce("caught_up", connection, str(name))

    def _announce(
        self,
        kind: LifecycleKind,
        connection: str = "",
        consumer: str = "",
        details: Mapping[str, Any] | None = None,
    ) -> None:
        self._listener(LifecycleEvent(kind, time.time(), connection, consumer, details or {}))
