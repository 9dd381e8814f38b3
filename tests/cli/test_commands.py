"""Runs the installed script as a person does, and checks its output and its exit code."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.program import (
    PASSWORD,
    call,
    consumer,
    write,
)
from tests.cli.running import daemon
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.servers.server import Instance, Server


def test_version() -> None:
    done = call("--version")
    assert done.returncode == 0 and done.stdout.startswith("binlog-dispatcher ")


def test_help_names_the_commands_and_loads_no_more_than_that() -> None:
    done = call("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in ("run", "check", "binlogs"))
    code = (
        "import sys, dispatcher.cli\n"
        "print([m for m in ('pymysql', 'uvicorn', 'starlette', 'pydantic', 'numba', 'rich') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout == "[]\n"


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dispatcher", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == call("--version").stdout


def test_help_shows_flags_and_values_as_they_are_written() -> None:
    shown = call("binlogs", "--help", env={"COLUMNS": "80"}).stdout
    assert "  --json " in shown and "--url URL " in shown and "--token-file FILE " in shown
    every = [shown, *(call(*words, "--help").stdout for words in (["run"], ["check"], ["inspect"]))]
    assert not [word for word in ("<bool>", "<str>", "<path>") if word in "".join(every)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str) -> None:
    env = {"_BINLOG_DISPATCHER_COMPLETE": f"source_{shell}"}
    assert "binlog-dispatcher" in call(env=env).stdout
    asked = {
        "_BINLOG_DISPATCHER_COMPLETE": "complete_bash",
        "COMP_WORDS": "binlog-dispatcher bin",
        "COMP_CWORD": "1",
    }
    assert call(env=asked).stdout.strip() == "binlogs"


@pytest.mark.parametrize(
    "arguments",
    [["run"], ["check"], ["binlogs"], ["nothing"], ["run", "--nothing"], ["check", "-c"]],
)
def test_wrong_usage(arguments: list[str]) -> None:
    done = call(*arguments)
    assert done.returncode == 2 and done.stdout == "" and "Error" in done.stderr


@pytest.mark.parametrize("name", ["run", "check"])
def test_all_errors_of_settings_are_printed_together(name: str, tmp_path: Path) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text(
        "consumers:\n"
        "  shop: {mysql: u@h, password: '${UNSET}', databses: [shop]}\n"
        "  shop: {}\n"
        f"  audit: {{mysql: 'u:{PASSWORD}@h', password_file: none, databases: []}}\n"
        "api: {listen: nowhere}\n"
    )
    done = call(name, "--config", file)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.replace(f"{tmp_path}/", "").splitlines() == [
        "dispatcher.yaml:2: consumers.shop.password: the environment variable UNSET is not set; export it",
        "dispatcher.yaml:2: consumers.shop.databses: unknown key; did you mean 'databases'?",
        "dispatcher.yaml:3: consumers.shop: duplicate key, already set in line 2",
        "dispatcher.yaml:4: consumers.audit.databases: must not be empty",
        "dispatcher.yaml:4: consumers.audit.mysql: must not contain a password; set"
        " password_file or password",
        "dispatcher.yaml:4: consumers.audit.password_file: cannot read the file none: No such"
        " file or directory",
        "dispatcher.yaml:5: api.listen: without api.tokens the daemon listens on loopback"
        " addresses only; set api.tokens, or listen on 127.0.0.1:8085",
    ]


def test_options_and_environment_override_files(tmp_path: Path) -> None:
    file = write(tmp_path, ("shop", consumer(1, "u")))
    done = call("run", "-c", file, "--listen", "0.0.0.0:1", "--log-level", "loud")
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "--listen: api.listen: without api.tokens the daemon listens on loopback addresses only;"
        " set api.tokens, or listen on 127.0.0.1:1",
        "--log-level: log.level: must be 'debug', 'info', 'warning' or 'error'",
    ]
    env = {"DISPATCHER_CONFIG": str(file), "DISPATCHER__API__LISTN": "x"}
    done = call("check", env=env)
    assert done.returncode == 2
    assert done.stderr == (
        "environment variable DISPATCHER__API__LISTN: api.listn: unknown key;"
        " did you mean 'listen'?\n"
    )


# -- with servers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def account(mysql97: Server) -> Iterator[Server]:
    """The shared server with an account `cli` that has all privileges that the daemon needs, and an account `cli_bare`
    that may only log in."""
    mysql97.add_user("cli", PASSWORD)
    mysql97.add_user("cli_bare", PASSWORD, "USAGE ON *.*")
    yield mysql97
    mysql97.execute("DROP USER 'cli'@'%'", "DROP USER 'cli_bare'@'%'")


def test_check_warns_of_a_readable_settings_file_with_a_secret(
    account: Server, new_database: Callable[[Server], str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="cli-") as name:
        Path(name).chmod(0o755)
        file = write(Path(name), ("shop", consumer(account, "cli", new_database(account))))
        file.chmod(0o644)
        done = call("check", "--config", file)
    assert done.returncode == 0 and done.stdout == "OK: 1 consumer checked, no errors, 1 warning\n"
    assert done.stderr.startswith(f"warning: {file}:2: ") and f"chmod 600 {file}" in done.stderr


def test_check_of_valid_settings(
    account: Server, new_database: Callable[[Server], str], tmp_path: Path
) -> None:
    one, other = new_database(account), new_database(account)
    file = write(
        tmp_path, ("a", consumer(account, "cli", one)), ("b", consumer(account, "cli", other))
    )
    done = call("check", "--config", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "OK: 2 consumers checked, no errors\n"
    assert not (tmp_path / "state.db").exists()


def bad_servers(server_factory: ServerFactory) -> tuple[Instance, Instance]:
    """A server without a binlog, and one in statement format."""
    without_log = server_factory("mysql97", "--skip-log-bin")
    statements = server_factory("mysql97", "--binlog-format=STATEMENT")
    for server in (without_log, statements):
        server.add_user("cli", PASSWORD)
        server.execute("CREATE DATABASE shop")
    return without_log, statements


def test_check_reports_the_errors_of_all_servers(
    account: Server,
    server_factory: ServerFactory,
    new_database: Callable[[Server], str],
    tmp_path: Path,
) -> None:
    database = new_database(account)
    without_log, statements = bad_servers(server_factory)
    closed_port, here = free_port(), f"127.0.0.1:{account.port}"
    file = write(
        tmp_path,
        ("good", consumer(account, "cli", database)),
        ("unreachable", consumer(closed_port, "cli")),
        ("stranger", consumer(account, "cli_unknown")),
        ("bare_a", consumer(account, "cli_bare")),
        ("bare_b", consumer(account, "cli_bare", "billing")),
        ("logless", consumer(without_log, "cli")),
        ("statements", consumer(statements, "cli")),
        (
            "hosts",
            consumer(account, "cli", database).replace(here, f"{here},127.0.0.1:{closed_port}"),
        ),
    )
    for arguments in (["check"], ["run", "--strict"]):
        done = call(*arguments, "--config", file)
        assert done.returncode == 2 and done.stdout == ""
        lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
        place = "@127.0.0.1:"
        assert lines[0] == (
            f"cli{place}{closed_port}: cannot connect: Connection refused; check host, port and"
            " firewall, and that the server is running (for consumers.unreachable)"
        )
        assert lines[1].startswith(f"cli_unknown{place}{account.port}: access denied: ")
        bare = [line for line in lines if line.startswith(f"cli_bare{place}")]
        assert [line.partition("account lacks ")[2].partition(";")[0] for line in bare] == [
            "REPLICATION SLAVE on *.*",
            "REPLICATION CLIENT on *.*",
            "SELECT on `shop`.*, or the server has no such database",
            "SELECT on `billing`.*, or the server has no such database",
        ]
        assert all(line.endswith("(for consumers.bare_a, consumers.bare_b)") for line in bare)
        assert "log_bin=OFF" in lines[6] and lines[6].endswith("(for consumers.logless)")
        assert "binlog_format=STATEMENT" in lines[7] and "binlog_format = ROW" in lines[7]
        assert lines[8] == lines[0].replace("unreachable", "hosts")  # names one of the hosts
        assert len(lines) == 9


def test_run_serves_valid_consumers_and_retries_the_others(
    account: Server,
    server_factory: ServerFactory,
    new_database: Callable[[Server], str],
    tmp_path: Path,
) -> None:
    without_log, statements = bad_servers(server_factory)
    database, port, closed_port = new_database(account), free_port(), free_port()
    account.execute("CREATE TABLE t (a INT PRIMARY KEY)", database=database)
    bad = {
        "unreachable": (consumer(closed_port, "cli"), "Connection refused"),
        "stranger": (consumer(account, "cli_unknown"), "access denied"),
        "bare": (consumer(account, "cli_bare"), "the account lacks REPLICATION SLAVE on *.*"),
        "logless": (consumer(without_log, "cli"), "log_bin=OFF"),
        "statements": (consumer(statements, "cli"), "binlog_format=STATEMENT"),
    }
    good = consumer(account, "cli", database)
    file = write(
        tmp_path, ("good", good), *((name, text) for name, (text, _) in bad.items()), port=port
    )
    checked = call("check", "--config", file).stderr
    with daemon(file, port) as running:
        rows = running.until(
            lambda rows: (
                rows["good"]["state"] == "streaming"
                and all(rows[name]["last_error"] for name in bad)
            )
        )
        for name, (_, what) in bad.items():
            assert rows[name]["state"] in ("connecting", "failed")
            assert what in rows[name]["last_error"] and what in checked
            assert rows[name]["last_error"].count(";") >= 1  # the remedy follows

        opened = running.get("/v1/consumers/good/session", {"after": None})
        account.execute("INSERT INTO t VALUES (1), (2)", database=database)
        asked = {"session": opened["session"], "after": opened["position"], "wait_ms": 30_000}
        polled = running.get("/v1/consumers/good/poll", asked)
        assert polled["transactions"] >= 1 and polled["bytes"] > 0

        # The server's setting is corrected while the daemon runs.
        statements.execute("SET GLOBAL binlog_format = ROW")
        running.until(lambda rows: rows["statements"]["state"] == "streaming")

        table = call("binlogs", "--url", running.url)
        assert table.returncode == 0 and "streaming" in table.stdout and "good" in table.stdout
        as_json = call("binlogs", "--json", env={"DISPATCHER_URL": running.url})
        assert {row["name"] for row in json.loads(as_json.stdout)} == {"good", *bad}

        assert running.stop() == 0
    log = running.log.read_text()
    assert PASSWORD not in log and "Traceback" not in log


def test_a_port_in_use(account: Server, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = call("run", "--config", write(tmp_path, ("a", consumer(account, "cli")), port=port))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"settings: cannot listen on 127.0.0.1:{port}: Address already in use;")


def test_a_state_store_in_use_or_damaged(account: Server, tmp_path: Path) -> None:
    port = free_port()
    file = write(tmp_path, ("a", consumer(account, "cli")), port=port)
    with daemon(file, port) as running:
        running.until(bool)
        done = call("run", "--config", file, "--listen", "127.0.0.1:0")
        assert running.stop(signal.SIGINT) == 0
    assert done.returncode == 1 and "in use by another process" in done.stderr
    assert not list((tmp_path / "state.db.spill").iterdir())
    for leftover in ("state.db", "state.db-wal", "state.db-shm"):
        (tmp_path / leftover).unlink(missing_ok=True)
    (tmp_path / "state.db").write_bytes(b"no database" * 1000)
    done = call("run", "--config", file)
    assert done.returncode == 1 and "state store: " in done.stderr and "move it" in done.stderr
