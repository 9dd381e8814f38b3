"""Tests of the test servers: each kind starts, logs rows, keeps its data, and leaves no process and no file."""

from __future__ import annotations

import os
import select
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pymysql
import pytest

from tests.servers import KINDS, Instance, Kind, Server, ServerUnavailable, provision
from tests.servers.installs import variable
from tests.servers.plugin import ServerFactory
from tests.servers.server import external_server, new_instance

each_kind = pytest.mark.parametrize("kind", KINDS)


def rows_of(log: str) -> list[str]:
    return [line.removeprefix("### ") for line in log.splitlines() if line.startswith("### ")]


def test_a_server_logs_full_rows(any_server: Server) -> None:
    log_bin, row_format, image = any_server.execute(
        "SELECT @@log_bin, @@binlog_format, @@binlog_row_image"
    )[0]
    assert (log_bin, row_format, image) == (1, "ROW", "FULL")
    if any_server.kind != "mysql56":
        assert any_server.execute("SELECT @@binlog_row_metadata") == (("FULL",),)
    if any_server.mariadb:
        assert any_server.execute("SELECT @@gtid_strict_mode") == ((1,),)
    else:
        assert any_server.execute("SELECT @@gtid_mode") == (("ON",),)


def test_rows_written_are_rows_in_the_log(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    database = new_database(any_server)
    file, offset = any_server.binlog_position()
    any_server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'æ'), (2, 'b')",
        "UPDATE t SET name = 'c' WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        database=database,
    )
    assert any_server.binlogs()[-1] == any_server.binlog_position()
    log = any_server.mysqlbinlog(
        "-v", "--base64-output=decode-rows", f"--start-position={offset}", file, remote=True
    )
    assert rows_of(log.stdout) == [
        *[f"INSERT INTO `{database}`.`t`", "SET", "  @1=1", "  @2='æ'"],
        *[f"INSERT INTO `{database}`.`t`", "SET", "  @1=2", "  @2='b'"],
        *[f"UPDATE `{database}`.`t`", "WHERE", "  @1=2", "  @2='b'", "SET", "  @1=2", "  @2='c'"],
        *[f"DELETE FROM `{database}`.`t`", "WHERE", "  @1=1", "  @2='æ'"],
    ]


