"""The task that compares the consumer's tables with the server, one range at a time, in the background. Pure.

1. The task takes S, the newest position that the rules have found in the log. A work waits until the server has
   executed S, and reads a range of a table from the server in one statement. The rows show the transactions up to S,
   and perhaps some of the transactions up to H, the position that the server has executed after the statement.
2. The task waits until the log has passed H, and until the table's queue has executed the entries up to there.
3. Another work reads the range from a version of the Delta table. For rows that an entry between S and this version
   has changed, the entry is compared with the Delta table; for all other rows, the server's rows are.

The table's steps go on meanwhile, and no other task waits for a proof. If anything but rows has changed the table
(`proofs.is_same`) before the second work has ended, its result is not used, and the range is read again later. If the
rows differ, the range is read once more, and only a difference that both readings show is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.model.errors import Action, BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import CompareKeyRange, ReadKeyRange
from spark_sink.mirror.rules.events import Answer, Failure, RangeCompared, RangeRead
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.proofs import (
    NO_SUSPECTS,
    Difference,
    Proof,
    Suspects,
    confirmed,
    is_same,
    next_round,
    next_to_prove,
    range_text,
)
from spark_sink.mirror.rules.retries import backoff_s
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.values.entries import last_lsn
from spark_sink.mirror.values.policies import ProofOptions
from spark_sink.source.table_rows.chunks import Chunk
from spark_sink.source.table_rows.positions import contains_executed

AGAIN_S = 1.0  # the shortest time between two readings of a range
_RETRY_S = 2.0  # the first pause of a table whose range could not be compared


@dataclass(frozen=True, slots=True)
class _Range:
    """A range that is being compared. `record`: the table's record when the range was read; `begin`, `after`: S, and
    the lsn of its entry; `run`: the number of the work that reads the range; `suspects`: see `ReadKeyRange`; `read`:
    the answer of this work; `until`: when the task stops waiting for the log."""

    record: TableRecord
    begin: Position
    after: int
    run: int
    suspects: Suspects
    read: RangeRead | None = None
    until: float = 0.0


class ProofTask(Task):
    """Never ends. `wakes_at`: when the task has to be called at the latest."""

    def __init__(self, state: MirrorState, options: ProofOptions) -> None:
        super().__init__(state)
        self._options = options
        self._range: _Range | None = None
        # A range in which the first reading has found a difference.
        self._again: _Range | None = None
        self._idle_until = 0.0
        # By table id: how often in a row a range was given up, and until when the table has to wait.
        self._later: dict[str, tuple[int, float]] = {}
        self._seen_append = -1  # the append whose position was compared with H
        self._passed: int | None = None  # the lsn at which the log has passed H

    @property
    def wakes_at(self) -> float:
        if self._range is not None:
            return self._range.until
        return max(self.not_before, self._idle_until)

    def go(self) -> None:
        if self._range is not None:
            self._compare_if_applied(self._range)
        elif self.state.has_changed or self.state.now >= self._idle_until:
            self._begin_range()

    # -- the next range ----------------------------------------------------------------------------------------

    def _begin_range(self) -> None:
        state, options = self.state, self._options
        state.has_changed = False
        end = state.end
        closed_s = options.opens_in(state.at)
        if closed_s or end is None or end.position is None:
            self._idle_until = state.now + (closed_s or options.wait_s)
            return
        again, self._again = self._again, None
        if again is not None and is_same(again.record, state.records.get(again.record.table_id)):
            assert again.read is not None
            self._read(again.record, end.position, last_lsn(end.append), again)
            return
        record = next_to_prove(
            state.tables(), state.proofs, state.at, options.every_s, self._may_begin
        )
        if record is None:
            self._idle_until = self._next_time()
            return
        self._read(record, end.position, last_lsn(end.append), None)

    def _may_begin(self, record: TableRecord) -> bool:
        _, until = self._later.get(record.table_id, (0, 0.0))
        return until <= self.state.now

    def _next_time(self) -> float:
        """Returns when the next range has to be read, if no record changes."""
        state = self.state
        round_at = next_round(state.tables(), state.proofs, state.at, self._options.every_s)
        times = [] if round_at is None else [round_at - state.clock_s]
        times += [until for _, until in self._later.values() if until > state.now]
        return min(times, default=state.now + self._options.every_s)

    def _read(self, record: TableRecord, begin: Position, after: int, again: _Range | None) -> None:
        state = self.state
        proof = self._proof(record).in_round(record, state.at)
        chunk, suspects, is_fixed = Chunk(proof.cursor, None), NO_SUSPECTS, False
        if again is not None and again.read is not None:
            suspects = again.suspects
            # If the columns differed, no rows were read.
            is_fixed = not suspects.columns
            chunk = again.read.chunk if is_fixed else chunk
        state.prove(proof)

        def effect(run: int) -> ReadKeyRange:
            self._range = _Range(record, begin, after, run, suspects)
            rows_max = self._options.rows_max
            return ReadKeyRange(run, record, begin, proof.key, chunk, is_fixed, rows_max, suspects)

        self.begin([], effect, self._was_read)

    def _proof(self, record: TableRecord) -> Proof:
        known = self.state.proofs.get(record.table_id)
        return Proof(record.table_id, record.consumer) if known is None else known

    # -- the log -----------------------------------------------------------------------------------------------

    def _was_read(self, answer: Answer) -> None:
        assert isinstance(answer, RangeRead)
        compared = self._range
        assert compared is not None
        if answer.skipped:
            self._skip(compared.record, answer.skipped)
            return
        if answer.moved:
            self._leave(compared.record, answer.seconds)
            return
        until = self.state.now + self._options.wait_s
        self._range = replace(compared, read=answer, until=until)
        self._seen_append, self._passed = -1, None
        self.wants_turn = True

    def _compare_if_applied(self, compared: _Range) -> None:
        """Begin to compare a range when the log has passed H, and the table shows the entries up to there."""
        state, record, read = self.state, compared.record, compared.read
        assert read is not None
        if not is_same(record, state.records.get(record.table_id)):
            self._leave(record)
            return
        end = state.end
        assert end is not None
        if self._passed is None and end.append != self._seen_append and end.position is not None:
            self._seen_append = end.append
            try:
                has_passed = contains_executed(end.position, read.executed)
            except BinlogError as fault:
                self._skip(record, str(fault))
                return
            if has_passed:
                self._passed = last_lsn(end.append)
        if self._passed is not None and state.dealt_with(record.name) >= self._passed:
            self._compare(compared, self._passed)
        elif state.now >= compared.until:
            self._leave(record)

    def _compare(self, compared: _Range, to: int) -> None:
        record, run = self.state.records[compared.record.table_id], compared.run

        def answered(answer: Answer) -> None:
            assert isinstance(answer, RangeCompared)
            self._compared(compared, answer)

        self.begin([], lambda own: CompareKeyRange(own, record, run, compared.after, to), answered)

    # -- the result --------------------------------------------------------------------------------------------

    def _compared(self, compared: _Range, answer: RangeCompared) -> None:
        state, before, read = self.state, compared.record, compared.read
        assert read is not None
        busy_s = read.seconds + answer.seconds
        if answer.moved or not is_same(before, state.records.get(before.table_id)):
            self._leave(before, busy_s)
            return
        self._later.pop(before.table_id, None)
        self._range, self.failures = None, 0
        differs = bool(answer.columns or answer.keys)
        if differs and not confirmed(compared.suspects, answer.columns, answer.differing):
            suspects = Suspects(answer.columns, frozenset(answer.differing))
            self._again = replace(compared, suspects=suspects)
        else:
            self._done(before, read, answer)
        self._rest(read.rows, busy_s, AGAIN_S if differs else 0.0)

    def _done(self, record: TableRecord, read: RangeRead, answer: RangeCompared) -> None:
        """End a range that is equal, or in which two readings have found the same difference."""
        state, proof = self.state, self._proof(record)
        differs = bool(answer.columns or answer.keys)
        if differs:
            found = Difference(state.at, answer.keys, answer.columns, answer.evidence)
            proof = proof.differing(found)
            said = {"consumer": record.consumer, "table": record.label, "differs": str(found)}
            said |= {"range": range_text(read.chunk)}
            said |= {"evidence": answer.evidence} if answer.evidence else {}
            state.note("difference", said, "warning")
        upper = None if answer.columns else read.chunk.upper
        after = proof.after_range(record, read.key, upper, read.rows, state.at)
        if not after.running and not after.found:
            said = {"consumer": record.consumer, "table": record.label}
            state.note("proved", said | {"rows": after.rows})
        state.prove(after, at_once=differs or not after.running)

    def _skip(self, record: TableRecord, why: str) -> None:
        state = self.state
        self._range = self._again = None
        proof = self._proof(record)
        if proof.skipped != why:
            said = {"consumer": record.consumer, "table": record.label, "why": why}
            state.note("not_proved", said, "warning")
        state.prove(proof.skipping(record, why, state.at))
        self._rest(0, 0.0)

    def _leave(self, record: TableRecord, busy_s: float = 0.0) -> None:
        """Give up the range. It is read again after a pause."""
        count, _ = self._later.get(record.table_id, (0, 0.0))
        self._later[record.table_id] = count + 1, self.state.now + backoff_s(_RETRY_S, count + 1)
        self.state.prove(replace(self._proof(record), last=self.state.at))
        rows = 0 if self._range is None or self._range.read is None else self._range.read.rows
        self._range = self._again = None
        self._rest(rows, busy_s)

    def _rest(self, rows: int, busy_s: float, least_s: float = 0.0) -> None:
        pause_s = max(least_s, self._options.pause_s(rows, busy_s))
        self.not_before = self.state.now + pause_s
        self.state.has_changed = True
        self.wants_turn = True

    def failed(self, failure: Failure) -> None:
        compared = self._range
        assert compared is not None
        record, fault = compared.record, failure.fault
        is_lasting = fault is not None and fault.action is not Action.RETRY
        if is_lasting and is_same(record, self.state.records.get(record.table_id)):
            self._skip(record, failure.text)
            return
        self._leave(record)
        wait_s = self.pause(failure)
        said = {"consumer": record.consumer, "table": record.label, "seconds": wait_s}
        if not self.state.stopping:  # a job that ends stops the work
            self.state.note("retry", said | {"error": failure.text})
