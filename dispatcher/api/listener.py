"""The server of the API as the settings describe it: uvicorn with the limits of `bounded_protocol`."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from socket import socket

import uvicorn
from starlette.types import ASGIApp

from dispatcher.access.listening import tls_of_listener
from dispatcher.access.tokens import Scope, Token
from dispatcher.api.app import Access
from dispatcher.api.connections.protocol import bounded_protocol
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
        listener is open. Raises BinlogError if the files of `api.tls` do not contain a certificate and its key."""
        self._on_started = on_started
        self._protocol = bounded_protocol(api_limits(settings))
        self._protocol.tls = tls_of_listener(settings.tls, "api.tls")
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
            )
        )

    async def listen(self, sockets: list[socket]) -> None:
        """Serve until `should_exit` is set. `sockets`: bound sockets (`access.listening.open_sockets`)."""
        await self.serve(sockets)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.config.ssl = self._protocol.tls  # so that the message contains https
            self._log_started_message(sockets or ())
            self._on_started()

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
