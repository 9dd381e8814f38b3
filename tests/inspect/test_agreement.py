"""`inspect` agrees with the servers' own tools about every event: type, position, GTID, number of rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.inspect.conftest import Inspect
from tests.servers import Server
from tests.support import binlog_tool, workload
from tests.support.server_log import read_log


def by_statement(rows: list[tuple[str, int]]) -> list[int]:
    """Returns the number of rows of each sequence of rows events, because the tools print rows only at the end of a
    statement."""
    out = [0]
    for name, count in rows:
        if "_ROWS_" not in name or "ANNOTATE" in name:
            out.append(0)
        out[-1] += count
    return out


def test_agrees_with_the_servers_own_tool(
    any_server: Server, new_database: Callable[[Server], str], inspect: Inspect, tmp_path: Path
) -> None:
    database = new_database(any_server)
    name = workload.run(any_server, database)
    path = tmp_path / name
    path.write_bytes(read_log(any_server, name))
    done = any_server.mysqlbinlog("-vv", "--base64-output=DECODE-ROWS", path)
    expected = binlog_tool.read(done.stdout)

    shown = inspect(path, "--json")
    assert shown.err == ""
    assert shown.code == 0
    events = shown.events
    assert [event["type"].removesuffix("_V1") for event in events] == [
        event.type for event in expected
    ]
    # For events inside a payload, the tool prints the end of the payload; `inspect` prints its beginning.
    at = "end_log_pos", "offset"
    assert [event[at["payload_index" not in event]] for event in events] == [
        event.offset for event in expected
    ]
    assert [event["end_log_pos"] for event in events] == [event.end_log_pos for event in expected]
    assert [event["server_id"] for event in events] == [event.server_id for event in expected]
    assert [event.get("gtid", "") for event in events] == [event.gtid for event in expected]
    expected_rows = by_statement([(event.type, event.rows) for event in expected])
    assert (
        by_statement([(event["type"], event.get("row_count", 0)) for event in events])
        == expected_rows
    )
    assert {event["file"] for event in events} == {name}
    assert sum(event.rows for event in expected) > 10

    text = inspect(path)
    assert text.code == 0
    assert text.out.count("\n# at ") == len(expected)
    assert text.out.count("\n### INSERT INTO ") == sum(
        event["row_count"] for event in events if event["type"].startswith("WRITE")
    )

    summary = inspect(path, "--summary", "--json").events[0]
    assert sum(one["count"] for one in summary["events"]) == len(expected)
    rows = sum(one["inserts"] + one["updates"] + one["deletes"] for one in summary["tables"])
    assert rows == sum(event.rows for event in expected)
    assert summary["transactions"] == sum(1 for event in expected if event.gtid)
