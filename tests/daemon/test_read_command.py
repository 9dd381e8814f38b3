"""`binlog-dispatcher read` at a real daemon and at real servers, as a person runs it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import PROGRAM, environment
from tests.daemon.conftest import Source
from tests.daemon.harness import DEADLINE_S, PASSWORD, until
from tests.daemon.scene import Scene
from tests.servers import Server

Lines = list[dict[str, Any]]


def read(*arguments: object, env: Mapping[str, str] | None = None) -> tuple[int, Lines, str]:
    """Returns the exit code, the lines, and stderr."""
    done = subprocess.run(
        [PROGRAM, "read", *map(str, arguments)],
        env=environment({"PASSWORD": PASSWORD, **(env or {})}),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    return done.returncode, lines_of(done.stdout), done.stderr.decode()


def lines_of(text: bytes) -> Lines:
    return [json.loads(line) for line in text.splitlines()]


@contextmanager
def reading(file: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command with its output in a file. The end of the block ends it if it still runs."""
    with (
        file.open("wb") as out,
        subprocess.Popen(
            [PROGRAM, "read", *map(str, arguments)], env=environment(), stdout=out
        ) as process,
    ):
        try:
            yield process
        finally:
            process.kill()


def ids(lines: Lines) -> list[int]:
    return [line["after"]["id"] for line in lines if line["op"] == "insert"]


def stored_ids(server: Server) -> list[int]:
    return [int(str(row[0])) for row in server.execute("SELECT id FROM d.t ORDER BY id")]


def test_a_consumer_is_read_to_the_end_and_continued(scene: Scene) -> None:
    url = ("--url", scene.daemon.url)
    scene.insert()
    scene.insert()
    code, lines, _ = read("beside", "--once", "--no-ack", *url)
    assert code == 0
    assert ids(lines) == stored_ids(scene.server)
    code, lines, _ = read("beside", "--once", *url)
    assert (code, ids(lines)) == (0, stored_ids(scene.server))
    scene.insert()
    code, lines, _ = read("beside", "--once", *url)
    assert (code, ids(lines)) == (0, stored_ids(scene.server)[-1:])
    code, lines, _ = read("beside", "--once", "--from", "earliest", "--table", "d.t*", *url)
    assert (code, ids(lines)) == (0, stored_ids(scene.server))
    code, lines, _ = read("beside", "--once", "--from", "earliest", "--table", "d.u", *url)
    assert (code, ids(lines)) == (0, [])


