"""A fake daemon: it has the daemon's HTTP API, delivers transactions that a test adds, and simulates faults that a test
sets.

This is a second, simple implementation of the API for readers. One list contains all transactions and never drops one,
and positions are compared by `seq`. A test adds transactions as bytes, or from a server's binlog file: `feed` splits
the file with `struct` and adds the record events.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dispatcher.api.answers.problems import problem as api_problem
from dispatcher.binlog.event.header import MAGIC
from dispatcher.binlog.event.record import Record, encode_record
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.position import Position

SERVER = "00000000-0000-0000-0000-000000000001"
_HEADER = struct.Struct("<IBIIIH")
QUERY, FORMAT_DESCRIPTION, XID, TABLE_MAP, GTID, ANONYMOUS_GTID = 2, 15, 16, 19, 33, 34


@dataclass(frozen=True)
class Transaction:
    """`data`: record and events of the transaction. `marker`: True if nothing in the transaction matches the consumer's
    filter."""

    position: Position
    data: bytes
    marker: bool = False


@dataclass
class Answer:
    """An answer that replaces the API's answer. `cut`: close the connection before or inside the answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False


def problem(
    status: int, kind: ErrorKind, what: str, hint: str | None = None, **headers: str
) -> Answer:
    error = BinlogError(kind, what, remedy=hint)
    document = {
        "type": "about:blank",
        "title": kind.value,
        "status": status,
        "detail": str(error),
        "kind": kind.name,
        "hint": error.remedy,
    }
    return Answer(status, json.dumps(document).encode(), headers)


