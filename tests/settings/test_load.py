"""All errors are reported together, each with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dispatcher.settings.load import NO_CONSUMERS
from dispatcher.settings.model import NO_SOURCE, PER_CONNECTION, LimitSettings
from tests.support.settings_texts import MINIMAL, Load, Wrong, consumer

FILES = """\
consumers:
  a: {files: {path: logs, prefix: binlog, follow: false}, databases: [a]}
  b:
    files: {path: logs/, prefix: binlog}
    databases: [b]
    %s
"""


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
            "6: consumers.shop.max_bytes_to_merge: expected a number of bytes like 4096, 64MiB or 1 MB, not '1M':"
            " write 1MB or 1MiB",
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
        ("tables: shop.x", "6: consumers.shop.tables: expected a list, such as [a, b]"),
        (
            "tables: [shop.x, shop.x]",
            "6: consumers.shop.tables: 'shop.x' is listed twice",
        ),
        ("tables: [1]", "6: consumers.shop.tables.0: expected text; put the value in quotes"),
        (
            "tables: [other.x]",
            "2: consumers.shop: tables: the database of 'other.x' is not in databases; correct tables, or add other to"
            " databases",
        ),
        (
            "tables: ['oth*.x']",
            "2: consumers.shop: tables: the database of 'oth*.x' is not in databases; correct tables, or add oth* to"
            " databases",
        ),
        (
            "exclude_tables: [tmp]",
            "2: consumers.shop: exclude_tables: 'tmp' has no database; write database.table, such as shop.tmp",
        ),
        (
            "tables: [shop.tmp_1]\nexclude_tables: ['*.tmp_*']",
            "2: consumers.shop: tables: exclude_tables excludes 'shop.tmp_1'; remove one of them",
        ),
        (
            "tables: [*]",
            "6: invalid YAML: while scanning an alias, did not find expected alphabetic or numeric character; a pattern"
            ' that begins with * needs quotes, such as "*"',
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
def test_one_error_in_a_consumer(wrong: Wrong, more: str, finding: str) -> None:
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
        ("api: {tokens: {}}", "3: api.tokens: expected a list, such as [a, b]"),
        ("front: {}", "3: front.listen: is missing"),
        ("front: {listen: 3307}", "3: front.listen: expected text like 127.0.0.1:3307"),
        (
            "front: {listen: '0.0.0.0:3307'}",
            "3: front.listen: without api.tokens the front listens on loopback addresses only; set api.tokens, or"
            " listen on 127.0.0.1:3307"
            "|a.yaml:3: front.listen: without front.tls the front listens on loopback addresses only; set front.tls,"
            " or listen on 127.0.0.1:3307",
        ),
        (
            "api:\n  tokens:\n    - token: short\n      consumers: all",
            "5: api.tokens.0: a token must have at least 16 characters; make one with: openssl rand -hex 24",
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
        ("state: {mysql: db1}", "3: state.mysql: expected user@host:port/database"),
        ("state: {mysql: u@db1/}", "3: state.mysql: expected user@host:port/database"),
        ("state: {mysql: 3}", "3: state.mysql: expected user@host:port/database"),
        ("state: {mysql: u@db1:0/state}", "3: state.mysql: the port must be between 1 and 65535"),
        (
            "state: {mysql: u@db1/My-State}",
            "3: state.mysql: invalid name of a database for the state; use at most 64 lower-case letters, digits and"
            " '_', beginning with a letter",
        ),
        (
            "state: {mysql: 'u@db1,db2/state'}",
            "3: state.mysql: name one address: two daemons that write to different servers would both lead; after a"
            " failover the address must lead to the server that is writable",
        ),
        (
            "state: {mysql: u:geheim@db1/state}",
            "3: state.mysql: must not contain a password; set password_file or password",
        ),
        (
            "state: {mysql: u@db1/state}",
            "3: state: the password is missing: set password_file or password",
        ),
        (
            "state: {mysql: u@db1/state, password: p, path: state.db}",
            "3: state: set either path or mysql, not both",
        ),
        (
            "state: {password: p}",
            "3: state: password belongs to mysql: set mysql to user@host:port/database, or remove password",
        ),
        (
            "state: {mysql: u@db1/state, password: p, lease: 0}",
            "3: state.lease: must be greater than or equal to 1",
        ),
        (
            "state: {mysql: u@db1/shop, password: p}",
            "2: consumers.shop.databases: shop is the database of the state (state.mysql); remove this"
            " database from the consumer, or keep the state in a database of another name",
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
def test_one_error_outside_of_the_consumers(
    wrong: Wrong, tmp_path: Path, text: str, finding: str
) -> None:
    assert "|".join(wrong(MINIMAL + text)) == f"a.yaml:{finding}"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "",
            f"a.yaml: consumers: {NO_CONSUMERS}",
        ),
        (
            "api: {}",
            f"a.yaml:1: consumers: {NO_CONSUMERS}",
        ),
        (
            "\nconsumers: []",
            f"a.yaml:2: consumers: {NO_CONSUMERS}",
        ),
        (
            "consumers: {}",
            f"a.yaml:1: consumers: {NO_CONSUMERS}",
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
def test_invalid_consumers(wrong: Wrong, text: str, finding: str) -> None:
    assert wrong(text) == [finding]


def test_a_missing_key_is_reported_where_the_section_begins(wrong: Wrong) -> None:
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


def test_an_invalid_default_is_reported_once(wrong: Wrong) -> None:
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
def test_defaults_may_contain_the_keys_of_the_connection(settings: Load, name: str) -> None:
    text, value = ("[x]", ("x",)) if name == "ignore_statements_in" else ("4321", 4321)
    a, b = settings(SHARED.replace("%s", "") + f"defaults: {{{name}: {text}}}").consumers.values()
    assert getattr(a, name) == getattr(b, name) == value


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
        ("max_bytes_in_binlog_dispatcher_buffer", "1KiB", " (1024 and 4194304)"),
        ("max_bytes_to_merge", "0", " (0 and 1048576)"),
        ("max_bytes_in_all_queues", "1KiB", " (1024 and 0)"),
        ("failover_wait_seconds", "0", " (0 and 60)"),
        ("tls", "{mode: disabled}", ""),
    ],
)
def test_consumers_of_one_connection_must_have_equal_values(
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
        ("databases: [b]", "databases: [b]\n    use_binlog_client: false"),
    ],
)
def test_consumers_of_different_connections_may_have_different_values(
    settings: Load, change: tuple[str, str]
) -> None:
    settings((SHARED % "heartbeat_milliseconds: 500").replace(*change))


def test_consumers_with_the_same_account_have_the_same_password(
    settings: Load, wrong: Wrong
) -> None:
    rotating = (SHARED % "").replace("password: x\n", "password: y\n")
    assert wrong(rotating) == [
        "a.yaml:3: consumers.b: has another password than consumers.a for u@h:3306, see a.yaml:2:"
        " set the same password for both, or set use_binlog_client: false for one of them"
    ]
    settings(rotating.replace("databases: [b]", "databases: [b]\n    use_binlog_client: false"))


def test_consumers_of_one_connection_may_have_different_limits(settings: Load) -> None:
    own = "max_bytes_in_binlog_queue: 5\n    max_milliseconds_to_wait_in_binlog_queue: 0"
    own += "\n    on_queue_full: wait\n    on_purged: latest"
    a, b = settings(SHARED % own).consumers.values()
    assert a.connection_key == b.connection_key
    assert (b.on_queue_full, b.on_purged) == ("wait", "latest")


def test_consumers_of_one_folder_must_have_equal_values(wrong: Wrong, tmp_path: Path) -> None:
    (found,) = wrong(FILES % "start: earliest")
    assert found == (
        "a.yaml:4: consumers.b.files.follow: differs from consumers.a (True and False), see a.yaml:2; both share"
        " the connection files:logs/binlog: set equal values, or set use_binlog_client: false for one of them"
    )


def test_all_errors_are_reported_together(wrong: Wrong) -> None:
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
