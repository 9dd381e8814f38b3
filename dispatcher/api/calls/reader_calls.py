"""The calls of a reader's cycle (poll, read, binlog and ack): their routes, and what they do after token and body are
checked. `direct_routes` receives these calls, `routes` documents them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dispatcher.access.tokens import Scope as TokenScope
from dispatcher.access.tokens import Token
from dispatcher.api.answers.models import AckRequest, Consumers, PollRequest, RangeRequest
from dispatcher.api.connections.disconnects import while_connected
from dispatcher.api.connections.limits import Holder, Slots
from dispatcher.dispatch.queue.reader import Caller, PollBounds
from dispatcher.model.position import EventPoint, Position
from dispatcher.settings.api import ApiLimitSettings
from dispatcher.stream.segments import release_pages

Part = bytes | memoryview

JOINED_BYTES_MAX = 1 << 14
"""If all parts together have at most this many bytes, they are joined, because a copy costs less than several sends."""


class Call(NamedTuple):
    """One call of a reader. `scope`, `receive`: the arguments of the ASGI application. From them the call learns that
    the client has disconnected."""

    consumer: str
    token: Token
    caller: Caller
    scope: Scope
    receive: Receive


class ReaderCalls:
    """The calls, and the limits that they share. Every method raises BinlogError."""

    def __init__(self, consumers: Consumers, limits: ApiLimitSettings) -> None:
        self._consumers = consumers
        newest = self._is_newest_session
        self.polls = Slots(
            "polls", limits.max_polls_per_consumer, "api.max_polls_per_consumer", newest
        )
        self.answers = Slots(
            "answers", limits.max_answers_per_consumer, "api.max_answers_per_consumer", newest
        )

    def _is_newest_session(self, consumer: str, session: int) -> bool:
        return self._consumers().is_newest_session(consumer, session)

    async def poll(self, call: Call, body: PollRequest) -> Response:
        """Acknowledge everything up to `after`, then wait up to `wait_ms` for new transactions.

        With `min_bytes` the call waits until the range has this many bytes, or until the range cannot grow because of
        `max_bytes`, `max_transactions` or a full queue.

        A read-only session (0) acknowledges nothing; other sessions also need the scope `acknowledge`.
        """
        return json_answer(await self._poll(call, body, body.after.value()))

    async def read(self, call: Call, body: PollRequest) -> Response:
        """Do what `poll` does, and return its answer as one line of JSON, with the range's binlog after the line feed.

        Without transactions the binlog is empty. The next `read` or `poll` acknowledges the range.
        """
        after = body.after.value()
        answer = await self._poll(call, body, after)
        head = to_json(answer) + b"\n"
        if not answer["transactions"]:
            return BinlogAnswer([head])
        span = after, Position(**answer["end"])
        return await self._range(call, body.session, span, head=head)

    async def binlog(self, call: Call, body: RangeRequest) -> Response:
        """Return the range (start, end] as a binlog file. The call can be repeated for any range after the acknowledged
        position.

        `start_event` and `end_event` are points that `slices` returned, inside of the transactions that end at `start`
        and `end`. With the header `Binlog-Gap: true`, the part of the range that the server has purged is missing.
        """
        self._consumers().called(
            call.consumer,
            body.session,
            call.caller,
            unknown_definitions=body.unknown_definitions,
        )
        start_event = body.start_event.value() if body.start_event else None
        end_event = body.end_event.value() if body.end_event else None
        span = body.start.value(), body.end.value()
        return await self._range(call, body.session, span, events=(start_event, end_event))

    async def ack(self, call: Call, body: AckRequest) -> Response:
        """Acknowledge everything up to `position` without polling."""
        consumers = self._consumers()
        consumers.called(call.consumer, body.session, call.caller)
        position = body.position.value()
        acknowledged = await consumers.acknowledge(call.consumer, body.session, position)
        return json_answer({"acknowledged": acknowledged})

    async def _poll(self, call: Call, body: PollRequest, after: Position) -> dict[str, Any]:
        if body.session:
            call.token.require(TokenScope.ACKNOWLEDGE)
        consumers = self._consumers()
        consumers.called(
            call.consumer,
            body.session,
            call.caller,
            unknown_definitions=body.unknown_definitions,
        )
        holder = Holder.of(call.token, body.session)
        slot = self.polls.acquire(call.consumer, holder, body.session)
        try:
            return await while_connected(
                call.scope,
                call.receive,
                consumers.poll(
                    call.consumer,
                    body.session,
                    after,
                    PollBounds(body.max_bytes, body.min_bytes, body.max_transactions),
                    body.wait_ms / 1000,
                    body.markers,
                ),
            )
        finally:
            self.polls.release(slot)

    async def _range(
        self,
        call: Call,
        session: int,
        span: tuple[Position, Position],
        *,
        events: tuple[EventPoint | None, EventPoint | None] = (None, None),
        head: bytes = b"",
    ) -> Response:
        """Return the binlog of a range, preceded by `head`."""
        consumers = self._consumers()
        holder = Holder.of(call.token, session)
        slot = self.answers.acquire(call.consumer, holder, session)
        try:
            parts, gap = await consumers.binlog(call.consumer, session, *span, *events)
        except BaseException:
            self.answers.release(slot)
            raise

        def done() -> None:
            self.answers.release(slot)
            consumers.answer_ended(call.consumer, session)

        return BinlogAnswer([head, *parts] if head else parts, done, gap=gap)


@dataclass(frozen=True, slots=True)
class ReaderRoute:
    """The route of a call. `scope`: the scope that its token needs at least; `answer`: a method of `ReaderCalls`, whose
    docstring is also published in the API's documents."""

    name: str
    body: type[BaseModel]
    scope: TokenScope
    answer: Callable[[ReaderCalls, Call, Any], Awaitable[Response]]

    @property
    def path(self) -> str:
        """The template of the path, which is also the label `route` of the metrics."""
        return f"{CONSUMERS}/{{consumer}}/{self.name}"


