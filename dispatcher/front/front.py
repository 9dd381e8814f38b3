"""The front as the settings describe it: who may log in, and what each client is served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import structlog

from dispatcher.access.guesses import Guesses
from dispatcher.access.tokens import Tokens
from dispatcher.front.client_session import ClientSession, FrontServices
from dispatcher.front.connections import Connections
from dispatcher.front.daemon_errors import wire_error
from dispatcher.front.interfaces import GetConsumers
from dispatcher.front.tls import front_tls
from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.listener import FrontCounts, FrontListener
from dispatcher.front.wire.login import FrontLogin, LoginRules
from dispatcher.front.wire.passwords import PasswordKey
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.front import CLIENT_SCOPES, FrontSettings

_VERSION = "8.4.0-binlog-dispatcher"
"""For the greeting, as long as no server was reached."""


class Front:
    """The listener for replication clients, and its connections."""

    def __init__(
        self,
        settings: FrontSettings,
        tokens: Tokens,
        guesses: Guesses,
        consumers: GetConsumers,
    ) -> None:
        """`tokens`, `guesses`: those of the API; `consumers` raises NotLeaderError on a standby."""
        self._settings = settings
        self._tokens = tokens
        self._guesses = guesses
        self._consumers = consumers
        self._services = FrontServices(consumers, settings, Connections())
        self._listener: FrontListener | None = None
        self._log = structlog.get_logger("dispatcher")
        self.port = settings.listen.port

    def counts(self) -> FrontCounts:
        return self._listener.counts if self._listener is not None else FrontCounts()

    async def listen(self) -> None:
        """Open the listener. Raises BinlogError if the address cannot be listened on, or for invalid files of TLS."""
        listen = self._settings.listen
        self._listener = FrontListener(
            await asyncio.to_thread(self._rules),
            self._serve,
            self._failed,
            connections_max=self._settings.max_connections,
        )
        try:
            self.port = await self._listener.listen(listen.host, listen.port)
        except OSError as error:
            remedy = "change front.listen: another program uses the port, or the address is not one of this machine"
            what = f"cannot listen on {listen}: {error.strerror or error}"
            raise BinlogError(ErrorKind.SETTINGS, what, remedy=remedy) from None
        self._log.info("front listens", address=f"{listen.host}:{self.port}")

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()

    def _rules(self) -> LoginRules:
        plain = self._settings.listen.loopback  # passwords may come without TLS
        return LoginRules(
            version=self._version,
            secrets=self._secrets,
            wrong=self._wrong,
            admit=self._admit,
            tls=front_tls(self._settings),
            require_tls=not plain,
            key=PasswordKey() if plain else None,
        )

    # -- logins ----------------------------------------------------------------------------------------------

    def _version(self) -> str:
        """The version in the greeting: that of the first consumer whose server was reached. The greeting comes before
        the client names its consumer."""
        try:
            consumers = self._consumers()
            formats = filter(None, map(consumers.format, consumers.names()))
            return next((format_.server_version for format_ in formats), _VERSION)
        except BinlogError:  # a standby; `_admit` refuses the client
            return _VERSION

    def _secrets(self, user: str) -> Sequence[str] | None:
        if not self._tokens:
            return None
        return [token.secret for token in self._tokens.of(user) if token.scopes >= CLIENT_SCOPES]

    async def _wrong(self, _user: str, host: str) -> None:
        client = host, 0
        self._guesses.wrong(client)
        await asyncio.sleep(self._guesses.wait_s(client, None))

    async def _wait_after_guesses(self, login: FrontLogin) -> None:
        """After wrong tokens from the client's network, delay a login with a right token as long as those, but only
        once. Otherwise a guesser could conclude that a token is wrong because it is not confirmed at once, and try the
        next one."""
        if login.secret is None or time.monotonic() >= self._guesses.slow_until:
            return
        client = login.host, 0
        if wait_s := self._guesses.wait_s(client, login.secret):
            await asyncio.sleep(wait_s)
            self._guesses.prove(client, login.secret)

    async def _admit(self, login: FrontLogin) -> None:
        """Raises WireError on a standby, and for a user who is no consumer."""
        await self._wait_after_guesses(login)
        try:
            self._consumers().subscription(login.user)
        except BinlogError as error:
            raise wire_error(error) from None

    # -- clients ---------------------------------------------------------------------------------------------

    async def _serve(self, channel: Channel, login: FrontLogin) -> None:
        await ClientSession(channel, login, self._services).run()

    def _failed(self, error: Exception) -> None:
        self._log.error("client of the front failed", exc_info=error)
