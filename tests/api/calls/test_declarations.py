"""The calls that declare and remove consumers: who may make them, and which bodies they accept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dispatcher.access.tokens import Scope, Token
from dispatcher.api.calls.declarations import PATTERNS_MAX, START_BYTES_MAX
from dispatcher.dispatch.values.declaration import Declaration
from tests.api.conftest import ADMINISTER, READ, TOKENS, Connect
from tests.support.fake_readers import FakeDeclarer, FakeReaders

DECLARE, OTHER = "token-to-declare", "token-to-declare-too"
_SCOPES = frozenset({Scope.READ, Scope.ACKNOWLEDGE, Scope.DECLARE})
WITH_DECLARING = (
    *TOKENS,
    Token(DECLARE, frozenset(), _SCOPES, "notebook", frozenset({"db"})),
    Token(OTHER, frozenset(), _SCOPES, "other", None),
)
BODY: dict[str, Any] = {"name": "nb-1", "databases": ["shop"]}


async def test_a_declaration_carries_the_token_and_sorted_names(
    connect: Connect, declarer: FakeDeclarer
) -> None:
    body = {
        "name": "nb-1", "source": "db", "databases": ["shop", "billing", "shop"], "tables": ["shop.b", "shop.a"],
        "exclude_tables": ["shop.x"], "start": {"file": "binlog.000001", "offset": 4},
    }  # fmt: skip
    async with connect(DECLARE, tokens=WITH_DECLARING) as client:
        answer = await client.post("/v1/consumers", json=body)
        again = await client.post("/v1/consumers", json=body)
    assert declarer.declared["nb-1"] == Declaration(
        "nb-1", "notebook", "db", ("billing", "shop"), ("shop.a", "shop.b"), ("shop.x",),
        '{"file":"binlog.000001","offset":4}',
    )  # fmt: skip
    assert declarer.permitted == [{"db"}, {"db"}]
    assert answer.status_code == again.status_code == 200
    assert answer.json() == {
        **body, "databases": ["billing", "shop"], "tables": ["shop.a", "shop.b"], "declared_by": "notebook",
        "declared_at": 0, "created": True,
    }  # fmt: skip
    assert again.json() == {**answer.json(), "created": False}


async def test_without_tokens_everyone_declares(connect: Connect, declarer: FakeDeclarer) -> None:
    async with connect() as client:
        assert (await client.post("/v1/consumers", json=BODY)).json()["declared_by"] == ""
        assert (await client.delete("/v1/consumers/nb-1")).json() == {"removed": "nb-1"}
    assert declarer.permitted == [None] and declarer.removed == [("nb-1", None)]


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "-nb"},
        {"name": "n" * 65},
        {"name": "nb\n1"},
        {"name": "nb-1\n"},
        {"name": "nb\x1b[31m"},
        {"name": "nb/../shop"},
        {"name": "ñb"},
        {"name": 7},
        {"source": "a b"},
        {"databases": []},
        {"databases": "shop"},
        {"databases": [""]},
        {"databases": ["shop\n"]},
        {"databases": ["sh\u202eop"]},
        {"databases": ["x" * 201]},
        {"databases": ["x"] * (PATTERNS_MAX + 1)},
        {"tables": []},
        {"tables": ["shop.\x00"]},
        {"exclude_tables": None},
        {"exclude_tables": ["shop.x"] * (PATTERNS_MAX + 1)},
        {"start": "now"},
        {"start": {"gtid": "no set"}},
        {"start": {"gtid": "0-1-2," * START_BYTES_MAX + "0-1-2"}},
        {"start": {"file": "b.1", "offset": 3}},
        {"start": {"timestamp": "yesterday"}},
        {"unknown": 1},
        {"owner": "other"},
    ],
)
async def test_other_bodies_are_refused(
    connect: Connect, declarer: FakeDeclarer, change: dict[str, Any]
) -> None:
    async with connect(DECLARE, tokens=WITH_DECLARING) as client:
        answer = await client.post("/v1/consumers", json=BODY | change)
    assert answer.status_code == 422 and answer.json()["kind"] == "REQUEST", answer.text
    assert answer.json()["detail"].isprintable() and len(answer.content) < 5000
    assert declarer.declared == {}


async def test_a_body_that_is_too_large_is_not_read(
    connect: Connect, declarer: FakeDeclarer
) -> None:
    async with connect(DECLARE, tokens=WITH_DECLARING) as client:
        answer = await client.post("/v1/consumers", json=BODY | {"name": "x" * (1 << 20)})
    assert answer.status_code == 413 and declarer.declared == {}


@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("wrong", 401), (READ, 403), (ADMINISTER, 403)]
)
async def test_declaring_needs_its_scope(
    connect: Connect, declarer: FakeDeclarer, token: str, status: int
) -> None:
    async with connect(token, tokens=WITH_DECLARING) as client:
        assert (await client.post("/v1/consumers", json=BODY)).status_code == status
        assert (await client.get("/v1/tables/shop.orders?source=db")).status_code == status
    assert declarer.declared == {} and declarer.permitted == []


async def test_a_token_is_valid_for_what_its_name_has_declared(
    connect: Connect, readers: FakeReaders, declarer: FakeDeclarer
) -> None:
    readers.names = ("shop", "nb-1")
    declarer.declared["nb-1"] = Declaration("nb-1", "notebook", "db", ("shop",))

    async def status(token: str, consumer: str) -> int:
        async with connect(token, tokens=WITH_DECLARING) as client:
            answer = await client.post(
                f"/v1/consumers/{consumer}/session", json={"read_only": True}
            )
            return answer.status_code

    assert [await status(DECLARE, "nb-1"), await status(OTHER, "nb-1")] == [200, 404]
    assert [await status(DECLARE, "shop"), await status(READ, "nb-1")] == [404, 404]
    async with connect(DECLARE, tokens=WITH_DECLARING) as client:
        assert [row["name"] for row in (await client.get("/v1/binlogs")).json()] == ["nb-1"]


async def test_a_removal_is_that_of_the_token_or_of_an_administrator(
    connect: Connect, declarer: FakeDeclarer
) -> None:
    declarer.declared["nb-1"] = Declaration("nb-1", "notebook", "db", ("shop",))
    answers = []
    for token in (DECLARE, OTHER, ADMINISTER, READ):
        async with connect(token, tokens=WITH_DECLARING) as client:
            answers.append((await client.delete("/v1/consumers/nb-1")).status_code)
    assert answers == [200, 404, 404, 404]
    async with connect(ADMINISTER, tokens=WITH_DECLARING) as client:
        assert (await client.delete("/v1/consumers/shop")).status_code == 200
    assert declarer.removed == [("nb-1", "notebook"), ("shop", None)]


async def test_a_table_is_looked_up_for_the_token(connect: Connect, declarer: FakeDeclarer) -> None:
    async with connect(DECLARE, tokens=WITH_DECLARING) as client:
        answer = await client.get("/v1/tables/shop.orders?source=db")
    assert json.loads(answer.content) == {
        "database": "shop", "table": "orders", "columns": [], "key": ["db"]
    }  # fmt: skip
    assert declarer.permitted == [{"db"}]
