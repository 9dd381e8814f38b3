"""A server's log over the replication protocol shows what its files hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.inspect.conftest import Inspect
from tests.servers import Server
from tests.support import workload
from tests.support.server_log import read_log


@pytest.fixture
def address(database_name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[Server], list[str]]:
    """Returns the address of an account with replication privileges, and the option for its password."""
    monkeypatch.setenv("PASSWORD_OF_THE_TEST", "p@ss:word")

    def of(server: Server) -> list[str]:
        user = f"u{database_name[-20:]}"
        server.add_user(user, "p@ss:word")
        return [
            f"mysql://{user}@{server.host}:{server.port}",
            "--password-env",
            "PASSWORD_OF_THE_TEST",
        ]

    return of


def comparable(event: dict[str, Any]) -> dict[str, Any]:
    """A dump has no flag for a file that is being written."""
    return {key: value for key, value in event.items() if key not in ("flags", "in_use")}


def test_a_dump_shows_what_the_files_hold(
    any_server: Server,
    new_database: Callable[[Server], str],
    inspect: Inspect,
    address: Callable[[Server], list[str]],
    tmp_path: Path,
) -> None:
    server, database = any_server, new_database(any_server)
    name = workload.run(server, database)
    server.execute(f"CREATE TABLE {database}.later (id INT)")
    url, *password = address(server)
    shown = inspect(f"{url}/{name}", "--json", *password)
    assert (shown.code, shown.err) == (0, "")

    names = [file for file, _ in server.binlogs() if file >= name]
    assert len(names) == 2
    for file in names:
        (tmp_path / file).write_bytes(read_log(server, file))
    files = inspect(tmp_path / names[0], str(tmp_path / names[1]), "--json").events
    assert list(map(comparable, shown.events)) == list(map(comparable, files))

    gtids = [event["gtid"] for event in shown.events if event.get("gtid")]
    for gtid in (gtids[0], gtids[-1]):
        found = inspect(url, "--json", "--start", gtid, *password)
        assert found.code == 0
        assert [event["gtid"] for event in found.events if event.get("gtid")] == gtids[
            gtids.index(gtid) :
        ]
    part = inspect(
        url, "--json", "--start", f"{name}:{files[3]['offset']}", "--stop", gtids[5], *password
    )
    assert (
        part.events
        == shown.events[3 : [event.get("gtid") for event in shown.events].index(gtids[5])]
    )
    assert inspect(url, "--summary", *password).code == 0


def test_refusals_of_a_server_are_reported(
    mysql97: Server, inspect: Inspect, address: Callable[[Server], list[str]], tmp_path: Path
) -> None:
    url, *password = address(mysql97)
    unknown = inspect(f"{url}/binlog.999999", *password)
    assert (unknown.code, unknown.out) == (2, "")
    assert "has no file binlog.999999; it has binlog.0" in unknown.err
    (tmp_path / "wrong").write_text("wrong\n")
    refused = inspect(url, "--password-file", str(tmp_path / "wrong"))
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("access denied: ")
    closed = inspect("mysql://root@127.0.0.1:1", *password)
    assert closed.code == 1
    assert closed.err.startswith("cannot connect: ")


def test_a_log_is_followed(
    mysql97: Server, new_database: Callable[[Server], str], address: Callable[[Server], list[str]]
) -> None:
    database = new_database(mysql97)
    url, *password = address(mysql97)
    file = mysql97.binlog_position()[0]
    command = [
        sys.executable,
        "-m",
        "dispatcher",
        "inspect",
        f"{url}/{file}",
        "--json",
        "--follow",
        *password,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    ) as process:
        assert process.stdout is not None and process.stderr is not None

        def read_until(text: str) -> None:
            while text not in json.loads(process.stdout.readline()).get("query", ""):  # type: ignore[union-attr]
                pass

        read_until(f"CREATE DATABASE `{database}`")
        for number in range(3):
            mysql97.execute(f"CREATE TABLE {database}.followed{number} (id INT)")
            read_until(f"followed{number}")
        process.terminate()
        assert process.stderr.read() == b""
