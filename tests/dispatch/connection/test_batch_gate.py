"""A held batch, and the requests for the definitions of its tables."""

from __future__ import annotations

from dispatcher.dispatch.connection.batch_gate import FETCHES_MAX, BatchGate
from dispatcher.dispatch.messages.effects import FetchSchema
from dispatcher.dispatch.messages.events import BatchReceived, SchemaFetched
from dispatcher.dispatch.tables.enrichment import Outcome
from dispatcher.dispatch.tables.versions import LogPosition
from dispatcher.model.gtid import GtidSet
from tests.support.fake_batch import batch_of

START = LogPosition("binlog.000003", 4)
BATCH = batch_of("binlog.000003", 200, None)
RECEIVED = BatchReceived(1, BATCH, 0)
READ = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3")


def hold(gate: BatchGate, *, streaming: bool = True, gaps: bool = False) -> list[FetchSchema]:
    outcome = Outcome(BATCH, (("shop", "orders"),), START, gaps)
    effects = gate.hold_for_schema(RECEIVED, outcome, streaming=streaming)
    return [effect for effect in effects if isinstance(effect, FetchSchema)]


def test_a_released_batch_is_held_no_longer() -> None:
    gate = BatchGate(1)
    gate.hold_for_poll(RECEIVED)
    assert gate.awaits_poll
    assert gate.release() is RECEIVED
    assert gate.held is None and not gate.awaits_poll


def test_a_paused_dispatcher_sends_no_second_request() -> None:
    gate = BatchGate(1)
    assert [request.number for request in hold(gate)] == [1]
    assert hold(gate, streaming=False) == []
    assert gate.fetching


def test_an_older_answer_leaves_the_newest_request_under_way() -> None:
    gate = BatchGate(1)
    (older,), (newer,) = hold(gate), hold(gate)
    assert not gate.answered(SchemaFetched(older, (), ()), READ)
    assert gate.fetching
    assert not gate.answered(SchemaFetched(newer, (), ()), READ)
    assert not gate.fetching


def test_the_log_was_read_ahead_for_a_stream_from_the_same_set() -> None:
    gate = BatchGate(1)
    (request,) = hold(gate, gaps=True)
    answer = SchemaFetched(request, (), ())
    assert gate.answered(answer, READ)
    assert gate.read_ahead_from(READ) is answer
    assert gate.read_ahead_from(GtidSet()) is None


def test_a_batch_is_fetched_for_a_limited_number_of_times() -> None:
    gate = BatchGate(1)
    for _ in range(FETCHES_MAX):
        assert gate.may_fetch
        hold(gate)
    assert not gate.may_fetch
    gate.passed()
    assert gate.may_fetch
