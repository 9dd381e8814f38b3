"""`check` reports all findings: names, patterns, starts, privileges, keys, cascades, columns, retention, clocks,
sharing."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from dispatcher.model.position import Position
from dispatcher.mysql.login import Endpoint
from dispatcher.source.mysql.examination import report_of
from dispatcher.state.store import StateStore
from tests.cli.program import PASSWORD, call, consumer, write
from tests.servers.plugin import ServerFactory
from tests.servers.server import Instance, Server
from tests.support.hostile_server import Answers, HostileServer
from tests.support.hostile_text import HOSTILE, SHOWN, acts

NewDatabase = Callable[[Server], str]


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> Instance:
    """A server with a retention of one hour, an account `cli`, and an account `cli_shop`, which sees only the database
    shop."""
    server = module_server_factory("mysql97", "--binlog-expire-logs-seconds=3600")
    server.add_user("cli", PASSWORD)
    server.add_user("cli_shop", PASSWORD, "REPLICATION SLAVE, REPLICATION CLIENT ON *.*")
    server.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY)",
        "CREATE TABLE shop.log (line TEXT)",
        "CREATE TABLE shop.codes (a INT NOT NULL UNIQUE, b INT UNIQUE)",
        "CREATE TABLE shop.loose (a INT UNIQUE)",
        "GRANT SELECT ON shop.* TO 'cli_shop'@'%'",
    )
    return server


def checked(tmp_path: Path, *consumers: tuple[str, str]) -> tuple[int, list[str], list[str]]:
    """Runs `check`. Returns its exit code, errors and warnings."""
    done = call("check", "--config", write(tmp_path, *consumers))
    lines = done.stderr.splitlines()
    errors = [line for line in lines if not line.startswith("warning: ")]
    return done.returncode, errors, [line for line in lines if line.startswith("warning: ")]


def test_names_that_do_not_exist_are_errors_with_the_nearest_name(
    server: Instance, tmp_path: Path
) -> None:
    code, errors, _ = checked(
        tmp_path,
        ("typo", consumer(server, "cli", "shpo")),
        ("table", consumer(server, "cli", "shop", ", tables: [shop.oders, shop.log]")),
    )
    place = f"cli@127.0.0.1:{server.port}: settings: "
    assert code == 2
    assert errors == [
        f"{place}there is no database shpo (the nearest is shop); correct databases, or create the database"
        " (for consumers.typo)",
        f"{place}the server shows the account no table shop.oders (the nearest is orders); correct tables, create it,"
        " or GRANT SELECT on it (for consumers.table)",
    ]


def test_what_may_be_meant_is_a_warning(server: Instance, tmp_path: Path) -> None:
    more = ", tables: [shop.*, 'shop.x_*'], exclude_tables: ['*.tmp_*']"
    code, errors, warnings = checked(
        tmp_path, ("shop", consumer(server, "cli", "shop, 'later_*'", more))
    )
    assert (code, errors) == (0, [])
    place = f"warning: cli@127.0.0.1:{server.port}: "
    texts = [line.removeprefix(place).removesuffix(" (for consumers.shop)") for line in warnings]
    assert texts == [
        "settings: no database matches later_*; correct the pattern, or create the database",
        "settings: tables: no table matches shop.x_*; correct tables",
        "settings: exclude_tables: no table matches *.tmp_*; correct exclude_tables",
        "settings: tables without a primary key or a UNIQUE key of NOT NULL columns: shop.log, shop.loose; add a"
        " primary key: a mirror compares whole rows of such tables, which is slower",
        "server setting: the server purges its binlogs after 3600 s, less than a day; SET GLOBAL"
        " binlog_expire_logs_seconds = 604800 (or expire_logs_days = 7), and the same in the server's option file: a"
        " consumer that is not read for longer loses its position",
    ]


def test_an_account_that_sees_too_little(server: Instance, tmp_path: Path) -> None:
    code, errors, warnings = checked(
        tmp_path,
        ("hidden", consumer(server, "cli_shop", "crm")),
        ("pattern", consumer(server, "cli_shop", "'sh*'")),
    )
    assert code == 2
    (grant,) = errors  # no error says that the database is missing: the account could not see it
    assert "lacks SELECT on `crm`.*, or the server has no such database; GRANT SELECT" in grant
    (narrow,) = [line for line in warnings if "SHOW DATABASES" in line]
    assert narrow.endswith("(for consumers.pattern)")


def test_starts_that_the_server_does_not_have(server: Instance, tmp_path: Path) -> None:
    consumers = (
        ("file", consumer(server, "cli", "shop", ", start: {file: binlog.000999, offset: 4}")),
        ("set", consumer(server, "cli", "shop", f", start: {{gtid: '{'a' * 8}-1111-1111-1111-{'a' * 12}:1-5'}}")),
        ("good", consumer(server, "cli", "shop", ", start: {timestamp: 2020-01-01}")),
    )  # fmt: skip
    code, errors, _ = checked(tmp_path, *consumers)
    assert code == 2 and len(errors) == 2
    assert "start: " in errors[0] and errors[0].endswith("(for consumers.file)")
    assert "never executed" in errors[1] and errors[1].endswith("(for consumers.set)")
    # If a position is stored, the setting `start` has no effect.
    position = Position("server", "", "binlog.000001", 4, 5, 7)
    with closing(StateStore(tmp_path / "state.db")) as store:
        store.save([("file", position, position, 0), ("set", position, position, 0)])
    assert checked(tmp_path, *consumers)[:2] == (0, [])


def test_consumers_that_could_share_a_connection(server: Instance, tmp_path: Path) -> None:
    here = f"cli@127.0.0.1:{server.port}"
    by_name = consumer(server, "cli").replace("127.0.0.1", "localhost")
    code, _, warnings = checked(
        tmp_path,
        ("a", consumer(server, "cli")),
        ("b", by_name),
        ("own", consumer(server, "cli_shop", "shop", ", use_binlog_client: false")),
    )
    assert code == 0
    (twice,) = [line for line in warnings if "twice" in line]
    assert twice.startswith(
        f"warning: {here} and cli@localhost:{server.port} are the same server"
    ) and twice.endswith("(for consumers.a, consumers.b)")


@pytest.mark.parametrize(
    ("kind", "logged"), [("mysql97", True), ("mysql56", False), ("mariadb1011", False)]
)
def test_cascades_that_are_not_logged(
    kind: str,
    logged: bool,
    request: pytest.FixtureRequest,
    new_database: NewDatabase,
    tmp_path: Path,
) -> None:
    server: Server = request.getfixturevalue(kind)
    server.add_user("cli_fk", PASSWORD)
    database = new_database(server)
    server.execute(
        "CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL)"
        " ENGINE=InnoDB",
        "CREATE TABLE plain (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id)) ENGINE=InnoDB",
        database=database,
    )
    try:
        code, errors, warnings = checked(tmp_path, ("a", consumer(server, "cli_fk", database)))
    finally:
        server.execute("DROP USER 'cli_fk'@'%'")
    assert (code, errors) == (0, [])
    found = [line for line in warnings if "foreign keys change" in line]
    assert len(found) == (0 if logged else 1)
    for line in found:
        assert f"change in {database}.child (ON DELETE SET NULL, of {database}.parent);" in line


@pytest.mark.parametrize(
    ("kind", "left_out"), [("mysql97", False), ("mariadb1011", False), ("mariadb118", True)]
)
def test_generated_columns_that_the_server_leaves_out_of_the_log(
    kind: str,
    left_out: bool,
    request: pytest.FixtureRequest,
    new_database: NewDatabase,
    tmp_path: Path,
) -> None:
    server: Server = request.getfixturevalue(kind)
    server.add_user("cli_gen", PASSWORD)
    database = new_database(server)
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a + 1) STORED, v INT AS (a + 2) VIRTUAL)",
        "CREATE TABLE other (id INT PRIMARY KEY, v INT AS (id + 2))",
        "CREATE TABLE plain (id INT PRIMARY KEY)",
        database=database,
    )
    if server.mariadb:
        server.execute(
            "CREATE TABLE versioned (id INT PRIMARY KEY, b TIMESTAMP(6) GENERATED ALWAYS AS ROW START,"
            " e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING",
            database=database,
        )
    listed = consumer(server, "cli_gen", database, f", tables: ['{database}.[tpv]*']")
    try:
        code, errors, warnings = checked(tmp_path, ("a", listed))
    finally:
        server.execute("DROP USER 'cli_gen'@'%'")
    assert (code, errors) == (0, [])
    found = [line for line in warnings if "generated columns" in line]
    assert len(found) == left_out
    for line in found:
        assert (
            f"out of the log's images of UPDATE and DELETE (11.8.9 does, 10.11.18 does not): {database}.t (s, v);"
            in line
        )
        assert "omit_columns" in line


def test_what_the_front_serves(server: Instance, tmp_path: Path) -> None:
    file = write(tmp_path, ("shop", consumer(server, "cli")), ("spark", consumer(server, "cli")))
    file.write_text(file.read_text() + "front: {listen: '127.0.0.1:3307'}\n")
    done = call("check", "--config", file)
    served, ok = done.stdout.splitlines()
    assert (done.returncode, served) == (0, "front 127.0.0.1:3307: serves shop, spark")
    assert ok.startswith("OK: 2 consumers checked")


def test_clocks_that_are_apart(server: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint("127.0.0.1", server.port, "cli", PASSWORD)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 90)
    report = report_of(endpoint, [], (), several=False)
    (apart,) = [f.error.what for f in report.findings if "clock" in f.error.what]
    assert apart == "the server's clock is 90 s behind this machine's"


def test_what_a_server_says_before_the_login_is_shown_in_escapes(tmp_path: Path) -> None:
    with HostileServer(Answers(refusal=(1130, HOSTILE))) as lying:
        done = call("check", "--config", write(tmp_path, ("shop", consumer(lying.port, "cli"))))
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and SHOWN in line and acts(line) == []


@pytest.mark.parametrize("name", ["binlog_format", "version"])
def test_a_servers_variables_are_shown_in_escapes(tmp_path: Path, name: str) -> None:
    with HostileServer(Answers(variables={name: HOSTILE})) as lying:
        done = call("check", "--config", write(tmp_path, ("shop", consumer(lying.port, "cli"))))
    assert acts(done.stderr + done.stdout) == []
    assert not any(line.startswith("2026-01-01") for line in done.stderr.splitlines())
    assert r"a\x1b[31mb" in done.stderr.lower()


def test_settings_are_shown_in_escapes(tmp_path: Path) -> None:
    file = tmp_path / "dispatcher.yaml"
    file.write_text('consumers: {shop: {mysql: "a\\x1b[31m\\u202e\\nforged", "k\\x1b\\n": 1}}\n')
    done = call("check", "--config", file)
    assert done.returncode == 2 and acts(done.stderr) == []
    assert all(str(file) in line for line in done.stderr.splitlines())


def test_a_source_is_checked_as_a_consumer_of_all_that_it_permits(
    server: Instance, tmp_path: Path
) -> None:
    lines = [
        f"state: {{path: {tmp_path / 'state.db'}}}",
        "sources:",
        f"  right: {{mysql: 'cli@127.0.0.1:{server.port}', password: {PASSWORD}, names: ['nb-*'], databases: [shop]}}",
        f"  typo: {{mysql: 'cli@127.0.0.1:{server.port}', password: {PASSWORD}, names: ['x-*'], databases: [shpo]}}",
    ]
    path = tmp_path / "sources.yaml"
    path.write_text("\n".join(lines[:3]), encoding="utf-8")
    done = call("check", "--config", path)
    assert (done.returncode, done.stdout.splitlines()[-1][:36]) == (
        0,
        "OK: 0 consumers and 1 source checked",
    )
    path.write_text("\n".join(lines), encoding="utf-8")
    done = call("check", "--config", path)
    assert done.returncode == 2
    assert "there is no database shpo" in done.stderr and "(for sources.typo)" in done.stderr
