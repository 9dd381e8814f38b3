"""Answers `/livez` and `/readyz` without the framework. A supervisor sends these requests as soon as the daemon starts,
and they must not load the framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dispatcher.api.access.guard import Guard
from dispatcher.api.answers import problems
from dispatcher.api.answers.models import Consumers, GetRole
from dispatcher.model.errors import BinlogError, NotLeaderError

Ready = Callable[[], Sequence[str]]
"""Returns why the daemon is not ready."""
SettingsDifferences = Callable[[], Mapping[str, str]]
"""Returns how the settings of a standby differ from those of the leader, by what they belong to, such as "consumer
shop". Empty on the leader."""


class _Probe(NamedTuple):
    """`path`: the path of the probe, which is also the value of the label `route` in the metrics; `meaning`: the
    description in the API's documents."""

    path: str
    meaning: str


LIVEZ = _Probe("/livez", "Answers as long as the daemon's event loop runs.")
READYZ = _Probe(
    "/readyz",
    "Ready means: the listener is up, the state store is writable, and of several daemons this one leads. MySQL servers"
    " do not count.",
)
_PROBES = {probe.path: probe for probe in (LIVEZ, READYZ)}
_METHODS = frozenset(("GET", "HEAD"))  # for HEAD the server omits the body


class Probes:
    """ASGI middleware. Passes all other calls to `app`."""

    def __init__(
        self,
        app: ASGIApp,
        consumers: Consumers,
        guard: Guard,
        ready: Ready,
        role: GetRole,
        settings_differences: SettingsDifferences,
    ) -> None:
        self._app = app
        self._consumers = consumers
        self._guard = guard
        self._ready = ready
        self._role = role
        self._settings_differences = settings_differences

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        probe = None
        if scope["type"] == "http" and scope["method"] in _METHODS:
            probe = _PROBES.get(scope["path"])
        if probe is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = probe
        try:
            response = await self._answer(probe, Request(scope))
        except BinlogError as error:
            response = problems.problem(error)
        await response(scope, receive, send)

    async def _answer(self, probe: _Probe, request: Request) -> Response:
        if probe is LIVEZ:
            return PlainTextResponse("ok\n")
        waits = "standby" in request.query_params and self._stands_by()
        reasons: Sequence[str] = () if waits else self._ready()
        lines = ["not ready: " + "; ".join(reasons) if reasons else "ok"]
        differences = self._settings_differences()
        if differences and ("standby" in request.query_params or "verbose" in request.query_params):
            lines.append("warning: the settings differ from those of the leader")
        if "verbose" in request.query_params:
            lines += await self._failing(request)
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200)

    def _stands_by(self) -> bool:
        """True if this daemon is a standby, and has read lately that another daemon leads."""
        role = self._role()
        return role is not None and not role.leads and role.term > 0

    async def _failing(self, request: Request) -> list[str]:
        token = None if self._guard.is_open("readyz") else self._guard.identify(request)
        try:
            consumers = self._consumers()
        except NotLeaderError:
            return [
                f"{name}: {what}"
                for name, what in self._settings_differences().items()
                if token is None or token.may_see(name.removeprefix("consumer "))
            ]
        return [
            f"{row['name']}: {row['state']}: {row['last_error'] or 'no error'}"
            async for row in consumers.rows()
            if (row["state"] in ("connecting", "failed") or row["last_error"])
            and (token is None or token.may_see(row["name"]))
        ]