CONSUMERS = "/v1/consumers"
READER_ROUTES = {
    route.name: route
    for route in (
        ReaderRoute("poll", PollRequest, TokenScope.READ, ReaderCalls.poll),
        ReaderRoute("read", PollRequest, TokenScope.READ, ReaderCalls.read),
        ReaderRoute("binlog", RangeRequest, TokenScope.READ, ReaderCalls.binlog),
        ReaderRoute("ack", AckRequest, TokenScope.ACKNOWLEDGE, ReaderCalls.ack),
    )
}


def json_answer(answer: dict[str, Any]) -> Response:
    return Response(to_json(answer), media_type="application/json")


_BINARY = b"content-type", b"application/octet-stream"


class BinlogAnswer(Response):
    """Sends parts of a queue without a copy. Calls `done` once, after the last part or when the client disconnects."""

    def __init__(
        self,
        parts: list[Part],
        done: Callable[[], None] | None = None,
        *,
        gap: bool = False,
    ) -> None:
        size = sum(map(len, parts))
        super().__init__()
        self.raw_headers = [_BINARY, (b"content-length", b"%d" % size)]
        if gap:
            self.raw_headers.append((b"binlog-gap", b"true"))
        self._parts = [b"".join(parts)] if size <= JOINED_BYTES_MAX else parts
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            await self._send_parts(send)
        finally:
            if self._done is not None:
                self._done()

    async def _send_parts(self, send: Send) -> None:
        """Send the parts, and release the memory of each part as soon as it is sent, not only when this object is
        deleted. If the client disconnects, the server discards what this method sends, so the method ends soon."""
        parts = self._parts
        parts.reverse()
        sent: Part = b""
        while parts:
            part = parts.pop()
            await send({"type": "http.response.body", "body": part, "more_body": bool(parts)})
            release_pages(sent)  # the previous part: the transport may still use the newest part
            sent = part