def test_it_waits_for_the_daemon_and_ends_at_a_signal(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "out"

    def has_everything() -> bool:
        return ids(lines_of(file.read_bytes())) == stored_ids(scene.server)

    place = ("beside", "--from", "earliest", "--url", scene.daemon.url)
    with reading(file, *place) as process:
        until(has_everything, "all rows are in the file")
        scene.daemon.restart(kill=True)
        scene.insert()
        until(has_everything, "it has waited for the daemon")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    assert read("beside", "--once", "--url", scene.daemon.url)[1] == []


def test_another_session_ends_it(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "out"
    with reading(file, "beside", "--from", "earliest", "--url", scene.daemon.url) as process:
        until(lambda: file.stat().st_size, "it reads")
        scene.daemon.api.session("beside")
        scene.insert()
        assert process.wait(DEADLINE_S) == 2


def test_a_command_that_fails_gets_its_lines_again(scene: Scene, tmp_path: Path) -> None:
    got = tmp_path / "got"
    command = f"cat >> {got}; test -e {tmp_path}/second || {{ touch {tmp_path}/second; exit 3; }}"
    url = scene.daemon.url
    scene.insert()
    code, _, said = read("beside", "--once", "--from", "earliest", "--url", url, "--run", command)
    assert code == 0
    assert "exit code 3; it gets the same lines again" in said
    assert ids(lines_of(got.read_bytes())) == stored_ids(scene.server) * 2


def test_a_closed_pipe_acknowledges_nothing(scene: Scene) -> None:
    scene.insert()
    read("beside", "--once", "--url", scene.daemon.url)
    scene.insert()
    (newest,) = stored_ids(scene.server)[-1:]
    ended, wrote = os.pipe()
    os.close(ended)
    with os.fdopen(wrote, "wb") as pipe:
        done = subprocess.run(
            [PROGRAM, "read", "beside", "--once", "--url", scene.daemon.url],
            env=environment(),
            stdout=pipe,
            stderr=subprocess.PIPE,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert ids(read("beside", "--once", "--url", scene.daemon.url)[1]) == [newest]


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_server_is_read_without_a_daemon(
    kind: str, request: pytest.FixtureRequest, source: Source, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = f"read_{os.getpid()}"
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    server.execute(f"CREATE TABLE {database}.u (id INT PRIMARY KEY)")
    address = f"mysql://{source(server)['mysql']}"
    login = ("--password-env", "PASSWORD", "--once")
    state = ("--state", tmp_path / "state.db")
    assert read(f"{address}/{database}", *login, *state)[:2] == (0, [])
    server.execute(f"INSERT INTO {database}.t VALUES (1)", f"INSERT INTO {database}.u VALUES (2)")
    for expected in ([1, 2], []):
        assert ids(read(f"{address}/{database}", *login, *state)[1]) == expected
    code, lines, _ = read(f"{address}/{database}.u", *login, "--from", "earliest", "--schema")
    assert (code, ids(lines)) == (0, [2])
    (schema,) = (line for line in lines if line["op"] == "schema")
    assert schema["primary_key"] == ["id"]
    server.execute(f"DROP DATABASE {database}")


def test_misspelt_names_are_named(scene: Scene, source: Source) -> None:
    url = ("--url", scene.daemon.url)
    code, lines, said = read("besid", *url)
    assert (code, lines) == (2, [])
    assert said.endswith("no consumer 'besid'; did you mean 'beside'?\n")
    scene.insert()
    code, lines, said = read(
        "beside", "--once", "--no-ack", "--table", "d.tt", "--table", "d.*", *url
    )
    assert (code, ids(lines)[-1:]) == (0, stored_ids(scene.server)[-1:])
    (warning,) = said.splitlines()
    assert warning.startswith("warning: ") and "d.tt" in warning and "waiting for" in warning
    address = f"mysql://{source(scene.server)['mysql']}"
    for path, named in (
        ("dd", "there is no database dd"),
        ("d.tt", "the server shows the account no table d.tt (the nearest is t)"),
    ):
        code, lines, said = read(f"{address}/{path}", "--password-env", "PASSWORD", "--once")
        assert (code, lines) == (0, [])
        assert said.startswith(f"warning: {named}"), said


def test_a_reader_that_loses_its_session_is_announced(scene: Scene, tmp_path: Path) -> None:
    url = ("--url", scene.daemon.url)
    with reading(tmp_path / "lines", "beside", *url):
        until(lambda: scene.daemon.api.row("beside")["reader"] == "waiting", "it waits")
        assert "--no-ack" not in read("beside", "--once", "--no-ack", *url)[2]
        assert "reads beside now, and its session ends" in read("beside", "--once", *url)[2]


def test_a_folder_of_files_is_read(scene: Scene, tmp_path: Path) -> None:
    scene.insert()
    for name, _ in scene.server.binlogs():
        shutil.copy(scene.server.datadir / name, tmp_path / name)
    code, lines, _ = read(f"files:{tmp_path}", "--once")
    assert code == 0
    assert ids([line for line in lines if line.get("table") == "t"]) == stored_ids(scene.server)


def test_a_misspelt_mask_ends_it_before_a_row_is_printed(scene: Scene) -> None:
    scene.insert()
    place = ("beside", "--once", "--from", "earliest", "--url", scene.daemon.url)
    code, lines, said = read(*place, "--mask", "d.t.idd=sha256")
    assert code == 2
    assert [line for line in lines if line.get("table") == "t"] == []
    assert "--mask: table d.t has no column idd; did you mean id? correct --mask" in said
    assert read(*place, "--mask", "d.t.idd=sha256", "--mask-if-exists")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("shop",), "--url is missing"),
        (("mysql://u:p@h/shop",), "the address holds a password"),
        (("mysql://h/shop",), "mysql://user@host:3306/shop"),
        (("mysql://u@h/shop", "--no-ack"), "--no-ack is for a consumer"),
        (("mysql://u@h/shop", "--table", "shop.t"), "--table is for a consumer"),
        (("shop", "--url", "http://x", "--state", "s"), "--state is for a server"),
        (("shop", "--url", "http://x", "--from", "nonsense"), "--from: "),
        (("mysql://u@h/shop", "--from", "uuid:x-"), "--from: "),
        (("mysql://u@h/shop", "--tls-mode", "some"), "tls.mode"),
        (("mysql://u@h/shop", "--format", "avro"), "use plain or debezium"),
        (
            ("mysql://u@h/shop", "--format", "debezium", "--schema"),
            "--schema is for --format plain",
        ),
        (("files:/nowhere", "--once"), "the folder cannot be read"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], named: str) -> None:
    code, lines, said = read(*arguments)
    assert code in (1, 2)
    assert lines == []
    assert named in said
    assert len(said.splitlines()) == 1
