"""What `/v1/binlogs` says about the reader of a consumer."""

from __future__ import annotations

import http.client
import itertools
import json
from typing import Any

from tests.daemon.conftest import MakeDaemon, Source
from tests.daemon.harness import Daemon, Json, Reader, until
from tests.servers import Server


def until_reader(daemon: Daemon, state: str) -> Json:
    row = until(lambda: (row := daemon.api.row("c"))["reader"] == state and row, f"it is {state}")
    assert isinstance(row, dict)
    return row


def leave_poll(daemon: Daemon, reader: Reader) -> None:
    """Poll with a client that disconnects while the poll waits."""
    body = {"session": reader.session, "after": reader.position, "wait_ms": 60_000}
    client = http.client.HTTPConnection("127.0.0.1", daemon.port)
    headers = {
        "Authorization": f"Bearer {daemon.token}",
        "Content-Type": "application/json",
        "User-Agent": "leaver/1",
    }
    client.request("POST", "/v1/consumers/c/poll", json.dumps(body), headers)
    until(lambda: daemon.api.row("c")["reader_user_agent"] == "leaver/1", "it polls")
    client.close()


def test_a_reader_is_seen(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, request: Any
) -> None:
    database = "readers_seen"
    mysql97.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT)")
    request.addfinalizer(lambda: mysql97.execute(f"DROP DATABASE {database}"))
    daemon = make_daemon({"c": source(mysql97, database)})
    api = daemon.start()
    reader = Reader(daemon, "c")
    row = api.until_state("c", "streaming")
    assert (row["reader"], row["session"], row["reader_address"]) == ("none", 0, None)
    assert row["poll_age_seconds"] is row["session_age_seconds"] is None

    reader.open()
    row = until_reader(daemon, "waiting")
    assert (row["session"], row["reader_address"]) == (reader.session, "127.0.0.1")
    assert 0 <= row["session_age_seconds"] < 60 and row["poll_age_seconds"] is None

    mysql97.execute(f"INSERT INTO {database}.t VALUES (1)", f"INSERT INTO {database}.t VALUES (2)")
    until_reader(daemon, "reading")
    reader.read_to(mysql97)
    row = until_reader(daemon, "waiting")
    assert 0 <= row["acknowledgement_age_seconds"] < 60 and 0 <= row["poll_age_seconds"] < 60
    assert row["delivered_transactions"] == len(reader.transactions) == 2
    assert row["delivered_bytes"] == sum(map(len, reader.chunks))

    # A read-only session is not the reader.
    api.poll("c", 0, reader.position)
    leave_poll(daemon, reader)
    row = until_reader(daemon, "gone")
    assert 'consumer_reader{consumer="c",reader="gone"} 1' in api.text("/metrics")
    reader.step(wait_ms=0)
    until_reader(daemon, "waiting")

    daemon.restart()
    row = daemon.api.until_state("c", "streaming")
    assert (row["reader"], row["session"], row["poll_age_seconds"]) == (
        "none",
        reader.session,
        None,
    )
    assert row["session_age_seconds"] > 0
    reader.step(wait_ms=0)
    until_reader(daemon, "waiting")


def test_transactions_of_slices_are_counted_once(
    mysql97: Server, make_daemon: MakeDaemon, source: Source, request: Any
) -> None:
    database = "readers_slices"
    mysql97.execute(
        f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (b LONGBLOB)",
    )  # fmt: skip
    request.addfinalizer(lambda: mysql97.execute(f"DROP DATABASE {database}"))
    daemon = make_daemon({"c": source(mysql97, database)})
    api = daemon.start()
    reader = Reader(daemon, "c").open()
    rows = ", ".join(["(REPEAT('x', 100000))"] * 20)
    mysql97.execute(
        f"INSERT INTO {database}.t VALUES {rows}", f"INSERT INTO {database}.t VALUES ('')"
    )
    until(
        lambda: api.row("c")["mysql_binlog_timestamp"] and api.row("c")["size"] > 5, "it is queued"
    )
    end = api.poll("c", reader.session, reader.position, wait_ms=5000)["end"]
    asked = {"session": reader.session, "start": reader.position, "end": end}
    answer = api.call("c", "slices", **asked, n=3, inside=True)
    assert any(answer["events"]), "a transaction is cut"
    places = [
        (reader.position, None),
        *zip(answer["cuts"], answer["events"], strict=True),
        (end, None),
    ]
    for (start, start_event), (stop, stop_event) in itertools.pairwise(places):
        body = {"session": reader.session, "start": start, "end": stop}
        if start_event:
            body["start_event"] = start_event
        if stop_event:
            body["end_event"] = stop_event
        api.raw("POST", "/v1/consumers/c/binlog", body)
    whole = api.poll("c", reader.session, reader.position)["transactions"]
    assert api.row("c")["delivered_transactions"] == whole
