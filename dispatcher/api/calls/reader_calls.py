"""The calls of readers: their routes, and what they do after token and body are checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dispatcher.access.tokens import Scope as TokenScope
from dispatcher.api.answers.models import (
    AckAnswer,
    AckRequest,
    Consumers,
    PollAnswer,
    PollRequest,
    RangeRequest,
    ResolvedAnswer,
    ResolveRequest,
    SessionAnswer,
    SessionRequest,
    SlicesAnswer,
    SlicesRequest,
    TableAnswer,
)
from dispatcher.api.calls.route import (
    CONSUMER,
    OF_CONSUMER,
    Call,
    Documented,
    Json,
    Route,
    text_answer,
)
from dispatcher.api.connections.disconnects import while_connected
from dispatcher.api.connections.limits import Holder, Slots
from dispatcher.dispatch.queue.reader import PollBounds
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position
from dispatcher.settings.api import ApiLimitSettings
from dispatcher.stream.segments import release_pages

Part = bytes | memoryview

JOINED_BYTES_MAX = 1 << 14
"""If all parts together have at most this many bytes, they are joined, because a copy costs less than several sends."""


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

    async def session(self, call: Call) -> Json:
        """Open a reading session at `after`, or at the stored position if `after` is null.

        The session fences all older sessions: the daemon refuses their calls. A read-only session does not fence other
        sessions and cannot acknowledge. Sessions that are not read-only also need the scope `acknowledge`.
        """
        body: SessionRequest = call.body
        if not body.read_only:
            call.token.require(TokenScope.ACKNOWLEDGE)
        consumers = self._consumers()
        answer = await consumers.open_session(
            call.consumer,
            body.after.value() if body.after else None,
            body.read_only,
            unknown_definitions=body.unknown_definitions,
        )
        consumers.called(call.consumer, answer["session"], call.caller)
        return answer

    async def poll(self, call: Call) -> Json:
        """Acknowledge everything up to `after`, then wait up to `wait_ms` for new transactions.

        With `min_bytes` the call waits until the range has this many bytes, or until the range cannot grow because of
        `max_bytes`, `max_transactions` or a full queue.

        A read-only session (0) acknowledges nothing; other sessions also need the scope `acknowledge`.
        """
        return await self._poll(call, call.body.after.value())

    async def read(self, call: Call) -> Response:
        """Do what `poll` does, and return its answer as one line of JSON, with the range's binlog after the line feed.

        Without transactions the binlog is empty. The next `read` or `poll` acknowledges the range.
        """
        after = call.body.after.value()
        answer = await self._poll(call, after)
        head = to_json(answer) + b"\n"
        if not answer["transactions"]:
            return BinlogAnswer([head])
        span = after, Position(**answer["end"])
        return await self._range(call, call.body.session, span, head=head)

    async def resolve(self, call: Call) -> Json:
        """Return the position of a place in the server's log, at which a session may be opened. Changes nothing.

        The daemon asks the server, and searches the server's log for a time, a file or MariaDB's GTIDs.
        """
        with self.polls.hold(call.consumer, Holder.of(call.token)):
            return {"position": await self._consumers().resolve(call.consumer, call.body.start)}

    async def slices(self, call: Call) -> Json:
        """Return at most `n` - 1 cuts that divide the range (start, end] for parallel reading.

        A cut is a position. With `inside`, a cut may also be a point inside of the transaction that ends at the
        position.
        """
        body: SlicesRequest = call.body
        consumers = self._consumers()
        consumers.called(call.consumer, body.session, call.caller)
        span = body.start.value(), body.end.value()
        with self.answers.hold(call.consumer, Holder.of(call.token, body.session), body.session):
            return await consumers.slices(call.consumer, body.session, *span, body.n, body.inside)

    async def table(self, call: Call) -> Json:
        """Return the current columns and key of one of the consumer's tables."""
        return await self._consumers().table(call.consumer, *table_of(call))

    async def binlog(self, call: Call) -> Response:
        """Return the range (start, end] as a binlog file. The call can be repeated for any range after the acknowledged
        position.

        `start_event` and `end_event` are points that `slices` returned, inside of the transactions that end at `start`
        and `end`. With the header `Binlog-Gap: true`, the part of the range that the server has purged is missing.
        """
        body: RangeRequest = call.body
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

    async def ack(self, call: Call) -> Json:
        """Acknowledge everything up to `position` without polling."""
        body: AckRequest = call.body
        consumers = self._consumers()
        consumers.called(call.consumer, body.session, call.caller)
        position = body.position.value()
        acknowledged = await consumers.acknowledge(call.consumer, body.session, position)
        return {"acknowledged": acknowledged}

    async def _poll(self, call: Call, after: Position) -> Json:
        body: PollRequest = call.body
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


def reader_routes(calls: ReaderCalls) -> Iterator[Route]:
    span = {
        "session": "$request.body#/session",
        "start": "$request.body#/after",
        "end": "$response.body#/end",
    }
    opened = {
        "session": "$response.body#/session",
        "after": "$response.body#/position",
        "wait_ms": 0,
    }
    polled = {
        "binlog": span,
        "slices": {**span, "n": 4},
        "ack": {"session": "$request.body#/session", "position": "$response.body#/end"},
    }
    line = _binary("One line with the answer of `poll`, in JSON, then the binlog of the range")
    read, acknowledge = [TokenScope.READ], [TokenScope.ACKNOWLEDGE]

    def documented(returns: Any, **links: Any) -> Documented:
        return Documented("readers", returns, OF_CONSUMER, links)

    for answer, scopes, body, document in (
        (calls.session, read, SessionRequest, documented(SessionAnswer, poll=opened)),
        (calls.poll, read, PollRequest, documented(PollAnswer, **polled)),
        (calls.read, read, PollRequest, documented(line)),
        (calls.resolve, read, ResolveRequest, documented(ResolvedAnswer)),
        (calls.ack, acknowledge, AckRequest, documented(AckAnswer)),
        (calls.slices, read, SlicesRequest, documented(SlicesAnswer)),
        (calls.binlog, read, RangeRequest, documented(_binary("A binlog file"))),
    ):
        yield Route("POST", f"{CONSUMER}/{answer.__name__}", answer, scopes, body, document)
    path = f"{CONSUMER}/tables/{{name}}"
    yield Route("GET", path, calls.table, read, documented=documented(TableAnswer))


def _binary(description: str) -> Json:
    return text_answer(description, "application/octet-stream", format="binary")


TABLE_NAME = r"^[^.]{1,64}\.[^/]{1,64}$"


def table_of(call: Call) -> tuple[str, str]:
    """Returns the database and the table that the path names. Raises UserError (REQUEST)."""
    if re.fullmatch(TABLE_NAME, call.names["name"]) is None:
        message = f"path.name: the name of a table should match {TABLE_NAME}"
        raise UserError(ErrorKind.REQUEST, message)
    database, _, table = call.names["name"].partition(".")
    return database, table


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
