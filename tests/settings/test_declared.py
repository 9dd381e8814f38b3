"""Which consumers the settings permit a token to declare, and which settings a declared consumer has."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace

import pytest

from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.runtime.client.from_settings import consumer_spec
from dispatcher.settings.declared import (
    DAY_S,
    admit,
    declared_consumer,
    expired,
    source_of,
    with_declared,
)
from dispatcher.settings.model import Settings
from tests.support.settings_texts import Load

SOURCES = """
defaults: {max_bytes_in_binlog_queue: 1MiB, mqtt: {commits: false}}
sources:
  db:
    mysql: repl@db1:3306
    password: secret
    names: ["nb-*", spark-job]
    databases: [shop, "team_*"]
    exclude_tables: [shop.secrets]
    max_consumers: 3
    max_consumers_per_token: 2
    on_purged: latest
  narrow:
    mysql: repl@db2:3306
    password: secret
    names: ["nb-*"]
    databases: [shop]
    tables: [shop.orders, "shop.pub_*"]
"""
WANTED = Declaration("nb-1", "notebook", "db", ("shop",))


@pytest.fixture
def permitted(settings: Load) -> Settings:
    return settings(SOURCES)


def refusal(
    wanted: Declaration, settings: Settings, *declared: Declaration
) -> tuple[ErrorKind, str]:
    with pytest.raises(UserError) as caught:
        admit(wanted, {each.name: each for each in declared}, settings)
    return caught.value.kind, caught.value.what


# -- what is permitted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "databases",
    [("shop",), ("team_a",), ("team_*",), ("team_a*",), ("team_?",), ("shop", "team_b")],
)
def test_databases_that_the_source_covers_are_permitted(
    permitted: Settings, databases: tuple[str, ...]
) -> None:
    assert admit(replace(WANTED, databases=databases), {}, permitted) is None


@pytest.mark.parametrize(
    "database", ["hr", "*", "sho*", "t*", "team", "[t]eam_a", "mysql", "shop2", "SHOP", "*shop"]
)
def test_other_databases_are_not(permitted: Settings, database: str) -> None:
    kind, what = refusal(replace(WANTED, databases=("shop", database)), permitted)
    assert kind is ErrorKind.FORBIDDEN
    assert what == f"sources.db.databases (shop, team_*) does not permit {database!r}"


def test_a_pattern_of_a_source_permits_no_system_database(settings: Load) -> None:
    everything = settings(SOURCES.replace('[shop, "team_*"]', '["*"]'))
    assert admit(replace(WANTED, databases=("hr", "m*")), {}, everything) is None
    kind, _ = refusal(replace(WANTED, databases=("mysql",)), everything)
    assert kind is ErrorKind.FORBIDDEN


@pytest.mark.parametrize(
    "tables", [("shop.orders",), ("shop.pub_a", "shop.pub_a*"), ("shop.pub_*",)]
)
def test_tables_that_the_source_covers_are_permitted(
    permitted: Settings, tables: tuple[str, ...]
) -> None:
    assert admit(replace(WANTED, source="narrow", tables=tables), {}, permitted) is None


@pytest.mark.parametrize("tables", [("shop.*",), ("shop.orders", "shop.x"), ("*.orders",), None])
def test_other_tables_are_not(permitted: Settings, tables: tuple[str, ...] | None) -> None:
    kind, what = refusal(replace(WANTED, source="narrow", tables=tables), permitted)
    assert kind is ErrorKind.FORBIDDEN and "sources.narrow" in what


def test_an_excluded_table_is_refused_by_name_and_left_out_of_patterns(permitted: Settings) -> None:
    kind, what = refusal(replace(WANTED, tables=("shop.secrets",)), permitted)
    assert kind is ErrorKind.FORBIDDEN and "excludes 'shop.secrets'" in what
    consumer = declared_consumer(replace(WANTED, tables=("shop.s*",)), permitted)
    assert consumer_spec("nb-1", consumer).exclude_tables == (("shop", "secrets"),)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"tables": ("hr.x",)}, "tables: the database of 'hr.x' is not in databases"),
        ({"exclude_tables": ("shop",)}, "exclude_tables: 'shop' has no database"),
        (
            {"tables": ("shop.a",), "exclude_tables": ("shop.a",)},
            "exclude_tables excludes 'shop.a'",
        ),
    ],
)
def test_tables_are_checked_as_those_of_the_settings(
    permitted: Settings, change: dict[str, tuple[str, ...]], what: str
) -> None:
    kind, text = refusal(replace(WANTED, **change), permitted)  # type: ignore[arg-type]
    assert kind is ErrorKind.REQUEST and what in text


@pytest.mark.parametrize(
    ("name", "is_permitted"), [("spark-job", True), ("spark-x", False), ("nb", False)]
)
def test_a_name_must_match_the_source(permitted: Settings, name: str, is_permitted: bool) -> None:
    wanted = replace(WANTED, name=name)
    if is_permitted:
        assert admit(wanted, {}, permitted) is None
    else:
        assert refusal(wanted, permitted) == (
            ErrorKind.FORBIDDEN,
            f"sources.db.names (nb-*, spark-job) does not permit the name {name}",
        )


def test_numbers_are_limited_for_each_token_and_for_all(permitted: Settings) -> None:
    own = [replace(WANTED, name=f"nb-{n}") for n in (2, 3)]
    elsewhere = replace(WANTED, name="nb-4", source="narrow")
    others = [replace(WANTED, name=f"nb-{n}", owner="other") for n in (5, 6, 7)]
    assert admit(WANTED, {each.name: each for each in (own[0], elsewhere)}, permitted) is None
    assert "this token has 2 declared consumers" in refusal(WANTED, permitted, *own)[1]
    assert "all tokens have 3 declared consumers" in refusal(WANTED, permitted, *others)[1]


# -- the same declaration again ---------------------------------------------------------------------------------


def test_an_equal_declaration_is_found_also_at_the_limit(permitted: Settings) -> None:
    stored = {name: replace(WANTED, name=name, read_s=5) for name in ("nb-1", "nb-2")}
    again = replace(WANTED, declared_s=9, start='"earliest"')
    assert admit(again, stored, permitted) is stored["nb-1"]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"databases": ("team_a",)}, 'is declared with databases ["shop"], not ["team_a"]'),
        ({"tables": ("shop.a",)}, 'is declared with tables null, not ["shop.a"]'),
        ({"owner": "other"}, "another token has declared a consumer nb-1"),
    ],
)
def test_another_declaration_under_the_name_is_a_conflict(
    permitted: Settings, change: dict[str, object], what: str
) -> None:
    kind, text = refusal(replace(WANTED, **change), permitted, WANTED)  # type: ignore[arg-type]
    assert kind is ErrorKind.CONSUMER_EXISTS and what in text


# -- sources of a token -----------------------------------------------------------------------------------------


def test_a_source_may_be_left_out_if_the_token_has_one(permitted: Settings) -> None:
    assert source_of(permitted, {"db"}, None) == "db"
    assert source_of(permitted, {"db", "narrow"}, "narrow") == "narrow"
    for sources, name, kind in (
        (None, None, ErrorKind.REQUEST),
        ({"db"}, "narrow", ErrorKind.FORBIDDEN),
        (None, "unknown", ErrorKind.FORBIDDEN),
        (set(), None, ErrorKind.FORBIDDEN),
    ):
        with pytest.raises(UserError) as caught:
            source_of(permitted, sources, name)
        assert caught.value.kind is kind


# -- what runs --------------------------------------------------------------------------------------------------


def test_a_declared_consumer_has_the_limits_of_its_source(permitted: Settings) -> None:
    wanted = replace(WANTED, start='{"file":"binlog.000007","offset":4}')
    consumer = declared_consumer(wanted, permitted)
    assert consumer.label == "repl@db1:3306" and consumer.secret == "secret"
    assert consumer.max_bytes_in_binlog_queue == 1 << 20  # the value in `defaults`
    assert (consumer.on_purged, consumer.start.file) == ("latest", "binlog.000007")
    assert consumer.connection_key == permitted.sources["db"].connection_key
    assert consumer_spec("nb-1", consumer).declared_by == "notebook"


def test_declared_consumers_run_beside_those_of_the_settings(settings: Load) -> None:
    fixed = "consumers: {fixed: {mysql: repl@db1:3306, password: secret, databases: [shop]}}"
    permitted = settings(SOURCES, fixed)
    gone = replace(WANTED, name="nb-2", source="gone")
    narrowed = replace(WANTED, name="nb-3", databases=("hr",))
    running = with_declared(permitted, [WANTED, gone, narrowed, replace(WANTED, name="fixed")])
    assert list(running.settings.consumers) == ["fixed", "nb-1"]
    assert set(running.refused) == {"nb-2", "nb-3"} and running.replaced == ("fixed",)
    assert list(permitted.consumers) == ["fixed"]


def test_consumers_that_are_not_read_expire(settings: Load) -> None:
    permitted = settings(SOURCES.replace("max_consumers: 3", "max_days_unread: 2"))
    never = settings(SOURCES.replace("max_consumers: 3", "max_days_unread: 0"))
    declared = [
        replace(WANTED, read_s=100),
        replace(WANTED, name="nb-2", read_s=101),
        replace(WANTED, name="nb-3", source="gone", read_s=0),
    ]
    now_s = 101 + 2 * DAY_S
    assert expired(declared, permitted, now_s) == ("nb-1",)
    assert expired(declared, never, 10 * now_s) == ()


# -- the sections of the settings -------------------------------------------------------------------------------

TOKEN = "api: {{tokens: [{{token: 0123456789abcdef, {}}}]}}"


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            "consumers: {nb-7: {mysql: repl@db1:3306, password: secret, databases: [shop]}}",
            "b.yaml:1: consumers.nb-7: sources.db.names permits tokens to declare a consumer of this name; rename the"
            " consumer, or change names",
        ),
        (
            "consumers: {fixed: {mysql: repl@db1:3306, password: secret, databases: [shop],"
            " heartbeat_milliseconds: 500}}",
            "a.yaml:4: sources.db.heartbeat_milliseconds: differs from consumers.fixed (1000 and 500), see b.yaml:1;"
            " both share the connection repl@db1:3306: set equal values",
        ),
        ("sources: {db: {mqtt: {commits: true}}}", "b.yaml:1: sources.db.mqtt: unknown key"),
        ("sources: {db: {tables: [hr.x]}}", "the database of 'hr.x' is not in databases"),
        (TOKEN.format("consumers: [], scopes: [read]"), "expected all or a list of consumer names"),
        (TOKEN.format("consumers: [], scopes: [declare]"), "the scope declare needs name"),
        (
            TOKEN.format("name: n, consumers: [], scopes: [declare]"),
            "the scope declare needs sources",
        ),
        (
            TOKEN.format("consumers: all, sources: all"),
            "sources needs the scope declare; add it to scopes",
        ),
        (
            TOKEN.format("name: n, consumers: [], scopes: [declare], sources: [dbb]"),
            "b.yaml:1: api.tokens.0.sources: there is no source 'dbb'; did you mean 'db'?",
        ),
        (TOKEN.format('name: "a b", consumers: all'), "invalid name of a token"),
    ],
)
def test_wrong_sections_are_reported(
    wrong: Callable[..., list[str]], text: str, finding: str
) -> None:
    findings = wrong(SOURCES, textwrap.dedent(text))
    assert any(finding in line for line in findings), findings


def test_sources_need_no_consumer_of_the_settings(settings: Load) -> None:
    loaded = settings(
        SOURCES, TOKEN.format("name: n, consumers: [], scopes: [declare], sources: all")
    )
    assert loaded.consumers == {} and list(loaded.sources) == ["db", "narrow"]
    assert "secret" in loaded.secrets()
    assert loaded.api.tokens[0].sources == "all"
