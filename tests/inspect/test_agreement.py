"""`inspect` tells of every event what the servers' own tools tell: type, position, GTID, how many rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.inspect.conftest import Inspect
from tests.servers import Server
from tests.support import binlog_tool, workload
from tests.support.server_log import read_log


def by_statement(rows: list[tuple[str, int]]) -> list[int]:
    """Rows of each run of rows events: the tools print them at a statement's end, whichever event they are of."""
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
    told = binlog_tool.read(done.stdout)

    shown = inspect(path, "--json")
    assert shown.err == ""
    assert shown.code == 0
    events = shown.events
    assert [event["type"].removesuffix("_V1") for event in events] == [one.type for one in told]
    # For events inside a payload the tool prints where the payload ends; here they stand where it begins.
    at = "end_log_pos", "offset"
    assert [event[at["payload_index" not in event]] for event in events] == [
        one.offset for one in told
    ]
    assert [event["end_log_pos"] for event in events] == [one.end_log_pos for one in told]
    assert [event["server_id"] for event in events] == [one.server_id for one in told]
    assert [event.get("gtid", "") for event in events] == [one.gtid for one in told]
    rows_told = by_statement([(one.type, one.rows) for one in told])
    assert (
        by_statement([(event["type"], event.get("row_count", 0)) for event in events]) == rows_told
    )
    assert {event["file"] for event in events} == {name}
    assert sum(one.rows for one in told) > 10

    text = inspect(path)
    assert text.code == 0
    assert text.out.count("\n# at ") == len(told)
    assert text.out.count("\n### INSERT INTO ") == sum(
        event["row_count"] for event in events if event["type"].startswith("WRITE")
    )

    summary = inspect(path, "--summary", "--json").events[0]
    assert sum(one["count"] for one in summary["events"]) == len(told)
    rows = sum(one["inserts"] + one["updates"] + one["deletes"] for one in summary["tables"])
    assert rows == sum(one.rows for one in told)
    assert summary["transactions"] == sum(1 for one in told if one.gtid)
