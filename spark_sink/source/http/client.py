"""HTTP client of the daemon, for the Spark driver and its executors. Needs the standard library only.

A client belongs to one thread and keeps one connection alive. The tasks of a process use the same connection one after
another (`connections`). Spark ends a query at the first exception of its source, so the client retries faults that may
be temporary: a connection that cannot be opened or that breaks, a timeout, and the statuses 429, 502, 503 and 504. It
waits at least as long as the answer's header `Retry-After` demands. Retries use exponential backoff with full jitter,
until `retry_timeout_s` has passed since the call's first failure. Every call can be repeated: a range can be read
again, a second acknowledgement changes nothing, and a session that was opened but never used does no harm, because it
fences only older sessions. Every other status except 200 is final: the client raises a `BinlogError` with the daemon's
message.

If the endpoint has several addresses, `AddressChoice` chooses the address of each request. The client pauses only after
it has tried all addresses once (a round). In the first round it waits at most 10 s for an answer, because the daemon's
host may be down or its process stopped. The limit doubles with each round, so that a slow leader can answer. A leader
that is stopped in an orderly way hands over to a standby in less than a second. So during the first second after the
call's first failure, the client asks a standby again sooner than the `Retry-After` of the standby says. Sessions and
positions are in the state store, which all daemons share. So for the client a takeover is the same as a restart of the
daemon.

If a body is shorter than announced, the client treats the connection as broken. It does the same if a proxy answers in
place of the daemon: with 502, 504, or a 503 without a problem document. The daemon itself never answers 502 or 504, and
each 503 of it has a problem document.

A call that has failed for `WARN_AFTER_S` logs a warning, again every `WARN_EVERY_S`, and another one as soon as the
daemon answers.
"""

from __future__ import annotations

import http.client
import json
import logging
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
# With several addresses: how long the client waits for an answer in the first round, in addition to `wait_s` of the
# call.
ANSWER_S = 10.0
# The longest time that a leader needs to hand over, and the time between two requests to a standby during this time.
HAND_OVER_S = 1.0
WARN_AFTER_S = 5.0  # a new leader needs less time in most cases
WARN_EVERY_S = 30.0
ASK_STANDBY_EVERY_S = 0.125
GAP_HEADER = "Binlog-Gap"
_NO_ANSWER = "check that the daemon runs, and that url is its address"

log = logging.getLogger("spark_sink.source")

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
    """A session of one consumer. `head`: the server's newest position when the session was opened; `gap`: True if the
    server had purged transactions after the requested position, so that the consumer continues after these
    transactions, at `position`; `lower_case_table_names`: the setting of the server, None if the daemon does not know
    it yet."""

    number: int
    position: Position
    head: Position
    max_bytes_in_binlog_queue: int
    gap: bool
    lower_case_table_names: int | None = None


@dataclass(frozen=True, slots=True)
class PolledRange:
    """The range after the polled position, up to `end`. It contains `transactions` transactions, which take `bytes`
    bytes of delivered binlog.

    `gap`: True if the server had purged the transactions after the polled position, so that the consumer continues at
    `end`; `lag`: how far `end` is behind the server; `paused`: True if an administrator has paused the delivery.
    """

    end: Position
    head: Position
    bytes: int
    transactions: int
    gap: bool
    lag: SourceLag = NOT_KNOWN
    paused: bool = False


@dataclass(frozen=True, slots=True)
class SliceCut:
    """Where a range is cut: after the transaction that ends at `position`, or, if `inside` is not None, at this point
    inside of that transaction."""

    position: Position
    inside: EventPoint | None = None


@dataclass(frozen=True, slots=True)
class DividedRange:
    """The cuts of a range, in the order of the log. `bytes`: the size of the range."""

    cuts: list[SliceCut]
    bytes: int


@dataclass(frozen=True, slots=True)
class DeliveredRange:
    """`data`: a delivered binlog; `gap`: True if a part of the range is missing because the server had purged this
    part."""

    data: memoryview
    gap: bool


