"""Puts the API together: routes, problem documents, who may do what."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from fastapi import FastAPI
from starlette.types import ASGIApp

from dispatcher.api import problems
from dispatcher.api.administration import Administrator, administration_routes
from dispatcher.api.auth import Token, Tokens
from dispatcher.api.guard import Guard
from dispatcher.api.limits import Limits
from dispatcher.api.models import ConsumerService
from dispatcher.api.origin import OriginGuard
from dispatcher.api.page import page_routes
from dispatcher.api.routes import consumer_routes
from dispatcher.api.status import RenderMetrics, status_routes

_DESCRIPTION = (
    "Reads consumers' parts of MySQL binlogs. A position is passed back as it was returned. Errors are problem"
    " documents (RFC 9457) with a `hint`. docs/http-api.md describes the calls, the scopes of tokens and the limits."
)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what, as in the settings (`api`): `hosts`, `open`, `tokens`."""

    tokens: Sequence[Token] = ()
    hosts: Collection[str] = ()
    open: frozenset[str] = frozenset()


class Api:
    """`asgi`: the application. `access` can be replaced while it runs; limits cannot."""

    def __init__(  # noqa: PLR0913 - one parameter per part
        self,
        daemon: ConsumerService,
        access: Access,
        limits: Limits,
        *,
        administrator: Administrator,
        listen: str,
        version: str,
        metrics: RenderMetrics,
        ready: Callable[[], Sequence[str]],
    ) -> None:
        """`listen`: the host; `metrics` renders (text, content type); `ready` lists what keeps it from being ready."""
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
        app.include_router(consumer_routes(daemon, self._guard))
        app.include_router(administration_routes(administrator, self._guard))
        app.include_router(status_routes(daemon, self._guard, metrics, ready))
        app.include_router(page_routes(self._guard))
        self._origin = OriginGuard(app, listen=listen, hosts=access.hosts, tokens=self._tokens)

    @property
    def asgi(self) -> ASGIApp:
        return self._origin

    def replace(self, access: Access) -> None:
        """Admit by these tokens, hosts and openings from now on."""
        self._tokens.replace(access.tokens)
        self._guard.open = access.open
        self._origin.replace(access.hosts)
