"""`read --format debezium` prints what Debezium's connector with its default settings reads from the same server, field
by field: rows of all types, with NULL and extreme values, in images before and after the change."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.binlog.test_servers_decode import COLUMNS
from tests.cli.program import PROGRAM, environment
from tests.front.clients.debezium import Debezium
from tests.front.clients.judging import PASSWORD, USER
from tests.front.clients.readings import Endpoint
from tests.servers import Server
from tests.servers.plugin import ServerFactory

DEFAULTS = {"decimal.handling.mode": "precise", "max.batch.size": 64, "max.queue.size": 256}
# More columns, in the same form as COLUMNS: types and values that COLUMNS lacks.
MORE: dict[str, tuple[str, list[str]]] = {
    "geo": ("GEOMETRY", ["ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)"]),
    "poi": ("POINT", ["ST_GeomFromText('POINT(1 2.5)')", "ST_GeomFromText('POINT(3 4)', 4326)"]),
    "js": ("JSON", ["""'{"a": [1, 2.5, "x", null, true], "b": {}}'""", "'1.0'", "'18446744073709551615'", "'1e300'",
                    "JSON_OBJECT('d', CAST('1.50' AS DECIMAL(5,2)))",
                    "CAST(TIMESTAMP'2024-01-31 10:00:00.5' AS JSON)"]),
    "vec": ("VECTOR(3)", ["STRING_TO_VECTOR('[1,-2.5,3e-10]')"]),
    "fp": ("FLOAT(7,3)", ["1.1", "123.456"]),
    "tn": ("TINYINT(1)", ["2", "-1"]),
    "da0": ("DATE NOT NULL", ["'0000-00-00'", "'2024-00-00'"]),
    "dt0": ("DATETIME NOT NULL", ["'0000-00-00'", "'2024-05-00 10:00:00'"]),
    "dt06": ("DATETIME(6) NOT NULL", ["'0000-00-00'"]),
    "ts0": ("TIMESTAMP NOT NULL", ["'0000-00-00'", "'2024-01-31 10:00:00'"]),
    "ts06": ("TIMESTAMP(6) NOT NULL", ["'0000-00-00'", "'2024-01-31 10:00:00.5'"]),
    "gb": ("VARCHAR(20) CHARACTER SET gbk", ["'中文'"]),
    "u2": ("VARCHAR(20) CHARACTER SET utf16", ["'中文'"]),
}  # fmt: skip
ALL = {**COLUMNS, **MORE}
# The fields of the envelope that differ, with the reason.
IGNORED = {
    "source.version": "Debezium's version, and ours",
    "source.name": "topic.prefix of the connector; read has the name of the server or of the consumer",
    "ts_ms": "the time at which the event was processed",
    "ts_us": "the time at which the event was processed",
    "ts_ns": "the time at which the event was processed",
}
# The values of `x` that differ: (table, Debezium's value, ours), with the reason.
DIFFERENT: dict[tuple[str, Any, Any], str] = {
    ("t_y", 1900, 0): "Debezium adds 1900 to the stored byte of the year 0000, too",
    ("t_vi", "\ufffd" * 5, "\x81\x8d\x8f\x90\x9d"): "Java's latin1 lacks five bytes that MySQL's has",
    ("t_f", -1.17549435e-38, -1.1754944e-38): "the same FLOAT; Java prints a digit more",
    ("t_da", 11323, -719162): "enable.time.adjuster: the connector changes the years 1 to 99",
    ("t_dt3", 978307200001, -62135596799999): "enable.time.adjuster",
    ("t_e", "co\\,mma", "co,mma"): "the connector keeps the escape of its own list of labels",
    ("t_fp", 1.100000023841858, 1.1): "FLOAT(M,D) is FLOAT64 there; the log does not tell it from FLOAT",
    ("t_fp", 123.45600128173828, 123.456): "as before",
    ("t_js", "2024-01-31 10:00:00.5", "2024-01-31 10:00:00.500000"): "JSON's dates have six digits in MySQL",
}  # fmt: skip


def images(table: str) -> list[str]:
    definition, values = ALL[table]
    return [*values, values[-1] if "NOT NULL" in definition else "NULL"]


def write_rows(server: Server) -> None:
    session = "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    for name in ALL:
        rows = ", ".join(f"({n}, {value})" for n, value in enumerate(images(name)))
        server.execute(session, f"INSERT INTO shop.t_{name} VALUES {rows}")
        server.execute(f"UPDATE shop.t_{name} SET id = -1 WHERE id = 0")
        server.execute(f"DELETE FROM shop.t_{name}")
    server.execute(
        "INSERT INTO shop.two VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)",
        "UPDATE shop.two SET a = a + (a = 2) * 100, c = c + 1",
        "UPDATE shop.two SET b = 'A' WHERE b = 'a'",
        "ALTER TABLE shop.two ADD d INT",
        "INSERT INTO shop.two VALUES (7, 'd', 1, NULL)",
    )


def place(line: dict[str, Any]) -> tuple[int, int, str]:
    return line["source"]["pos"], line["source"]["row"], line["op"]


def with_json(line: dict[str, Any]) -> dict[str, Any]:
    """Parse the JSON of `x`: Debezium writes the text in another form than the server."""
    images = {name: line[name] for name in ("before", "after") if line[name] and line[name]["x"]}
    return line | {name: row | {"x": json.loads(row["x"])} for name, row in images.items()}


def differences(theirs: Any, ours: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        assert sorted(theirs) == sorted(ours), path
        return [
            found
            for name in theirs
            if f"{path}{name}" not in IGNORED
            for found in differences(theirs[name], ours[name], f"{path}{name}.")
        ]
    return [] if theirs == ours else [(path, theirs, ours)]


def debezium_events(server: Server, folder: Path) -> list[dict[str, Any]]:
    """Write the rows, and return the connector's events of them."""
    debezium = Debezium(folder, more=DEFAULTS)
    endpoint = Endpoint(server.host, server.port, USER, PASSWORD)
    debezium.prepare(endpoint, lambda: server.execute("INSERT INTO shop.seed VALUES (1)"))
    write_rows(server)
    server.execute("INSERT INTO shop.seed VALUES (2)")
    events = []
    with debezium.restless(endpoint) as engine:
        for value in engine.values():
            events.append(value)
            if value.get("after") == {"id": 2} and value["source"]["table"] == "seed":
                break
    return events


