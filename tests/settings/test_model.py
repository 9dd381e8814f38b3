"""The models: defaults, sources, starts, tokens and access rules."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from dispatcher.yaml_settings.validation import SettingsError
from tests.support.settings_texts import MINIMAL, Load, Wrong, consumer

FILES = """\
consumers:
  a: {files: {path: logs, prefix: binlog, follow: false}, databases: [a]}
  b:
    files: {path: logs/, prefix: binlog}
    databases: [b]
    %s
"""


UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_defaults(settings: Load) -> None:
    loaded = settings(MINIMAL)
    shop = loaded.consumers["shop"]
    assert shop.mysql is not None
    assert shop.mysql.user == "repl"
    assert [(a.host, a.port) for a in shop.mysql.addresses] == [("db1", 3306)]
    assert shop.secret == "geheim" and shop.label == "repl@db1:3306"
    assert shop.databases == ("shop",) and shop.tables is None
    assert shop.use_binlog_client
    assert shop.max_bytes_in_binlog_queue == 64 * 1024 * 1024
    assert shop.max_milliseconds_to_wait_in_binlog_queue == 10_000
    assert (shop.on_queue_full, shop.on_purged) == ("detach", "fail")
    assert (shop.max_bytes_to_merge, shop.max_bytes_in_all_queues) == (1024 * 1024, 0)
    assert shop.failover_wait_seconds == 60
    assert shop.max_bytes_in_binlog_dispatcher_buffer == 4 * 1024 * 1024
    assert shop.max_flush_milliseconds_in_binlog_dispatcher == 1000
    assert shop.heartbeat_milliseconds == 1000
    assert shop.max_seconds_between_markers == 60
    assert shop.start.at == "latest"
    assert shop.tls.mode == "preferred"
    assert (loaded.api.listen.host, loaded.api.listen.port) == ("127.0.0.1", 8085)
    assert loaded.api.tokens == () and loaded.api.tls is None
    assert loaded.state.path == Path("/var/lib/binlog-dispatcher/state.db")
    assert loaded.state.max_bytes_in_spill == 10 * 2**30
    assert loaded.state.max_bytes_in_prepared == 256 * 2**20
    assert (loaded.log.level, loaded.log.format) == ("info", "console")


def test_the_state_may_be_in_a_database(settings: Load, tmp_path: Path) -> None:
    state = "{mysql: 'bd@[::1]/state_1', password: streng, lease: 7, spill_path: spill}"
    loaded = settings(MINIMAL + f"state: {state}")
    mysql = loaded.state.mysql
    assert mysql is not None
    assert (mysql.user, mysql.address.host, mysql.address.port) == ("bd", "::1", 3306)
    assert mysql.database == "state_1" and loaded.state.lease == 7
    assert loaded.state.label == "bd@[::1]:3306/state_1"
    assert loaded.secrets() == ("geheim", "streng")
    assert "streng" not in repr(loaded)
    assert loaded.state.spill_folder == tmp_path / "spill"


def test_without_a_folder_large_transactions_are_beside_the_file(
    settings: Load, tmp_path: Path
) -> None:
    loaded = settings(MINIMAL + "state: {path: state.db}")
    assert loaded.state.mysql is None and loaded.state.lease == 4
    assert loaded.state.spill_folder == tmp_path / "state.db.spill"


def test_secrets_are_never_shown(settings: Load) -> None:
    token = "token-of-sixteen-and-more"
    text = MINIMAL + f"api: {{tokens: [{{token: {token}, consumers: all}}]}}"
    loaded = settings(text)
    assert loaded.secrets() == ("geheim", token)
    for shown in (repr(loaded), str(loaded), loaded.model_dump_json(), repr(loaded.model_dump())):
        assert "geheim" not in shown and token not in shown


def test_a_password_may_be_empty(settings: Load) -> None:
    text = "consumers:\n  a: {mysql: u@h, password: '', databases: [a]}\n"
    assert settings(text).consumers["a"].secret == ""


@pytest.mark.parametrize(
    "mysql",
    [
        "db1:3306",
        "@db1:3306",
        "repl@",
        "repl@db1:0",
        "repl:geheim@db1",
        "repl@db1,",
        "repl@db1,:1",
        "repl@db1,DB1:3306",
        "repl@db1,repl@db2",
        "repl:geheim@db1,db2",
        "[1]",
        "3306",
        "~",
    ],
)
def test_an_invalid_mysql_is_refused_without_its_password(wrong: Wrong, mysql: str) -> None:
    text = f"consumers:\n  a:\n    password: x\n    databases: [a]\n    mysql: {mysql!r}\n"
    (line,) = wrong(text.replace("'[1]'", "[1]").replace("'3306'", "3306").replace("'~'", "~"))
    assert line.startswith("a.yaml:5: consumers.a.mysql: ")
    assert "geheim" not in line


def test_a_user_may_contain_an_at_sign(settings: Load) -> None:
    text = consumer().replace("repl@db1", "me@corp@db1:3307")
    mysql = settings(text).consumers["shop"].mysql
    assert mysql is not None and mysql.user == "me@corp"


def test_several_hosts_of_one_source(settings: Load) -> None:
    text = consumer().replace("repl@db1", "repl@db1, DB2:3307,[::1],10.0.0.1:1")
    shop = settings(text).consumers["shop"]
    assert shop.label == "repl@db1:3306,db2:3307,[::1]:3306,10.0.0.1:1"
    other = settings(text.replace("db1, DB2:3307", "DB2:3307,db1")).consumers["shop"]
    assert shop.connection_key != other.connection_key
    again = settings(text.replace("db1, ", "DB1:3306,")).consumers["shop"]
    assert shop.connection_key == again.connection_key


@pytest.mark.parametrize(
    ("text", "at", "gtid", "file", "offset"),
    [
        ("earliest", "earliest", "", "", 4),
        ("latest", "latest", "", "", 4),
        (f"{{gtid: '{UUID.upper()}:1-5:7'}}", "gtid", f"{UUID}:1-5:7", "", 4),
        ("{gtid: ''}", "gtid", "", "", 4),
        ("{gtid: '0-1-100, 1-2-3'}", "gtid", "0-1-100,1-2-3", "", 4),
        (
            f"{{gtid: '{UUID}:9-9:1-5:7-8:Tag_1:3,\n      00000000-0000-0000-0000-000000000001:1-2'}}",
            "gtid",
            f"00000000-0000-0000-0000-000000000001:1-2,{UUID}:1-5:7-9:tag_1:3",
            "",
            4,
        ),
        ("{file: binlog.000042, offset: 1234}", "file", "", "binlog.000042", 1234),
    ],
)
def test_starts(settings: Load, text: str, at: str, gtid: str, file: str, offset: int) -> None:
    start = settings(consumer(f"start: {text}")).consumers["shop"].start
    assert (start.at, start.gtid, start.file, start.offset) == (at, gtid, file, offset)


@pytest.mark.parametrize(
    "text",
    [
        "sometime",
        "{timestamp: 2026-11-21, offset: 4}",
        "{gtid: nonsense}",
        f"{{gtid: '{UUID}'}}",
        "{file: binlog.000042}",
        "{offset: 4}",
        "{file: binlog.000042, offset: 3}",
        "{file: '', offset: 4}",
        "{file: 7, offset: 4}",
        "{gtid: '', file: x, offset: 4}",
        "[earliest]",
        "5",
        "~",
    ],
)
def test_an_invalid_start_is_refused(wrong: Wrong, text: str) -> None:
    (line,) = wrong(consumer(f"start: {text}"))
    assert line.startswith("a.yaml:6: consumers.shop.start: ")


def test_both_passwords_are_refused(wrong: Wrong, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (line,) = wrong(consumer("password_file: secret"))
    assert line.endswith("set either password_file or password, not both")


def test_a_folder_of_files(settings: Load, tmp_path: Path) -> None:
    text = "consumers:\n  a:\n    files: {path: logs}\n    databases: [a]\n"
    a = settings(text).consumers["a"]
    assert a.files is not None and a.mysql is None
    assert (a.files.path, a.files.prefix, a.files.follow) == (tmp_path / "logs", None, True)
    assert a.label == f"files:{tmp_path}/logs"
    env = {"DISPATCHER__CONSUMERS__A__FILES__FOLLOW": "false"}
    changed = settings(text, env=env).consumers["a"].files
    assert changed is not None and not changed.follow
    loaded = settings(FILES % "use_binlog_client: false")
    b = loaded.consumers["b"]
    assert b.connection_key == loaded.consumers["a"].connection_key != a.connection_key
    assert b.label == f"files:{tmp_path}/logs/binlog" and loaded.secrets() == ()


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("files: {path: x, mysql: u@h}", "3: consumers.a.files.mysql: unknown key"),
        ("files: {}", "3: consumers.a.files.path: is missing"),
        ("files: x", "3: consumers.a.files: expected a mapping (key: value)"),
        ("files: {path: x, folow: true}", "3: consumers.a.files.folow: unknown key; did you mean 'follow'?"),
        ("files: {path: x, follow: 3}", "3: consumers.a.files.follow: expected true or false"),
        ("files: {path: x, prefix: a/b}", "3: consumers.a.files.prefix: expected the file names before the number,"
         " such as binlog; the folder goes into path"),
        ("files: {path: x, prefix: b.000001}", "3: consumers.a.files.prefix: expected the file names before the number,"
         " such as binlog; the folder goes into path"),
        ("files: {path: x}\n    mysql: u@h", "2: consumers.a: set either files or mysql, not both"),
        ("files: {path: x}\n    password: y", "2: consumers.a: set either files or mysql, not both (password belongs"
         " to mysql)"),
    ],
)  # fmt: skip
def test_an_invalid_folder_is_refused(wrong: Wrong, text: str, finding: str) -> None:
    assert wrong(f"consumers:\n  a:\n    {text}\n    databases: [a]\n") == [f"a.yaml:{finding}"]


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.9.9.9:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_no_token(settings: Load, listen: str) -> None:
    assert settings(MINIMAL + f"api: {{listen: '{listen}'}}").api.listen.loopback


def test_tokens(settings: Load, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-token-from-a-file\n")
    text = """\
