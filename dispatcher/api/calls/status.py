"""The calls of operators and supervisors: consumers, leader, health, metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from starlette.responses import PlainTextResponse, Response

from dispatcher.access.tokens import Scope
from dispatcher.api.access.guard import Guard
from dispatcher.api.answers.long_answer import LongAnswer
from dispatcher.api.answers.models import (
    ConsumerRow,
    Consumers,
    GetRole,
    LeaderAnswer,
    RenderMetrics,
)
from dispatcher.api.calls.route import EVERY, GUARDED, Call, Documented, Json, Route, text_answer
from dispatcher.model.errors import NotLeaderError

Ready = Callable[[], Sequence[str]]
"""Returns why the daemon is not ready."""
SettingsDifferences = Callable[[], Mapping[str, str]]
"""Returns how the settings of a standby differ from those of the leader, by what they belong to, such as "consumer
shop". Empty on the leader."""


class StatusCalls:
    """`metrics` renders (text, content type)."""

    def __init__(
        self,
        consumers: Consumers,
        guard: Guard,
        metrics: RenderMetrics,
        role: GetRole,
        ready: Ready,
        settings_differences: SettingsDifferences,
    ) -> None:
        self._consumers = consumers
        self._guard = guard
        self._metrics = metrics
        self._role = role
        self._ready = ready
        self._settings_differences = settings_differences

    def routes(self) -> Iterator[Route]:
        viewers = [Scope.READ, Scope.METRICS]
        rows = Documented("status", list[ConsumerRow], GUARDED)
        yield Route("GET", "/v1/binlogs", self.binlogs, viewers, documented=rows)
        leader = Documented("status", LeaderAnswer, GUARDED)
        yield Route("GET", "/v1/leader", self.leader, viewers, documented=leader)
        livez = Documented("status", text_answer(), EVERY)
        yield Route("GET", "/livez", self.livez, documented=livez)
        readyz = Documented(
            "status",
            text_answer(),
            (*EVERY, 401),
            query={
                "verbose": "If present: also list the consumers that are connecting, have failed or have an error.",
                "standby": "If present: a standby that knows the leader is ready, too.",
            },
            more={
                503: text_answer(
                    "Not ready; the text says why. Too many connections: a problem document."
                )
            },
        )
        yield Route("GET", "/readyz", self.readyz, documented=readyz)
        metrics = Documented("status", text_answer(), (*EVERY, 401))
        yield Route("GET", "/metrics", self.metrics, documented=metrics)

    async def binlogs(self, call: Call) -> Response:
        """List the consumers that the token is valid for. Each row is a consistent snapshot; the list as a whole is
        not."""
        rows = [
            json.dumps(row, ensure_ascii=True).encode()
            async for row in self._consumers().rows()
            if call.token.may_see(row["name"])
        ]
        return LongAnswer(b"[" + b",".join(rows) + b"]", media_type="application/json")

    async def leader(self, _: Call) -> Json:
        """Tell whether this daemon leads, and the address of the leader."""
        role = self._role()
        return {"role": "leader", "term": None, "leader": None} if role is None else role.as_dict()

    async def livez(self, _: Call) -> Response:
        """Answers as long as the daemon's event loop runs."""
        return PlainTextResponse("ok\n")

    async def readyz(self, call: Call) -> Response:
        """Ready means: the listener is up, the kernels are compiled, the state store is writable, and of several
        daemons this one leads. MySQL servers do not count."""
        asked = call.request.query_params
        waits = "standby" in asked and self._stands_by()
        reasons: Sequence[str] = () if waits else self._ready()
        lines = ["not ready: " + "; ".join(reasons) if reasons else "ok"]
        differences = self._settings_differences()
        if differences and ("standby" in asked or "verbose" in asked):
            lines.append("warning: the settings differ from those of the leader")
        if "verbose" in asked:
            lines += await self._failing(call)
        return PlainTextResponse("\n".join(lines) + "\n", 503 if reasons else 200)

    async def metrics(self, call: Call) -> Response:
        """Metrics in Prometheus text format. Needs the scope `metrics` unless `api.open` contains metrics."""
        if not self._guard.is_open("metrics"):
            self._guard.identify(call.request).require(Scope.METRICS)
        text, content_type = await self._metrics()
        return LongAnswer(text, media_type=content_type)

    def _stands_by(self) -> bool:
        """True if this daemon is a standby, and has read lately that another daemon leads."""
        role = self._role()
        return role is not None and not role.leads and role.term > 0

    async def _failing(self, call: Call) -> list[str]:
        token = None if self._guard.is_open("readyz") else self._guard.identify(call.request)
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
