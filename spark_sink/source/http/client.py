"""HTTP client of the daemon, for the Spark driver and its executors. Needs the standard library only.

A client belongs to one thread and keeps one connection alive; the tasks of a process share one (`connections`). Spark
ends a query at the first exception of its source, so the client retries faults that may pass: a connection that cannot
be made or that breaks, a timeout, and the statuses 429 and 503, whose `Retry-After` it obeys. Retries use exponential
backoff with full jitter, until `retry_timeout_s` has passed since the call's first failure. Every call can be repeated:
ranges can be read again, a second acknowledgement changes nothing, and a session that was opened and never used fences
only older ones. All other answers are final: the client raises a `BinlogError` with the daemon's message.

If the endpoint has several addresses, `AddressChoice` says which one a request goes to. The client waits only between
two rounds of the addresses. It does not wait long for a daemon that does not answer, because its host may be down or
its process stopped. The wait for an answer grows with each round, so that a slow leader can answer. A leader that ends
hands over in less than a second, so in the call's first second of failures a standby is asked again sooner than its
`Retry-After` says. Sessions and positions are in the state store that all daemons share, so for the client a takeover
is the same as a restart of the daemon.

A body counts as received only if it is complete: a shorter one is a broken connection.
"""

from __future__ import annotations

import http.client
import json
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from dispatcher.model.api_addresses import AddressChoice
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.position import EventPoint, Position
from spark_sink.source.http.connections import ConnectionPool, open_connection
from spark_sink.source.http.declaration import DeclareOptions
from spark_sink.source.http.endpoint import DaemonEndpoint
from spark_sink.source.places import Place
from spark_sink.source.stream_progress import NOT_KNOWN, SourceLag

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 10.0
READ_BYTES = 1 << 20
# With several addresses: how long the first round waits for an answer, beside the time that a poll may wait.
ANSWER_S = 10.0
# How long a leader takes at most to hand over, and how often a standby is asked meanwhile.
HAND_OVER_S = 1.0
ASK_STANDBY_EVERY_S = 0.125
GAP_HEADER = "Binlog-Gap"

