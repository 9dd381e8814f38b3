"""Which entries of the log the mirror still needs."""

from __future__ import annotations

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.rules.events import Started
from spark_sink.mirror.rules.mirror import Mirror
from spark_sink.mirror.rules.mirror_state import MirrorOptions
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    Dropped,
    Live,
    Replaying,
    State,
    Stopped,
)
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import LogEnd
from spark_sink.mirror.values.policies import TablePolicy

BEGIN, EXECUTED = (Position("s", "", "f.1", at, 0, 0) for at in (4, 9))
APPEND = 1 << 32


@pytest.mark.parametrize(
    ("state", "needs"),
    [
        (Live(), False),
        (Live(complete=False), False),
        (Dropped(), False),
        # A copy that has not begun will begin at the log's end.
        (Creating(), False),
        (Copying(BEGIN), True),
        (Copied(BEGIN, EXECUTED), True),
        (Replaying(BEGIN, EXECUTED, False, 9), True),
        (Stopped(4, Live()), True),
        (CatchingUp(Live()), True),
        (CatchingUp(Live(), passed=9), True),
    ],
)
def test_the_log_is_needed_by_tables_that_have_not_applied_what_others_have(
    state: State, needs: bool
) -> None:
    options = MirrorOptions("shop", lambda _: TablePolicy(), lambda _: False, str)
    mirror = Mirror(options)
    tables = (
        TableRecord("live", "shop", "db", "live", "db/live", from_lsn=APPEND + 1),
        TableRecord("t", "shop", "db", "t", "db/t", state, from_lsn=APPEND + 3),
    )
    end = LogEnd(2, BEGIN)
    mirror.step(Started(tables, {}, 2 * APPEND, end, newest=2), now=1.0)
    assert mirror.needed_to == (APPEND + 3 if needs else 2 * APPEND)


@pytest.mark.parametrize(
    ("folder", "state", "needs"),
    [
        ("db/t", Creating(), True),
        # The table has no Delta table yet. The history will begin when it has one.
        ("", Creating(), False),
        ("", Live(), True),
    ],
)
def test_the_log_is_needed_by_histories_that_can_begin(
    folder: str, state: State, needs: bool
) -> None:
    options = MirrorOptions("shop", lambda _: TablePolicy(history=True), lambda _: False, str)
    mirror = Mirror(options)
    records = (
        TableRecord("t", "shop", "db", "t", folder, from_lsn=APPEND + 3),
        TableRecord("h", "shop", "db", "t", "", state, from_lsn=APPEND + 4, history=True),
    )
    mirror.step(Started(records, {}, 2 * APPEND, LogEnd(2, BEGIN), newest=2), now=1.0)
    assert mirror.needed_to == (APPEND + 4 if needs else 2 * APPEND)
