"""A model of a copy shows its rule: if chunks are read at any time after S, they equal the server's table after the
replay from S to R.

The model is a table of keys with a history of row events. A copy reads ranges of keys one after the other while the
history continues, and each range shows the table at another time. A kill loses the groups that were not committed. Then
the log is replayed from S: the last event of each key decides. R covers everything that the chunks can have shown. At R
and at every later position, the copy equals the server.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

KEYS = 12

Event = tuple[int, int | None]
"""(key, value); the value None means deleted. A position is a number of events."""
Rows = dict[int, int]


def at(history: list[Event], position: int, rows: Rows | None = None, start: int = 0) -> Rows:
    """Returns the rows after the events up to a position. Each event is applied as an upsert or a delete, as by
    MERGE."""
    found = dict(rows or {})
    for key, value in history[start:position]:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


@dataclass
class CopyModel:
    """A model of `copier`: reads groups of chunks after the last committed bound."""

    history: list[Event]
    rows: Rows = field(default_factory=dict)
    upper: int | None = None  # the last key that was copied, None before the first
    read_all: bool = False
    newest: int = 0  # the newest position that a chunk of a committed group has shown

    def group(self, moments: list[int], size: int, killed: bool) -> None:
        """Read a group whose chunks are read at `moments`. Their bounds were planned at the first moment."""
        lower = -1 if self.upper is None else self.upper
        present = sorted(at(self.history, moments[0]))
        found: Rows = {}
        for moment in moments:
            behind = present[bisect.bisect_right(present, lower) :]
            last = len(behind) < size
            upper = KEYS if last else behind[size - 1]
            shown = at(self.history, moment)
            found |= {key: value for key, value in shown.items() if lower < key <= upper}
            lower = upper
            if last:
                break
        if not killed:  # a group is committed as a whole
            assert not self.rows.keys() & found.keys()
            self.rows |= found
            self.upper, self.read_all = lower, lower == KEYS
            self.newest = max(self.newest, *moments)


HISTORY = st.lists(st.tuples(st.integers(0, KEYS - 1), st.none() | st.integers(0, 99)), max_size=60)


@settings(max_examples=300)
@given(HISTORY, st.data())
def test_a_copy_that_is_replayed_to_r_equals_the_server(
    history: list[Event], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(history)), "S")
    now, copy = begin, CopyModel(history)
    while not copy.read_all:
        # The chunks of a group are read in parallel, so each chunk shows the table at another moment, at or after
        # `now`.
        count = data.draw(st.integers(1, 3))
        moments = data.draw(
            st.lists(st.integers(now, len(history)), min_size=count, max_size=count), "moments"
        )
        copy.group(
            moments, data.draw(st.integers(1, 4), "rows"), data.draw(st.booleans(), "killed")
        )
        now = data.draw(st.integers(now, max(moments)), "now")
    least = copy.newest
    for position in range(least, len(history) + 1):
        replayed = at(history, position, copy.rows, begin)
        assert replayed == at(history, position)


@settings(max_examples=200)
@given(HISTORY, st.data())
def test_a_replay_in_steps_and_again_after_a_kill(
    history: list[Event], data: st.DataObject
) -> None:
    """Each step is applied once, because its commit records its position. An interrupted step is applied again
    completely."""
    begin = data.draw(st.integers(0, len(history)))
    copy = CopyModel(history)
    copy.group([data.draw(st.integers(begin, len(history)))], KEYS + 1, False)
    rows, applied = dict(copy.rows), begin
    while applied < len(history):
        step = data.draw(st.integers(applied + 1, len(history)))
        # The last event of each key decides; the order of earlier events does not matter.
        last = dict(history[applied:step])
        after = at(list(last.items()), len(last), rows)
        if data.draw(st.booleans(), "committed"):
            rows, applied = after, step
    assert rows == at(history, len(history))


def test_without_r_or_with_chunks_from_before_s_the_rule_fails() -> None:
    """The model detects both mistakes that the copier must not make."""
    history: list[Event] = [(1, 10), (2, 20), (1, 11), (2, 21)]
    late = CopyModel(history)
    late.group([4], KEYS + 1, False)
    # R is 2, but the copy shows later rows.
    assert at(history, 2, late.rows, 2) != at(history, 2)
    early = CopyModel(history)
    early.group([1], KEYS + 1, False)
    assert at(history, 4, early.rows, 3) != at(history, 4)  # S = 3, read at 1: an event is lost
