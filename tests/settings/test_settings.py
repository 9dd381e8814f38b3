"""Settings are read from all their sources, and what is wrong with them is said at once, with lines."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.settings.exposure import password_warnings
from dispatcher.settings.load import SettingsError, load_settings
from dispatcher.settings.model import NO_SOURCE, PER_CONNECTION, LimitSettings, Settings
from dispatcher.settings.values import parse_bytes, split_host_port

ROOT = Path(__file__).parents[2]
MINIMAL = """\
consumers:
  shop: {mysql: "repl@db1:3306", password: "geheim", databases: [shop]}
"""
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

Load = Callable[..., Settings]


@pytest.fixture
def settings(tmp_path: Path) -> Load:
    """Load YAML texts as files a.yaml, b.yaml, ... of one folder."""

    def call(
        *texts: str,
        env: Mapping[str, str] | None = None,
        options: Mapping[str, tuple[str, Any]] | None = None,
    ) -> Settings:
        files = []
        for n, text in enumerate(texts):
            files.append(tmp_path / f"{chr(ord('a') + n)}.yaml")
            files[-1].write_text(text, encoding="utf-8")
        return load_settings(files, options, env or {})

    return call


@pytest.fixture
def wrong(settings: Load, tmp_path: Path) -> Callable[..., list[str]]:
    """The findings, with the folder left out of their files' names."""

    def call(*texts: str, **sources: Any) -> list[str]:
        with pytest.raises(SettingsError) as caught:
            settings(*texts, **sources)
        error = caught.value
        assert error.kind is ErrorKind.SETTINGS and isinstance(error, UserError)
        return [line.replace(f"{tmp_path}/", "") for line in str(error).splitlines()]

    return call


Wrong = Callable[..., list[str]]


def consumer(more: str = "", name: str = "shop") -> str:
    """A consumer in line 2 with more of its keys from line 3 on."""
    base = f"consumers:\n  {name}: &x\n    mysql: repl@db1\n    password: geheim\n"
    return base + "    databases: [shop]\n" + "".join(f"    {line}\n" for line in more.splitlines())


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
    assert shop.max_bytes_in_binlog_dispatcher_buffer == 1024 * 1024
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


SECRETS = {"REPL_PASSWORD": "r", "AUDIT_PASSWORD": "a"}


def test_the_shipped_files_are_sound() -> None:
    short = load_settings([ROOT / "config" / "dispatcher.yaml"], {}, SECRETS)
    long = load_settings([ROOT / "config" / "dispatcher.example.yaml"], {}, SECRETS)
    assert [*short.consumers, "archive"] == list(long.consumers)
    assert list(short.consumers) == ["shop", "billing", "audit"]
    assert long.consumers["audit"] == short.consumers["audit"]


def test_the_example_shows_every_setting_with_its_default() -> None:
    """Uncommented or not, each name of the models stands in the file."""
    text = (ROOT / "config" / "dispatcher.example.yaml").read_text()
    loaded = load_settings([ROOT / "config" / "dispatcher.example.yaml"], {}, SECRETS)
    sections = [*loaded.consumers.values(), loaded.api, loaded.state, loaded.log]
    archive = loaded.consumers["archive"].files
    assert archive is not None and archive.follow
    for section in [*sections, loaded.consumers["shop"].tls, archive]:
        for name in type(section).model_fields:
            assert re.search(rf"\b{name}\b", text), name
    default = load_settings([ROOT / "config" / "dispatcher.yaml"], {}, SECRETS)
    assert (loaded.api, loaded.state, loaded.log) == (default.api, default.state, default.log)


def test_secrets_are_never_shown(settings: Load) -> None:
    token = "token-of-sixteen-and-more"
    text = MINIMAL + f"api: {{tokens: [{{token: {token}, consumers: all}}]}}"
    loaded = settings(text)
    assert loaded.secrets() == ("geheim", token)
    for shown in (repr(loaded), str(loaded), loaded.model_dump_json(), repr(loaded.model_dump())):
        assert "geheim" not in shown and token not in shown


# Where values come from.


def test_defaults_are_for_all_and_each_may_differ(settings: Load) -> None:
    text = """\
defaults: {max_bytes_in_binlog_queue: 1MiB, use_binlog_client: false}
consumers:
  a: {mysql: u@h, password: x, databases: [a]}
  b: {mysql: u@h, password: x, databases: [b], max_bytes_in_binlog_queue: 2 MB}
"""
    a, b = settings(text).consumers.values()
    assert (a.max_bytes_in_binlog_queue, b.max_bytes_in_binlog_queue) == (1024 * 1024, 2_000_000)
    assert not a.use_binlog_client and not b.use_binlog_client


