"""Requests of a network that guesses tokens are delayed; right tokens are never refused."""

from __future__ import annotations

import pytest
import structlog

from dispatcher.access.guesses import FREE
from tests.api.conftest import FULL, TOKENS, Connect

WRONG = {"Authorization": "Bearer wrong"}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Returns the waits of requests, without waiting."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("dispatcher.api.middleware.guess_limit.asyncio.sleep", wait)
    return waited


@pytest.mark.parametrize(
    "call",
    [("GET", "/v1/binlogs"), ("POST", "/v1/consumers/shop/poll"), ("GET", "/metrics")],
    ids=["framework", "direct", "metrics"],
)
async def test_a_wrong_token_is_counted_by_every_call(
    connect: Connect, waits: list[float], call: tuple[str, str]
) -> None:
    async with connect(tokens=TOKENS) as client:
        for _ in range(FREE + 1):
            assert (await client.request(*call, headers=WRONG)).status_code == 401
        assert waits == []
        assert (await client.request(*call, headers=WRONG)).status_code == 401
    assert len(waits) == 1


async def test_a_wrong_login_is_counted(connect: Connect, waits: list[float]) -> None:
    async with connect(tokens=TOKENS) as client:
        for _ in range(FREE + 2):
            answer = await client.post("/login", data={"token": "wrong"})
            assert answer.status_code == 401
    assert len(waits) == 1


async def test_a_right_token_is_accepted_beside_guesses(
    connect: Connect, waits: list[float]
) -> None:
    async with connect(tokens=TOKENS) as client:
        for _ in range(2 * FREE):
            await client.get("/v1/binlogs", headers=WRONG)
        waits.clear()
        for _ in range(3):
            right = {"Authorization": f"Bearer {FULL}"}
            assert (await client.get("/v1/binlogs", headers=right)).status_code == 200
    assert len(waits) == 1


async def test_requests_without_a_token_are_no_guesses(
    connect: Connect, waits: list[float]
) -> None:
    async with connect(tokens=TOKENS) as client:
        for _ in range(2 * FREE):
            assert (await client.get("/v1/binlogs")).status_code == 401
        await client.get("/v1/binlogs", headers=WRONG)
    assert waits == []


async def test_probes_do_not_wait_for_guesses(connect: Connect, waits: list[float]) -> None:
    async with connect(tokens=TOKENS) as client:
        for _ in range(2 * FREE):
            await client.get("/v1/binlogs", headers=WRONG)
        waits.clear()
        assert (await client.get("/livez")).status_code == 200
    assert waits == []


async def test_a_wrong_token_is_logged_with_the_address(connect: Connect) -> None:
    with structlog.testing.capture_logs() as lines:
        async with connect(tokens=TOKENS) as client:
            await client.get("/v1/binlogs", headers=WRONG)
    assert lines == [{"log_level": "warning", "event": "wrong token", "address": "127.0.0.1"}]
