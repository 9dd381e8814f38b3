"""`init` prepares a server and writes settings with which `check` is green and `run` serves rows."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import pymysql
import pytest

from dispatcher.cli.init_text import Files, databases_of, unknown_databases
from dispatcher.mysql.account import account_statements, random_password
from dispatcher.mysql.login import Endpoint, Tls, TlsMode
from dispatcher.settings.load import load_settings
from spark_sink.mirror.values.settings import load_mirror_settings
from tests.cli.program import PASSWORD, call
from tests.cli.running import daemon
from tests.mysql.test_server_facts import WHOLE
from tests.servers.installs import Kind
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.servers.server import Instance

# Each server with settings that do not let the daemon read it, and the settings that init changes.
SERVERS: list[tuple[Kind, Sequence[str], Sequence[str]]] = [
    (
        "mysql97",
        ["--binlog-row-metadata=MINIMAL", "--binlog-format=MIXED", "--binlog-row-image=MINIMAL"],
        ["binlog_format", "binlog_row_image", "binlog_row_metadata"],
    ),
    ("mysql56", ["--binlog-format=STATEMENT"], ["binlog_format"]),
    (
        "mariadb118",
        ["--binlog-format=MIXED", "--binlog-row-metadata=NO_LOG"],
        ["binlog_format", "binlog_row_metadata"],
    ),
]


def prepared(factory: ServerFactory, kind: Kind, *options: str) -> Instance:
    server = factory(kind, *options)
    server.add_user("admin", PASSWORD)
    server.execute(
        "GRANT ALL PRIVILEGES ON *.* TO 'admin'@'%' WITH GRANT OPTION",
        "CREATE DATABASE shop_eu",
        "CREATE TABLE shop_eu.orders (id INT PRIMARY KEY, name VARCHAR(20))",
        "CREATE DATABASE hr",
    )
    return server


def init(server: Instance, folder: Path, *options: str, path: str = "") -> tuple[int, str, str]:
    """Returns exit code, stdout and stderr, and asserts that no password is in them."""
    url = f"mysql://admin@127.0.0.1:{server.port}{path}"
    given = ("--folder", folder, "--password-env", "ADMIN_PASSWORD")
    done = call("init", url, *given, *options, env={"ADMIN_PASSWORD": PASSWORD})
    secret = folder / "repl.password"
    if secret.exists():
        assert secret.read_text().strip() not in done.stdout + done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("kind", "options", "changed"), SERVERS, ids=[kind for kind, _, _ in SERVERS]
)
def test_after_init_check_is_green_and_run_serves_rows(
    kind: Kind,
    options: Sequence[str],
    changed: Sequence[str],
    server_factory: ServerFactory,
    tmp_path: Path,
) -> None:
    server = prepared(server_factory, kind, *options)
    code, said, wrong = init(server, tmp_path, "--apply", "--mirror", "lake", path="/shop_eu")
    assert (code, wrong) == (0, ""), said
    done = re.findall(r"^done: SET \w+ (\w+) = ", said, re.MULTILINE)
    assert done == changed
    assert f"Written into {tmp_path}: repl.password, dispatcher.yaml, mirror.yaml" in said
    assert said.endswith("\n  binlog-mirror run --config mirror.yaml --copy\n")
    for name in ("repl.password", "dispatcher.yaml", "mirror.yaml"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    settings = tmp_path / "dispatcher.yaml"
    checked = call("check", "--config", settings)
    assert checked.returncode == 0, checked.stderr
    assert [line for line in checked.stderr.splitlines() if "spill" not in line] == []
    assert load_mirror_settings([tmp_path / "mirror.yaml"]).target == "lake"
    port = free_port()
    with daemon(settings, port, "--listen", f"127.0.0.1:{port}") as running:
        running.until(lambda rows: rows["changes"]["state"] == "streaming")
        server.execute("INSERT INTO shop_eu.orders VALUES (1, 'a')")
        read = call("read", "changes", "--url", running.url, "--once")
        assert running.stop() == 0
    (row,) = map(json.loads, read.stdout.splitlines())
    assert (row["op"], row["table"], row["after"]) == ("insert", "orders", {"id": 1, "name": "a"})
    # The account may read nothing else.
    secret = (tmp_path / "repl.password").read_text().strip()
    with pytest.raises(pymysql.err.OperationalError, match="denied"):
        server.connect(user="repl", password=secret, database="hr")


def test_without_apply_an_administrator_runs_the_statements(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = prepared(server_factory, "mysql97", "--binlog-row-metadata=MINIMAL")
    code, said, wrong = init(server, tmp_path)
    assert (code, wrong) == (0, "")
    assert f"mysql -h 127.0.0.1 -P {server.port} -u admin -p < {tmp_path / 'init.sql'}" in said
    assert call("check", "--config", tmp_path / "dispatcher.yaml").returncode == 2
    sql = tmp_path / "init.sql"
    assert stat.S_IMODE(sql.stat().st_mode) == 0o600
    lines = [line for line in sql.read_text().splitlines() if not line.startswith("--")]
    server.execute(*(line.removesuffix(";") for line in lines))
    assert call("check", "--config", tmp_path / "dispatcher.yaml").returncode == 0
    consumer = load_settings([tmp_path / "dispatcher.yaml"]).consumers["changes"]
    assert consumer.databases == ("hr", "shop_eu")


def test_a_dry_run_changes_nothing(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = prepared(server_factory, "mysql97", "--binlog-row-metadata=MINIMAL")
    code, said, _ = init(server, tmp_path / "new", "--dry-run", "--mirror", "lake", path="/hr,hrr")
    assert "warning: the server has no database hrr;" in said and "no database hr;" not in said
    assert "the settings name it all the same; did you mean hr?" in said
    assert code == 0 and list(tmp_path.iterdir()) == []
    assert "dispatcher.yaml:" in said and "mirror.yaml:" in said and "init.sql:" in said
    assert server.execute("SELECT COUNT(*) FROM mysql.user WHERE User = 'repl'") == ((0,),)
    assert server.execute("SELECT @@GLOBAL.binlog_row_metadata") == (("MINIMAL",),)


def test_nothing_is_overwritten(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = prepared(server_factory, "mysql97")
    (tmp_path / "mirror.yaml").write_text("mine")
    code, _, wrong = init(server, tmp_path, "--apply", "--mirror", "lake")
    assert code == 2 and wrong.startswith(f"settings: {tmp_path / 'mirror.yaml'} exists already;")
    assert init(server, tmp_path, "--apply")[0] == 0
    before = (tmp_path / "dispatcher.yaml").read_text()
    assert init(server, tmp_path, "--apply")[0] == 2
    code, _, wrong = init(server, tmp_path / "other", "--apply")
    assert code == 2 and wrong.startswith("settings: the account 'repl'@'%' exists already;")
    assert not (tmp_path / "other").exists()
    assert (tmp_path / "dispatcher.yaml").read_text() == before


def test_a_mirror_is_added_to_the_settings_of_a_daemon(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = prepared(server_factory, "mysql97", "--gtid-mode=OFF")
    assert init(server, tmp_path, "--apply", path="/shop_eu")[0] == 0
    settings = tmp_path / "dispatcher.yaml"
    before = settings.read_text()
    code, said, wrong = init(server, tmp_path, "--apply", "--mirror", "lake", path="/shop_eu")
    assert (code, wrong) == (0, ""), said
    assert "done: GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.*" in said
    assert load_mirror_settings([tmp_path / "mirror.yaml"]).target == "lake"
    assert settings.read_text() == before
    (tmp_path / "mirror.yaml").unlink()
    (line,) = [line for line in said.splitlines() if line.startswith("  mirror: {")]
    settings.write_text(before.replace("consumers:\n", f"consumers:\n{line}\n"))
    assert set(load_settings([settings]).consumers) == {"changes", "mirror"}
    assert call("check", "--config", settings).returncode == 0
    (tmp_path / "repl.password").unlink()
    code, said, _ = init(server, tmp_path, "--mirror", "lake", path="/shop_eu")
    assert code == 0 and "Put this line" not in said
    assert f"Write the password of the account into {tmp_path / 'repl.password'}." in said
    code, said, _ = init(server, tmp_path / "dry", "--dry-run", path="/shop_eu")
    assert (
        code == 0 and "the account 'repl'@'%' exists already" in said and "dispatcher.yaml:" in said
    )
    code, _, wrong = init(server, tmp_path, "--apply", "--mirror", "lake", path="/shop_eu")
    assert code == 2 and wrong.startswith(f"settings: {tmp_path / 'mirror.yaml'} exists already;")


def test_an_administrator_who_may_not_create_accounts(
    server_factory: ServerFactory, tmp_path: Path
) -> None:
    server = server_factory("mysql97")
    server.add_user("admin", PASSWORD, "SELECT ON *.*")
    code, _, wrong = init(server, tmp_path, "--apply")
    assert code == 1 and "CREATE USER" in wrong and "repl.password" in wrong
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_a_binlog(server_factory: ServerFactory, tmp_path: Path) -> None:
    server = server_factory("mysql97", "--skip-log-bin")
    server.add_user("admin", PASSWORD)
    server.execute("GRANT ALL PRIVILEGES ON *.* TO 'admin'@'%' WITH GRANT OPTION")
    code, said, _ = init(server, tmp_path, "--apply")
    assert code == 1
    assert "The daemon cannot read the server yet:" in said
    assert "log_bin=OFF: the server writes no binlog: start the server with --log-bin" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mysql://db1"], "not the address of a server: mysql://db1"),
        (["mysql://root:x@db1"], "the address holds a password"),
        (["mysql://root@db1", "--apply", "--dry-run"], "both --apply and --dry-run"),
        (["mysql://root@db1", "--account", "a'b"], '--account: "a\'b" is not a name'),
        (["mysql://root@db1", "--tls-mode", "maybe"], "--tls-mode: 'maybe'"),
    ],
)
def test_wrong_arguments(arguments: list[str], said: str) -> None:
    done = call("init", *arguments)
    assert done.returncode == 2 and said in done.stderr


def test_the_settings_name_few_databases_or_all() -> None:
    assert databases_of(["shop"], ["a", "b"]) == ["shop"]
    assert databases_of([], ["a", "b"]) == ["a", "b"]
    assert databases_of([], []) == ["*"] == databases_of([], [f"d{n}" for n in range(21)])


def test_a_name_that_fits_no_database_is_named() -> None:
    assert unknown_databases(["shop", "bill*", "shopp"], ["shop", "billing"]) == ["shopp"]
    assert unknown_databases([], ["shop"]) == []


def test_the_login_of_the_settings_is_that_of_init(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("")
    endpoint = Endpoint("::1", 3307, "repl", "", Tls(TlsMode.VERIFY_CA, ca))
    files = Files(endpoint, "MySQL 9.7.4", ["*", 'a"b'], "s3://lake")
    (tmp_path / "repl.password").write_text("secret\n")
    (tmp_path / "dispatcher.yaml").write_text(files.settings())
    (tmp_path / "mirror.yaml").write_text(files.mirror())
    for consumer in load_settings([tmp_path / "dispatcher.yaml"]).consumers.values():
        assert consumer.label == "repl@[::1]:3307" and consumer.secret == "secret"
        assert (consumer.tls.mode, consumer.tls.ca) == ("verify_ca", ca)
        assert consumer.databases == ("*", 'a"b')
    copy_from = load_mirror_settings([tmp_path / "mirror.yaml"]).copy_from
    assert copy_from is not None and (copy_from.tls, copy_from.ca_file) == ("verify_ca", ca)


def test_the_privileges_follow_the_server() -> None:
    def granted(
        databases: list[str], partial_revokes: bool = False, **changes: object
    ) -> list[str]:
        facts = WHOLE.__class__(**{**{f: getattr(WHOLE, f) for f in WHOLE.__slots__}, **changes})
        return account_statements(
            facts, "repl", "x", databases, copies=True, partial_revokes=partial_revokes
        )[1:]

    to = "TO 'repl'@'%'"
    assert granted(["*"]) == [f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* {to}"]
    assert granted(["a_b"], gtid_mode="OFF") == [
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* {to}",
        f"GRANT SELECT ON `a\\_b`.* {to}",
    ]
    assert granted(["a_b"], True)[1] == f"GRANT SELECT ON `a_b`.* {to}"
    assert granted(["*"], flavour="mariadb") == [
        f"GRANT REPLICATION SLAVE, BINLOG MONITOR, SELECT ON *.* {to}"
    ]


def test_passwords_have_characters_of_each_kind() -> None:
    password = random_password()
    assert len(password) == 30 and random_password() != password
    assert any(map(str.islower, password)) and any(map(str.isupper, password))
    assert any(map(str.isdigit, password)) and any(not char.isalnum() for char in password)