def test_later_files_win_key_by_key(settings: Load) -> None:
    more = """\
consumers:
  shop: {databases: [shop, eu]}
  new: {mysql: u@h, password: x, databases: [n]}
api: {listen: "127.0.0.1:1"}
"""
    loaded = settings(MINIMAL, more)
    assert loaded.consumers["shop"].databases == ("shop", "eu")
    assert loaded.consumers["shop"].secret == "geheim"
    assert list(loaded.consumers) == ["shop", "new"]


def test_a_folder_stands_for_its_files_by_name(settings: Load, tmp_path: Path) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "20-more.yml").write_text("api: {listen: '127.0.0.1:20'}")
    (folder / "10-first.yaml").write_text(MINIMAL + "api: {listen: '127.0.0.1:10'}")
    (folder / "notes.txt").write_text("not: [yaml")
    assert load_settings([folder], {}, {}).api.listen.port == 20


def test_the_environment_wins_over_files_and_the_command_line_over_it(settings: Load) -> None:
    text = MINIMAL + "api: {listen: '127.0.0.1:1'}"
    env = {"DISPATCHER__API__LISTEN": "127.0.0.1:2", "UNRELATED": "x"}
    options = {"api.listen": ("--listen", "127.0.0.1:3")}
    assert settings(text).api.listen.port == 1
    assert settings(text, env=env).api.listen.port == 2
    assert settings(text, env=env, options=options).api.listen.port == 3


def test_consumers_in_the_environment(settings: Load) -> None:
    text = consumer(name="Shop-eu.1")
    env = {
        "DISPATCHER__CONSUMERS__SHOP_EU_1__PASSWORD": "ganz geheim",
        "DISPATCHER__CONSUMERS__SHOP_EU_1__DATABASES": "[a, b]",
        "DISPATCHER__CONSUMERS__SHOP_EU_1__MAX_BYTES_IN_BINLOG_QUEUE": "5MiB",
        "DISPATCHER__CONSUMERS__SHOP_EU_1__USE_BINLOG_CLIENT": "false",
        "DISPATCHER__CONSUMERS__NEW__MYSQL": "u@[::1]:3307",
        "DISPATCHER__CONSUMERS__NEW__PASSWORD": "[not a list]",
        "DISPATCHER__CONSUMERS__NEW__DATABASES": "[n]",
        "DISPATCHER__API__LISTEN": "[::1]:8085",
    }
    loaded = settings(text, env=env)
    shop, new = loaded.consumers["Shop-eu.1"], loaded.consumers["new"]
    assert shop.secret == "ganz geheim" and shop.databases == ("a", "b")
    assert shop.max_bytes_in_binlog_queue == 5 * 1024 * 1024 and not shop.use_binlog_client
    assert new.mysql is not None
    assert new.mysql.addresses[0].host == "::1" and new.secret == "[not a list]"
    assert new.label == "u@[::1]:3307"
    assert loaded.api.listen.host == "::1"


def test_everything_from_the_environment() -> None:
    env = {
        "DISPATCHER__CONSUMERS__A__MYSQL": "u@h",
        "DISPATCHER__CONSUMERS__A__PASSWORD": "x",
        "DISPATCHER__CONSUMERS__A__DATABASES": "[d]",
    }
    assert load_settings([], {}, env).consumers["a"].databases == ("d",)


def test_variables_in_texts(settings: Load) -> None:
    text = """\
consumers:
  shop: {mysql: "${WHO}@${HOST}:3306", password: "a${P}z $${P} $P {P}", databases: ["${DB}"]}
"""
    env = {"WHO": "repl", "HOST": "db9", "P": "${not again} \N{SNOWMAN}", "DB": "läden"}
    shop = settings(text, env=env).consumers["shop"]
    assert shop.label == "repl@db9:3306"
    assert shop.secret == "a${not again} \N{SNOWMAN}z ${P} $P {P}"
    assert shop.databases == ("läden",)


def test_files_are_named_relative_to_the_file_that_names_them(
    settings: Load, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("from the file\n")
    (tmp_path / "ca.pem").write_text("...")
    text = """\
consumers:
  shop:
    mysql: repl@db1
    password_file: secret
    databases: [shop]
    tls: {mode: verify_ca, ca: ca.pem}
state: {path: deep/state.db}
"""
    loaded = settings(text)
    assert loaded.consumers["shop"].secret == "from the file"
    assert loaded.consumers["shop"].tls.ca == tmp_path / "ca.pem"
    assert loaded.state.path == tmp_path / "deep" / "state.db"


def test_an_empty_password_is_one_that_was_said(settings: Load) -> None:
    text = "consumers:\n  a: {mysql: u@h, password: '', databases: [a]}\n"
    assert settings(text).consumers["a"].secret == ""


def test_keys_are_text_whatever_yaml_makes_of_them(settings: Load) -> None:
    text = "consumers:\n  2024: {mysql: u@h, password: x, databases: ['2024', 'null']}\n"
    assert settings(text).consumers["2024"].databases == ("2024", "null")


def test_anchors(settings: Load) -> None:
    text = """\
consumers:
  a: {mysql: &where u@h, password: x, databases: &all [a, b]}
  b: {mysql: *where, password: x, databases: *all}
"""
    a, b = settings(text).consumers.values()
    assert a == b


# What values may be.


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("'4096'", 4096),
        ("64MiB", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("64mib", 64 * 2**20),
        ("1 MB", 10**6),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("1.5GiB", 3 * 2**29),
        ("2TB", 2 * 10**12),
        ("10B", 10),
    ],
)
def test_sizes(settings: Load, text: str, size: int) -> None:
    shop = settings(consumer(f"max_bytes_in_binlog_queue: {text}")).consumers["shop"]
    assert shop.max_bytes_in_binlog_queue == size


