"""The clients that are connected to the front, for SHOW REPLICAS and KILL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatcher.front.dump.request import Registration


@dataclass(slots=True)
class Connected:
    """A connected client. `close` ends its connection. `registration`: None if the client has not registered as a
    replica. `uuid`: the UUID that the client has reported, "" if it has reported none."""

    consumer: str
    close: Callable[[], None]
    registration: Registration | None = None
    uuid: str = ""


class Connections:
    """All clients that have logged in, by the number of their connection."""

    def __init__(self) -> None:
        self._clients: dict[int, Connected] = {}

    def add(self, connection_id: int, client: Connected) -> None:
        self._clients[connection_id] = client

    def remove(self, connection_id: int) -> None:
        self._clients.pop(connection_id, None)

    def of(self, consumer: str) -> Sequence[Connected]:
        """The clients of a consumer, oldest first."""
        return [client for client in self._clients.values() if client.consumer == consumer]

    def kill(self, connection_id: int, consumer: str) -> bool:
        """End the consumer's connection with this number. Returns False if the consumer has no such connection."""
        client = self._clients.get(connection_id)
        if client is None or client.consumer != consumer:
            return False
        client.close()
        return True
