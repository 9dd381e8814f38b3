"""Assembles the API: routes, access checks, problem documents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.types import ASGIApp

from dispatcher.api import problems
from dispatcher.api.administration import Administrator, administration_routes
from dispatcher.api.auth import Token, Tokens
from dispatcher.api.direct_routes import DirectRoutes
from dispatcher.api.feed import StatusFeed, StatusSource
from dispatcher.api.guard import Guard
from dispatcher.api.models import ConsumerService
from dispatcher.api.origin import OriginGuard
from dispatcher.api.page import page_routes
from dispatcher.api.reader_calls import ReaderCalls
from dispatcher.api.requests import RequestTimer
from dispatcher.api.routes import consumer_routes
from dispatcher.api.status import RenderMetrics, status_routes
from dispatcher.api.status_page import status_page_routes
from dispatcher.model.timings import RequestTimings
from dispatcher.settings.model import ApiLimitSettings

_DESCRIPTION = (
    "Delivers MySQL binlogs to consumers, each with the databases and tables it subscribes to. Pass positions back"
    " unchanged. Errors are problem documents (RFC 9457); `hint` says what to do. docs/http-api.md describes the calls,"
    " the scopes of tokens and the limits."
)


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of the settings: `api.tokens`, `api.hosts`, `api.open`."""

    tokens: Sequence[Token] = ()
    hosts: Collection[str] = ()
    open: frozenset[str] = frozenset()


class Api:
    """The API as an ASGI application. Its access rules can be replaced while it runs, its limits cannot."""

    def __init__(  # noqa: PLR0913 - one parameter per part
        self,
        daemon: ConsumerService,
        access: Access,
        limits: ApiLimitSettings,
        *,
        administrator: Administrator,
        live: StatusSource,
        listen: str,
        version: str,
        metrics: RenderMetrics,
        ready: Callable[[], Sequence[str]],
        timings: RequestTimings | None = None,
    ) -> None:
        """`live`: what the status page shows; `listen`: the host; `metrics` renders (text, content type); `ready`
        returns why the daemon is not ready; `timings` counts the requests."""
        self._tokens = Tokens(access.tokens)
        self._guard = Guard(self._tokens, limits, access.open)
        app = FastAPI(
            title="binlog-dispatcher",
            version=version,
            description=_DESCRIPTION,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
        )
        problems.install(app)
        calls = ReaderCalls(daemon, limits)
        app.include_router(consumer_routes(daemon, self._guard, calls))
        app.include_router(administration_routes(administrator, self._guard))
        app.include_router(status_routes(daemon, self._guard, metrics, ready))
        app.include_router(page_routes(self._guard))
        self._feed = StatusFeed(live, version)
        app.include_router(status_page_routes(self._guard, live, self._feed))
        direct = DirectRoutes(app, self._guard, calls)
        self._origin = OriginGuard(direct, listen=listen, hosts=access.hosts, tokens=self._tokens)

        self._timer = RequestTimer(self._origin, timings or RequestTimings())

    @property
    def asgi(self) -> ASGIApp:
        return self._timer

    def close(self) -> None:
        """End the answers that would not end by themselves, because the daemon is ending."""
        self._feed.close()

    def replace(self, access: Access) -> None:
        """Apply these access rules from now on."""
        self._tokens.replace(access.tokens)
        self._guard.open = access.open
        self._origin.replace(access.hosts)