@given(st.integers(0, 2**60))
def test_whole_sizes_come_back(size: int) -> None:
    assert parse_bytes(size) == parse_bytes(str(size)) == parse_bytes(f"{size}B") == size


@pytest.mark.parametrize(
    "text", ["64M", "64 K", "-1", "1e6", "abc", "true", "1.5", "[1]", "''", "~"]
)
def test_what_is_no_size(wrong: Wrong, text: str) -> None:
    (line,) = wrong(consumer(f"max_bytes_in_binlog_queue: {text}"))
    assert line.startswith("a.yaml:6: consumers.shop.max_bytes_in_binlog_queue: ")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("db1:3307", "db1", 3307),
        ("db1", "db1", 3306),
        ("DB1.Example", "db1.example", 3306),
        ("10.0.0.1:1", "10.0.0.1", 1),
        ("[::1]:3307", "::1", 3307),
        ("[fe80::1]", "fe80::1", 3306),
    ],
)
def test_host_and_port(text: str, host: str, port: int) -> None:
    assert split_host_port(text, 3306) == (host, port)


@pytest.mark.parametrize(
    "text", ["", ":3306", "db1:", "db1:x", "db1:70000", "::1", "a:1:2", "[::1", "a,b", "a b", "a/b"]
)
def test_what_is_no_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_host_port(text, 3306)


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
def test_what_is_no_connection(wrong: Wrong, mysql: str) -> None:
    text = f"consumers:\n  a:\n    password: x\n    databases: [a]\n    mysql: {mysql!r}\n"
    (line,) = wrong(text.replace("'[1]'", "[1]").replace("'3306'", "3306").replace("'~'", "~"))
    assert line.startswith("a.yaml:5: consumers.a.mysql: ")
    assert "geheim" not in line


def test_a_user_may_hold_an_at_sign(settings: Load) -> None:
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


NOON_US = 1_795_262_400_000_000


@pytest.mark.parametrize(
    ("text", "moment_us"),
    [
        ("2026-11-21T12:00:00Z", NOON_US),
        ("2026-11-21T12:00:00", NOON_US),
        ("2026-11-21 12:00:00", NOON_US),
        ("'2026-11-21 12:00'", NOON_US),
        ("'20261121T120000Z'", NOON_US),
        ("2026-11-21T13:00:00+01:00", NOON_US),
        ("'2026-11-21T13:00:00+01:00'", NOON_US),
        ("2026-11-21T06:30:00-05:30", NOON_US),
        ("2026-11-21", NOON_US - 12 * 3_600_000_000),
        ("2026-11-21T12:00:00.000001Z", NOON_US + 1),
        ("'2026-11-21T12:00:00.123456Z'", NOON_US + 123_456),
        ("1970-01-01", 0),
    ],
)
def test_start_at_a_moment(settings: Load, text: str, moment_us: int) -> None:
    start = settings(consumer(f"start: {{timestamp: {text}}}")).consumers["shop"].start
    assert (start.at, start.timestamp_us) == ("timestamp", moment_us)


@pytest.mark.parametrize(
    "text", ["noon", "1795262400", "true", "~", "[1]", "1969-12-31", "2026-13-01", "'12:00'"]
)
def test_what_is_no_moment(wrong: Wrong, text: str) -> None:
    (line,) = wrong(consumer(f"start: {{timestamp: {text}}}"))
    assert line.startswith("a.yaml:6: consumers.shop.start")


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
def test_what_is_no_start(wrong: Wrong, text: str) -> None:
    (line,) = wrong(consumer(f"start: {text}"))
    assert line.startswith("a.yaml:6: consumers.shop.start: ")