class FakeDaemon:
    """A daemon with one consumer; calls for any consumer name reach this consumer. `faults`: answers that replace the
    API's answers, by the last part of the call's path. Each of these answers is used once, in order."""

    def __init__(self) -> None:
        self.preamble = b""
        self.transactions: list[Transaction] = []
        self.session = 0
        self.base = self.acknowledged = position(0)
        self.max_bytes = 64 << 20
        self.token = ""
        self.tables: dict[str, Any] = {}
        self.faults: dict[str, list[Answer]] = {}
        self.places: dict[str, Position] = {}  # by JSON of `to`, except earliest and latest
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.declared: dict[str, dict[str, Any]] = {}  # the bodies of POST /v1/consumers, by name
        self.slice_ends: list[int] | None = None
        self.full = False  # True: the queue has no room, so no range can grow
        self.lower_case_table_names: int | None = 0  # the setting of the server whose log is fed
        self.queued: Position | None = None  # how far the daemon has read; None for all
        self.forgotten = self.base  # the daemon refuses ranges before this position
        self.url = ""
        self._lock = threading.Condition()

    # -- adding transactions ---------------------------------------------------------------------------------

    @property
    def head(self) -> Position:
        return self.transactions[-1].position if self.transactions else self.base

    def acknowledge_as_another_reader(self, at: Position) -> None:
        """Acknowledge up to `at`, as another reader of the consumer would. Ranges before `at` are no longer
        available."""
        self.acknowledged = self.forgotten = at

    def purge(self) -> Position:
        """Simulate a purge of all transactions: the consumer continues after a gap, in a new epoch (`on_purged:
        latest`)."""
        at = self.head
        self.base = self.acknowledged = replace(at, seq=at.seq + 5, epoch=at.epoch + 1)
        self.transactions.clear()
        return self.base

    def add(self, data: bytes, *, marker: bool = False, file: str = "binlog.000001") -> Position:
        with self._lock:
            at = self.head
            then = replace(at, offset=at.offset + max(1, len(data)), seq=at.seq + 1, file=file)
            self.transactions.append(Transaction(then, data, marker))
            self._lock.notify_all()
            return then

    def feed(self, path: Path, wanted: Callable[[bytes], bool] = lambda _: True) -> int:
        """Append the new transactions of a binlog file that `wanted` accepts. Returns the number of these
        transactions."""
        before = len(self.transactions)
        done = sum(t.position.file == path.name for t in self.transactions)
        for number, (data, offset, commit_us) in enumerate(self._cut(path.read_bytes())):
            if number < done:
                continue
            if not wanted(data):
                self.add(b"", marker=True, file=path.name)
                continue
            value = self.lower_case_table_names
            record = Record(1, self.head.seq + 1, path.name, offset, commit_us, 0, value or 0)
            self.add(encode_record(record, checksum=True) + data, file=path.name)
        return len(self.transactions) - before

    def _cut(self, data: bytes) -> Iterator[tuple[bytes, int, int]]:
        """Yields (events, end offset, commit time) of each complete transaction."""
        assert data[:4] == MAGIC
        at, begin, in_rows = 4, -1, False
        while at < len(data):
            timestamp, code, _, size, _, _ = _HEADER.unpack_from(data, at)
            end = at + size
            if code == FORMAT_DESCRIPTION:
                self.preamble = MAGIC + data[at:end]
            elif code in (GTID, ANONYMOUS_GTID):
                begin, in_rows = at, False
            elif code == QUERY and data[at:end].find(b"\0BEGIN", 19) >= 0:
                in_rows = True
            elif begin >= 0 and (code == XID or (code == QUERY and not in_rows)):
                yield data[begin:end], end, timestamp * 1_000_000
                begin = -1
            at = end

    # -- the API ---------------------------------------------------------------------------------------------

    def answer(self, call: str, body: dict[str, Any], token: str) -> Answer:
        self.calls.append((call, body))
        if self.faults.get(call):
            return self.faults[call].pop(0)
        if token != self.token:
            return problem(401, ErrorKind.UNAUTHORIZED, "the token is not one of this consumer")
        numbered = call not in ("session", "tables", "resolve", "consumers")
        if numbered and body["session"] not in (0, self.session):
            return problem(
                409, ErrorKind.SESSION_FENCED, f"session {body['session']} is not the newest"
            )
        result = getattr(self, f"_{call}")(body)
        if isinstance(result, Answer):
            return result
        if isinstance(result, bytes):
            return Answer(body=result, headers={"Content-Type": "application/octet-stream"})
        return Answer(
            body=json.dumps(result).encode(), headers={"Content-Type": "application/json"}
        )

    def _before_gap(self, at: Position) -> bool:
        return at.epoch < self.base.epoch

    def _session(self, body: dict[str, Any]) -> dict[str, Any] | Answer:
        after = body["after"] and Position.from_dict(body["after"])
        gap = bool(after) and self._before_gap(after)
        if not body["read_only"]:
            self.session += 1
            if after and not gap:
                if after.order > self.head.order:
                    return problem(
                        400, ErrorKind.POSITION_UNKNOWN, f"seq {after.seq} is ahead of the server"
                    )
                self.acknowledged = after
        return {
            "session": 0 if body["read_only"] else self.session,
            "position": self.acknowledged.as_dict(),
            "head": self.head.as_dict(),
            "max_bytes_in_binlog_queue": self.max_bytes,
            "gap": gap,
            "lower_case_table_names": self.lower_case_table_names,
        }

    def _consumers(self, body: dict[str, Any]) -> dict[str, Any] | Answer:
        declared = self.declared.setdefault(body["name"], body)
        if {**declared, "start": ""} != {**body, "start": ""}:
            return problem(
                409, ErrorKind.CONSUMER_EXISTS, f"consumer {body['name']} is declared otherwise"
            )
        return {**declared, "created": declared is body}

    def _resolve(self, body: dict[str, Any]) -> dict[str, Any] | Answer:
        places = {'"earliest"': self.base, '"latest"': self.head} | self.places
        place = places.get(json.dumps(body["to"]))
        if place is None:
            return problem(410, ErrorKind.POSITION_PURGED, f"no place {body['to']}")
        return {"position": place.as_dict()}

    def _poll(self, body: dict[str, Any]) -> dict[str, Any]:
        after = Position.from_dict(body["after"])
        limit = body["max_bytes"]
        if self._before_gap(after):
            at, head = self.acknowledged.as_dict(), self.head.as_dict()
            return {"end": at, "head": head, "bytes": 0, "transactions": 0, "gap": True}
        with self._lock:
            if body["session"]:
                self.acknowledged = max(self.acknowledged, after, key=lambda p: p.order)
            few = body.get("min_bytes", 0)
            most = body.get("max_transactions") or len(self.transactions)

            def enough() -> bool:
                data = [len(t.data) for t in self._following(after)]
                cut = len(data) > most or (limit is not None and sum(data) > limit)
                return bool(data) and (cut or self.full or sum(data) >= few)

            if not self._lock.wait_for(enough, body["wait_ms"] / 1000) and few:
                body |= {"max_transactions": 0}
            chosen: list[Transaction] = []
            size = 0
            for transaction in self._following(after):
                if size and limit is not None and size + len(transaction.data) > limit:
                    break
                if len(chosen) == body.get("max_transactions", -1):
                    break
                size += len(transaction.data)
                chosen.append(transaction)
        data = [t for t in chosen if not t.marker]
        end = chosen[-1].position if chosen and (data or body["markers"]) else after
        return {
            "end": end.as_dict(),
            "head": self.head.as_dict(),
            "bytes": size,
            "transactions": len(data),
            "gap": False,
            "lag_transactions": len(self._following(end)),
            "lag_bytes": sum(len(t.data) for t in self._following(end)),
            "lag_seconds": 0.0,
        }

    def _slices(self, body: dict[str, Any]) -> dict[str, Any] | Answer:
        if self._before_gap(start := Position.from_dict(body["start"])):
            what = f"it belongs to epoch {start.epoch}; this consumer reads epoch {self.base.epoch}"
            return problem(400, ErrorKind.POSITION_UNKNOWN, what)
        chosen = self._range(body)
        step = max(1, len(chosen) // body["n"])
        cuts = [t.position.as_dict() for t in chosen[:-1][step - 1 :: step][: body["n"] - 1]]
        size = sum(len(t.data) for t in chosen)
        return {"cuts": cuts, "events": [None] * len(cuts), "bytes": size}

    def _binlog(self, body: dict[str, Any]) -> bytes | Answer:
        start = Position.from_dict(body["start"])
        if self._before_gap(start):
            return Answer(body=self.preamble, headers={"Binlog-Gap": "true"})
        if start.order < self.forgotten.order:
            return problem(
                409, ErrorKind.POSITION_UNKNOWN, f"seq {start.seq} is older than the acknowledged"
            )
        return self.preamble + b"".join(t.data for t in self._range(body))

    def _ack(self, body: dict[str, Any]) -> dict[str, Any]:
        self.acknowledged = Position.from_dict(body["position"])
        return {"acknowledged": self.acknowledged.as_dict()}

    def _tables(self, body: dict[str, Any]) -> dict[str, Any] | Answer:
        if body["table"] in self.tables:
            return dict(self.tables[body["table"]])
        return problem(404, ErrorKind.UNKNOWN_TABLE, f"table {body['table']} does not exist")

    def _following(self, after: Position) -> Sequence[Transaction]:
        queued = self.queued or self.head
        return [t for t in self.transactions if after.order < t.position.order <= queued.order]

    def _range(self, body: dict[str, Any]) -> list[Transaction]:
        start, end = Position.from_dict(body["start"]), Position.from_dict(body["end"])
        return [t for t in self.transactions if start.order < t.position.order <= end.order]


def position(seq: int) -> Position:
    return Position(SERVER, "", "binlog.000001", 4 + seq, seq, 1)


def standby_answer(leader: str | None) -> Answer:
    """Returns the answer of a standby in the API's encoding. `leader`: the leader's address in the answer."""
    fault = BinlogError(ErrorKind.NOT_LEADER, "this daemon is a standby")
    response = api_problem(fault)
    body = json.loads(bytes(response.body)) | {"leader": leader}
    headers = {"Retry-After": response.headers["Retry-After"]}
    return Answer(response.status_code, json.dumps(body).encode(), headers)


class Listener(ThreadingHTTPServer):
    """One address of a fake daemon. Several listeners of one daemon are daemons with one state store.

    `standby`: if set, the answer to each call instead of the daemon's answer; `received`: call and token of each
    request.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, daemon: FakeDaemon) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.daemon = daemon
        self.standby: Answer | None = None
        self.received: list[tuple[str, str]] = []
        self.accepted: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread: threading.Thread | None = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self._thread.start()

    def get_request(self) -> tuple[socket.socket, Any]:
        request = super().get_request()
        self.accepted.append(request[0])
        return request

    def answer(self, call: str, body: dict[str, Any], token: str) -> Answer:
        self.received.append((call, token))
        return self.standby or self.daemon.answer(call, body, token)

    def end(self) -> None:
        """Close the port and all connections, as when a process is killed."""
        if self._thread is None:
            return
        self.shutdown()
        self._thread.join()
        self._thread = None
        self.server_close()
        for connection in self.accepted:
            with suppress(OSError):  # the connection is already closed
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Listener

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._reply(self.path.rsplit("/", 1)[1], body)

    def do_GET(self) -> None:
        self._reply("tables", {"table": unquote(self.path.rsplit("/", 1)[1])})

    def _reply(self, call: str, body: dict[str, Any]) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        answer = self.server.answer(call, body, token)
        if answer.cut and not answer.body:
            self.close_connection = True
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(answer.body) + (100 if answer.cut else 0)))
        self.end_headers()
        self.wfile.write(answer.body)
        self.close_connection |= answer.cut

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@contextmanager
def listening(daemon: FakeDaemon) -> Iterator[Listener]:
    """A further address of a fake daemon, on a free port of the loopback."""
    listener = Listener(daemon)
    try:
        yield listener
    finally:
        listener.end()


@contextmanager
def fake_daemon() -> Iterator[FakeDaemon]:
    """A running fake daemon on a free port of the loopback."""
    daemon = FakeDaemon()
    with listening(daemon) as listener:
        daemon.url = listener.url
        yield daemon
