"""The server of the API as the settings describe it: uvicorn with the limits of `bounded_protocol`."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from socket import SocketType, socket

import uvicorn
from starlette.types import ASGIApp

from dispatcher.access.tokens import Scope, Token
from dispatcher.api.app import Access
from dispatcher.api.connections.protocol import bounded_protocol
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.settings.api import ApiLimitSettings, ApiSettings, TokenSettings

FILES_RESERVED = 256  # file descriptors reserved for everything except the API's connections


class Listener(uvicorn.Server):
    """uvicorn without its signal handlers: the daemon handles the signals."""

    def __init__(
        self,
        app: ASGIApp,
        settings: ApiSettings,
        *,
        shutdown_s: int,
        on_started: Callable[[], None],
    ) -> None:
        """`shutdown_s`: how long a shutdown waits for answers that are being sent; `on_started`: called once the
        listener is open."""
        self._on_started = on_started
        self._address = str(settings.listen)
        self._protocol = bounded_protocol(api_limits(settings))
        super().__init__(
            uvicorn.Config(
                app,
                host=settings.listen.host,
                port=settings.listen.port,
                http=self._protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=bool(settings.proxies),
                forwarded_allow_ips=list(settings.proxies),
                server_header=False,
                headers=[("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")],
                timeout_keep_alive=75,
                timeout_graceful_shutdown=shutdown_s,
                ssl_certfile=settings.tls.cert if settings.tls else None,
                ssl_keyfile=settings.tls.key if settings.tls else None,
            )
        )

    async def listen(self) -> None:
        """Serve until `should_exit` is set. Raises BinlogError if the address cannot be listened on."""
        try:
            await self.serve()
        except SystemExit:  # uvicorn exits if it cannot listen
            remedy = "change api.listen: another program uses the port, or the address is not one of this machine"
            raise BinlogError(
                ErrorKind.SETTINGS, f"cannot listen on {self._address}", remedy=remedy
            ) from None

    async def startup(self, sockets: list[socket] | None = None) -> None:
        # The protocol does the TLS handshake.
        self._protocol.tls, self.config.ssl = self.config.ssl, None
        await super().startup(sockets)
        if self.started:
            self._on_started()

    def _log_started_message(self, listeners: Sequence[SocketType]) -> None:
        self.config.ssl = self._protocol.tls  # so that the message contains https
        super()._log_started_message(listeners)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def api_access(settings: ApiSettings) -> Access:
    """The access rules that the settings declare."""
    tokens = [_token(token) for token in settings.tokens]
    return Access(tokens, settings.hosts, frozenset(settings.open))


def _token(token: TokenSettings) -> Token:
    consumers = None if token.consumers == "all" else frozenset(token.consumers)
    sources = None if token.sources == "all" else frozenset(token.sources)
    scopes = frozenset(map(Scope, token.allowed))
    return Token(token.secret, consumers, scopes, token.name or "", sources)


def api_limits(settings: ApiSettings) -> ApiLimitSettings:
    """Returns the limits of the settings, with `max_connections` lowered to what the limit of open files permits."""
    limits = settings.model_dump(include=set(ApiLimitSettings.model_fields))
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections_max = max(files_max - FILES_RESERVED, FILES_RESERVED)
    limits["max_connections"] = min(settings.max_connections, connections_max)
    return ApiLimitSettings(**limits)
