"""The example and the program in the documentation run unchanged with a real server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.harness import until
from tests.servers import Server

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs/library.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)

NewDatabase = Callable[[Server], str]


@contextmanager
def running(folder: Path, *command: str) -> Iterator[Callable[[], list[str]]]:
    """Runs a program until the block ends, then sends Ctrl-C. The yielded function returns the lines printed so far."""
    environment = {**os.environ, "MYSQL_PASSWORD": "secret", "PYTHONPATH": str(ROOT)}
    environment["PYTHONFAULTHANDLER"] = "1"
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            # A test run in the background ignores SIGINT, and its child processes inherit this.
            ["env", "--default-signal=INT", sys.executable, "-u", *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder,
        )
    try:
        yield lambda: output.read_text(encoding="utf-8").splitlines()
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)  # long, because SIGINT does not interrupt a running compilation
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler prints the stacks of its threads
            process.wait()
            raise AssertionError(f"it does not end:\n{output.read_text()}") from None


def acknowledged(state: Path, name: str) -> str:
    """Returns the GTID set that is stored for the binlog `name`."""
    with closing(sqlite3.connect(f"file:{state}?mode=ro", uri=True)) as db:
        query = "SELECT acknowledged FROM consumer WHERE name = ?"
        found = db.execute(query, (name,)).fetchone()
    return str(json.loads(found[0])["gtid"]) if found else ""


def test_the_example_resumes_after_a_restart(
    mysql97: Server, new_database: NewDatabase, tmp_path: Path
) -> None:
    shop, billing = new_database(mysql97), new_database(mysql97)
    mysql97.add_user("example", "secret")
    command = (
        str(ROOT / "examples/changes.py"),
        f"example@{mysql97.host}:{mysql97.port}",
        shop,
        billing,
    )
    try:
        for database in (shop, billing):
            mysql97.execute("CREATE TABLE t (id INT PRIMARY KEY, at DATETIME)", database=database)
        mysql97.execute(f"INSERT INTO {shop}.t VALUES (1, '2026-11-21 12:00:00')")
        mysql97.execute(f"INSERT INTO {billing}.t VALUES (2, NULL)")
        with running(tmp_path, *command) as printed:
            # The databases, their tables, and the rows.
            until(lambda: len(printed()) >= 6, "everything is printed")
            everything = [json.loads(line) for line in printed()]
            tip = str(mysql97.execute("SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
            until(lambda: acknowledged(tmp_path / "changes.db", billing) == tip, "it is stored")
            until(lambda: acknowledged(tmp_path / "changes.db", shop), "it is stored")
        assert sorted(line["op"] for line in everything) == ["ddl"] * 4 + ["insert"] * 2
        rows = {line["database"]: line["after"] for line in everything if line["op"] == "insert"}
        assert rows == {
            shop: {"id": 1, "at": "2026-11-21 12:00:00"},
            billing: {"id": 2, "at": None},
        }
        mysql97.execute(f"UPDATE {billing}.t SET id = 3")
        with running(tmp_path, *command) as printed:
            until(lambda: len(printed()) >= 1, "what is new is printed")
            first = json.loads(printed()[0])
        assert (first["database"], first["before"]["id"], first["after"]["id"]) == (billing, 2, 3)
    finally:
        mysql97.execute("DROP USER 'example'@'%'")


async def test_the_program_in_the_documentation(
    mysql97: Server,
    new_database: NewDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    program, *others = BLOCKS
    for other in others:
        compile(f"async def f():\n    {other}", "docs/library.md", "exec")
    monkeypatch.chdir(tmp_path)
    database = new_database(mysql97)
    mysql97.execute(
        "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database
    )
    mysql97.add_user("document", "secret")
    try:
        address = f"document@{mysql97.host}:{mysql97.port}"
        program = program.replace("repl@db1:3306", address).replace('"shop"', f'"{database}"')
        names: dict[str, Any] = {}
        exec(program.removesuffix("asyncio.run(main())\n"), names)
        runs = asyncio.gather(names["main"]())
        printed, wanted = "", f"insert {database}.t None {{'id': 1}}"
        async with asyncio.timeout(30):
            while wanted not in printed and not runs.done():
                await asyncio.sleep(0.01)
                printed += capsys.readouterr().out
        runs.cancel()
        with pytest.raises(asyncio.CancelledError):
            await runs
    finally:
        mysql97.execute("DROP USER 'document'@'%'")