api:
  listen: 0.0.0.0:8085
  tokens:
    - {token_file: token, consumers: all}
    - {token: "${TOKEN}", consumers: [shop]}
"""
    loaded = settings(MINIMAL + text, env={"TOKEN": "a-token-from-a-variable"})
    first, second = loaded.api.tokens
    assert (first.secret, first.consumers) == ("a-token-from-a-file", "all")
    assert (second.secret, second.consumers) == ("a-token-from-a-variable", ("shop",))


def test_scopes_are_optional(settings: Load) -> None:
    text = MINIMAL + "api: {tokens: [{token: abcdefghijklmnop, consumers: all}]}"
    assert settings(text).api.tokens[0].scopes is None


def test_scopes_hosts_and_open(settings: Load) -> None:
    text = MINIMAL + (
        "api:\n  open: [metrics, docs]\n  hosts: [Db.Example, '::1']\n"
        "  tokens: [{token: abcdefghijklmnop, consumers: all, scopes: [metrics]}]"
    )
    api = settings(text).api
    assert (api.open, api.hosts) == (("metrics", "docs"), ("db.example", "::1"))
    assert api.tokens[0].scopes == ("metrics",)


@pytest.mark.parametrize(
    ("api", "finding"),
    [
        ("{hosts: ['db.example:80']}", "expected a host name or IP address without a port"),
        ("{open: [everything]}", "api.open.0"),
        ("{max_connections: 3}", "api.max_connections"),
        (
            "{tokens: [{token: abcdefghijklmnop, consumers: all, scopes: [write]}]}",
            "api.tokens.0.scopes.0",
        ),
        (
            "{tokens: [{token: abcdefghijklmnop, consumers: all, scopes: []}]}",
            "api.tokens.0.scopes",
        ),
    ],
)
def test_invalid_access_rules_are_refused(settings: Load, api: str, finding: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(finding)):
        settings(MINIMAL + f"api: {api}")


def test_patterns_of_tables_are_divided_at_the_database(settings: Load) -> None:
    text = consumer(
        "tables: ['shop_*.orders', 'shop_1.x*', a.b.t, '*.y']\nexclude_tables: ['*.tmp_*', 'crm.*']"
    ).replace("[shop]", "['shop_*', a.b, crm]")
    shop = settings(text).consumers["shop"]
    assert shop.table_patterns == (("shop_*", "orders"), ("shop_1", "x*"), ("a.b", "t"), ("*", "y"))
    assert shop.excluded_patterns == (("*", "tmp_*"), ("crm", "*"))


DATABASE = "state: {mysql: bd@db2/state_1, password: streng}\n"


@pytest.mark.parametrize(
    ("api", "address"),
    [
        ("", "http://127.0.0.1:8085"),
        (
            "api: {listen: 'localhost:9', advertise: 'https://a.example:443/'}",
            "https://a.example:443",
        ),
        ("api: {listen: '127.0.0.1:0', advertise: 'http://a:1'}", "http://a:1"),
    ],
)
def test_the_address_at_which_readers_reach_the_api(settings: Load, api: str, address: str) -> None:
    assert settings(MINIMAL + DATABASE + api).api.address == address


def test_an_address_of_all_interfaces_is_told_as_the_name_of_the_host(settings: Load) -> None:
    token = "tokens: [{token: 0123456789abcdef, consumers: all}]"
    loaded = settings(f"{MINIMAL}api: {{listen: '0.0.0.0:8085', {token}}}")
    assert loaded.api.address == f"http://{socket.gethostname()}:8085"


@pytest.mark.parametrize(
    ("api", "message"),
    [
        ("{advertise: 'a:8085'}", "api.advertise: expected a URL without a path"),
        ("{advertise: 'http://a:8085/path'}", "api.advertise: expected a URL without a path"),
        ("{listen: '127.0.0.1:0'}", "api.listen: with port 0 the other daemons of this state"),
    ],
)
def test_an_address_that_readers_cannot_use(wrong: Wrong, api: str, message: str) -> None:
    (line,) = wrong(MINIMAL + DATABASE + f"api: {api}\n")
    assert message in line
