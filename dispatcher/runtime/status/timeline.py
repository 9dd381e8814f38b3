"""The timeline of the status page: the newest lines of the log that are about connections and consumers.

A `Timeline` is a `Logger`: the clients log to the timeline, and the timeline forwards every line to the log.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dispatcher.model.errors import with_name
from dispatcher.runtime.client.client_runner import Logger

EVENTS_MAX = 200

KINDS = {
    "streaming": "connected",
    "not connected": "disconnected",
    "server history is checked anew": "disconnected",
    "ended": "ended",
    "detached": "detached",
    "closed until there is room": "closed",
    "queue forgotten, all queues are full": "evicted",
    "merged": "merged",
    "consumer failed": "failed",
    "consumer waits": "failed",
    "purge gap skipped": "gap",
    "sought": "moved",
    "consumer changed": "changed",
    "consumer removed": "removed",
    "delivery paused": "paused",
    "delivery resumed": "resumed",
    "databases": "warning",
    "another daemon has this state": "warning",
    "no other daemon has this state any more": "cleared",
    "state not stored": "failed",
    "state stored again": "stored",
    "state store was deleted or replaced": "failed",
    "state store not reached": "failed",
    "leading": "leading",
    "lease lost": "warning",
    "lease not reached": "warning",
    "lease reached again": "cleared",
    "state database too slow": "warning",
    "the settings differ from those of the leader": "warning",
    "the settings are those of the leader": "cleared",
    "standby": "standby",
    "cannot lead": "failed",
    "state store cannot be checkpointed": "failed",
    "state store is older than what was acknowledged": "warning",
    "newest positions cannot be read": "warning",
}
"""The kind of each event that the timeline keeps, by the event's text in the log."""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """`number`: grows by one; `consumers`: the consumers that the event concerns, () for all consumers of the
    connection; `count`: how often the event happened in a row; `first_s`, `at_s`: when it happened first and last, in s
    since 1970."""

    number: int
    first_s: float
    at_s: float
    kind: str
    level: int
    connection: str
    dispatcher: int | None
    consumers: tuple[str, ...]
    event: str
    detail: str
    count: int = 1

    def repeats(self, other: TimelineEvent) -> bool:
        """True if `other` is the same event with the same detail and the same `key`."""
        return (self.key, self.event, self.detail) == (other.key, other.event, other.detail)

    @property
    def key(self) -> tuple[str, int | None, tuple[str, ...]]:
        """The connection, dispatcher and consumers that the event concerns."""
        return self.connection, self.dispatcher, self.consumers


class Timeline:
    """The newest `EVENTS_MAX` events, oldest first. `version`: changes with each event."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._events: deque[TimelineEvent] = deque(maxlen=EVENTS_MAX)
        self.version = 0

    def events(self) -> tuple[TimelineEvent, ...]:
        return tuple(self._events)

    def log(self, level: int, event: str, **fields: Any) -> None:
        kind = KINDS.get(event)
        if kind is not None:
            self._add(kind, level, event, fields)
        self._log.log(level, event, **fields)

    def _add(self, kind: str, level: int, event: str, fields: Mapping[str, Any]) -> None:
        self.version += 1
        dispatcher = fields.get("dispatcher", fields.get("into"))
        now_s = time.time()
        new = TimelineEvent(
            self.version,
            now_s,
            now_s,
            kind,
            level,
            str(fields.get("client", "")),
            dispatcher,
            _consumers(fields),
            event,
            with_name(_detail(fields), str(fields.get("consumer", "NAME"))),
        )
        before = next((one for one in reversed(self._events) if one.key == new.key), None)
        if before is not None and new.repeats(before):  # for example if a server is down for hours
            self._events.remove(before)
            new = replace(new, count=before.count + 1, first_s=before.first_s)
        self._events.append(new)


def _consumers(fields: Mapping[str, Any]) -> tuple[str, ...]:
    if "consumer" in fields:
        return (str(fields["consumer"]),)
    return tuple(fields.get("consumers") or fields.get("full") or ())


def _detail(fields: Mapping[str, Any]) -> str:
    """Returns the error, the reason or the warning of a line. The other fields of the line are not shown as a
    detail."""
    return str(
        fields.get("error")
        or fields.get("reason")
        or fields.get("why")
        or fields.get("warning")
        or ""
    )
