"""Sends the events to the receiver, in their order, from a thread of its own.

The receiver cannot delay the daemon's event loop: the loop and the thread share only the outbox, and a lock that
neither holds while it waits. The thread sends one event at a time, and repeats it until the receiver accepts it or
`Patience` ends.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from uuid import uuid4

import structlog

from dispatcher.settings.webhook import WebhookSettings
from dispatcher.telemetry.backoff import RETRY_MAX_S, Backoff
from dispatcher.telemetry.lifecycle import LifecycleEvent
from dispatcher.telemetry.metrics import WebhookCounts
from dispatcher.telemetry.outbox import MessageKind, Outbox, OutMessage
from dispatcher.telemetry.webhook.patience import AttemptFault, Patience
from dispatcher.telemetry.webhook.request import post

STOP_S = 3.0  # how long the daemon's end may wait for the receiver


class WebhookSender:
    """Sends events with `settings`, which do not change. After a reload that changes them, a new sender gets the
    waiting events."""

    def __init__(self, settings: WebhookSettings, waiting: Sequence[OutMessage] = ()) -> None:
        """`waiting`: the events of an earlier sender, the oldest first."""
        self.settings = settings
        self._up = True
        self._delivered = self._given_up = 0
        self._outbox = Outbox(settings.max_queued_events)
        for message in waiting:
            self._outbox.put(message.kind, message.key, message.body)
        self._outbox.on_message = self._notify
        self._lock = threading.Lock()
        self._current: OutMessage | None = None  # the event that is being sent
        self._wake = threading.Event()
        self._ending = self._left = self._hurried = False
        self._drops_logged = False
        self._reported = False  # True if the log says that events are delivered
        self._backoff = Backoff()
        self._log = structlog.get_logger("dispatcher").bind(webhook=settings.origin)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    # -- for the event loop ----------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def put(self, event: LifecycleEvent, body: bytes) -> None:
        """Queue an event, if the settings do not exclude its kind."""
        if self.settings.events is None or event.kind in self.settings.events:
            self._outbox.put(MessageKind.EVENT, uuid4().hex, body)

    def counts(self) -> WebhookCounts:
        dropped = {
            "queue_full": self._outbox.dropped[MessageKind.EVENT],
            "given_up": self._given_up,
        }
        return WebhookCounts(self._up, self._delivered, dropped)

    def retry_now(self) -> None:
        """Send at once, because a reload may have removed the cause of the fault."""
        self._hurried = True
        self._wake.set()

    def leave(self) -> list[OutMessage]:
        """End without waiting. Returns the events that were not delivered, the oldest first. The receiver may still
        accept the first of these events, because its attempt may be under way."""
        with self._lock:
            self._left = True
            current = [] if self._current is None else [self._current]
        self._wake.set()
        return current + self._outbox.take(self._outbox.waiting())

    def stop(self) -> None:
        """Send the waiting events, up to the first that the receiver does not accept. Waits for at most `STOP_S`."""
        self._ending = True
        self._wake.set()
        self._thread.join(STOP_S)
        if lost := self.leave():
            why = "the daemon ends, and the receiver has not accepted them"
            self._log.warning("webhook events are dropped", dropped=len(lost), reason=why)

    def _notify(self) -> None:
        dropped = self._outbox.dropped[MessageKind.EVENT]
        if dropped and not self._drops_logged:
            self._drops_logged = True
            why = "the receiver does not accept the events, or is too slow"
            self._log.warning("webhook events are dropped", dropped=dropped, reason=why)
        self._wake.set()

    # -- the thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (message := self._next()) is not None:
            self._deliver(message)

    def _next(self) -> OutMessage | None:
        """Wait for an event; None at the end."""
        while True:
            self._wake.clear()
            ending = self._ending
            with self._lock:
                if self._left:
                    return None
                taken = self._outbox.take(1)
                self._current = taken[0] if taken else None
            if self._current is not None or ending:
                return self._current
            self._wake.wait()

    def _deliver(self, message: OutMessage) -> None:
        """Repeat sending an event until the receiver accepts it, the sender gives the event up, or the sender ends."""
        patience = Patience()
        while True:
            self._hurried = False
            ending = self._ending
            fault = self._attempt(message)
            given_up = fault is not None and patience.ends(fault, time.monotonic())
            with self._lock:
                if self._left:
                    return
                self._up = fault is None
                self._delivered += fault is None
                self._given_up += given_up
                self._left = ending and not (fault is None or given_up)
                if fault is None or given_up:
                    self._current = None
            if fault is None:
                self._succeeded()
                return
            self._failed(message, fault, given_up=given_up)
            if given_up or self._left:
                return

    def _attempt(self, message: OutMessage) -> AttemptFault | None:
        try:
            return post(self.settings, message, int(time.time()))
        except Exception as error:  # noqa: BLE001
            # Bytes of a receiver can cause any error in the library. Such an error must not end the thread.
            return AttemptFault(f"{type(error).__name__}: {error}; check webhook.url")

    def _succeeded(self) -> None:
        if not self._reported:
            self._log.info("webhook delivered")
        self._reported, self._drops_logged = True, False
        self._backoff.reset()

    def _failed(self, message: OutMessage, fault: AttemptFault, *, given_up: bool) -> None:
        """Log the fault, and wait until the next attempt."""
        self._reported = False
        if given_up:
            kind, id_ = json.loads(message.body)["event"], message.key
            self._log.warning("webhook event given up", kind=kind, webhook_id=id_, error=fault.text)
            self._backoff.reset()  # the receiver may accept the next event
        wait_s = max(self._backoff.next_s(), min(fault.wait_s, RETRY_MAX_S))
        self._log.warning("webhook not delivered", error=fault.text, retry_s=round(wait_s, 1))
        self._pause(wait_s)
        if self._hurried:
            self._backoff.reset()

    def _pause(self, seconds: float) -> None:
        """Wait, but return at once if the sender ends or `retry_now` is called."""
        until = time.monotonic() + seconds
        while True:
            self._wake.clear()
            left = until - time.monotonic()
            if self._ending or self._left or self._hurried or left <= 0:
                return
            self._wake.wait(left)
