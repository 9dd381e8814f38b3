"""The calls of administrators: required scopes, and the forms of a start."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.queue.reader import PollBounds
from dispatcher.settings.model import StartSettings
from tests.api.conftest import ADMINISTER, FULL, READ, TOKENS, Connect
from tests.support.fake_readers import PLACE, FakeReaders

FORGET, SEEK = "/v1/consumers/shop/forget", "/v1/consumers/shop/seek"
SET = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"


@pytest.mark.parametrize(("path", "body"), [(FORGET, {}), (SEEK, {"to": "latest"})])
async def test_a_token_without_the_scope_moves_no_consumer(
    connect: Connect, readers: FakeReaders, path: str, body: object
) -> None:
    async with connect(FULL, tokens=TOKENS) as client:
        refused = await client.post(path, json=body)
    assert (refused.status_code, refused.json()["kind"]) == (403, "FORBIDDEN")
    assert "administer" in refused.json()["detail"] and readers.calls == []


async def test_forget_returns_the_new_position(connect: Connect) -> None:
    async with connect(ADMINISTER, tokens=TOKENS) as client:
        answer = await client.post(FORGET)
    assert (answer.status_code, answer.json()) == (200, {"position": PLACE.as_dict()})


async def test_a_consumer_of_another_token_is_not_moved(connect: Connect) -> None:
    async with connect(ADMINISTER, tokens=TOKENS) as client:
        refused = await client.post("/v1/consumers/billing/forget")
    assert refused.json()["kind"] == "UNKNOWN_CONSUMER"


@pytest.mark.parametrize(
    ("to", "start"),
    [
        ("earliest", StartSettings(at="earliest")),
        ("latest", StartSettings(at="latest")),
        ({"gtid": SET}, StartSettings(at="gtid", gtid=SET)),
        ({"gtid": "0-1-42"}, StartSettings(at="gtid", gtid="0-1-42")),
        (
            {"file": "binlog.000003", "offset": 120},
            StartSettings(at="file", file="binlog.000003", offset=120),
        ),
        (
            {"timestamp": "1970-01-01T00:00:01Z"},
            StartSettings(at="timestamp", timestamp_us=1_000_000),
        ),
    ],
)
async def test_seek_accepts_every_form_of_a_start(
    connect: Connect, readers: FakeReaders, to: object, start: StartSettings
) -> None:
    async with connect(ADMINISTER, tokens=TOKENS) as client:
        answer = await client.post(SEEK, json={"to": to})
    assert answer.status_code == 200 and readers.sought == [start]


async def test_a_reader_resolves_a_place_and_moves_nothing(
    connect: Connect, readers: FakeReaders
) -> None:
    async with connect(READ, tokens=TOKENS) as client:
        answer = await client.post("/v1/consumers/shop/resolve", json={"to": {"gtid": SET}})
        refused = await client.post("/v1/consumers/shop/resolve", json={"to": "somewhere"})
    assert (answer.status_code, answer.json()) == (200, {"position": PLACE.as_dict()})
    assert readers.sought == [StartSettings(at="gtid", gtid=SET)]
    assert refused.status_code == 422 and readers.calls == ["resolve"]


async def test_a_poll_passes_its_bounds_on(connect: Connect, readers: FakeReaders) -> None:
    body = {"session": 0, "after": PLACE.as_dict()}
    more = {"max_bytes": 7, "min_bytes": 5, "max_transactions": 3}
    async with connect(READ, tokens=TOKENS) as client:
        for bounds in (more, {}):
            assert (await client.post("/v1/consumers/shop/poll", json=body | bounds)).is_success
        refused = await client.post("/v1/consumers/shop/poll", json=body | {"max_transactions": 0})
    assert readers.bounds == [PollBounds(7, 5, 3), PollBounds()]
    assert refused.status_code == 422


@pytest.mark.parametrize(
    "to",
    [
        "somewhere",
        None,
        {},
        {"gtid": "x"},
        {"gtid": SET, "file": "binlog.000001"},
        {"file": "binlog.000001"},
        {"file": "binlog.000001", "offset": 3},
        {"file": "", "offset": 4},
        {"file": "b" * 256, "offset": 4},
        {"timestamp": "yesterday"},
        {"timestamp": 5},
    ],
)
async def test_an_invalid_start_is_refused(
    connect: Connect, readers: FakeReaders, to: object
) -> None:
    async with connect(ADMINISTER, tokens=TOKENS) as client:
        refused = await client.post(SEEK, json={"to": to})
    assert (refused.status_code, refused.json()["kind"]) == (422, "REQUEST")
    assert readers.calls == []
