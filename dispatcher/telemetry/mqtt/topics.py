"""The topics of the messages."""

from __future__ import annotations

from urllib.parse import quote

from dispatcher.telemetry.lifecycle import LifecycleEvent


class Topics:
    """The topics of one daemon. A character of a connection's name that a topic level must not contain is written as
    %xx."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.daemon = f"{prefix}/status"
        self.role = f"{prefix}/role"
        self.statuses = f"{prefix}/consumers/+/status"  # the filter of a subscription

    def status(self, consumer: str) -> str:
        return f"{self.prefix}/consumers/{consumer}/status"

    def commits(self, consumer: str) -> str:
        return f"{self.prefix}/consumers/{consumer}/commits"

    def event(self, event: LifecycleEvent) -> str:
        if event.consumer:
            return f"{self.prefix}/consumers/{event.consumer}/events/{event.kind}"
        if event.connection:
            level = quote(event.connection, safe=" @:,;=!*()[]")
            return f"{self.prefix}/connections/{level}/events/{event.kind}"
        return f"{self.prefix}/events/{event.kind}"
