"""Settings are read from files, the environment and the command line; a later source overrides an earlier one."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.settings.load import load_settings
from dispatcher.yaml_settings.validation import SettingsError
from tests.support.settings_texts import MINIMAL, Load, Wrong, consumer


def test_consumers_override_defaults(settings: Load) -> None:
    text = """\
defaults: {max_bytes_in_binlog_queue: 1MiB, use_binlog_client: false}
consumers:
  a: {mysql: u@h, password: x, databases: [a]}
  b: {mysql: u@h, password: x, databases: [b], max_bytes_in_binlog_queue: 2 MB}
"""
    a, b = settings(text).consumers.values()
    assert (a.max_bytes_in_binlog_queue, b.max_bytes_in_binlog_queue) == (1024 * 1024, 2_000_000)
    assert not a.use_binlog_client and not b.use_binlog_client


def test_later_files_override_key_by_key(settings: Load) -> None:
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


def test_the_files_of_a_folder_are_read_in_the_order_of_their_names(
    settings: Load, tmp_path: Path
) -> None:
    folder = tmp_path / "conf.d"
    folder.mkdir()
    (folder / "20-more.yml").write_text("api: {listen: '127.0.0.1:20'}")
    (folder / "10-first.yaml").write_text(MINIMAL + "api: {listen: '127.0.0.1:10'}")
    (folder / "notes.txt").write_text("not: [yaml")
    assert load_settings([folder], {}, {}).api.listen.port == 20


def test_the_environment_overrides_files_and_the_command_line_both(settings: Load) -> None:
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


def test_file_names_are_relative_to_the_settings_file(settings: Load, tmp_path: Path) -> None:
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


def test_keys_are_text_even_if_they_look_like_numbers(settings: Load) -> None:
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
def test_files_without_settings(wrong: Wrong, text: str, line: str) -> None:
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


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refused)
    with pytest.raises(SettingsError, match=r"closed: cannot be read: Permission denied"):
        load_settings([tmp_path / "closed"], {}, {})


def test_a_file_in_the_home_directory_of_an_unknown_user(wrong: Wrong) -> None:
    text = "consumers: {a: {mysql: u@h, password_file: ~no-such-user/pw, databases: [a]}}"
    assert "~no-such-user/pw: there is no home directory of this user" in wrong(text)[0]


def test_errors_in_the_environment_and_on_the_command_line(wrong: Wrong) -> None:
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
        f"{prefix}: unknown variable; write it like DISPATCHER__SECTION__KEY",
        f"{prefix}API__LISTN: api.listn: unknown key; did you mean 'listen'?",
        f"{prefix}CONSUMERS__SHOP__DATABASES: consumers.shop.databases: invalid YAML list or mapping",
        f"{prefix}CONSUMERS__SHOP__HEARTBEAT_MILLISECONDS: consumers.shop.heartbeat_milliseconds:"
        " expected a whole number, not 'soon'",
    ]


def test_a_missing_variable_is_reported_once(wrong: Wrong) -> None:
    text = 'consumers:\n  a:\n    mysql: "${WHERE}"\n    password: "${P}"\n    databases: [a]\n'
    assert wrong(text) == [
        "a.yaml:3: consumers.a.mysql: the environment variable WHERE is not set; export it",
        "a.yaml:4: consumers.a.password: the environment variable P is not set; export it",
    ]


def test_an_error_is_reported_in_the_file_that_has_it(wrong: Wrong) -> None:
    more = "\n\nconsumers:\n  shop: {heartbeat_milliseconds: x}\nlog: {level: x}\n"
    assert wrong(MINIMAL + "log: {level: y}", more) == [
        "b.yaml:4: consumers.shop.heartbeat_milliseconds: expected a whole number, not 'x'",
        "b.yaml:5: log.level: must be 'debug', 'info', 'warning' or 'error'",
    ]
