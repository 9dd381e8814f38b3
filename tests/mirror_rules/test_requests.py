"""How a person's request changes a table's record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.rules.requests import after_request, waits_for_copy
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    Dropped,
    LeftOut,
    Live,
    Replaying,
    State,
    Stopped,
)
from spark_sink.mirror.rules.table_record import Request, TableRecord, Wish
from spark_sink.mirror.rules.transitions import stopped

BEGIN, EXECUTED = (Position("s", "", "f.1", at, 0, 0) for at in (4, 9))
REPLAYING = Replaying(BEGIN, EXECUTED, False, 9)
EXACT, PARTIAL = Live(exact_from=2), Live(complete=False)
STOPPED = Stopped(8, EXACT, lost=8)
TO_GO_ON = [Wish.APPLIED, Wish.SKIP, Wish.RETRY, Wish.PARTIAL]


def record(state: State, **fields: Any) -> TableRecord:
    values: dict[str, Any] = {"folder": "db/t", "signature": "s", "epoch": 3, "from_lsn": 7}
    values |= {"conflict": "c"}
    return TableRecord("id", "shop", "db", "t", state=state, **values | fields)


def asked(before: TableRecord, wish: Wish) -> TableRecord:
    """Returns the record after the request was handled."""
    after = after_request(replace(before, request=Request("r", wish)))
    assert (after.request, after.handled) == (None, "r")
    return after


def after(state: State, wish: Wish) -> State:
    return asked(record(state), wish).state


@pytest.mark.parametrize(
    ("wish", "goal", "from_lsn"),
    [
        # The person may also have written rows that belong to later entries.
        (Wish.APPLIED, Live(), 8),
        (Wish.SKIP, PARTIAL, 8),
        (Wish.PARTIAL, PARTIAL, 7),
        (Wish.RETRY, EXACT, 7),
    ],
)
def test_a_stopped_table_goes_on(wish: Wish, goal: Live, from_lsn: int) -> None:
    gone_on = asked(record(STOPPED), wish)
    assert isinstance(gone_on.state, CatchingUp)
    assert (gone_on.state.goal, gone_on.state.passed) == (goal, None)
    assert gone_on.from_lsn == from_lsn
    # If a person has changed a table, the rules compare the table's columns with the columns of the next rows.
    compared = ("", 0, "") if wish is Wish.APPLIED else ("s", 3, "c")
    assert (gone_on.signature, gone_on.epoch, gone_on.conflict) == compared


@pytest.mark.parametrize(
    ("wish", "goal"),
    [
        (Wish.APPLIED, Live()),
        (Wish.SKIP, PARTIAL),
        (Wish.PARTIAL, PARTIAL),
        (Wish.RETRY, EXACT),
    ],
)
def test_a_table_that_was_stopped_on_its_copy_goes_on_with_the_copy(wish: Wish, goal: Live) -> None:
    on_copy = Stopped(8, EXACT, copy=REPLAYING)
    assert after(on_copy, wish) == replace(REPLAYING, goal=goal)


def test_a_table_that_goes_on_without_an_entry_and_stops_again_does_not_become_complete() -> None:
    # Before format 2, a record kept the state from before its first stop, so `retry` after `skip` made it complete.
    first = stopped(record(EXACT), "why", 7, 8)
    without = asked(first, Wish.SKIP)
    again = stopped(without, "why", 10, 11)
    assert again.state == Stopped(11, PARTIAL)
    retried = asked(again, Wish.RETRY)
    assert isinstance(retried.state, CatchingUp)
    assert retried.state.goal == PARTIAL


def test_nor_does_one_whose_log_is_replayed_on_its_copy() -> None:
    first = stopped(record(replace(REPLAYING, goal=EXACT)), "why", 7, 8)
    without = asked(first, Wish.SKIP)
    assert without.state == replace(REPLAYING, goal=PARTIAL)
    again = stopped(without, "why", 10, 11)
    assert after(again.state, Wish.RETRY) == replace(REPLAYING, goal=PARTIAL)


@pytest.mark.parametrize(
    "state",
    [EXACT, PARTIAL, STOPPED, Stopped(8, EXACT, copy=REPLAYING), CatchingUp(Live()), Dropped()],
)
@pytest.mark.parametrize("wish", [Wish.COPY, Wish.RECOPY])
def test_a_table_is_copied_when_it_is_asked_for(state: State, wish: Wish) -> None:
    copied = asked(record(state), wish)
    assert (copied.state, copied.signature) == (Creating(), "")
    assert copied.reason == "a copy was asked for"


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        (Creating(), True),
        (Copying(BEGIN), True),
        (Copied(BEGIN, EXECUTED), True),
        (REPLAYING, True),
        # The copy has replaced the table.
        (CatchingUp(Live(), passed=9), False),
    ],
)
def test_a_copy_that_runs_is_begun_again_by_recopy_only(state: State, waits: bool) -> None:
    assert after(state, Wish.COPY) == state
    assert after(state, Wish.RECOPY) == Creating()
    assert waits_for_copy(record(state)) is waits


@pytest.mark.parametrize("wish", TO_GO_ON)
@pytest.mark.parametrize("state", [EXACT, PARTIAL, Creating(), CatchingUp(EXACT), Dropped()])
def test_a_request_to_go_on_does_not_concern_a_table_that_is_not_stopped(
    state: State, wish: Wish
) -> None:
    assert asked(record(state), wish) == record(state, handled="r")


@pytest.mark.parametrize("wish", list(Wish))
def test_a_table_that_the_settings_leave_out_stays_as_it_is(wish: Wish) -> None:
    assert asked(record(LeftOut(3)), wish) == record(LeftOut(3), handled="r")


def test_a_record_without_a_request_stays_as_it_is() -> None:
    assert after_request(record(STOPPED)) == record(STOPPED)