_KIND_OF_STATUS = {
    401: ErrorKind.UNAUTHORIZED,
    403: ErrorKind.FORBIDDEN,
    404: ErrorKind.UNKNOWN_CONSUMER,
    409: ErrorKind.SESSION_FENCED,
    422: ErrorKind.REQUEST,
    429: ErrorKind.TOO_MANY_REQUESTS,
    503: ErrorKind.RANGE_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Session:
    """A session of one consumer. `head`: the server's newest position when it was opened; `gap`: the server had purged
    transactions after the position that was asked for, and the consumer goes on behind them, at `position`."""

    number: int
    position: Position
    head: Position
    max_bytes_in_binlog_queue: int
    gap: bool


@dataclass(frozen=True, slots=True)
class PolledRange:
    """The range after a position, up to `end`: `bytes` of delivered binlog in `transactions` transactions.

    `gap`: the server had purged what followed the position, and the consumer goes on at `end`; `lag`: how far `end` is
    behind the server.
    """

    end: Position
    head: Position
    bytes: int
    transactions: int
    gap: bool
    lag: SourceLag = NOT_KNOWN


@dataclass(frozen=True, slots=True)
class SliceCut:
    """Where a range is cut: after the transaction that ends at `position`, or at the point `inside` of it."""

    position: Position
    inside: EventPoint | None = None


@dataclass(frozen=True, slots=True)
class DividedRange:
    """Where a range of `bytes` is cut, in order."""

    cuts: list[SliceCut]
    bytes: int


@dataclass(frozen=True, slots=True)
class DeliveredRange:
    """`data`: a delivered binlog; `gap`: True if a part of the range is missing, because the server had purged it."""

    data: memoryview
    gap: bool


@dataclass(frozen=True, slots=True)
class _Setback:
    """Why a request has to be repeated. `another`: True to repeat it at another address at once; else the client waits
    at least `wait_s`.

    `standby`: the daemon does not lead.
    """

    another: bool
    wait_s: float = 0.0
    standby: bool = False


class ConsumerClient:
    """The calls of one consumer. Not thread-safe.

    Tests replace `sleep`, `clock` (seconds, monotonic) and `jitter` (0..1).
    """

    def __init__(
        self,
        endpoint: DaemonEndpoint,
        consumer: str,
        *,
        first: int = 0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        pool: ConnectionPool | None = None,
    ) -> None:
        """`first`: the number of the address that the first request goes to. `pool`: the client takes its connection
        from there, and `close` gives it back."""
        self._endpoint = endpoint
        self._choice = AddressChoice(endpoint.addresses, first)
        self._pool = pool
        self._sleep, self._clock, self._jitter = sleep, clock, jitter
        self._connection: http.client.HTTPConnection | None = None
        self._connected_to = endpoint.addresses[first]
        self._is_idle = False  # no answer is outstanding
        self._consumer = consumer
        self._path = f"/v1/consumers/{quote(consumer, safe='')}"

    @property
    def address_number(self) -> int:
        """The number of the address that answered last."""
        return self._choice.number

    # -- calls -----------------------------------------------------------------------------------------------

    def open_session(self, after: Position | None, *, read_only: bool = False) -> Session:
        """Open a session at `after`, or at the stored position if it is None. Unless `read_only`, it fences every older
        session."""
        body = {"after": after.as_dict() if after else None, "read_only": read_only}
        answer = self._object("POST", "session", body)
        return Session(
            number=self._value(answer, "session", int),
            position=self._position(answer, "position"),
            head=self._position(answer, "head"),
            max_bytes_in_binlog_queue=self._value(answer, "max_bytes_in_binlog_queue", int),
            gap=self._value(answer, "gap", bool),
        )

    def resolve(self, place: Place) -> Position:
        """Ask for the position of a place in the server's log, in the consumer's epoch. Changes nothing."""
        answer = self._object("POST", "resolve", {"to": json.loads(place.to)})
        return self._position(answer, "position")

    def poll(
        self,
        session: int,
        after: Position,
        *,
        max_bytes: int | None,
        wait_ms: int,
        markers: bool = False,
        min_bytes: int = 0,
        max_transactions: int | None = None,
    ) -> PolledRange:
        """Acknowledge everything up to `after`, then wait up to `wait_ms` for the changes behind it: with `min_bytes`,
        until the range has so many bytes or cannot grow."""
        body = {
            "session": session,
            "after": after.as_dict(),
            "max_bytes": max_bytes,
            "wait_ms": wait_ms,
            "markers": markers,
        }
        if min_bytes:
            body["min_bytes"] = min_bytes
        if max_transactions is not None:
            body["max_transactions"] = max_transactions
        answer = self._object("POST", "poll", body, wait_s=wait_ms / 1000)
        return PolledRange(
            end=self._position(answer, "end"),
            head=self._position(answer, "head"),
            bytes=self._value(answer, "bytes", int),
            transactions=self._value(answer, "transactions", int),
            gap=self._value(answer, "gap", bool),
            lag=SourceLag.of_answer(answer),
        )

    def slices(self, session: int, start: Position, end: Position, n: int) -> DividedRange:
        """Returns at most `n` - 1 cuts strictly between `start` and `end` that divide the range, also inside of large
        transactions."""
        body = {
            "session": session,
            "start": start.as_dict(),
            "end": end.as_dict(),
            "n": n,
            "inside": True,
        }
        answer = self._object("POST", "slices", body)
        cuts, events = (self._value(answer, key, list) for key in ("cuts", "events"))
        if len(cuts) != len(events):
            raise self._unexpected("'cuts' and 'events' have different lengths in the answer")
        return DividedRange(
            [
                SliceCut(Position.from_dict(cut), EventPoint.from_dict(event) if event else None)
                for cut, event in zip(cuts, events, strict=True)
            ],
            self._value(answer, "bytes", int),
        )

    def binlog(self, session: int, start: SliceCut, end: SliceCut) -> DeliveredRange:
        """Returns the delivered binlog of (start, end], without a second copy in memory."""
        body: dict[str, Any] = {"session": session}
        for key, cut in (("start", start), ("end", end)):
            body[key] = cut.position.as_dict()
            body[f"{key}_event"] = cut.inside.as_dict() if cut.inside else None
        headers, data = self._call("POST", "binlog", body)
        return DeliveredRange(memoryview(data), gap=headers.get(GAP_HEADER) == "true")

    def acknowledge(self, session: int, position: Position) -> Position:
        """Returns the acknowledged position."""
        body = {"session": session, "position": position.as_dict()}
        return self._position(self._object("POST", "ack", body), "acknowledged")

    def table(self, name: str) -> dict[str, Any]:
        """Returns columns and key of `database.table`, as the server's information_schema has them now."""
        return self._object("GET", f"tables/{quote(name, safe='')}", None)

    def declare(self, declares: DeclareOptions) -> None:
        """Declare this consumer, unless it is declared already with the same content."""
        body = {
            "name": self._consumer,
            "source": declares.source,
            "databases": declares.databases,
            "tables": declares.tables,
            "start": json.loads(declares.start),
        }
        self._object("POST", "/v1/consumers", body)

    def table_of_source(self, name: str, source: str | None) -> dict[str, Any]:
        """As `table`, for a table that a declared consumer of `source` may read. The consumer need not exist."""
        query = "" if source is None else f"?source={quote(source, safe='')}"
        return self._object("GET", f"/v1/tables/{quote(name, safe='')}{query}", None)

    def close(self) -> None:
        if self._pool is not None and self._connection is not None and self._is_idle:
            self._pool.give(self._endpoint, self._connected_to, self._connection)
            self._connection = None
        self._drop()

    # -- one call, with retries ------------------------------------------------------------------------------

    def _object(
        self, method: str, path: str, body: dict[str, Any] | None, *, wait_s: float = 0.0
    ) -> dict[str, Any]:
        _, data = self._call(method, path, body, wait_s=wait_s)
        answer = _json_object(data)
        if answer is None:
            raise self._unexpected(f"the answer to {method} {path} is not a JSON object")
        return answer

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None, *, wait_s: float = 0.0
    ) -> tuple[http.client.HTTPMessage, bytearray]:
        """`wait_s`: how long the daemon may wait before it answers."""
        payload = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        self._choice.begin()
        retry_timeout_s = self._endpoint.retry_timeout_s
        failing_since: float | None = None
        attempts = rounds = 0
        pause_s, may_hand_over = 0.0, False
        while True:
            answer = self._try(method, path, payload, wait_s + ANSWER_S * (1 << min(rounds, 20)))
            if not isinstance(answer, _Setback):
                return answer
            attempts += 1
            now = self._clock()
            failing_since = now if failing_since is None else failing_since
            deadline = failing_since + retry_timeout_s
            answer_wait_s = answer.wait_s
            if answer.standby and now < failing_since + HAND_OVER_S:
                may_hand_over = True
                answer_wait_s = min(answer_wait_s, ASK_STANDBY_EVERY_S)
            pause_s = max(pause_s, answer_wait_s)
            if answer.another and now <= deadline:
                continue
            pause_s = max(pause_s, self._backoff_s(rounds))
            if now + pause_s > deadline:
                fault = self._choice.fault()
                raise BinlogError(
                    fault.kind,
                    f"{fault.what}; gave up after {attempts} attempts in {retry_timeout_s:g} s",
                    where=fault.where or f"consumer {self._consumer}",
                    remedy=fault.remedy,
                )
            self._sleep(pause_s)
            rounds += not may_hand_over
            pause_s, may_hand_over = 0.0, False
            self._choice.begin_round()

    def _backoff_s(self, rounds: int) -> float:
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * (1 << min(rounds, 20))) * self._jitter()

    def _try(
        self, method: str, path: str, payload: bytes | None, answer_s: float
    ) -> tuple[http.client.HTTPMessage, bytearray] | _Setback:
        """Send one request, and tell `_choice` what became of it. Returns headers and body of the daemon's answer."""
        try:
            status, headers, data = self._once(method, path, payload, answer_s)
        except ssl.SSLCertVerificationError as error:
            self._drop()
            raise BinlogError(
                ErrorKind.CONNECT_FAILED,
                f"the daemon's certificate is not trusted: {error.verify_message}",
                where=self._where,
                remedy="name the PEM file of the authority that signed it in the option caFile",
            ) from None
        except (OSError, http.client.HTTPException) as error:
            self._drop()
            fault = BinlogError(ErrorKind.CONNECT_FAILED, _broken_text(error), where=self._where)
            return _Setback(self._choice.failed(fault))
        if status == 200:
            self._choice.answered()
            return headers, data
        problem = _json_object(data)
        fault = self._problem(status, problem)
        if status not in (429, 503):
            self._choice.answered()
            raise fault
        wait_s = _retry_after(headers)
        if fault.kind is ErrorKind.NOT_LEADER and problem is not None:
            another = self._choice.not_leader(fault, problem.get("leader"))
            return _Setback(another, wait_s, standby=True)
        return _Setback(self._choice.busy(fault), wait_s)

    def _once(
        self, method: str, path: str, payload: bytes | None, answer_s: float
    ) -> tuple[int, http.client.HTTPMessage, bytearray]:
        address = self._choice.current
        if address is not self._connected_to:
            self._drop()
            self._connected_to = address
        if self._connection is None and self._pool is not None:
            self._connection = self._pool.take(self._endpoint, address)
        reused = self._connection is not None
        try:
            return self._exchange(method, path, payload, answer_s)
        except (
            http.client.RemoteDisconnected,
            ConnectionResetError,
            BrokenPipeError,
            ssl.SSLEOFError,
        ):
            # The daemon may close a connection that was idle, which is not a fault. A new connection was not idle.
            self._drop()
            if not reused:
                raise
            if self._pool is not None:  # the daemon has probably closed all of them
                self._pool.close_to(self._endpoint, address)
            return self._exchange(method, path, payload, answer_s)

    def _exchange(
        self, method: str, path: str, payload: bytes | None, answer_s: float
    ) -> tuple[int, http.client.HTTPMessage, bytearray]:
        address = self._connected_to
        if self._connection is None:
            self._connection = open_connection(self._endpoint, address)
        if self._choice.has_several:
            if self._connection.sock is None:
                self._connection.connect()
            self._connection.sock.settimeout(min(self._endpoint.timeout_s, answer_s))
        self._is_idle = False
        headers = {
            "Accept": "application/json, application/octet-stream",
            "Content-Type": "application/json",
        }
        if token := self._endpoint.bearer():
            headers["Authorization"] = f"Bearer {token}"
        url = f"{address.path}{path if path[0] == '/' else f'{self._path}/{path}'}"
        self._connection.request(method, url, body=payload, headers=headers)
        with self._connection.getresponse() as response:
            data = _body(response)
            self._is_idle = not response.will_close
            if response.will_close:
                self._drop()
            return response.status, response.headers, data

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- answers ---------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return f"consumer {self._consumer} at {self._choice.current}"

    def _problem(self, status: int, problem: dict[str, Any] | None) -> BinlogError:
        """Returns the daemon's RFC 9457 problem document as an error; for any other body the error names the status."""
        kind = _KIND_OF_STATUS.get(status, ErrorKind.INTERNAL)
        if problem is None or "detail" not in problem:
            return BinlogError(
                kind,
                f"HTTP status {status} without a problem document",
                where=self._where,
                remedy="check that binlog-dispatcher listens at this address, and read its log",
            )
        name = str(problem.get("kind"))
        if name in ErrorKind.__members__:
            kind = ErrorKind[name]
        hint = str(problem.get("hint") or "") or None
        # The detail may be the daemon's whole message, with kind and hint, which the error adds again.
        what = str(problem["detail"]).removeprefix(f"{kind.value}: ").removesuffix(f"; {hint}")
        error = UserError if status in (400, 413, 422) else BinlogError
        return error(kind, what, where=self._where, remedy=hint)

    def _position(self, answer: dict[str, Any], key: str) -> Position:
        return Position.from_dict(self._value(answer, key, dict))

    def _value(self, answer: dict[str, Any], key: str, type_: type[Any]) -> Any:
        value = answer.get(key)
        if not isinstance(value, type_):
            raise self._unexpected(f"{key!r} is missing or of the wrong type in the answer")
        return value

    def _unexpected(self, what: str) -> BinlogError:
        return BinlogError(
            ErrorKind.INTERNAL,
            what,
            where=self._where,
            remedy="use the same version of binlog-dispatcher on both sides",
        )


def _json_object(data: bytearray) -> dict[str, Any] | None:
    """Returns None if the bytes are not a JSON object."""
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _body(response: http.client.HTTPResponse) -> bytearray:
    """Returns the body, received into one buffer if its length is announced."""
    length = response.length
    if length is None:
        return bytearray(response.read())
    data = bytearray(length)
    with memoryview(data) as view:
        at = 0
        while at < length and (read := response.readinto(view[at : at + READ_BYTES])):
            at += read
    if at < length:
        raise http.client.IncompleteRead(b"", length - at)
    # Reading to the end tells the connection that it is free for the next request.
    response.read()
    return data


def _retry_after(headers: http.client.HTTPMessage) -> float:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _broken_text(error: Exception) -> str:
    """Returns one line about a broken exchange. http.client's own messages may hold parts of the body."""
    if isinstance(error, http.client.IncompleteRead):
        return "the answer is incomplete"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is not HTTP ({type(error).__name__})"
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__)