def test_an_account_logs_in_over_tcp(any_server: Server, database_name: str) -> None:
    name = database_name[-16:]
    any_server.add_user(name, "p'w%s", "SELECT ON *.*")
    with (
        any_server.connect(user=name, password="p'w%s") as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT CURRENT_USER()")
        assert cursor.fetchone() == (f"{name}@%",)
    any_server.execute(f"DROP USER '{name}'@'%'")


@each_kind
def test_data_survives_a_restart_and_a_kill(kind: Kind, server_factory: ServerFactory) -> None:
    server = server_factory(kind)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (1)")
    port, files = server.port, len(server.binlogs())
    server.restart()
    server.execute("INSERT INTO d.t VALUES (2)")
    server.restart("--max-connections=17", kill=True)
    assert server.execute("SELECT id FROM d.t ORDER BY id") == ((1,), (2,))
    assert server.execute("SELECT @@max_connections") == ((17,),)
    assert (server.port, len(server.binlogs())) == (port, files + 2)


@each_kind
def test_the_tool_reads_a_file_of_the_data_directory(
    kind: Kind, server_factory: ServerFactory
) -> None:
    server = server_factory(kind)
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (7)")
    (file, _), *others = server.binlogs()
    log = server.mysqlbinlog("-v", "--base64-output=decode-rows", server.datadir / file)
    assert rows_of(log.stdout) == ["INSERT INTO `d`.`t`", "SET", "  @1=7"]
    assert (log.stderr, others) == ("", [])


def test_two_instances_are_two_servers(server_factory: ServerFactory) -> None:
    one, other = server_factory("mysql97"), server_factory("mysql97", "--server-id=9")
    assert one.port != other.port
    assert one.execute("SELECT @@server_uuid") != other.execute("SELECT @@server_uuid")
    assert other.execute("SELECT @@server_id") == ((9,),)


def test_mysql97_speaks_tls_with_a_certificate_of_its_own(server_factory: ServerFactory) -> None:
    server = server_factory("mysql97")
    server.add_user("tls", "pw", require="SSL")
    context = ssl.create_default_context(cafile=str(server.ca_pem))
    context.check_hostname = False  # the certificate that the server makes has no host name
    with (
        server.connect(user="tls", password="pw", ssl=context) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SHOW STATUS LIKE 'Ssl_version'")
        assert cursor.fetchone() == ("Ssl_version", "TLSv1.3")


def test_a_server_that_refuses_to_start_says_why(server_factory: ServerFactory) -> None:
    with pytest.raises(pytest.fail.Exception, match="no-such-option"):
        server_factory("mysql56", "--no-such-option")


def test_a_server_whose_port_is_taken_starts_on_another() -> None:
    with new_instance("mariadb1011") as one, new_instance("mariadb1011") as other:
        one.start()
        taken = other.port = one.port
        other.start()
        assert other.port != taken
        assert other.execute("SELECT @@port") == ((other.port,),)


def ended(pid: int) -> bool:
    """True if the process ends within 10 s (waiting on its pidfd)."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


def test_nothing_is_left_when_the_owner_is_killed() -> None:
    program = (
        "import sys; from tests.servers.server import new_instance\n"
        "instance = new_instance('mysql56'); instance.start()\n"
        "print(instance.pid, instance.guard.pid, instance.folder, flush=True)\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        server, guard, folder = owner.stdout.readline().split()
        assert Path(folder).is_dir()
        owner.kill()
    assert ended(int(server)) and ended(int(guard))
    assert not Path(folder).exists()


def test_closing_removes_the_folder_and_ends_the_process() -> None:
    with new_instance("mariadb118") as server:
        server.start()
        pid = server.pid
    assert ended(pid) and not server.folder.exists()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.pid


def test_a_second_provision_costs_nothing() -> None:
    provision("mysql97")
    began = time.perf_counter()
    provision("mysql97")
    assert time.perf_counter() - began < 0.5


def url_of(server: Instance) -> str:
    server.add_user("given", "p@ss/word", "ALL ON *.*")
    return f"mysql://given:p%40ss%2Fword@{server.host}:{server.port}"


def test_a_server_named_in_the_environment_is_used(
    server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_factory("mysql97")
    monkeypatch.setenv(variable("mysql97"), url_of(server))
    given = external_server("mysql97")
    assert given is not None
    assert not isinstance(given, Instance)
    assert given.execute("SELECT @@server_uuid") == server.execute("SELECT @@server_uuid")
    assert given.mysqlbinlog("binlog.000001", remote=True).stderr == ""


def test_a_server_named_in_the_environment_is_checked(
    server_factory: ServerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = server_factory("mariadb1011")
    monkeypatch.setenv(variable("mysql97"), url_of(server))
    with pytest.raises(ServerUnavailable, match=r"names a server 10\.11.*, not 9\.7"):
        external_server("mysql97")
    server.stop()
    monkeypatch.setenv(variable("mariadb1011"), f"mysql://u:p@{server.host}:{server.port}")
    with pytest.raises(ServerUnavailable, match="does not answer"):
        external_server("mariadb1011")
    monkeypatch.setenv(variable("mysql56"), "localhost:3306")
    with pytest.raises(ServerUnavailable, match="must be mysql://"):
        external_server("mysql56")


def test_a_fitting_program_on_path_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server_factory: ServerFactory
) -> None:
    """The test makes folders like those of a system installation. Their programs are scripts that run the provisioned
    programs."""
    monkeypatch.setenv(variable("mariadb1011"), "provision")
    provisioned = provision("mariadb1011")
    (tmp_path / "bin").mkdir()
    (tmp_path / "share").mkdir()
    (tmp_path / "share/mysql").symlink_to(provisioned.share)
    tool = next(part for part in provisioned.mysqlbinlog if part.startswith("--plugin-dir"))
    for name, command in {
        "mariadbd": provisioned.mysqld[: provisioned.mysqld.index("--no-defaults")],
        "mariadb-binlog": provisioned.mysqlbinlog[: provisioned.mysqlbinlog.index(tool) - 1],
    }.items():
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        program.chmod(0o755)
    monkeypatch.delenv(variable("mariadb1011"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("BINLOG_DISPATCHER_CACHE", str(tmp_path / "cache"))
    server = server_factory("mariadb1011")
    assert server.installed is not None
    assert server.installed.mysqld[0] == str(tmp_path / "bin/mariadbd")
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT)", "INSERT INTO d.t VALUES (7)")
    log = server.mysqlbinlog("-v", server.datadir / "binlog.000001")
    assert rows_of(log.stdout) == ["INSERT INTO `d`.`t`", "SET", "  @1=7"]
    with pytest.raises(pymysql.OperationalError):
        server.connect(user="unknown", password="x")
