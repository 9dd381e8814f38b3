"""Assembles the API: routes, access checks, problem documents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

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
from dispatcher.api.calls.feed import StatusFeed, StatusSource
from dispatcher.api.calls.probes import Probes, Ready, SettingsDifferences
from dispatcher.api.calls.reader_calls import ReaderCalls
from dispatcher.api.middleware.direct_routes import DirectRoutes
from dispatcher.api.middleware.guess_limit import GuessLimit
from dispatcher.api.middleware.head_requests import HeadRequests
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
        calls = ReaderCalls(consumers, limits)

        def load() -> ASGIApp:
            from dispatcher.api.framework.framework import make_framework  # noqa: PLC0415 - see `OnDemand`

            return make_framework(
                consumers,
                self._guard,
                calls,
                self._feed,
                administrator=administrator,
                declarer=declarer,
                role=role,
                live=live,
                metrics=metrics,
                version=version,
            )

        probes = Probes(
            HeadRequests(OnDemand(load)), consumers, self._guard, ready, role, settings_differences
        )
        direct = DirectRoutes(probes, self._guard, calls)
        patient = GuessLimit(direct, guesses, lambda secret: self.tokens.find(secret) is not None)
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


class OnDemand:
    """Passes requests to an ASGI application. At the first request, a thread calls `load`, which creates the
    application.

    The import of FastAPI and the creation of its routes would take a quarter of the daemon's start, and neither the
    probes nor the calls of a reader's cycle need FastAPI.
    """

    def __init__(self, load: Callable[[], ASGIApp]) -> None:
        self._load = load
        self._loading = asyncio.Lock()
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._loading:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._load)
        await self._app(scope, receive, send)