@dataclass(frozen=True, slots=True)
class _Setback:
    """How the client repeats a failed request. `another`: True to repeat it at another address at once; otherwise the
    client first waits at least `wait_s`.

    `standby`: True if the daemon has answered that it does not lead.
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
        """`first`: the number of the address to which the first request goes. `pool`: the client takes its connection
        from this pool, and `close` returns the connection to the pool."""
        self._endpoint = endpoint
        self._choice = AddressChoice(endpoint.addresses, first)
        self._pool = pool
        self._sleep, self._clock, self._jitter = sleep, clock, jitter
        self._connection: http.client.HTTPConnection | None = None
        self._connected_to = endpoint.addresses[first]
        self._is_idle = False  # True if no request waits for its answer
        self._consumer = consumer
        self._path = f"/v1/consumers/{quote(consumer, safe='')}"

    @property
    def address_number(self) -> int:
        """The number of the address that answered the newest request."""
        return self._choice.number

    @property
    def resume_remedy(self) -> str:
        """What a person has to do if the delivery to the consumer is paused."""
        return f"resume the delivery: binlog-dispatcher consumers resume {self._consumer}"

    # -- calls -----------------------------------------------------------------------------------------------

    def open_session(self, after: Position | None, *, read_only: bool = False) -> Session:
        """Open a session at the position `after`, or at the stored position if `after` is None. If `read_only` is
        False, the new session fences every older session."""
        body = {
            "after": after.as_dict() if after else None,
            "read_only": read_only,
            "unknown_definitions": True,
        }
        answer = self._object("POST", "session", body)
        return Session(
            number=self._value(answer, "session", int),
            position=self._position(answer, "position"),
            head=self._position(answer, "head"),
            max_bytes_in_binlog_queue=self._value(answer, "max_bytes_in_binlog_queue", int),
            gap=self._value(answer, "gap", bool),
            lower_case_table_names=answer.get("lower_case_table_names"),
        )

    def resolve(self, place: Place) -> Position:
        """Ask the daemon for the position of a place in the server's log, in the consumer's epoch. The call changes
        nothing."""
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
        """Acknowledge everything up to `after`, then wait up to `wait_ms` for changes after `after`. With `min_bytes`,
        the daemon waits until the range has at least this number of bytes, or cannot grow any more,
        but not longer than `wait_ms`."""
        body = {
            "session": session,
            "after": after.as_dict(),
            "max_bytes": max_bytes,
            "wait_ms": wait_ms,
            "markers": markers,
            "unknown_definitions": True,
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
            paused=answer.get("paused") is True,
        )

    def slices(self, session: int, start: Position, end: Position, n: int) -> DividedRange:
        """Returns at most `n` - 1 cuts, all strictly between `start` and `end`. A cut may be inside of a large
        transaction."""
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
        """Returns the delivered binlog of the range (start, end], without copying its bytes."""
        body: dict[str, Any] = {"session": session, "unknown_definitions": True}
        for key, cut in (("start", start), ("end", end)):
            body[key] = cut.position.as_dict()
            body[f"{key}_event"] = cut.inside.as_dict() if cut.inside else None
        headers, data = self._call("POST", "binlog", body)
        return DeliveredRange(memoryview(data), gap=headers.get(GAP_HEADER) == "true")

    def acknowledge(self, session: int, position: Position) -> Position:
        """Acknowledge everything up to `position`. Returns the position that is acknowledged after the call."""
        body = {"session": session, "position": position.as_dict()}
        return self._position(self._object("POST", "ack", body), "acknowledged")

    def table(self, name: str) -> dict[str, Any]:
        """Returns columns and key of the table `database.table`. The daemon reads the columns and the key from the
        server's information_schema."""
        return self._object("GET", f"tables/{quote(name, safe='')}", None)

    def declare(self, declares: DeclareOptions) -> None:
        """Declare this consumer. If it is already declared with the same content, the call changes nothing."""
        body = {
            "name": self._consumer,
            "source": declares.source,
            "databases": declares.databases,
            "tables": declares.tables,
            "start": json.loads(declares.start),
        }
        self._object("POST", "/v1/consumers", body)

    def table_of_source(self, name: str, source: str | None) -> dict[str, Any]:
        """Returns the same as `table`, for a table that a declared consumer of `source` may read. The consumer need not
        exist."""
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
        warned_at: float | None = None
        while True:
            answer = self._try(method, path, payload, wait_s + ANSWER_S * (1 << min(rounds, 20)))
            if not isinstance(answer, _Setback):
                if warned_at is not None and failing_since is not None:
                    self._warn(
                        "the daemon answers again after %.0f s", self._clock() - failing_since
                    )
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
            warn_at = (
                failing_since + WARN_AFTER_S if warned_at is None else warned_at + WARN_EVERY_S
            )
            if now >= warn_at:
                warned_at = now
                self._warn("%s; trying again for %.0f s", self._choice.fault(), deadline - now)
            self._sleep(pause_s)
            rounds += not may_hand_over
            pause_s, may_hand_over = 0.0, False
            self._choice.begin_round()

    def _warn(self, text: str, *values: object) -> None:
        log.warning("consumer %s: " + text, self._consumer, *values)  # noqa: G003

    def _backoff_s(self, rounds: int) -> float:
        return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * (1 << min(rounds, 20))) * self._jitter()

    def _try(
        self, method: str, path: str, payload: bytes | None, answer_s: float
    ) -> tuple[http.client.HTTPMessage, bytearray] | _Setback:
        """Send one request, and report its result to `_choice`. Returns headers and body of the daemon's answer, or how
        to repeat the request."""
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
            what, kind = _broken_text(error), ErrorKind.CONNECT_FAILED
            fault = BinlogError(kind, what, where=self._where, remedy=_NO_ANSWER)
            return _Setback(self._choice.failed(fault))
        if status == 200:
            self._choice.answered()
            return headers, data
        problem = _json_object(data)
        if status in (502, 504) or (status == 503 and not _is_problem(problem)):
            return _Setback(self._choice.failed(self._proxy_fault(status)), _retry_after(headers))
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
            # If the daemon has closed an idle connection, this is not a fault, so the request is repeated once. A new
            # connection cannot have been idle.
            self._drop()
            if not reused:
                raise
            if self._pool is not None:  # the daemon has probably closed all idle connections
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
            "User-Agent": self._endpoint.user_agent,
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
        if problem is None or not _is_problem(problem):
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
        # `detail` may already contain kind and hint. They are removed, because the text of `BinlogError` adds them
        # again.
        what = str(problem["detail"]).removeprefix(f"{kind.value}: ").removesuffix(f"; {hint}")
        error = UserError if status in (400, 413, 422) else BinlogError
        return error(kind, what, where=self._where, remedy=hint)

    def _proxy_fault(self, status: int) -> BinlogError:
        return BinlogError(
            ErrorKind.CONNECT_FAILED,
            f"a proxy answered with HTTP status {status} in place of the daemon",
            where=self._where,
            remedy="check that the proxy reaches binlog-dispatcher, and how long it waits for an answer",
        )

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
    """Returns the bytes parsed as a JSON object; None if they are no JSON object."""
    try:
        answer = json.loads(data)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _is_problem(answer: dict[str, Any] | None) -> bool:
    """True if the JSON of an answer is a problem document of the daemon."""
    return answer is not None and "detail" in answer


def _body(response: http.client.HTTPResponse) -> bytearray:
    """Returns the body. If the answer has a Content-Length, the body is received into one buffer of this size."""
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
    # http.client reuses the connection only after the response was read to its end.
    response.read()
    return data


def _retry_after(headers: http.client.HTTPMessage) -> float:
    text = headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _broken_text(error: Exception) -> str:
    """Returns one line that describes a broken exchange. The messages of http.client are not used, because they may
    contain parts of the body."""
    if isinstance(error, http.client.IncompleteRead):
        return "the answer is incomplete"
    if isinstance(error, http.client.HTTPException):
        return f"the answer is not HTTP ({type(error).__name__})"
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return f"the daemon does not answer: {reason}"
