"""How long failures wait, and what a record says of them."""

from __future__ import annotations

import pytest

from spark_sink.mirror.rules.retries import (
    BACKOFF_MAX_S,
    LASTING_AFTER,
    REPORTED_AFTER,
    backoff_s,
    failing,
    recovered,
)
from spark_sink.mirror.rules.states import CatchingUp, Creating, Failing, Live, State, Stopped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.transitions import stopped


def record(state: State, reason: str = "") -> TableRecord:
    return TableRecord("id", "shop", "db", "t", state=state, reason=reason)


def test_each_failure_waits_twice_as_long_up_to_a_limit() -> None:
    assert [backoff_s(0.5, failures) for failures in (0, 1, 2, 3)] == [0.5, 1, 2, 4]
    assert backoff_s(0.5, 10_000) == BACKOFF_MAX_S
    assert REPORTED_AFTER < LASTING_AFTER


@pytest.mark.parametrize(
    "before",
    [
        record(Live(exact_from=2)),
        record(Live(complete=False), "rows are missing"),
        record(Live(new_column=4)),
    ],
)
def test_a_table_that_recovers_is_as_it_was_before_it_failed(before: TableRecord) -> None:
    first = failing(before, 8, "no space")
    assert (first.reason, first.word) == ("tried again: no space", before.word)
    second = failing(first, 8, "no answer")
    assert second.reason == "tried again: no answer"
    assert second.state != before.state
    assert recovered(second) == recovered(first) == before
    assert recovered(before) is before


def test_a_table_that_stops_while_it_fails_does_not_return_to_failing() -> None:
    stands = stopped(failing(record(Live(exact_from=2)), 8, "no space"), "bad row", 7, 8)
    assert stands.state == Stopped(8, Live(exact_from=2))
    assert stands.reason == "bad row"


@pytest.mark.parametrize("state", [Creating(), Stopped(8, Live()), CatchingUp(Live())])
def test_only_live_tables_are_noted_as_failing(state: State) -> None:
    assert failing(record(state), 8, "no space") == record(state)
    assert recovered(record(state)) == record(state)


def test_a_note_says_at_which_entry_and_what_was_said_before() -> None:
    noted = failing(record(Live(), "older than the mirror"), 8, "no space")
    assert noted.state == Live(failing=Failing(8, "older than the mirror"))
