"""Consumers that a token declares over the API, within the limits of the settings. The state keeps them, and the token
removes them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from tests.cli.program import call
from tests.daemon.conftest import MakeDaemon, MakePair, Source
from tests.daemon.harness import Api, Daemon, Json, Problem, Reader, until
from tests.daemon.pair import NEVER_S
from tests.servers import Instance, Server

NOTEBOOK, OTHER, ADMIN = "token-of-the-notebook", "token-of-the-others", "token-of-the-admin"
SCOPES = ["read", "acknowledge", "declare"]
TOKENS: list[Json] = [
    {"token": NOTEBOOK, "name": "notebook", "consumers": [], "sources": "all", "scopes": SCOPES},
    {"token": OTHER, "name": "other", "consumers": [], "sources": ["db"], "scopes": SCOPES},
    {
        "token": ADMIN,
        "consumers": "all",
        "scopes": ["read", "acknowledge", "administer", "metrics"],
    },
]


@pytest.fixture(scope="module")
def database(mysql97: Server) -> Iterator[str]:
    name = f"decl_{os.getpid()}"
    mysql97.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.orders (id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(20))",
        f"CREATE TABLE {name}.secrets (id INT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(20))",
    )
    yield name
    mysql97.execute(f"DROP DATABASE {name}")


@pytest.fixture
def settings(source: Source, mysql97: Server, database: str) -> Json:
    """The sections that permit tokens to declare consumers `nb-...` of the database."""
    connection = source(mysql97, database)
    limits = {"exclude_tables": [f"{database}.secrets"], "max_consumers_per_token": 3}
    return {
        "sources": {"db": {**connection, **limits, "names": ["nb-*"]}},
        "api": {"tokens": TOKENS},
    }


@pytest.fixture
def daemon(
    make_daemon: MakeDaemon, settings: Json, source: Source, mysql97: Server, database: str
) -> Daemon:
    daemon = make_daemon({"fixed": source(mysql97, database)}, **settings)
    daemon.token = NOTEBOOK
    daemon.start()
    return daemon


def declare(api: Api, name: str, *databases: str, **more: Any) -> Json:
    body = {"name": name, "databases": list(databases), **more}
    answer: Json = json.loads(api.raw("POST", "/v1/consumers", body))
    return answer


def remove(api: Api, name: str) -> Json:
    answer: Json = json.loads(api.raw("DELETE", f"/v1/consumers/{name}"))
    return answer


def by(daemon: Daemon, token: str) -> Api:
    return Api(daemon.port, token)


def refused(request: Callable[[], object]) -> tuple[int, str, str]:
    """Returns (status, kind, message) of the problem document."""
    with pytest.raises(Problem) as caught:
        request()
    return caught.value.status, caught.value.kind, str(caught.value.body["detail"])


def insert(server: Server, database: str, *notes: str, table: str = "orders") -> None:
    server.execute(*(f"INSERT INTO {database}.{table} (note) VALUES ('{note}')" for note in notes))


def read(daemon: Daemon, reader: Reader, number: int) -> Reader:
    """Read until the reader has this number of transactions."""

    def has_all() -> bool:
        reader.step()
        return len(reader.transactions) >= number

    until(has_all, f"{number} transactions are read")
    return reader


# -- declaring --------------------------------------------------------------------------------------------------


def test_the_token_that_declared_a_consumer_reads_it(
    daemon: Daemon, mysql97: Server, database: str
) -> None:
    answer = declare(daemon.api, "nb-1", database)
    assert (answer["created"], answer["declared_by"], answer["source"]) == (True, "notebook", "db")
    daemon.api.until_state("nb-1", "streaming")
    reader = Reader(daemon, "nb-1").open()
    insert(mysql97, database, "one")
    insert(mysql97, database, "hidden", table="secrets")
    insert(mysql97, database, "two")
    read(daemon, reader, 2).read_to(mysql97)
    assert len(reader.transactions) == 2
    assert len(set(daemon.api.rows()) - {"nb-1"}) == 0


def test_the_same_declaration_again_answers_the_existing_consumer(
    daemon: Daemon, database: str
) -> None:
    first = declare(daemon.api, "nb-1", database, tables=[f"{database}.orders", f"{database}.o*"])
    session = daemon.api.session("nb-1")["session"]
    again = declare(
        daemon.api, "nb-1", database, tables=[f"{database}.o*", f"{database}.orders"],
        source="db", start="earliest",
    )  # fmt: skip
    assert again == {**first, "created": False}
    assert daemon.api.row("nb-1")["session"] == session


def test_another_content_under_the_name_is_a_conflict(daemon: Daemon, database: str) -> None:
    declare(daemon.api, "nb-1", database)
    status, kind, text = refused(
        lambda: declare(daemon.api, "nb-1", database, tables=[f"{database}.orders"])
    )
    assert (status, kind) == (409, "CONSUMER_EXISTS")
    assert f'declared with tables null, not ["{database}.orders"]' in text
    status, kind, text = refused(lambda: declare(by(daemon, OTHER), "nb-1", database))
    assert (status, kind) == (409, "CONSUMER_EXISTS")
    assert "another token has declared a consumer nb-1" in text and "choose another name" in text


def test_a_declared_consumer_belongs_to_one_token(daemon: Daemon, database: str) -> None:
    declare(daemon.api, "nb-1", database)
    other = by(daemon, OTHER)
    assert other.rows() == {}
    for request in (
        lambda: other.session("nb-1"),
        lambda: other.get(f"/v1/consumers/nb-1/tables/{database}.orders"),
        lambda: remove(other, "nb-1"),
    ):
        assert refused(request)[:2] == (404, "UNKNOWN_CONSUMER")
    assert set(by(daemon, ADMIN).rows()) == {"fixed", "nb-1"}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"name": "x-1"}, "names (nb-*) does not permit the name x-1"),
        ({"databases": ["mysql"]}, "does not permit 'mysql'"),
        ({"databases": ["*"]}, "does not permit '*'"),
        ({"tables": ["DB.secrets"]}, "exclude_tables excludes 'DB.secrets'"),
        ({"source": "unknown"}, "may not declare consumers of the source 'unknown'"),
    ],
)
def test_the_limits_of_the_source_hold(
    daemon: Daemon, database: str, body: Json, text: str
) -> None:
    body = json.loads(json.dumps(body).replace("DB", database))
    whole = {"name": "nb-1", "databases": [database], **body}
    status, kind, detail = refused(lambda: daemon.api.raw("POST", "/v1/consumers", whole))
    assert (status, kind) == (403, "FORBIDDEN")
    assert text.replace("DB", database) in detail
    assert daemon.api.rows() == {}


def test_a_token_declares_no_more_consumers_than_permitted(daemon: Daemon, database: str) -> None:
    for n in range(3):
        declare(daemon.api, f"nb-{n}", database)
    status, kind, text = refused(lambda: declare(daemon.api, "nb-3", database))
    assert (status, kind) == (403, "FORBIDDEN")
    assert (
        "this token has 3 declared consumers, as many as sources.db.max_consumers_per_token allows"
        in text
    )
    assert declare(daemon.api, "nb-0", database)["created"] is False
    declare(by(daemon, OTHER), "nb-3", database)
    remove(daemon.api, "nb-1")
    assert declare(daemon.api, "nb-4", database)["created"] is True


def test_tokens_without_the_scope_declare_nothing(daemon: Daemon, database: str) -> None:
    assert refused(lambda: declare(by(daemon, ADMIN), "nb-1", database))[:2] == (403, "FORBIDDEN")
    assert refused(lambda: declare(by(daemon, ""), "nb-1", database))[0] == 401


def test_the_columns_of_a_table_are_known_before_a_consumer_is_declared(
    daemon: Daemon, database: str
) -> None:
    answer = daemon.api.get(f"/v1/tables/{database}.orders")
    assert [column["name"] for column in answer["columns"]] == ["id", "note"]
    for table in (
        f"{database}.secrets",
        f"{database}.SECRETS",
        f"{database}.missing",
        "mysql.user",
    ):
        status, kind, _ = refused(partial(daemon.api.get, f"/v1/tables/{table}?source=db"))
        assert (status, kind) == (404, "UNKNOWN_TABLE")


# -- a removal --------------------------------------------------------------------------------------------------


def test_a_removed_consumer_is_gone_and_begins_anew_when_it_is_declared_again(
    daemon: Daemon, mysql97: Server, database: str
) -> None:
    declare(daemon.api, "nb-1", database)
    reader = Reader(daemon, "nb-1").open()
    insert(mysql97, database, "one")
    read(daemon, reader, 1).acknowledge()
    assert remove(daemon.api, "nb-1") == {"removed": "nb-1"}
    assert refused(reader.step)[:2] == (404, "UNKNOWN_CONSUMER")
    assert refused(lambda: remove(daemon.api, "nb-1"))[0] == 404
    insert(mysql97, database, "unread")
    declare(daemon.api, "nb-1", database)
    daemon.api.until_state("nb-1", "streaming")
    position = daemon.api.session("nb-1")["position"]
    assert position["epoch"] > reader.position["epoch"]


def test_a_reader_with_a_checkpoint_goes_on_after_a_removal(
    daemon: Daemon, mysql97: Server, database: str
) -> None:
    """The test removes the consumer, as the daemon does if no reader reads it for long. The reader declares it
    again."""
    declare(daemon.api, "nb-1", database)
    reader = Reader(daemon, "nb-1").open()
    insert(mysql97, database, "one")
    read(daemon, reader, 1).acknowledge()
    remove(daemon.api, "nb-1")
    insert(mysql97, database, "two", "three")
    declare(daemon.api, "nb-1", database)
    daemon.api.until_state("nb-1", "streaming")
    read(daemon, reader.open(reader.position), 3)
    assert len(reader.transactions) == 3


def test_an_administrator_removes_declared_consumers_but_none_of_the_settings(
    daemon: Daemon, database: str
) -> None:
    declare(daemon.api, "nb-1", database)
    admin = by(daemon, ADMIN)
    assert remove(admin, "nb-1") == {"removed": "nb-1"}
    status, kind, text = refused(lambda: remove(admin, "fixed"))
    assert (status, kind) == (
        403,
        "FORBIDDEN",
    ) and "the settings declare the consumer fixed" in text


# -- reloads, restarts, takeovers -------------------------------------------------------------------------------


def test_declared_consumers_survive_a_reload_and_a_kill(
    daemon: Daemon, mysql97: Server, database: str
) -> None:
    declare(daemon.api, "nb-1", database)
    reader = Reader(daemon, "nb-1").open()
    insert(mysql97, database, "one")
    read(daemon, reader, 1)
    daemon.settings["consumers"] = {}
    daemon.reload()
    assert set(by(daemon, ADMIN).rows()) == {"nb-1"}
    insert(mysql97, database, "two")
    read(daemon, reader, 2)
    daemon.restart(kill=True)
    daemon.api.until_state("nb-1", "streaming")
    insert(mysql97, database, "three")
    read(daemon, reader.open(), 3)
    assert len(reader.transactions) == 3


def test_a_consumer_that_the_settings_no_longer_permit_stops_until_they_do(
    daemon: Daemon, database: str
) -> None:
    declare(daemon.api, "nb-1", database)
    daemon.settings["sources"]["db"]["databases"] = ["another"]
    daemon.settings["sources"]["db"].pop("exclude_tables")
    daemon.reload()
    assert daemon.api.rows() == {}
    assert "declared consumer does not run" in daemon.log
    assert refused(lambda: declare(daemon.api, "nb-1", database))[:2] == (403, "FORBIDDEN")
    daemon.settings["sources"]["db"]["databases"] = [database]
    daemon.reload()
    assert set(daemon.api.rows()) == {"nb-1"}


def test_a_name_of_the_settings_wins(
    daemon: Daemon, source: Source, mysql97: Server, database: str
) -> None:
    declare(daemon.api, "nb-1", database)
    daemon.settings["sources"]["db"]["names"] = ["other-*"]
    daemon.settings["consumers"] = {"nb-1": source(mysql97, database)}
    daemon.reload()
    row = by(daemon, ADMIN).row("nb-1")
    assert row["declared_by"] is None
    assert '"declared consumer removed"' in daemon.log
    assert "the settings have a consumer of this name" in daemon.log
    assert refused(lambda: daemon.api.session("nb-1"))[0] == 404
    assert declarations(daemon) == []
    status, kind, text = refused(lambda: declare(daemon.api, "nb-1", database))
    assert (status, kind) == (409, "CONSUMER_EXISTS") and "the settings have a consumer" in text


def declarations(daemon: Daemon) -> list[str]:
    with closing(sqlite3.connect(f"file:{daemon.state}?mode=ro", uri=True)) as db:
        return [name for (name,) in db.execute("SELECT name FROM declaration ORDER BY name")]


def test_a_standby_refuses_and_a_takeover_keeps_declared_consumers(
    make_pair: MakePair, source: Source, source_server: Instance
) -> None:
    sources = {"db": {**source(source_server, "d"), "names": ["nb-*"]}}
    pair = make_pair(NEVER_S, sources=sources, api={"tokens": TOKENS}, begun=False)
    for daemon in (pair.a, pair.b):
        daemon.token = NOTEBOOK
        daemon.settings["api"] = {"tokens": TOKENS, "open": ["readyz"]}
    pair.a.start()
    until(lambda: pair.a.api.request("GET", "/readyz")[0] == 200, "a leads")
    pair.b.start()
    declare(pair.a.api, "nb-1", "d")
    until(lambda: "leads" in pair.b.api.request("GET", "/readyz")[2].decode(), "b knows a")
    for request in (
        lambda: declare(pair.b.api, "nb-2", "d"),
        lambda: remove(pair.b.api, "nb-1"),
        lambda: pair.b.api.session("nb-1"),
        lambda: pair.b.api.get("/v1/tables/d.t"),
    ):
        assert refused(request)[:2] == (503, "NOT_LEADER")
    pair.a.stop()
    until(lambda: pair.b.api.request("GET", "/readyz")[0] == 200, "b leads")
    assert set(pair.b.api.rows()) == {"nb-1"}
    assert declare(pair.b.api, "nb-1", "d")["created"] is False
    remove(pair.b.api, "nb-1")
    assert pair.b.api.rows() == {}


# -- what people see --------------------------------------------------------------------------------------------


def test_declared_consumers_are_shown_as_such(daemon: Daemon, database: str) -> None:
    declare(daemon.api, "nb-1", database)
    admin = by(daemon, ADMIN)
    rows = admin.rows()
    assert (rows["nb-1"]["declared_by"], rows["fixed"]["declared_by"]) == ("notebook", None)
    metrics = admin.text("/metrics")
    assert 'binlog_dispatcher_consumer_declared{consumer="nb-1"} 1' in metrics
    assert 'binlog_dispatcher_consumer_declared{consumer="fixed"} 0' in metrics
    shown = call("binlogs", "--url", daemon.url, env={"DISPATCHER_TOKEN": ADMIN})
    assert "nb-1 (declared)" in shown.stdout, shown.stderr
    dumped = call("state", "dump", "--path", daemon.state)
    assert f"consumer nb-1: declared by notebook, source db, reads {database}" in dumped.stdout