def printed_lines(server: Server) -> list[dict[str, Any]]:
    address = f"mysql://{USER}@{server.host}:{server.port}/shop"
    options = ("--password-env", "WORD", "--once", "--from", "earliest", "--format", "debezium")
    printed = subprocess.run(
        [PROGRAM, "read", address, *options],
        env=environment({"WORD": PASSWORD}),
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    return [json.loads(line) for line in printed.stdout.splitlines()]


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_the_lines_are_debeziums_events(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = server_factory("mysql97")
    server.add_user(USER, PASSWORD)
    server.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE DATABASE shop",
        "CREATE TABLE shop.seed (id INT PRIMARY KEY)",
        "CREATE TABLE shop.two (a INT, b VARCHAR(9), c INT, PRIMARY KEY (b, a))",
        *(f"CREATE TABLE shop.t_{name} (id INT PRIMARY KEY, x {ALL[name][0]})" for name in ALL),
    )
    events = debezium_events(server, tmp_path / "debezium")
    lines = printed_lines(server)
    rows = {place(line): line for line in lines if "op" in line}
    changes = [event for event in events if "ddl" not in event]
    assert len(changes) > 400
    found: set[tuple[str, Any, Any]] = set()
    for change in changes:
        event, ours, table = change, rows[place(change)], change["source"]["table"]
        if table == "t_js":
            event, ours = with_json(event), with_json(ours)
        for path, theirs, mine in differences(event, ours):
            assert path in ("before.x.", "after.x."), (event, ours)
            found.add((table, theirs, mine))
    assert found == set(DIFFERENT)
    (altered,) = (event for event in events if "ddl" in event)
    (ours,) = (line for line in lines if line.get("ddl") == altered["ddl"])
    assert sorted(altered) == sorted([*ours, "tableChanges"])
    assert sorted(altered["source"]) == sorted(ours["source"])
    assert altered["databaseName"] == ours["databaseName"]
    for name in ("db", "table", "server_id", "gtid", "file", "pos"):
        assert altered["source"][name] == ours["source"][name]
