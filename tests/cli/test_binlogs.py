"""The commands `binlogs`, `top` and `consumers`, with several kinds of answers of the daemon."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import ssl
import subprocess
import termios
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from dispatcher.cli.status_text import reader_style
from tests.cli.program import DEADLINE_S, ROW, answering, call, command, environment
from tests.servers.ports import free_port
from tests.servers.server import Server
from tests.support.fake_daemon import standby_answer
from tests.support.hostile_text import HOSTILE, SHOWN, acts

FAILED = ROW | {
    "name": "billing",
    "state": "failed",
    "dispatcher_name": "",
    "acknowledged": None,
    "runway_seconds": None,
    "last_error": "position purged: [x]; " + "move the consumer " * 8,
}
ROWS = json.dumps([ROW, FAILED]).encode()


def on_terminal(*arguments: str, keys: bytes = b"", columns: int = 80) -> tuple[int, str]:
    """Runs a command on a terminal of 24 lines. Returns its exit code and output. `keys`: sent to the command after its
    first output."""
    main, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    env = environment({"TERM": "xterm"})
    del env["COLUMNS"]
    with subprocess.Popen(
        command(*arguments), env=env, stdin=terminal, stdout=terminal, stderr=terminal
    ) as process:
        os.close(terminal)
        output, deadline = b"", monotonic() + DEADLINE_S
        try:
            while monotonic() < deadline and select.select([main], [], [], DEADLINE_S)[0]:
                try:
                    part = os.read(main, 1 << 16)
                except OSError:  # the program has closed the terminal
                    break
                output += part
                if keys:
                    os.write(main, keys)
                    keys = b""
            code = process.wait(DEADLINE_S)
        finally:
            process.kill()
            os.close(main)
    return code, re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output.decode().replace("\r", ""))


def test_binlogs_in_a_pipe_are_one_line_per_consumer_of_any_length() -> None:
    with answering(200, ROWS) as url:
        done = call("binlogs", "--url", url, env={"COLUMNS": "80"})
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "consumer  state   reader    lag  queue  events/s  position            faults",
        "shop[eu]  paused  gone    3.2 s    0 %      1234  binlog.000007:4711  -",
        f"billing   failed  gone    3.2 s    0 %      1234  -                   {FAILED['last_error'].rstrip()}",
    ]


def test_binlogs_says_why_a_daemon_that_connects_is_not_ready() -> None:
    connecting = json.dumps([ROW | {"state": "connecting"}]).encode()
    reason = "not ready: compiling kernels: 12 of 40 functions"
    with answering(200, connecting, not_ready=f"{reason}\nmore\n".encode()) as url:
        done = call("binlogs", "--url", url)
    assert (done.returncode, done.stderr) == (0, f"the daemon is {reason}\n")
    for rows, not_ready in ((connecting, b""), (connecting, b"<html>"), (ROWS, reason.encode())):
        with answering(200, rows, not_ready=not_ready) as url:
            assert call("binlogs", "--url", url).stderr == ""


def test_wide_binlogs_add_columns() -> None:
    with answering(200, ROWS) as url:
        done = call("binlogs", "--wide", "--url", url)
    words = ("repl@db1:3306", "shop:2", "1.5 KiB", "64.0 MiB", "12 B", "4 d")
    assert all(word in done.stdout for word in words)


def test_binlogs_on_a_terminal_of_80_columns() -> None:
    with answering(200, ROWS) as url:
        code, shown = on_terminal("binlogs", "--url", url)
    assert code == 0
    lines = [line.rstrip() for line in shown.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[:3] == [
        "consumer  state   reader    lag  queue  events/s  position",
        "shop[eu]  paused  gone    3.2 s    0 %      1234  binlog.000007:4711",
        "billing   failed  gone    3.2 s    0 %      1234  -",
    ]
    assert lines[4] == "billing: failed"
    assert " ".join(line.strip() for line in lines[5:]) == FAILED["last_error"].rstrip()


def test_a_fault_of_the_state_store_is_told_once_for_all_consumers() -> None:
    full = "state store: database or disk is full (/var/state.db)"
    rows = json.dumps([row | {"state_store_error": full} for row in (ROW, FAILED)]).encode()
    with answering(200, rows) as url:
        _, shown = on_terminal("binlogs", "--url", url)
        _, top = on_terminal("top", "--once", "--url", url)
        _, one = on_terminal("consumers", "show", ROW["name"], "--url", url, columns=120)
        pipe = call("binlogs", "--url", url).stdout
    assert shown.count(full) == top.count(full) == one.count(full) == 1
    assert pipe.count(full) == 2


@pytest.mark.parametrize("verb", ["show", "seek", "forget", "pause"])
def test_the_names_of_consumers_are_completed(verb: str) -> None:
    def completed(url: str) -> list[str]:
        words = {
            "_BINLOG_DISPATCHER_COMPLETE": "complete_bash",
            "COMP_WORDS": f"binlog-dispatcher consumers {verb} bi",
            "COMP_CWORD": "3",
            "DISPATCHER_URL": url,
        }
        done = call(env=words)
        assert done.stderr == ""
        return done.stdout.split()

    with answering(200, ROWS) as url:
        assert completed(url) == ["billing"]
    assert completed(url) == []  # the daemon no longer answers


def test_top_once() -> None:
    with answering(200, ROWS) as url:
        done = call("top", "--once", "--every", "0.2", "--url", url)
    lines = done.stdout.splitlines()
    assert lines[0] == f"{url}  2 consumers  1 failed  1 paused"
    assert lines[2] == "repl@db1:3306"
    assert lines[3] == "  shop:2  binlog.000007:5000  1234 events/s  1.0 MiB/s"
    words = ("shop[eu]", "paused", "gone", "3.2", "s", "░░░░░░░░░░", "0", "%", "1.0", "KiB/s")
    assert lines[5].split() == list(words)
    assert lines[6] == "  no dispatcher"
    assert lines[9].strip().startswith("billing: position purged: [x]")


def test_top_on_a_terminal_ends_on_q() -> None:
    with answering(200, ROWS) as url:
        code, shown = on_terminal("top", "--every", "5", "--url", url, keys=b"q")
    assert code == 0 and "repl@db1:3306" in shown and "q ends" in shown


def test_top_as_json_until_interrupted_goes_on_while_the_daemon_is_restarted() -> None:
    port = free_port()
    with answering(200, ROWS, port=port) as url:
        words = command("top", "--json", "--every", "0.2", "--url", url)
        process = subprocess.Popen(
            words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None and process.stderr is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert json.loads(first) == json.loads(second) == [ROW, FAILED]
    with process:
        fault = process.stderr.readline()
        assert re.match(r"[0-9-]{10}T[0-9:]{8}Z cannot connect: ", fault), fault
        assert "Connection refused" in fault
        with answering(200, ROWS, port=port):
            for _ in range(10):  # more lines than the program may have printed before
                assert json.loads(process.stdout.readline()) == [ROW, FAILED]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_top_of_a_daemon_that_does_not_answer_at_first_is_an_error() -> None:
    done = call("top", "--json", "--url", f"http://127.0.0.1:{free_port()}")
    assert done.returncode == 1 and "Connection refused" in done.stderr


def test_top_without_a_terminal_says_what_to_do() -> None:
    done = call("top", "--url", "http://127.0.0.1:1")
    assert done.returncode == 2 and "pass --once" in done.stderr


def test_one_consumer() -> None:
    with answering(200, ROWS) as url:
        shown = call("consumers", "show", "shop[eu]", "--url", url)
        as_json = call("consumers", "show", "billing", "--json", "--url", url)
        unknown = call("consumers", "show", "biling", "--url", url)
    lines = dict(line.split(None, 1) for line in shown.stdout.splitlines())
    assert lines["queue"] == "1.5 KiB of 64.0 MiB" and lines["runway_seconds"] == "4 d"
    assert json.loads(as_json.stdout) == FAILED
    assert unknown.returncode == 2 and "did you mean 'billing'?" in unknown.stderr


def test_binlogs_with_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-for-the-api\n")
    with answering(200, b"[]", token="a-token-for-the-api") as url:
        allowed = call("binlogs", "--json", "--url", url, "--token-file", tmp_path / "token")
        refused = call("binlogs", "--json", "--url", url)
    assert (allowed.returncode, allowed.stdout) == (0, "[]\n")
    assert refused.returncode == 2
    assert (
        "401 no token; send one; pass a file that contains it with --token-file" in refused.stderr
    )


def test_binlogs_reads_its_token_from_the_environment() -> None:
    with answering(200, b"[]", token="a-token-for-the-api") as url:
        env = {"DISPATCHER_TOKEN": "a-token-for-the-api"}
        assert call("binlogs", "--json", "--url", url, env=env).returncode == 0


CALLS = (("binlogs",), ("consumers", "forget", "shop", "--yes"))


def one_line(url: str, *words: str) -> str:
    """Runs a command for this URL, and asserts exit code 1. Returns its output, which is one line."""
    done = call(*words, "--url", url)
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize("words", CALLS)
def test_a_port_that_does_not_speak_http_is_one_line(
    mysql97: Server, words: tuple[str, ...]
) -> None:
    said = one_line(f"http://127.0.0.1:{mysql97.port}", *words)
    # The server may have closed the connection before the call was sent.
    assert "the server does not speak HTTP" in said or "closed the connection" in said
    assert "api.listen" in said


@pytest.mark.parametrize("words", CALLS)
def test_a_closed_port_is_one_line(words: tuple[str, ...]) -> None:
    assert "Connection refused" in one_line(f"http://127.0.0.1:{free_port()}", *words)


@pytest.mark.parametrize("words", CALLS)
def test_a_port_without_tls_is_one_line(words: tuple[str, ...]) -> None:
    with answering(200, b"[]") as url:
        said = one_line(url.replace("http:", "https:"), *words)
    assert "the server does not speak TLS" in said and "http://" in said


@pytest.fixture
def tls_port(tmp_path: Path) -> Iterator[int]:
    """A port that speaks TLS with a self-signed certificate, and closes each connection."""
    files = ("-keyout", tmp_path / "key", "-out", tmp_path / "cert")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost")
    subprocess.run([*made, *map(str, files)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        context.wrap_socket(client, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("words", CALLS)
def test_a_port_with_tls_is_one_line(tls_port: int, words: tuple[str, ...]) -> None:
    assert "https://" in one_line(f"http://127.0.0.1:{tls_port}", *words)


def test_a_certificate_that_is_not_trusted_is_one_line(tls_port: int) -> None:
    said = one_line(f"https://127.0.0.1:{tls_port}", "binlogs")
    assert "certificate is not trusted" in said and "--ca" in said


def test_json_of_another_program_is_one_line() -> None:
    with answering(200, b'[{"x": 1}]') as url:
        assert "the answer is not one of binlog-dispatcher" in one_line(url, "binlogs")


def test_without_a_terminal_a_move_needs_yes() -> None:
    done = call("consumers", "forget", "shop", "--url", "http://127.0.0.1:1")
    assert done.returncode == 2 and "--yes" in done.stderr


@pytest.mark.parametrize("to", ["somewhere", "1234", "2026-13-01"])
def test_an_invalid_position_to_seek_is_a_usage_error(to: str) -> None:
    words = ("consumers", "seek", "shop", "--to", to, "--yes", "--url", "http://127.0.0.1:1")
    done = call(*words)
    assert done.returncode == 2 and done.stderr.startswith("settings: --to: ")
    forms = "write earliest, latest, a position like binlog.000003:1234, an executed GTID set"
    assert forms in done.stderr and "like 1234 or" not in done.stderr


def test_errors_of_binlogs(tmp_path: Path) -> None:
    with answering(200, b"<html>") as url:
        assert call("binlogs", "--url", url).returncode == 1
    with answering(503, b'{"detail": "starting", "hint": "wait"}') as url:
        busy = call("binlogs", "--url", url)
    assert busy.returncode == 1 and "503 starting; wait" in busy.stderr
    with answering(404, b"nothing") as url:
        assert "404 Not Found" in call("binlogs", "--url", url).stderr
    closed_port = call("binlogs", "--url", f"http://127.0.0.1:{free_port()}")
    assert closed_port.returncode == 1 and "Connection refused" in closed_port.stderr
    no_url = call("binlogs", "--url", "db1:8085")
    assert no_url.returncode == 2 and "not the address of a daemon" in no_url.stderr
    no_file = call("binlogs", "--url", "http://x", "--token-file", tmp_path / "none")
    assert no_file.returncode == 2 and "none" in no_file.stderr


_HOSTILE_ROW = ROW | {
    "name": HOSTILE,
    "state": HOSTILE,
    "reader": HOSTILE,
    "binlog_client_name": HOSTILE,
    "last_error": HOSTILE,
    "state_store_error": HOSTILE,
    "warnings": [HOSTILE],
}
_SHOWING = pytest.mark.parametrize(
    "arguments",
    [("binlogs",), ("binlogs", "--wide"), ("top", "--once", "--every", "0.2"),
     ("consumers", "show", HOSTILE)],
)  # fmt: skip


@_SHOWING
def test_what_a_daemon_answers_is_shown_in_escapes(arguments: tuple[str, ...]) -> None:
    with answering(200, json.dumps([_HOSTILE_ROW]).encode()) as url:
        done = call(*arguments, "--url", url)
    assert done.returncode == 0 and acts(done.stdout) == []
    assert SHOWN in done.stdout
    assert not any(line.lstrip().startswith("2026-01-01") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    "arguments", [("binlogs",), ("top", "--once"), ("consumers", "show", HOSTILE)]
)
def test_json_of_hostile_text_is_exact(arguments: tuple[str, ...]) -> None:
    with answering(200, json.dumps([_HOSTILE_ROW]).encode()) as url:
        done = call(*arguments, "--json", "--url", url)
    row = json.loads(done.stdout)
    assert (row[0] if isinstance(row, list) else row)["last_error"] == HOSTILE
    assert acts(done.stdout) == []


def test_a_problem_document_is_shown_in_escapes() -> None:
    problem = {"detail": HOSTILE, "hint": HOSTILE, "kind": "UNKNOWN_CONSUMER"}
    with answering(404, json.dumps(problem).encode()) as url:
        done = call("binlogs", "--url", url)
    (line,) = done.stderr.splitlines()
    assert SHOWN in line and acts(line) == []


def test_of_several_addresses_the_one_that_answers_is_used() -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    with answering(200, ROWS) as url:
        done = call("binlogs", "--json", "--url", f"{closed},{url}")
        shown = call("top", "--once", "--every", "0.2", "--url", f"{closed},{url}").stdout
    assert json.loads(done.stdout) == [ROW, FAILED]
    assert shown.startswith(f"{url}  2 consumers")


def test_a_standby_leads_to_the_leader() -> None:
    with answering(200, ROWS) as leader:
        standby = standby_answer(leader)
        with answering(standby.status, standby.body) as url:
            done = call("binlogs", "--json", "--url", f"{url},{leader}")
            alone = call("binlogs", "--url", url)
    assert json.loads(done.stdout) == [ROW, FAILED]
    assert alone.returncode == 1
    assert f"not the leader: {url}/v1/binlogs: 503 this daemon is a standby" in alone.stderr
    assert alone.stderr.endswith(f"; add {leader} to url, with a comma between the addresses\n")


@pytest.mark.parametrize("words", CALLS)
def test_if_no_address_answers_one_line_names_them_all(words: tuple[str, ...]) -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    other = free_port()
    said = one_line(f"{closed},http://127.0.0.1:{other}", *words)
    assert f"{closed}: Connection refused, http://127.0.0.1:{other}: Connection refused" in said


def test_an_error_of_the_request_names_the_address_that_answered() -> None:
    closed = f"http://127.0.0.1:{free_port()}"
    with answering(404, b"nothing") as url:
        said = call("binlogs", "--url", f"{closed},{url}").stderr
    assert f"{url}/v1/binlogs: 404 Not Found" in said and closed not in said


def test_times_are_shown_for_people() -> None:
    row = ROW | {"mysql_binlog_timestamp": 1_795_268_353, "dispatcher_mysql_binlog_timestamp": 0}
    with answering(200, json.dumps([row]).encode()) as url:
        shown = call("consumers", "show", ROW["name"], "--url", url).stdout
    assert re.search(r"^mysql_binlog_timestamp +2026-11-21 13:39:13 UTC$", shown, re.MULTILINE), (
        shown
    )
    assert re.search(r"^dispatcher_mysql_binlog_timestamp +-$", shown, re.MULTILINE), shown
    assert "1795268353" not in shown


def test_a_reader_that_is_gone_is_red_only_if_changes_wait_for_it() -> None:
    assert reader_style(ROW | {"reader": "gone", "unacknowledged_bytes": 1}) == "red"
    assert reader_style(ROW | {"reader": "gone", "unacknowledged_bytes": 0}) == "yellow"
    assert reader_style(ROW | {"reader": "waiting"}) == "green"
