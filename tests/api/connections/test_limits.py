"""Which open requests are admitted: by token, with and without a session, and for the newest session."""

from __future__ import annotations

import pytest

from dispatcher.access.tokens import Scope, Token
from dispatcher.api.connections.limits import Holder, Slot, Slots
from dispatcher.model.errors import UserError

VIEWER, READER = Holder("viewer"), Holder("reader", reads_only=False)
NEWEST = 7


def make(maximum: int = 4) -> Slots:
    return Slots("polls", maximum, "api.max_polls_per_consumer", lambda _, number: number == NEWEST)


def fill(slots: Slots, holder: Holder, session: int = 0) -> list[Slot]:
    """Acquire until it is refused."""
    held: list[Slot] = []
    while True:
        try:
            held.append(slots.acquire("shop", holder, session))
        except UserError:
            return held


def test_one_holder_has_the_limit_of_the_setting() -> None:
    assert len(fill(make(), VIEWER)) == 4


def test_a_second_holder_finds_half_of_what_is_left() -> None:
    slots = make()
    fill(slots, VIEWER)
    assert len(fill(slots, READER)) == 2


def test_six_holders_of_a_large_limit_do_not_lock_out_a_seventh() -> None:
    slots = make(64)
    counts = [len(fill(slots, Holder(str(number)))) for number in range(7)]
    assert counts == [64, 32, 16, 8, 4, 2, 1]


def test_all_holders_together_have_twice_the_limit() -> None:
    slots = make()
    for number in range(100):
        fill(slots, Holder(str(number)))
    assert slots.open("shop") == 8


def test_a_token_with_a_session_and_without_are_two_holders() -> None:
    token = Token("secret", None, frozenset({Scope.READ, Scope.ACKNOWLEDGE}))
    assert Holder.of(token, 3) != Holder.of(token, 0)


def test_the_newest_session_always_has_a_slot() -> None:
    slots = make(1)
    fill(slots, READER, session=1)
    slot = slots.acquire("shop", READER, NEWEST)
    with pytest.raises(UserError):
        slots.acquire("shop", READER, NEWEST)
    slots.release(slot)
    slots.acquire("shop", READER, NEWEST)


def test_consumers_are_counted_apart() -> None:
    slots = make()
    fill(slots, VIEWER)
    slots.acquire("billing", VIEWER)
    assert (slots.open("shop"), slots.open("billing")) == (4, 1)


def test_a_released_slot_is_free_and_forgotten() -> None:
    slots = make()
    for slot in fill(slots, VIEWER):
        slots.release(slot)
    assert slots.open("shop") == 0
    assert not slots._held and not slots._all
    assert len(fill(slots, VIEWER)) == 4


def test_a_refusal_names_the_setting() -> None:
    slots = make(1)
    slots.acquire("shop", VIEWER)
    with pytest.raises(
        UserError, match=r"consumer shop has 1 open polls, 1 of them with this token"
    ) as caught:
        slots.acquire("shop", VIEWER)
    assert "api.max_polls_per_consumer is 1" in str(caught.value)
