"""Assembles the API: routes, access checks, problem documents."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp

from dispatcher.access.guesses import Guesses
from dispatcher.access.tokens import Owners, Token, Tokens, no_owners
from dispatcher.api.access.guard import Guard
from dispatcher.api.answers.models import (
    Consumers,
    GetAdministrator,
    GetDeclarer,
    GetRole,
    RenderMetrics,
)
from dispatcher.api.calls.administration import administration_routes
from dispatcher.api.calls.declarations import declaration_routes
from dispatcher.api.calls.docs_page import docs_routes
from dispatcher.api.calls.feed import StatusFeed, StatusSource
from dispatcher.api.calls.reader_calls import ReaderCalls, reader_routes
from dispatcher.api.calls.route import Json
from dispatcher.api.calls.router import Router
from dispatcher.api.calls.status import Ready, SettingsDifferences, StatusCalls
from dispatcher.api.calls.status_page import status_page_routes
from dispatcher.api.middleware.guess_limit import GuessLimit
from dispatcher.api.middleware.origin import OriginGuard
from dispatcher.api.middleware.requests import RequestTimer
from dispatcher.model.timings import RequestTimings
from dispatcher.settings.api import ApiLimitSettings


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of the settings: `api.tokens`, `api.hosts`, `api.open`."""

    tokens: Sequence[Token] = ()
    hosts: Collection[str] = ()
    open: frozenset[str] = frozenset()


class Api:
    """The API as an ASGI application. A reload can replace its access rules, but not its limits."""

    def __init__(  # noqa: PLR0913 - one parameter per part
        self,
        consumers: Consumers,
        access: Access,
        limits: ApiLimitSettings,
        *,
        administrator: GetAdministrator,
        declarer: GetDeclarer,
        live: StatusSource,
        listen: str,
        version: str,
        metrics: RenderMetrics,
        ready: Ready,
        timings: RequestTimings | None = None,
        role: GetRole = lambda: None,
        owners: Owners = no_owners,
        settings_differences: SettingsDifferences = dict,
    ) -> None:
        """`owners`: the name of the token that has declared each consumer; `live`: the data that the status page shows;
        `listen`: the host of `api.listen`; `metrics` renders (text, content type); `ready` returns the reasons why the
        daemon is not ready; `timings` measures the requests."""
        self.guesses = guesses = Guesses()
        self.tokens = Tokens(access.tokens, guesses.wrong, owners)
        self._guard = Guard(self.tokens, limits, access.open)
        self._feed = StatusFeed(live, version, role)
        status = StatusCalls(consumers, self._guard, metrics, role, ready, settings_differences)
        routes = [
            *reader_routes(ReaderCalls(consumers, limits)),
            *administration_routes(administrator),
            *declaration_routes(declarer),
            *status.routes(),
            *status_page_routes(self._guard, live, self._feed),
        ]

        def document() -> Json:
            from dispatcher.api.calls.openapi import describe  # noqa: PLC0415 - few daemons need it

            return describe(routes, version)

        routes += docs_routes(self._guard, document)
        router = Router(routes, self._guard)
        patient = GuessLimit(router, guesses, lambda secret: self.tokens.find(secret) is not None)
        self._origin = OriginGuard(patient, listen=listen, hosts=access.hosts, tokens=self.tokens)
        self._timer = RequestTimer(self._origin, timings or RequestTimings())

    @property
    def asgi(self) -> ASGIApp:
        return self._timer

    def close(self) -> None:
        """End the streams of the status page, which otherwise do not end. The daemon calls this when it shuts down."""
        self._feed.close()

    def replace(self, access: Access) -> None:
        """Apply these access rules from now on."""
        self.tokens.replace(access.tokens)
        self._guard.open = access.open
        self._origin.replace(access.hosts)
