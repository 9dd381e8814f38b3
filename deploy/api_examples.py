"""Records a request and an answer of each call of the API into `EXAMPLES_PATH`: `python -m deploy.api_examples`.

A MySQL server and a daemon run for a few seconds. The address of the server is replaced by `db1:3306`.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dispatcher.api.calls.openapi import EXAMPLES_PATH
from tests.daemon.harness import PASSWORD, Daemon, until
from tests.servers import start_server

Json = dict[str, Any]
_POLLED = {"markers": False, "min_bytes": 0, "max_transactions": None}


class Recorder:
    """Makes the calls of a consumer's reader. `examples`: for each operation, its first request and answer."""

    def __init__(self, daemon: Daemon, consumer: str) -> None:
        self.daemon = daemon
        self.consumer = consumer
        self.examples: dict[str, Json] = {}

    def call(
        self, operation: str, *, path: str = "", body: Json | None = None, method: str = ""
    ) -> Any:
        """Make the call and record it. Returns the answer: JSON, text, or bytes."""
        posted = body is not None or not path
        path = path or f"/v1/consumers/{self.consumer}/{operation}"
        status, headers, data = self.daemon.api.request(
            method or ("POST" if posted else "GET"), path, body
        )
        assert status == 200, data
        example: Json = {} if body is None else {"request": body}
        kind = str(headers.get_content_type())
        answer: Any = data
        if kind == "application/json":
            answer = example["answer"] = json.loads(data)
        elif kind == "text/plain":
            answer = data.decode()
            example["text"] = "".join(answer.splitlines(keepends=True)[:6])
        else:
            example["bytes"] = len(data)
        self.examples.setdefault(operation, example)
        return answer


def record() -> dict[str, Json]:
    """Run a server and a daemon, and make all calls. Returns the examples by operation."""
    with ExitStack() as stack:
        server = stack.enter_context(
            start_server("mysql97", "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
        )
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(200) NOT NULL)",
        )
        server.add_user("repl", PASSWORD)
        consumer = {
            "mysql": f"repl@{server.host}:{server.port}",
            "password": PASSWORD,
            "databases": ["shop"],
        }
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="api-")))
        sources = {"shop-db": {**consumer, "names": ["nb-*"]}}
        daemon = Daemon(folder, {"consumers": {"shop": consumer}, "sources": sources})
        stack.callback(daemon.close)
        daemon.start().until_state("shop", "streaming")
        recorder = Recorder(daemon, "shop")
        opened = recorder.call("session", body={"after": None, "read_only": False})
        server.execute(
            "INSERT INTO shop.orders (note) VALUES ('one'), ('two')",
            "INSERT INTO shop.orders (note) VALUES ('three')",
        )
        until(lambda: daemon.api.row("shop")["bytes"] > 0, "something is queued")
        _read(recorder, opened)
        _declare(recorder)
        _administer(recorder, opened["position"]["gtid"])
        daemon.stop()
        text = json.dumps(recorder.examples).replace(f"{server.host}:{server.port}", "db1:3306")
        return dict(json.loads(text))  # fmt: skip


def _read(recorder: Recorder, opened: Json) -> None:
    session, start = opened["session"], opened["position"]
    polled = {"session": session, "after": start, "max_bytes": 1048576, "wait_ms": 30000}
    end = recorder.call("poll", body={**polled, **_POLLED})["end"]
    span = {"session": session, "start": start, "end": end}
    recorder.call("read", body={**polled, **_POLLED})
    recorder.call("resolve", body={"to": {"timestamp": "2026-01-01T00:00:00Z"}})
    recorder.call("slices", body={**span, "n": 2, "inside": False})
    recorder.call("binlog", body={**span, "start_event": None, "end_event": None})
    recorder.call("binlogs", path="/v1/binlogs")
    recorder.call("leader", path="/v1/leader")
    recorder.call("ack", body={"session": session, "position": end})
    recorder.call("table", path="/v1/consumers/shop/tables/shop.orders")


def _declare(recorder: Recorder) -> None:
    recorder.call("table_of_source", path="/v1/tables/shop.orders")
    body = {
        "name": "nb-orders",
        "source": "shop-db",
        "databases": ["shop"],
        "tables": ["shop.orders"],
        "exclude_tables": [],
        "start": "latest",
    }
    recorder.call("declare", path="/v1/consumers", body=body)
    recorder.call("remove", path="/v1/consumers/nb-orders", method="DELETE")


def _administer(recorder: Recorder, gtid: str) -> None:
    recorder.call("pause")
    recorder.call("resume")
    recorder.call("seek", body={"to": {"gtid": gtid}})
    recorder.call("forget")
    for name in ("livez", "readyz", "metrics"):
        recorder.call(name, path=f"/{name}")


def main() -> None:
    EXAMPLES_PATH.write_text(json.dumps(record(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
