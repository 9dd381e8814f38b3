"""An HTTP reader that acknowledges at once: reads a log from its start to its end. Prints seconds as JSON.

Runs in a process of its own. `python -m benchmarks.reader PORT CONSUMER START_JSON LAST_SEQ`.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any

_BYTES_PER_POLL = 16 << 20


class _Api:
    def __init__(self, port: int, consumer: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._prefix = f"/v1/consumers/{consumer}"
        self._buffer = memoryview(bytearray(4 << 20))

    def call(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._post(name, body)
        value = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"{name}: {value}")
        assert isinstance(value, dict)
        return value

    def drain(self, body: dict[str, Any]) -> int:
        answer = self._post("binlog", body)
        if answer.status != 200:
            raise SystemExit(f"binlog: {answer.read()!r}")
        total = 0
        while size := answer.readinto(self._buffer):
            total += size
        return total

    def _post(self, name: str, body: dict[str, Any]) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{self._prefix}/{name}", json.dumps(body), headers)
        return self._connection.getresponse()


def read(port: int, consumer: str, start: dict[str, Any], last_seq: int) -> dict[str, float]:
    api = _Api(port, consumer)
    session = api.call("session", {"after": start})["session"]
    after, total, transactions, started = start, 0, 0, 0.0
    while after["seq"] < last_seq:
        poll = {
            "session": session,
            "after": after,
            "max_bytes": _BYTES_PER_POLL,
            "wait_ms": 5000,
            "markers": True,
        }
        answer = api.call("poll", poll)
        if answer["transactions"]:
            # Measured from the first answer on, without the daemon's login at the server.
            started = started or time.perf_counter()
            total += api.drain({"session": session, "start": after, "end": answer["end"]})
            transactions += answer["transactions"]
        after = answer["end"]
    return {"seconds": time.perf_counter() - started, "bytes": total, "transactions": transactions}


if __name__ == "__main__":
    print(
        json.dumps(read(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])))
    )