@pytest.mark.parametrize(
    ("more", "finding"),
    [
        ("databses: [shop]", "6: consumers.shop.databses: unknown key; did you mean 'databases'?"),
        ("zzz: 1", "6: consumers.shop.zzz: unknown key"),
        (
            "max_milliseconds_to_wait_in_binlog_queue: 3600001",
            "6: consumers.shop.max_milliseconds_to_wait_in_binlog_queue:"
            " must be less than or equal to 3600000",
        ),
        (
            "max_milliseconds_to_wait_in_binlog_queue: -1",
            "6: consumers.shop.max_milliseconds_to_wait_in_binlog_queue:"
            " must be greater than or equal to 0",
        ),
        ("on_queue_full: drop", "6: consumers.shop.on_queue_full: must be 'detach' or 'wait'"),
        ("on_purged: earliest", "6: consumers.shop.on_purged: must be 'fail' or 'latest'"),
        (
            "max_bytes_to_merge: 1M",
            "6: consumers.shop.max_bytes_to_merge: expected a number of bytes like 4096, 64MiB or 1 MB, not '1M'",
        ),
        (
            "max_bytes_in_all_queues: -1",
            "6: consumers.shop.max_bytes_in_all_queues: must be greater than or equal to 0",
        ),
        (
            "failover_wait_seconds: 86401",
            "6: consumers.shop.failover_wait_seconds: must be less than or equal to 86400",
        ),
        (
            "hosts: [a, b]",
            "6: consumers.shop.hosts: unknown key; list several hosts in mysql: user@host1:port,host2:port",
        ),
        (
            "max_bytes_in_spill: 1",
            "6: consumers.shop.max_bytes_in_spill: unknown key; set it in state, where it applies to all consumers",
        ),
        (
            "databases: [other]",
            "6: consumers.shop.databases: duplicate key, already set in line 5",
        ),
        ("tables: []", "6: consumers.shop.tables: must not be empty"),
        ("tables: shop.x", "6: consumers.shop.tables: expected a list"),
        (
            "tables: [shop.x, shop.x]",
            "6: consumers.shop.tables: 'shop.x' is listed twice",
        ),
        ("tables: [1]", "6: consumers.shop.tables.0: expected text; put the value in quotes"),
        (
            "tables: [other.x]",
            "2: consumers.shop: tables: 'other.x' is not in the consumer's databases; write database.table",
        ),
        (
            "use_binlog_client: perhaps",
            "6: consumers.shop.use_binlog_client: expected true or false",
        ),
        (
            "heartbeat_milliseconds: 99",
            "6: consumers.shop.heartbeat_milliseconds: must be greater than or equal to 100",
        ),
        (
            "heartbeat_milliseconds: true",
            "6: consumers.shop.heartbeat_milliseconds: expected a whole number, not True",
        ),
        (
            "max_bytes_in_binlog_queue: 0",
            "6: consumers.shop.max_bytes_in_binlog_queue: must be greater than or equal to 1",
        ),
        (
            "password_file: x",
            "6: consumers.shop.password_file: cannot read the file x: No such file or directory",
        ),
        (
            "tls: {mode: sometimes}",
            "6: consumers.shop.tls.mode: must be 'disabled', 'preferred', 'required', 'verify_ca'"
            " or 'verify_identity'",
        ),
        (
            "tls:\n  mode: verify_ca\n  ca: none.pem",
            "8: consumers.shop.tls.ca: cannot read the file none.pem: No such file or directory",
        ),
        ("tls: {crt: x}", "6: consumers.shop.tls.crt: unknown key; did you mean 'cert'?"),
        (
            "tls: {ca: a.yaml}",
            "6: consumers.shop.tls: ca needs mode verify_ca or verify_identity; set mode or remove ca",
        ),
        (
            "tls: {cert: a.yaml}",
            "6: consumers.shop.tls: cert needs mode required, verify_ca or verify_identity;"
            " set mode or remove cert",
        ),
        (
            "tls: {mode: required, key: a.yaml}",
            "6: consumers.shop.tls: key needs cert; set cert or remove key",
        ),
        (
            "tls: {mode: required, server_public_key: a.yaml}",
            "6: consumers.shop.tls: server_public_key needs mode disabled or preferred; remove it or change mode",
        ),
        (
            "tls: {mode: verify_ca, allow_public_key_retrieval: true}",
            "6: consumers.shop.tls: allow_public_key_retrieval needs mode disabled or preferred;"
            " remove it or change mode",
        ),
        (
            "tls: {server_public_key: a.yaml, allow_public_key_retrieval: true}",
            "6: consumers.shop.tls: set either server_public_key or allow_public_key_retrieval, not both",
        ),
        ("tls: yes please", "6: consumers.shop.tls: expected a mapping (key: value)"),
    ],
)
def test_one_mistake_in_a_consumer(wrong: Wrong, more: str, finding: str) -> None:
    assert wrong(consumer(more)) == [f"a.yaml:{finding}"]


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("api: {listn: x}", "3: api.listn: unknown key; did you mean 'listen'?"),
        ("apis: {}", "3: apis: unknown key; did you mean 'api'?"),
        ("\n\napi: 7", "5: api: expected a mapping (key: value)"),
        ("api: {listen: 8085}", "3: api.listen: expected text like 127.0.0.1:8085"),
        (
            "api:\n  listen: 0.0.0.0:8085",
            "4: api.listen: without api.tokens the daemon listens on loopback addresses only;"
            " set api.tokens, or listen on 127.0.0.1:8085",
        ),
        (
            "api: {listen: 'db1:8085', tls: 3}",
            "3: api.tls: expected a mapping (key: value)|a.yaml:3: api.listen: without api.tokens the"
            " daemon listens on loopback addresses only; set api.tokens, or listen on 127.0.0.1:8085",
        ),
        ("api: {tokens: {}}", "3: api.tokens: expected a list"),
        (
            "api:\n  tokens:\n    - token: short\n      consumers: all",
            "5: api.tokens.0: a token must have at least 16 characters",
        ),
        (
            "api:\n  tokens:\n  - token: abcdefghijklmnop\n  - consumers: all",
            "5: api.tokens.0.consumers: is missing"
            "|a.yaml:6: api.tokens.1: set either token_file or token",
        ),
        (
            "api: {tokens: [{token: abcdefghijklmnop, consumers: [shp]}]}",
            "3: api.tokens.0.consumers: there is no consumer 'shp'; did you mean 'shop'?",
        ),
        (
            "api: {tokens: [{token: abcdefghijklmnop, consumers: some}]}",
            "3: api.tokens.0.consumers: expected all or a list of consumer names",
        ),
        (
            "api:\n  tokens:\n  - {token: abcdefghijklmnop, consumers: all}\n"
            "  - {token: abcdefghijklmnop, consumers: [shop]}",
            "6: api.tokens.1: the same token is listed twice; remove one",
        ),
        (
            "api: {tls: {cert: none.pem}}",
            "3: api.tls.cert: cannot read the file none.pem: No such file or directory"
            "|a.yaml:3: api.tls.key: is missing",
        ),
        ("state: {path: }", "3: state.path: expected a file name"),
        (
            "state:\n  max_bytes_in_spill: 5 apples",
            "4: state.max_bytes_in_spill: expected a number of bytes like 4096, 64MiB or 1 MB, not '5 apples'",
        ),
        (
            "state: {max_bytes_in_prepared: -1}",
            "3: state.max_bytes_in_prepared: must be greater than or equal to 0",
        ),
        ("log: {level: loud}", "3: log.level: must be 'debug', 'info', 'warning' or 'error'"),
        ("log: {format: xml}", "3: log.format: must be 'console' or 'json'"),
        ("defaults: {database: [x]}", "3: defaults.database: unknown key"),
        (
            "defaults: {heartbeat_milliseconds: x}",
            "3: defaults.heartbeat_milliseconds: expected a whole number, not 'x'",
        ),
        ("defaults: 3", "3: defaults: expected a mapping (key: value)"),
        ("? [a, b]\n: 3", "3: a key must be text, not a list or mapping"),
    ],
)
def test_one_mistake_beside_the_consumers(
    wrong: Wrong, tmp_path: Path, text: str, finding: str
) -> None:
    assert "|".join(wrong(MINIMAL + text)) == f"a.yaml:{finding}"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "",
            "settings: consumers: at least one consumer is required, as a mapping of names to settings",
        ),
        (
            "api: {}",
            "a.yaml:1: consumers: at least one consumer is required, as a mapping of names to settings",
        ),
        (
            "\nconsumers: []",
            "a.yaml:2: consumers: at least one consumer is required, as a mapping of names to settings",
        ),
        (
            "consumers: {}",
            "a.yaml:1: consumers: at least one consumer is required, as a mapping of names to settings",
        ),
        ("consumers:\n  a: b", "a.yaml:2: consumers.a: expected a mapping (key: value)"),
        ("consumers:\n  a:", "a.yaml:2: consumers.a: expected a mapping (key: value)"),
        (
            "consumers:\n  a/b: {mysql: u@h, password: x, databases: [a]}",
            "a.yaml:2: consumers.a/b: invalid consumer name; use at most 64 letters, digits, '_', '.' and '-',"
            " beginning with a letter or digit",
        ),
    ],
)
def test_consumers_that_are_none(wrong: Wrong, text: str, finding: str) -> None:
    assert wrong(text) == [finding]


