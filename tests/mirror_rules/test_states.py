"""States and records are unchanged after they were written in the form of the control table and read. Rows of format 1
can be read, too."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.sql.generated import GeneratedColumn
from dispatcher.model.position import EPOCH_MAX, Position
from spark_sink.mirror.rules.control_rows import control_row, latest_rows, row_of
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
    TableState,
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
    assert json.loads(row["detail"]) == {"format": 2, "state": state, "registered": "db.t"}


# -- format 1 ------------------------------------------------------------------------------------------------------


def read(word: str, detail: dict[str, Any] | None = None, kind: str = "table") -> TableRecord:
    """Returns the record that is read from a row of format 1."""
    text = json.dumps(detail) if detail else ""
    row = control_row(kind, table_id="id", consumer="shop", database="db", table="t", folder="db/t")
    row |= {"state": word, "from_lsn": 6, "reason": "why", "detail": text, "serial": 7, "at": AT}
    found = latest_rows([row])
    (record,) = (found.histories if kind == "history" else found.records).values()
    return record


COPY = {"begin": B, "executed": E, "rows": 5}
REPLAYED = COPY | {"passed": 9}
WAS = {"failed": 7, "was": "complete"}

FORMAT_1: list[tuple[str, dict[str, Any], State]] = [
    ("complete", {}, Live()),
    ("complete", {"exact_from": 3, "new_column": 4}, Live(exact_from=3, new_column=4)),
    ("complete", {"failing": 5}, Live(failing=Failing(5))),
    (
        "partial",
        {"failing": 5, "reason_before": "rows are missing"},
        Live(complete=False, failing=Failing(5, "rows are missing")),
    ),
    ("partial", {}, Live(complete=False)),
    ("partial", {"left_out": 3}, LeftOut(3)),
    ("creating", {}, Creating()),
    ("creating", {"handled": "r"}, Creating()),
    ("copying", {"begin": B}, Copying(BEGIN)),
    ("copying", COPY, Copied(BEGIN, EXECUTED)),
    ("copying", COPY | {"exact": True, "exact_from": 6}, Copied(BEGIN, EXECUTED, exact=True)),
    ("copying", REPLAYED | {"goal": "complete"}, Replaying(BEGIN, EXECUTED, False, 9)),
    (
        "copying",
        REPLAYED | {"goal": "complete", "exact": True, "exact_from": 6},
        Replaying(BEGIN, EXECUTED, True, 9, Live(exact_from=6)),
    ),
    # A person has let the replay skip an entry.
    (
        "copying",
        REPLAYED | WAS | {"goal": "partial"},
        Replaying(BEGIN, EXECUTED, False, 9, Live(complete=False)),
    ),
    # The copy has replaced the table.
    ("copying", {"goal": "complete", "passed": 9}, CatchingUp(Live(), 9)),
    ("copying", {"goal": "partial", "passed": 9}, CatchingUp(Live(complete=False), 9)),
    ("stopped", WAS, Stopped(7, Live())),
    ("stopped", WAS | {"was": "partial"}, Stopped(7, Live(complete=False))),
    ("stopped", WAS | {"exact_from": 3, "lost": 8}, Stopped(7, Live(exact_from=3), lost=8)),
    (
        "stopped",
        REPLAYED | WAS,
        Stopped(7, Live(), copy=Replaying(BEGIN, EXECUTED, False, 9)),
    ),
    # A person has resolved the stop.
    (
        "stopped",
        WAS | {"goal": "partial"},
        CatchingUp(Live(complete=False), None, Stopped(7, Live())),
    ),
    ("dropped", {}, Dropped()),
    ("dropped", {"handled": "r"}, Dropped()),
]


@pytest.mark.parametrize(("word", "detail", "state"), FORMAT_1)
def test_a_row_of_format_1_is_read_as_its_state(
    word: str, detail: dict[str, Any], state: State
) -> None:
    record = read(word, detail)
    assert (record.state, record.word, record.reason) == (state, word, "why")
    # The record is written in the new format.
    row = row_of(record) | {"serial": 8, "at": AT}
    assert latest_rows([row]).records["id"] == replace(record, serial=8)


def test_every_word_and_every_state_is_among_the_rows_of_format_1() -> None:
    assert {word for word, _, _ in FORMAT_1} == set(TableState)
    assert {type(state) for _, _, state in FORMAT_1} == set(get_args(State))


def test_a_table_of_format_1_that_waits_for_its_place_goes_on_waiting() -> None:
    detail = {"goal": "complete", "was": "complete", "moved_from": "_binlog/moving/id"}
    record = read("stopped", detail)
    assert isinstance(record.state, CatchingUp)
    assert (record.state.goal, record.state.passed) == (Live(), None)
    assert (record.move, record.lies_at) == (Move("_binlog/moving/id"), "_binlog/moving/id")


def test_an_adopted_table_of_format_1_catches_up() -> None:
    # In format 1, the record of an adopted table kept the state from before the adoption.
    record = read("complete", {"goal": "complete"})
    assert record.state == CatchingUp(Live())


def test_the_other_values_of_a_record_of_format_1() -> None:
    record = read(
        "complete",
        {
            "handled": "r1",
            "answered": {"db.t": "r2"},
            "names": [[4, "db", "old"], [5, "db", "older"]],
            "moved_from": "db/old",
            "move_step": 2,
            "copied_at": 3,
            "conflict": "column 'u' is uuid",
            "metadata": ["_lsn", "_seq"],
            "deletion_vectors": True,
            "catalog": "db.t",
            "catalog_error": "not registered as db.t: why",
        },
    )
    assert record == TableRecord(
        "id",
        "shop",
        "db",
        "t",
        "db/t",
        from_lsn=6,
        reason="why",
        handled="r1",
        answered={"db.t": "r2"},
        names=(FormerName(4, "db", "old"), FormerName(5, "db", "older")),
        move=Move("db/old", 2),
        copied_at=3,
        conflict="column 'u' is uuid",
        metadata=("_lsn", "_seq"),
        deletion_vectors=True,
        registered="db.t",
        refused="not registered as db.t: why",
        serial=7,
        at=AT,
    )


def test_histories_of_format_1() -> None:
    assert read("creating", {"as_it_is": True}, "history").state == Creating(as_it_is=True)
    assert read("complete", {"catalog": "db.t__history"}, "history").registered == "db.t__history"
    stopped = read("stopped", {}, "history")
    assert stopped.history
    assert isinstance(stopped.state, Stopped)
