"""States and records are unchanged after they were written in the form of the control table and read."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.sql.generated import GeneratedColumn
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import EPOCH_MAX, Position
from spark_sink.mirror.rules.control_rows import latest_rows, row_of
from spark_sink.mirror.rules.states import (
    CatchingUp,
    Copied,
    Copying,
    Creating,
    Dropped,
    Failing,
    LeftOut,
    Live,
    Replaying,
    State,
    Stopped,
    state_from,
    state_json,
)
from spark_sink.mirror.rules.table_record import FormerName, Move, TableRecord

AT = datetime(2026, 1, 1, tzinfo=UTC)

# -- round trips ---------------------------------------------------------------------------------------------------

lsns = st.integers(0, 2**62)
texts = st.text(max_size=8)
printed = st.text("aé0.:-", max_size=8)
positions = st.builds(Position, printed, printed, printed, lsns, lsns, st.integers(0, EPOCH_MAX))
lives = st.builds(
    Live,
    st.booleans(),
    st.none() | lsns,
    st.none() | lsns,
    st.none() | st.builds(Failing, lsns, texts),
)
replays = st.builds(Replaying, positions, positions, st.booleans(), lsns, lives)
stops = st.builds(Stopped, lsns, lives, st.none() | lsns, st.none() | replays)
states: st.SearchStrategy[State] = st.one_of(
    lives,
    st.builds(Creating, st.booleans()),
    st.builds(Copying, positions),
    st.builds(Copied, positions, positions, st.booleans()),
    replays,
    stops,
    st.builds(CatchingUp, lives, st.none() | lsns, st.none() | stops),
    st.builds(LeftOut, lsns),
    st.builds(Dropped),
)
records = st.builds(
    TableRecord,
    st.just("id"),
    texts,
    texts,
    texts,
    folder=texts,
    state=states,
    server=texts,
    epoch=lsns,
    from_lsn=lsns,
    signature=texts,
    reason=texts,
    handled=texts,
    answered=st.dictionaries(texts, texts, max_size=2),
    names=st.lists(st.builds(FormerName, lsns, texts, texts), max_size=2).map(tuple),
    move=st.none() | st.builds(Move, texts, lsns),
    copied_at=st.none() | lsns,
    conflict=texts,
    metadata=st.lists(texts, max_size=2).map(tuple),
    deletion_vectors=st.booleans(),
    registered=texts,
    refused=texts,
    history=st.booleans(),
    generated=st.none()
    | st.lists(
        st.builds(GeneratedColumn, texts, st.none() | st.lists(texts, max_size=2).map(tuple)),
        max_size=2,
    ).map(tuple),
)


@given(states)
def test_a_state_is_read_as_it_was_written(state: State) -> None:
    assert state_from(json.loads(json.dumps(state_json(state)))) == state


@given(records)
def test_a_record_is_read_as_it_was_written(record: TableRecord) -> None:
    found = latest_rows([row_of(record) | {"serial": 7, "at": AT}])
    (read,) = (found.histories if record.history else found.records).values()
    assert read == replace(record, serial=7, at=AT)


def test_every_field_of_a_record_is_generated_but_those_of_the_row() -> None:
    # Otherwise the test would not cover a new field with a default.
    made = {"table_id", "consumer", "database", "table", "folder", "state", "server", "epoch"}
    made |= {"from_lsn", "signature", "reason", "handled", "answered", "names", "move"}
    made |= {"copied_at", "conflict", "metadata", "deletion_vectors", "registered", "refused"}
    made |= {"history", "generated"}
    of_the_row = {"request", "serial", "at"}
    assert {field.name for field in fields(TableRecord)} == made | of_the_row


# -- format 2 ------------------------------------------------------------------------------------------------------

BEGIN = Position("s", "s:1-4", "f.1", 4, 1, 0)
EXECUTED = Position("s", "s:1-9", "f.1", 9, 2, 0)
B, E = BEGIN.as_dict(), EXECUTED.as_dict()

WRITTEN: list[tuple[State, dict[str, Any]]] = [
    (Live(), {"is": "live"}),
    (Live(complete=False), {"is": "live", "complete": False}),
    (
        Live(exact_from=3, new_column=4, failing=Failing(5, "before")),
        {"is": "live", "exact_from": 3, "new_column": 4}
        | {"failing": {"is": "failing", "lsn": 5, "reason_before": "before"}},
    ),
    (Creating(), {"is": "creating"}),
    (Creating(as_it_is=True), {"is": "creating", "as_it_is": True}),
    (Copying(BEGIN), {"is": "copying", "begin": B}),
    (Copied(BEGIN, EXECUTED, True), {"is": "copied", "begin": B, "executed": E, "exact": True}),
    (
        Replaying(BEGIN, EXECUTED, False, 9),
        {"is": "replaying", "begin": B, "executed": E, "exact": False, "passed": 9},
    ),
    (Stopped(7, Live()), {"is": "stopped", "failed": 7, "was": {"is": "live"}}),
    (
        CatchingUp(Live(), stopped=Stopped(7, Live(), lost=8)),
        {"is": "catchingup", "goal": {"is": "live"}}
        | {"stopped": {"is": "stopped", "failed": 7, "was": {"is": "live"}, "lost": 8}},
    ),
    (CatchingUp(Live(), 9), {"is": "catchingup", "goal": {"is": "live"}, "passed": 9}),
    (LeftOut(3), {"is": "leftout", "since": 3}),
    (Dropped(), {"is": "dropped"}),
]


@pytest.mark.parametrize(("state", "written"), WRITTEN)
def test_the_json_of_a_state_stays(state: State, written: dict[str, Any]) -> None:
    # Existing control tables contain this JSON.
    assert state_json(state) == written
    assert state_from(written) == state


def test_the_json_of_each_state_is_known() -> None:
    assert {type(state) for state, _ in WRITTEN} == set(get_args(State))


def test_the_row_of_a_record_has_the_word_of_its_state() -> None:
    record = TableRecord("id", "shop", "db", "t", state=CatchingUp(Live(), 9), registered="db.t")
    row = row_of(record)
    assert (row["kind"], row["state"]) == ("table", "copying")
    state = {"is": "catchingup", "goal": {"is": "live"}, "passed": 9}
    assert json.loads(row["detail"]) == {"format": 1, "state": state, "registered": "db.t"}


def test_a_record_of_another_format_is_refused() -> None:
    row = row_of(TableRecord("id", "shop", "db", "t", state=Live()))
    detail = json.loads(row["detail"]) | {"format": 2}
    with pytest.raises(BinlogError, match="format 2; this version reads format 1"):
        latest_rows([row | {"detail": json.dumps(detail), "serial": 1, "at": AT}])