def test_what_is_missing_is_reported_where_the_section_begins(wrong: Wrong) -> None:
    assert wrong("consumers:\n  a:\n    tables: [x.y]\n") == [
        "a.yaml:2: consumers.a.databases: is missing",
        f"a.yaml:2: consumers.a: {NO_SOURCE}",
    ]
    assert wrong("consumers:\n  a:\n    mysql: u@h\n") == [
        "a.yaml:2: consumers.a.databases: is missing",
        "a.yaml:2: consumers.a: the password is missing: set password_file or password",
    ]
    assert wrong("consumers:\n  a:\n    databases: [a]\n") == [
        f"a.yaml:2: consumers.a: {NO_SOURCE}"
    ]
    assert wrong("consumers:\n  a:\n    files: {path: x}\n") == [
        "a.yaml:2: consumers.a.databases: is missing"
    ]


def test_both_passwords(wrong: Wrong, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (line,) = wrong(consumer("password_file: secret"))
    assert line.endswith("set either password_file or password, not both")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("consumers: [\n", "a.yaml:2: invalid YAML: "),
        ("a: b: c\n", "a.yaml:1: invalid YAML: "),
        ("a: *nothing\n", "a.yaml:1: invalid YAML: "),
        ("\ta: 1\n", "a.yaml:1: invalid YAML: "),
        ("a: \x00\n", "a.yaml"),
        ("- a\n", "a.yaml:1: expected a mapping (key: value)"),
        ("just text", "a.yaml:1: expected a mapping (key: value)"),
        (
            "consumers: &a\n  x: *a\n",
            "a.yaml:1: consumers.x: this alias refers to a value that contains it",
        ),
        ("a: !!python/object:os.system x\n", "a.yaml:1: a: invalid YAML value: "),
        ("a: !!int x\n", "a.yaml:1: a: invalid YAML value: "),
        ("a: 1\n---\nb: 2\n", "a.yaml:2: invalid YAML: "),
    ],
)
def test_files_that_are_no_settings(wrong: Wrong, text: str, line: str) -> None:
    assert wrong(text)[0].startswith(line)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"a: \xff\n")
    (tmp_path / "empty.d").mkdir()
    with pytest.raises(SettingsError) as caught:
        load_settings([tmp_path / "none.yaml", tmp_path / "latin", tmp_path / "empty.d"], {}, {})
    lines = str(caught.value).replace(f"{tmp_path}/", "")
    assert "none.yaml: cannot be read: No such file or directory" in lines
    assert "latin: is not UTF-8 text" in lines
    assert "empty.d: the folder contains no *.yaml or *.yml file" in lines


