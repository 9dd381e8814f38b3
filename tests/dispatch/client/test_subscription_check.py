"""Warnings about databases that a server does not have."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.client import subscription_check
from dispatcher.dispatch.client.subscription_check import compare_with
from dispatcher.dispatch.connection.consumer import Consumer
from dispatcher.dispatch.messages.effects import Note
from dispatcher.dispatch.values.specs import ConsumerSpec


def consumer_of(*databases: str) -> Consumer:
    return Consumer(ConsumerSpec("c", databases, None, 1 << 20), None)


def test_a_warning_is_told_once_withdrawn_and_told_again() -> None:
    consumer = consumer_of("shop")
    told = []
    for databases in ({"shops"}, {"shops"}, {"shops", "shop"}, {"crm"}):
        effects = compare_with(frozenset(databases), [consumer], 0)
        notes = [effect.fields["warning"] for effect in effects if isinstance(effect, Note)]
        assert len(notes) == len(effects)
        told.append((len(notes), len(consumer.warnings)))
    assert told == [(1, 1), (0, 1), (0, 0), (1, 1)]
    assert compare_with(None, [consumer], 0) == [] and consumer.warnings


def test_the_same_databases_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def nearest(name: str, _known: object) -> str:
        searched.append(name)
        return ""

    monkeypatch.setattr(subscription_check, "nearest", nearest)
    consumers = [consumer_of(f"missing_{number}") for number in range(3)]
    for databases in (["a", "b"], ["b", "a"], ["a", "b", "c"]):
        compare_with(frozenset(databases), consumers, 0)
    assert searched == ["missing_0", "missing_1", "missing_2"] * 2


@pytest.mark.parametrize(("lower_case", "warnings"), [(0, 1), (1, 0), (2, 0)])
def test_databases_are_compared_as_the_server_compares_them(lower_case: int, warnings: int) -> None:
    consumer = consumer_of("Shop")
    compare_with(frozenset({"shop"}), [consumer], lower_case)
    assert len(consumer.warnings) == warnings
