"""The messages that wait for the MQTT broker, or for the webhook's receiver. The daemon's event loop adds messages, and
the thread that sends them takes messages. No call of the outbox waits.

The outbox contains the newest status of each topic, and a limited number of events and of commits. Beyond these limits
it drops the oldest events or commits, and counts them. A message that was not delivered goes back to its place in the
outbox.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class MessageKind(StrEnum):
    """The kinds, in the order in which they are sent."""

    EVENT = "event"
    STATUS = "status"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class OutMessage:
    """`key`: the topic of a message for the broker, the id of an event for the webhook. A status with an empty body
    clears its topic."""

    kind: MessageKind
    key: str
    body: bytes

    @property
    def retained(self) -> bool:
        return self.kind is MessageKind.STATUS


class Outbox:
    """See the module. All methods may be called from any thread."""

    def __init__(self, messages_max: int) -> None:
        """`messages_max`: how many events may wait, and how many commits may wait."""
        self.dropped = dict.fromkeys(MessageKind, 0)
        self.on_message: Callable[[], None] = _nothing  # called by `put`, outside of the lock
        self._lock = threading.Lock()
        self._statuses: dict[str, bytes] = {}  # by topic: what the broker should have
        self._changed: dict[str, bytes] = {}  # the statuses that the broker does not have yet
        self._queues: dict[MessageKind, deque[OutMessage]] = {
            MessageKind.EVENT: deque(maxlen=messages_max),
            MessageKind.COMMIT: deque(maxlen=messages_max),
        }

    def put(self, kind: MessageKind, key: str, body: bytes) -> None:
        """Add a message. A status that is equal to the topic's last status is ignored; an empty status clears the
        topic."""
        with self._lock:
            if kind is MessageKind.STATUS:
                if self._statuses.get(key) == body:
                    return
                if body:
                    self._statuses[key] = body
                else:
                    self._statuses.pop(key, None)
                self._changed.pop(key, None)  # so that the newest change is sent last
                self._changed[key] = body
            else:
                self._append(OutMessage(kind, key, body))
        self.on_message()

    def _append(self, message: OutMessage) -> None:
        queue = self._queues[message.kind]
        self.dropped[message.kind] += len(queue) == queue.maxlen
        queue.append(message)

    def topics(self) -> set[str]:
        """The topics that have a status."""
        with self._lock:
            return set(self._statuses)

    def waiting(self) -> int:
        with self._lock:
            return len(self._changed) + sum(map(len, self._queues.values()))

    def take(self, count: int) -> list[OutMessage]:
        """Remove and return up to `count` messages, in the order in which they are to be sent."""
        taken: list[OutMessage] = []
        with self._lock:
            for kind in MessageKind:
                while len(taken) < count and (message := self._next(kind)) is not None:
                    taken.append(message)
        return taken

    def _next(self, kind: MessageKind) -> OutMessage | None:
        if kind is MessageKind.STATUS:
            if not self._changed:
                return None
            topic = next(iter(self._changed))
            return OutMessage(kind, topic, self._changed.pop(topic))
        queue = self._queues[kind]
        return queue.popleft() if queue else None

    def put_back(self, messages: Sequence[OutMessage]) -> None:
        """Put back messages that may not have been delivered: events and commits go in front of all other messages of
        their kind; a status goes back only if it is still the newest status of its topic."""
        with self._lock:
            for message in reversed(messages):
                if message.kind is MessageKind.STATUS:
                    if self._statuses.get(message.key, b"") == message.body:
                        self._changed.setdefault(message.key, message.body)
                    continue
                queue = self._queues[message.kind]
                if len(queue) == queue.maxlen:
                    self.dropped[message.kind] += 1  # the queue is full of newer messages
                else:
                    queue.appendleft(message)

    def send_all_statuses(self) -> None:
        """Queue every status again, because the broker may have lost the statuses that it retained."""
        with self._lock:
            for topic, body in self._statuses.items():
                self._changed.setdefault(topic, body)

    def clear_all_statuses(self) -> None:
        with self._lock:
            self._changed = dict.fromkeys([*self._statuses, *self._changed], b"")
            self._statuses = {}


def _nothing() -> None:
    pass