def test_mistakes_in_the_environment_and_on_the_command_line(wrong: Wrong) -> None:
    env = {
        "DISPATCHER__API__LISTN": "127.0.0.1:1",
        "DISPATCHER__API": "1",
        "DISPATCHER__": "1",
        "DISPATCHER__CONSUMERS__SHOP__DATABASES": "[a",
        "DISPATCHER__CONSUMERS__SHOP__HEARTBEAT_MILLISECONDS": "soon",
    }
    found = wrong(MINIMAL, env=env, options={"log.level": ("--log-level", "loud")})
    prefix = "environment variable DISPATCHER__"
    assert found == [
        "--log-level: log.level: must be 'debug', 'info', 'warning' or 'error'",
        f"{prefix}: unknown variable; write it like DISPATCHER__API__LISTEN",
        f"{prefix}API__LISTN: api.listn: unknown key; did you mean 'listen'?",
        f"{prefix}CONSUMERS__SHOP__DATABASES: consumers.shop.databases: invalid YAML list or mapping",
        f"{prefix}CONSUMERS__SHOP__HEARTBEAT_MILLISECONDS: consumers.shop.heartbeat_milliseconds:"
        " expected a whole number, not 'soon'",
    ]


def test_a_missing_variable_is_said_once(wrong: Wrong) -> None:
    text = 'consumers:\n  a:\n    mysql: "${WHERE}"\n    password: "${P}"\n    databases: [a]\n'
    assert wrong(text) == [
        "a.yaml:3: consumers.a.mysql: the environment variable WHERE is not set",
        "a.yaml:4: consumers.a.password: the environment variable P is not set",
    ]


def test_a_later_file_is_blamed_for_its_own(wrong: Wrong) -> None:
    more = "\n\nconsumers:\n  shop: {heartbeat_milliseconds: x}\nlog: {level: x}\n"
    assert wrong(MINIMAL + "log: {level: y}", more) == [
        "b.yaml:4: consumers.shop.heartbeat_milliseconds: expected a whole number, not 'x'",
        "b.yaml:5: log.level: must be 'debug', 'info', 'warning' or 'error'",
    ]


def test_a_default_is_blamed_once(wrong: Wrong) -> None:
    text = """\
defaults: {heartbeat_milliseconds: "${H}", max_bytes_in_binlog_queue: x}
consumers:
  a: {mysql: u@h, password: x, databases: [a]}
  b: {mysql: u@h, password: x, databases: [a]}
"""
    assert [line.split(":")[2] for line in wrong(text)] == [
        " defaults.heartbeat_milliseconds",
        " defaults.max_bytes_in_binlog_queue",
    ]


