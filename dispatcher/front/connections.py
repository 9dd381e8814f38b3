"""The clients that are connected to the front, for SHOW REPLICAS and KILL, and their shares of all connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dispatcher.front.dump.request import Registration
from dispatcher.front.wire.errors import too_many_user_connections
from dispatcher.front.wire.login import FrontLogin


class ShareHolder(NamedTuple):
    """A consumer, or a token, which takes connections."""

    kind: str
    name: str


def holders_of(login: FrontLogin) -> list[ShareHolder]:
    """The consumer of a client, and its token if the settings have tokens."""
    holders = [ShareHolder("consumer", login.user)]
    return holders if login.secret is None else [*holders, ShareHolder("token", login.secret)]


@dataclass(slots=True)
class Connected:
    """A connected client. `close` ends its connection. `registration`: None if the client has not registered as a
    replica. `uuid`: the UUID that the client has reported, "" if it has reported none."""

    login: FrontLogin
    close: Callable[[], None]
    registration: Registration | None = None
    uuid: str = ""

    @property
    def consumer(self) -> str:
        return self.login.user


class Connections:
    """All clients that have logged in, by the number of their connection.

    A consumer, or a token, may take a further connection while it has fewer connections than are free. So no consumer
    or token takes all connections, and each further consumer or token can take half of the connections that the earlier
    ones have left.
    """

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._clients: dict[int, Connected] = {}
        self._held: Counter[ShareHolder] = Counter()

    def require_room(self, login: FrontLogin) -> None:
        """Raise WireError 1203 if the client's consumer or token already has its full share of connections."""
        free = self._maximum - len(self._clients)
        for holder in holders_of(login):
            if self._held[holder] >= free:
                raise too_many_user_connections(holder.kind, login.user, self._held[holder])

    def add(self, client: Connected) -> None:
        self._clients[client.login.connection_id] = client
        self._held.update(holders_of(client.login))

    def remove(self, client: Connected) -> None:
        del self._clients[client.login.connection_id]
        self._held -= Counter(holders_of(client.login))

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
