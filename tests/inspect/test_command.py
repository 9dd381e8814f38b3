"""The command line of `inspect`: arguments, files, standard input, closed output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.inspect import command
from tests.inspect.conftest import Inspect
from tests.support.inspect_logs import small_log
from tests.support.log_file import SERVER, LogFile

K = EventType


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--start", "yesterday"], "'yesterday' is not a position, a GTID or a time"),
        (["--stop", "2026-13-01"], "--stop: '2026-13-01'"),
        (["--start", "binlog.000009:4"], "--start: binlog.000009 is not among the files"),
        (["--start", f"{SERVER}:9"], "no transaction of"),
        (["--start", f"{SERVER}:5-x"], "--start: not a GTID set"),
        (["--start", "99999"], "ends at 1215, before 99999"),
        (["--start", "1215"], "no event at or after offset 1215"),
        (["--invalid-dates", "maybe"], "--invalid-dates: 'maybe'"),
        (["--follow"], "--follow needs a server"),
    ],
)
def test_a_wrong_argument_is_named(inspect: Inspect, options: list[str], said: str) -> None:
    shown = inspect(small_log().bytes(), *options)
    assert shown.code == 2
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1


def test_help_names_every_option(inspect: Inspect) -> None:
    shown = inspect("--help")
    assert shown.code == 0
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown.out)
    for option in (
        "--json", "--summary", "--hexdump", "--database", "--table", "--start", "--stop", "--invalid-dates", "--follow",
        "--password-file", "--password-env", "--tls-mode", "--ca", "mysql://",
    ):  # fmt: skip
        assert option in plain


def test_reads_several_files_and_standard_input(inspect: Inspect, tmp_path: Path) -> None:
    one, two = small_log(), LogFile()
    two.query("CREATE TABLE later (id INT)")
    other = tmp_path / "binlog.000002"
    other.write_bytes(two.bytes())
    both = inspect(one.bytes(), str(other), "--json").events
    assert [event["file"] for event in both] == ["binlog.000001"] * len(one.offsets) + [
        "binlog.000002"
    ] * 2
    start = inspect(one.bytes(), str(other), "--json", "--start", "binlog.000002:4").events
    assert [event["file"] for event in start] == ["binlog.000002"] * 2
    stop = inspect(one.bytes(), str(other), "--json", "--stop", f"{two.offsets[1]}").events
    assert len(stop) == len(one.offsets) + 1
    piped = inspect("-", "--json", stdin=one.bytes())
    assert [event["offset"] for event in piped.events] == one.offsets
    assert piped.events[0]["file"] == "stdin"


def test_ends_quietly_if_the_output_is_closed(tmp_path: Path) -> None:
    log = LogFile()
    for number in range(1, 20_000):
        log.gtid(number)
    path = tmp_path / "binlog.000001"
    path.write_bytes(log.bytes())
    command = [sys.executable, "-m", "dispatcher", "inspect", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"# binlog.000001\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


def test_a_wrong_server_address_is_refused_without_its_password(inspect: Inspect) -> None:
    for url, said in (
        ("mysql://root:secret@db", "the address holds a password"),
        ("mysql://db:3306", "not the address of a server"),
        ("mysql://root@db:port", "the port must be a number"),
    ):
        shown = inspect(url)
        assert shown.code == 2
        assert said in shown.err
        assert "secret" not in shown.err
    assert (
        "a server cannot be read together with other logs"
        in inspect("mysql://root@db", "binlog.000001").err
    )
    assert "is not set" in inspect("mysql://root@db", "--password-env", "NO_SUCH_VARIABLE_HERE").err


def test_a_person_is_told_once_that_kernels_are_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (numba.njit(lambda n: n + 1) for _ in range(2))
    with command.compilation_announced():
        one(1)
    assert capsys.readouterr().err == "", "no person reads standard error"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with command.compilation_announced():
        two(1)
        two(1.0)
    assert capsys.readouterr().err == "compiling kernels, once per version and machine\n"