@pytest.mark.parametrize(
    "name", [name for (name, *rest) in PER_CONNECTION if name in LimitSettings.model_fields]
)
def test_what_belongs_to_the_connection_may_stand_in_defaults(settings: Load, name: str) -> None:
    a, b = settings(SHARED.replace("%s", "") + f"defaults: {{{name}: 4321}}").consumers.values()
    assert getattr(a, name) == getattr(b, name) == 4321


SHARED = """\
consumers:
  a: {mysql: u@h, password: x, databases: [a]}
  b:
    mysql: u@H:3306
    password: x
    databases: [b]
    %s
"""


@pytest.mark.parametrize(
    ("key", "value", "values"),
    [
        ("heartbeat_milliseconds", "500", " (500 and 1000)"),
        ("max_flush_milliseconds_in_binlog_dispatcher", "9", " (9 and 1000)"),
        ("max_bytes_in_binlog_dispatcher_buffer", "1KiB", " (1024 and 1048576)"),
        ("max_bytes_to_merge", "0", " (0 and 1048576)"),
        ("max_bytes_in_all_queues", "1KiB", " (1024 and 0)"),
        ("failover_wait_seconds", "0", " (0 and 60)"),
        ("tls", "{mode: disabled}", ""),
    ],
)
def test_consumers_of_one_connection_must_agree(
    wrong: Wrong, key: str, value: str, values: str
) -> None:
    assert wrong(SHARED % f"{key}: {value}") == [
        f"a.yaml:7: consumers.b.{key}: differs from consumers.a{values}, see a.yaml:2; both share"
        " the connection u@h:3306: set equal values, or set use_binlog_client: false for one of them"
    ]


@pytest.mark.parametrize(
    "change",
    [
        ("u@H:3306", "u@h:3307"),
        ("u@H:3306", "v@h"),
        ("password: x\n", "password: y\n"),
        ("databases: [b]", "databases: [b]\n    use_binlog_client: false"),
    ],
)
def test_consumers_of_different_connections_need_not(
    settings: Load, change: tuple[str, str]
) -> None:
    settings((SHARED % "heartbeat_milliseconds: 500").replace(*change))


def test_consumers_of_one_connection_may_differ_in_what_is_their_own(settings: Load) -> None:
    own = "max_bytes_in_binlog_queue: 5\n    max_milliseconds_to_wait_in_binlog_queue: 0"
    own += "\n    on_queue_full: wait\n    on_purged: latest"
    a, b = settings(SHARED % own).consumers.values()
    assert a.connection_key == b.connection_key
    assert (b.on_queue_full, b.on_purged) == ("wait", "latest")


FILES = """\
consumers:
  a: {files: {path: logs, prefix: binlog, follow: false}, databases: [a]}
  b:
    files: {path: logs/, prefix: binlog}
    databases: [b]
    %s
"""


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


def test_consumers_of_one_folder_must_agree(wrong: Wrong, tmp_path: Path) -> None:
    (found,) = wrong(FILES % "start: earliest")
    assert found == (
        "a.yaml:4: consumers.b.files.follow: differs from consumers.a (True and False), see a.yaml:2; both share"
        " the connection files:logs/binlog: set equal values, or set use_binlog_client: false for one of them"
    )


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
def test_a_folder_that_is_none(wrong: Wrong, text: str, finding: str) -> None:
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


def test_all_mistakes_at_once(wrong: Wrong) -> None:
    text = """\
defaults:
  heartbeat_milliseconds: soon
consumers:
  a: {mysql: u@h, databses: [a]}
  b: {mysql: "u:geheim@h", password: "${P}", databases: []}
  b: {}
  c: {mysql: u@h2, password: x, databases: [c], heartbeat_milliseconds: 500}
  d: {mysql: u@h2, password: x, databases: [c], heartbeat_milliseconds: 600}
api: {listen: "0.0.0.0:1", tokens: [], x: 1}
log: {level: 3}
"""
    found = wrong(text, env={"DISPATCHER__STAT__PATH": "x"})
    assert [line.partition(": ")[0] for line in found] == [
        "a.yaml:2",
        "a.yaml:4",
        "a.yaml:4",
        "a.yaml:4",
        "a.yaml:5",
        "a.yaml:5",
        "a.yaml:5",
        "a.yaml:6",
        "a.yaml:8",
        "a.yaml:9",
        "a.yaml:9",
        "a.yaml:10",
        "environment variable DISPATCHER__STAT__PATH",
    ]
    assert not any("geheim" in line for line in found)


# -- files with secrets ----------------------------------------------------------------------------------------

INLINE = MINIMAL
BY_VARIABLE = INLINE.replace('"geheim"', '"${REPL}"')
BY_FILE = INLINE.replace('password: "geheim"', "password_file: secret")


