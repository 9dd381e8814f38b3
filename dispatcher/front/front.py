"""The front as the settings describe it. Decides who may log in, and starts a session for each client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from socket import socket

import structlog

from dispatcher.access.guesses import Guesses
from dispatcher.access.listening import tls_of_listener
from dispatcher.access.tokens import Tokens
from dispatcher.front.client_session import ClientSession, FrontServices
from dispatcher.front.connections import Connections
from dispatcher.front.daemon_errors import not_reached, wire_error
from dispatcher.front.interfaces import GetConsumers
from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.listener import FrontCounts, FrontListener
from dispatcher.front.wire.login import FrontLogin, LoginRules
from dispatcher.front.wire.passwords import PasswordKey
from dispatcher.model.errors import BinlogError
from dispatcher.settings.front import CLIENT_SCOPES, FrontSettings

_UNKNOWN_VERSION = "8.4.0-binlog-dispatcher"
"""The version in the greeting while the daemon has not reached any server. The front then admits no client, because a
replica of MariaDB that reads from a server of MySQL gives up reading by GTID, also for its next connections."""


class Front:
    """The listener for replication clients, and its connections."""

    def __init__(
        self,
        settings: FrontSettings,
        tokens: Tokens,
        guesses: Guesses,
        consumers: GetConsumers,
    ) -> None:
        """`tokens`, `guesses`: the objects that the API uses, too; `consumers` raises NotLeaderError on a standby.
        Raises BinlogError if the files of `front.tls` do not contain a certificate and its key."""
        self._tls = tls_of_listener(settings.tls, "front.tls")
        self._settings = settings
        self._tokens = tokens
        self._guesses = guesses
        self._consumers = consumers
        connections = Connections(settings.max_connections)
        self._services = FrontServices(consumers, settings, connections)
        self._listener: FrontListener | None = None
        self._known_version = _UNKNOWN_VERSION
        self._log = structlog.get_logger("dispatcher")
        self.port = settings.listen.port

    def counts(self) -> FrontCounts:
        return self._listener.counts if self._listener is not None else FrontCounts()

    async def listen(self, sockets: Sequence[socket]) -> None:
        """Listen on bound sockets (`access.listening.open_sockets`)."""
        self._listener = FrontListener(
            await asyncio.to_thread(self._rules),
            self._serve,
            self._failed,
            connections_max=self._settings.max_connections,
        )
        self.port = await self._listener.listen(sockets)
        self._log.info("front listens", address=f"{self._settings.listen.host}:{self.port}")

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    def _rules(self) -> LoginRules:
        plain = self._settings.listen.loopback  # clients may send passwords without TLS
        return LoginRules(
            version=self._version,
            secrets=self._secrets,
            wrong=self._wrong,
            admit=self._admit,
            tls=self._tls,
            require_tls=not plain,
            key=PasswordKey() if plain else None,
        )

    # -- logins ----------------------------------------------------------------------------------------------

    def _version(self) -> str:
        """The server version in the greeting. The front sends the greeting before the client names its consumer, so it
        uses the version of the first consumer whose server was reached. While no server sends its log, the front uses
        the version that it used last."""
        with suppress(BinlogError):  # a standby; `_admit` refuses the client
            consumers = self._consumers()
            formats = filter(None, map(consumers.format, consumers.names()))
            versions = (format_.server_version for format_ in formats)
            self._known_version = next(versions, self._known_version)
        return self._known_version

    async def _require_version(self, login: FrontLogin) -> None:
        """Raise WireError 1053 if the greeting did not contain a server's version, because no version was known. The
        greeting of the client's next connection contains the version."""
        if login.version == _UNKNOWN_VERSION:
            if self._known_version == _UNKNOWN_VERSION:
                self._known_version = (await self._consumers().picture(login.user)).version
            raise not_reached()

    def _secrets(self, user: str) -> Sequence[str] | None:
        if not self._tokens:
            return None
        return [token.secret for token in self._tokens.of(user) if token.scopes >= CLIENT_SCOPES]

    async def _wrong(self, _user: str, host: str) -> None:
        client = host, 0
        self._guesses.wrong(client)
        await asyncio.sleep(self._guesses.wait_s(client, None))

    async def _wait_after_guesses(self, login: FrontLogin) -> None:
        """After logins with wrong tokens from the client's network, delay the first login with a right token as long as
        one with a wrong token. Otherwise a guesser could conclude from the delay that a token is wrong, and try the
        next token without waiting for the answer."""
        if login.secret is None or time.monotonic() >= self._guesses.slow_until:
            return
        client = login.host, 0
        if wait_s := self._guesses.wait_s(client, login.secret):
            await asyncio.sleep(wait_s)
            self._guesses.prove(client, login.secret)

    async def _admit(self, login: FrontLogin) -> None:
        """Raises WireError on a standby, if the user is not the name of a consumer, if the daemon had not reached a
        server before the greeting, or if the consumer or the token already has its full share of connections."""
        await self._wait_after_guesses(login)
        try:
            self._consumers().subscription(login.user)
            await self._require_version(login)
        except BinlogError as error:
            raise wire_error(error) from None
        self._services.connections.require_room(login)

    # -- clients ---------------------------------------------------------------------------------------------

    async def _serve(self, channel: Channel, login: FrontLogin) -> None:
        await ClientSession(channel, login, self._services).run()

    def _failed(self, error: Exception) -> None:
        self._log.error("client of the front failed", exc_info=error)
