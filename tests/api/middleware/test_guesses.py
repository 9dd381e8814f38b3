"""Wrong tokens are counted by network, slowed and logged; right ones are never refused."""

from __future__ import annotations

import pytest
import structlog

from dispatcher.api.middleware.guesses import (
    FORGET_S,
    FREE,
    NETWORKS_MAX,
    PER_S,
    WAIT_MAX_S,
    Guesses,
    network_of,
)
from tests.api.conftest import FULL, TOKENS, Connect

GUESSER, OTHER = ("192.0.2.1", 1), ("192.0.2.2", 1)


def guessed(times: int = FREE) -> Guesses:
    guesses = Guesses()
    for _ in range(times):
        guesses.wrong(GUESSER, 0.0)
    return guesses


def test_a_few_wrong_tokens_cost_nothing() -> None:
    assert guessed(FREE - 1).wait_s(GUESSER, "right", 0.0) == 0


def test_guesses_take_turns() -> None:
    guesses = guessed()
    waits = [guesses.wait_s(GUESSER, str(number), 0.0) for number in range(3)]
    assert waits == pytest.approx([1 / PER_S, 2 / PER_S, 3 / PER_S])


def test_no_request_waits_for_longer_than_the_limit() -> None:
    guesses = guessed()
    assert max(guesses.wait_s(GUESSER, str(number), 0.0) for number in range(1000)) == WAIT_MAX_S


def test_a_right_token_waits_once() -> None:
    guesses = guessed()
    assert guesses.wait_s(GUESSER, "right", 0.0) > 0
    guesses.prove(GUESSER, "right")
    assert guesses.wait_s(GUESSER, "right", 0.0) == 0
    assert guesses.wait_s(GUESSER, "wrong", 0.0) > 0


def test_other_addresses_do_not_wait() -> None:
    assert guessed().wait_s(OTHER, "wrong", 0.0) == 0


def test_wrong_tokens_are_forgotten() -> None:
    guesses = guessed(1000)
    assert guesses.wait_s(GUESSER, "right", FORGET_S * FREE) > 0
    assert guesses.wait_s(GUESSER, "right", FORGET_S * (FREE + 1)) == 0
    assert guesses.slow_until < FORGET_S * (FREE + 1)


def test_memory_of_networks_is_bounded() -> None:
    guesses = Guesses()
    for number in range(10 * NETWORKS_MAX):
        guesses.wrong((f"10.0.{number >> 8}.{number & 255}", 1), 0.0)
    assert len(guesses) == NETWORKS_MAX + 1
    assert guesses.wait_s(("10.1.0.0", 1), "wrong", 0.0) > 0, "all others count as one"


def test_networks_make_room_once_they_are_forgotten() -> None:
    guesses = Guesses()
    for second, block in ((0.0, 1), (1000.0, 2)):
        for number in range(NETWORKS_MAX):
            guesses.wrong((f"10.{block}.{number >> 8}.{number & 255}", 1), second)
    assert len(guesses) == NETWORKS_MAX


@pytest.mark.parametrize(
    ("host", "network"),
    [("192.0.2.1", "192.0.2.1"), ("2001:db8::1:2", "2001:db8::/64"), ("::ffff:192.0.2.1", "192.0.2.1"),
     ("\x1b[31m", "no IP address")],
)  # fmt: skip
def test_the_network_of_an_address(host: str, network: str) -> None:
    assert network_of((host, 1)) == network


# -- requests -------------------------------------------------------------------------------------------------

WRONG = {"Authorization": "Bearer wrong"}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits of requests, which are not waited for."""
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("dispatcher.api.middleware.guesses.asyncio.sleep", wait)
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
