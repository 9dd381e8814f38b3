"""Wrong tokens are counted by network, slowed and logged; right tokens are never refused."""

from __future__ import annotations

import pytest

from dispatcher.access.guesses import (
    FORGET_S,
    FREE,
    NETWORKS_MAX,
    PER_S,
    WAIT_MAX_S,
    Guesses,
    network_of,
)

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
