"""HTTP readers that acknowledge each range at once. Each reader reads its consumer up to a given transaction. The
program prints the times as JSON.

Runs in a process of its own, with a thread for each consumer. `python -m benchmarks.reader PORT PID JOBS_JSON`: PORT
and PID are those of the daemon; a job is {"consumer": NAME, "after": POSITION or null}. When all sessions are open, the
program prints "ready". Then it reads the number of the last transaction from its standard input, and the readers begin.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from benchmarks.processes import cpu_seconds

_BYTES_PER_POLL = 16 << 20
_WAIT_MS = 5000
_OPEN_TIMEOUT_S = 90.0
_RETRY_S = 0.05


class ConsumerApi:
    """The calls of one consumer, over one connection."""

    def __init__(self, port: int, consumer: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
        self._prefix = f"/v1/consumers/{consumer}"
        self._buffer = memoryview(bytearray(1 << 20))
        self._answer: http.client.HTTPResponse

    def call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        status, value = self.ask(name, body)
        if status != 200:
            raise SystemExit(f"{name}: {value}")
        return value

    def ask(self, name: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        answer = self._post(name, body)
        value = json.loads(answer.read())
        assert isinstance(value, dict)
        return answer.status, value

    def begin_read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ask for the next range. Returns the answer's description of the range; `drain` receives its bytes."""
        self._answer = self._post("read", body)
        if self._answer.status != 200:
            raise SystemExit(f"read: {self._answer.read()!r}")
        value = json.loads(self._answer.readline())
        assert isinstance(value, dict)
        if not value["transactions"]:
            self.drain()
        return value

    def drain(self) -> int:
        """Receive the rest of an answer. Returns its number of bytes."""
        total = 0
        while size := self._answer.readinto(self._buffer):
            total += size
        return total

    def open(self, after: dict[str, Any] | None) -> dict[str, Any]:
        """Open a session. Repeats the call until the daemon knows the position in its server's log."""
        deadline = time.monotonic() + _OPEN_TIMEOUT_S
        while True:
            status, value = self.ask("session", {"after": after})
            if status == 200:
                return value
            if status != 503 or time.monotonic() > deadline:
                raise SystemExit(f"session: {value}")
            time.sleep(_RETRY_S)

    def close(self) -> None:
        self._connection.close()

    def _post(self, name: str, body: dict[str, Any]) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._prefix}/{name}", json.dumps(body), headers)
        return self._connection.getresponse()


class Moment(NamedTuple):
    """A time, and the CPU time that the daemon had taken at that time."""

    at: float
    cpu_s: float

    @classmethod
    def now(cls, pid: int) -> Moment:
        return cls(time.perf_counter(), cpu_seconds(pid))


class Reader:
    """One consumer's reader. `first`: the moment at which it was offered its first range; `last`: the moment at which
    its last range was acknowledged."""

    def __init__(self, port: int, pid: int, job: dict[str, Any]) -> None:
        self._pid = pid
        self._api = ConsumerApi(port, job["consumer"])
        opened = self._api.open(job["after"])
        self._api.close()  # the daemon would close an idle connection; the next call connects again
        self._session, self._after = opened["session"], opened["position"]
        self.first = self.last = Moment(0.0, 0.0)
        self.bytes = self.transactions = self.polls = 0

    def read(self, last_seq: int) -> None:
        while self._after["seq"] < last_seq:
            poll = {
                "session": self._session,
                "after": self._after,
                "max_bytes": _BYTES_PER_POLL,
                "wait_ms": _WAIT_MS,
                "markers": True,
            }
            answer = self._api.begin_read(poll)
            self.polls += 1
            if answer["transactions"]:
                if not self.transactions:
                    self.first = Moment.now(self._pid)
                self.bytes += self._api.drain()
                self.transactions += answer["transactions"]
            self._after = answer["end"]
        self._api.call("ack", {"session": self._session, "position": self._after})
        self.last = Moment.now(self._pid)


def read(port: int, pid: int, jobs: list[dict[str, Any]]) -> dict[str, float]:
    """Returns `seconds`, and `cpu_seconds` of the daemon, from the first range that any reader was offered to the last
    acknowledgement."""
    readers = [Reader(port, pid, job) for job in jobs]
    print("ready", flush=True)
    last_seq = int(sys.stdin.readline())
    threading.stack_size(256 << 10)
    with ThreadPoolExecutor(len(readers)) as pool:
        list(pool.map(lambda reader: reader.read(last_seq), readers))
    first = min(reader.first for reader in readers if reader.transactions)
    last = max(reader.last for reader in readers)
    return {
        "seconds": last.at - first.at,
        "cpu_seconds": last.cpu_s - first.cpu_s,
        "bytes": sum(reader.bytes for reader in readers),
        "transactions": sum(reader.transactions for reader in readers),
        "polls": sum(reader.polls for reader in readers),
    }


if __name__ == "__main__":
    print(json.dumps(read(int(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]))))