@pytest.fixture
def warnings_at() -> Iterator[Callable[[str, int, int], tuple[str, ...]]]:
    """The warnings of one settings file with `text`, in a folder that every user may enter.

    `mode`: of the settings file; `secret_mode`: of the file `secret` beside it. `FOLDER` stands for the folder.
    """
    with tempfile.TemporaryDirectory(prefix="settings-") as name:
        folder = Path(name)
        folder.chmod(0o755)

        def call(text: str, mode: int, secret_mode: int) -> tuple[str, ...]:
            file, secret = folder / "a.yaml", folder / "secret"
            file.write_text(text)
            file.chmod(mode)
            secret.write_text("geheim")
            secret.chmod(secret_mode)
            loaded = load_settings([file], None, {"REPL": "geheim"})
            return tuple(warning.replace(name, "FOLDER") for warning in loaded.warnings)

        yield call


WarningsAt = Callable[[str, int, int], tuple[str, ...]]


def test_settings_with_a_secret_that_all_users_can_read_are_warned_of(
    warnings_at: WarningsAt,
) -> None:
    assert warnings_at(INLINE, 0o644, 0o600) == (
        "FOLDER/a.yaml:2: every user of this machine can read the secret in this file; make the daemon's user its"
        " owner and run: chmod 600 FOLDER/a.yaml",
    )


def test_a_token_in_settings_that_all_users_can_read_is_warned_of(warnings_at: WarningsAt) -> None:
    text = BY_VARIABLE + "api: {tokens: [{token: sixteen-letters-x, consumers: all}]}\n"
    (warning,) = warnings_at(text, 0o644, 0o600)
    assert warning.startswith("FOLDER/a.yaml:3: ") and "sixteen" not in warning


def test_a_secret_file_that_all_users_can_read_is_warned_of(warnings_at: WarningsAt) -> None:
    (warning,) = warnings_at(BY_FILE, 0o644, 0o644)
    assert warning.startswith("FOLDER/a.yaml:2: every user of this machine can read FOLDER/secret;")
    assert warning.endswith("chmod 600 FOLDER/secret")


@pytest.mark.parametrize(
    ("text", "mode", "secret_mode"),
    [(INLINE, 0o640, 0o600), (BY_VARIABLE, 0o644, 0o600), (BY_FILE, 0o644, 0o640)],
)
def test_settings_whose_secrets_others_cannot_read_give_no_warning(
    warnings_at: WarningsAt, text: str, mode: int, secret_mode: int
) -> None:
    assert warnings_at(text, mode, secret_mode) == ()


def test_a_folder_that_others_may_not_enter_keeps_its_files_secret(
    settings: Load, tmp_path: Path
) -> None:
    tmp_path.chmod(0o700)
    loaded = settings(INLINE)
    (tmp_path / "a.yaml").chmod(0o644)
    assert loaded.warnings == settings(INLINE).warnings == ()


# Who may learn a password.


@pytest.mark.parametrize(
    ("host", "tls", "what"),
    [
        ("db1", "", "tls.mode preferred does not verify the server's identity"),
        ("db1,localhost", "", "tls.mode preferred does not verify the server's identity"),
        ("10.0.0.1", "{mode: required}", "tls.mode required does not verify the server's identity"),
        (
            "db1",
            "{mode: disabled, allow_public_key_retrieval: true}",
            "tls.allow_public_key_retrieval accepts an unverified key",
        ),
        ("db1", "{mode: disabled}", ""),
        ("db1", "{mode: verify_ca}", ""),
        ("db1", "{mode: verify_identity}", ""),
        ("localhost", "", ""),
        ("127.0.0.1:3307,[::1]:3308", "{mode: required}", ""),
    ],
)
def test_a_connection_on_which_a_stranger_may_learn_the_password_is_warned_of(
    settings: Load, host: str, tls: str, what: str
) -> None:
    consumer = f"{{mysql: 'u@{host}', password: p, databases: [d], tls: {tls or '{}'}}}"
    loaded = settings(f"consumers: {{one: {consumer}, two: {consumer}}}")
    warnings = password_warnings(loaded.consumers)
    assert len(warnings) == bool(what)
    for warning in warnings:
        assert what in warning and "consumers.one, consumers.two" in warning
        assert "verify_identity" in warning


# What the API admits.


def test_a_token_without_scopes_has_none_named(settings: Load) -> None:
    text = MINIMAL + "api: {tokens: [{token: abcdefghijklmnop, consumers: all}]}"
    assert settings(text).api.tokens[0].scopes is None


def test_scopes_hosts_and_openings(settings: Load) -> None:
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
def test_what_the_api_cannot_admit_is_named(settings: Load, api: str, finding: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(finding)):
        settings(MINIMAL + f"api: {api}")
