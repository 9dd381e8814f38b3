"""The task that compares the consumer's tables with the server, one range at a time, in the background. Pure.

1. The task takes S, the newest position that the rules have found in the log. A work waits until the server has
   executed S, and reads a range of a table from the server in one statement. The rows show all transactions up to S,
   and perhaps some of the later ones up to H. H is the position that the server has executed after the statement.
2. The task waits until the log has passed H, and until the table's queue has executed the entries up to there.
3. Another work reads the range from a version of the Delta table. It compares each row of this version: with an entry,
   if an entry between S and this version has changed the row; otherwise with the server's row.

Meanwhile, the table's steps continue, and no other task waits for these works. If anything but rows has changed the
table (`proofs.is_same`) before the second work has ended, its result is not used, and the range is read again later. If
the rows differ, the range is read once more, and only a difference that both readings show is reported.

If such a difference has to be corrected (`proofs.remedy_for`), the task waits until no other work runs on the table.
Then the table is copied or stopped, or a work rewrites the rows that differ. The work makes one commit, with the lsn
that follows the one that the Delta table records. The table's queue has executed all entries up to this lsn, so the
commit is a step of the table like any other: after a crash, it was made completely or not at all. Then the range is
read again. After the commit, the table's history has to be compared with the table. The table's record shows this even
before the commit. The comparison is due at the end of the next append, because the history may already have a commit
with any lsn up to now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dispatcher.model.errors import Action, BinlogError
from dispatcher.model.position import Position
from spark_sink.mirror.rules.effects import (
    AskTable,
    CompareKeyRange,
    ReadKeyRange,
    RepairRows,
)
from spark_sink.mirror.rules.events import (
    Answer,
    Failure,
    RangeCompared,
    RangeRead,
    RowsRepaired,
    TableAsked,
)
from spark_sink.mirror.rules.mirror_state import MirrorState
from spark_sink.mirror.rules.proofs import (
    NO_SUSPECTS,
    Difference,
    DifferenceSize,
    Proof,
    Remedy,
    Suspects,
    confirmed,
    is_same,
    next_round,
    next_to_prove,
    range_text,
    remedy_for,
)
from spark_sink.mirror.rules.retries import backoff_s
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.tasks.task import Task
from spark_sink.mirror.rules.transitions import differing, waiting_for_copy
from spark_sink.mirror.values.entries import append_of, last_lsn
from spark_sink.mirror.values.policies import ProofOptions
from spark_sink.source.table_rows.chunks import Chunk
from spark_sink.source.table_rows.positions import contains_executed

AGAIN_S = 1.0  # the shortest time between two readings of a range
_RETRY_S = 2.0  # the first pause of a table whose range could not be compared


@dataclass(frozen=True, slots=True)
class _Range:
    """A range that is being compared. `record`: the table's record when the range was read; `begin`: S; `after`: the
    lsn of the entry with S; `run`: the number of the work that reads the range; `suspects`: see `ReadKeyRange`;
    `repairs`: how often the range was already repaired in succession; `read`: the answer of the work `run`; `until`:
    when the task stops waiting for the log."""

    record: TableRecord
    begin: Position
    after: int
    run: int
    suspects: Suspects
    repairs: int = 0
    read: RangeRead | None = None
    until: float = 0.0


@dataclass(frozen=True, slots=True)
class _Correction:
    """A difference of the present range that has to be corrected. `answer`: what the second reading has found; `to`:
    the lsn up to which the table was applied at that time; `until`: when the task stops waiting for the table;
    `reserved`: while the table is reserved for an effect, this effect without its number."""

    remedy: Remedy
    answer: RangeCompared
    to: int
    until: float
    reserved: RepairRows | None = None


class ProofTask(Task):
    """Compares the tables of a consumer. Never ends. `wakes_at`: the time at which the task has to be called at the
    latest."""

    def __init__(self, state: MirrorState, options: ProofOptions) -> None:
        super().__init__(state)
        self._options = options
        self._range: _Range | None = None
        # A range that has to be read again, because its first reading has found a difference, or because it was
        # repaired.
        self._again: _Range | None = None
        self._correction: _Correction | None = None
        self._idle_until = 0.0
        # By table id: how often the task has given up a range in succession, and until when the table has to wait.
        self._later: dict[str, tuple[int, float]] = {}
        self._seen_append = -1  # the append whose position was compared with H
        self._passed: int | None = None  # the lsn at which the log has passed H

    @property
    def wakes_at(self) -> float:
        if self._correction is not None:
            return self._correction.until
        if self._range is not None:
            return self._range.until
        return max(self.not_before, self._idle_until)

    def go(self) -> None:
        if self._correction is not None:
            self._correct_if_free(self._correction)
        elif self._range is not None:
            self._compare_if_applied(self._range)
        elif self.state.has_changed or self.state.now >= self._idle_until:
            self._begin_range()

    # -- the next range ----------------------------------------------------------------------------------------

    def _begin_range(self) -> None:
        state, options = self.state, self._options
        state.has_changed = False
        end = state.end
        closed_s = options.opens_in(state.at)
        is_asked = any(proof.asked for proof in state.proofs.values())
        if (closed_s and not is_asked) or end is None or end.position is None:
            self._idle_until = state.now + (closed_s or options.wait_s)
            return
        may_begin = self._is_asked if closed_s else self._may_begin
        again, self._again = self._again, None
        if again is not None and is_same(again.record, state.records.get(again.record.table_id)):
            assert again.read is not None
            self._read(again.record, end.position, last_lsn(end.append), again)
            return
        record = next_to_prove(state.tables(), state.proofs, state.at, options.every_s, may_begin)
        if record is None:
            self._idle_until = self._next_time() if not closed_s else state.now + closed_s
            return
        self._read(record, end.position, last_lsn(end.append), None)

    def _may_begin(self, record: TableRecord) -> bool:
        _, until = self._later.get(record.table_id, (0, 0.0))
        return until <= self.state.now

    def _is_asked(self, record: TableRecord) -> bool:
        """True if a person has requested a repair of the table. Such a repair need not wait for the window."""
        proof = self.state.proofs.get(record.table_id)
        return proof is not None and proof.asked and self._may_begin(record)

    def _next_time(self) -> float:
        """Returns when the next range has to be read, if no record changes."""
        state = self.state
        round_at = next_round(state.tables(), state.proofs, state.at, self._options.every_s)
        times = [] if round_at is None else [round_at - state.clock_s]
        times += [until for _, until in self._later.values() if until > state.now]
        return min(times, default=state.now + self._options.every_s)

    def _read(self, record: TableRecord, begin: Position, after: int, again: _Range | None) -> None:
        state = self.state
        proof = self._proof(record)
        if again is None or not proof.running:
            proof = proof.in_round(record, state.at)
        chunk, suspects, is_fixed = Chunk(proof.cursor, None), NO_SUSPECTS, False
        if again is not None and again.read is not None:
            suspects = again.suspects
            # If the columns differed, no rows were read.
            is_fixed = not suspects.columns
            chunk = again.read.chunk if is_fixed else chunk
        state.prove(proof)

        def effect(run: int) -> ReadKeyRange:
            repairs = 0 if again is None else again.repairs
            self._range = _Range(record, begin, after, run, suspects, repairs)
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
        """Begin to compare a range as soon as the log has passed H, and the table shows the entries up to H."""
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
        self.failures = 0
        if not (answer.columns or answer.keys):
            self._equal(compared, read)
            self._rest(read.rows, busy_s)
        elif not confirmed(compared.suspects, answer.columns, answer.differing):
            suspects = Suspects(answer.columns, frozenset(answer.differing))
            self._range, self._again = None, replace(compared, suspects=suspects)
            self._rest(read.rows, busy_s, AGAIN_S)
        else:
            self._differs(compared, read, answer)

    def _equal(self, compared: _Range, read: RangeRead) -> None:
        """End the comparison of a range without a difference."""
        proof = self._proof(compared.record)
        self._done(compared, read, proof.after_repair() if compared.repairs else proof)

    def _differs(self, compared: _Range, read: RangeRead, answer: RangeCompared) -> None:
        """Report a difference that two readings have found, and begin to correct it."""
        state, record = self.state, compared.record
        found = Difference(state.at, answer.keys, answer.columns, answer.evidence)
        proof = self._proof(record).showing(found)
        # Without a Delta table, or if its columns are not known, no row can be written into it.
        has_columns = bool(record.folder and record.signature)
        listed = len(answer.differing) if has_columns else 0
        each = DifferenceSize(answer.columns, answer.keys, listed)
        wanted = state.options.policy(record.name).on_difference
        remedy = remedy_for(proof, wanted, each, read.ranges, compared.repairs)
        fields = {"consumer": record.consumer, "table": record.label, "differs": str(found)}
        fields |= {"range": range_text(read.chunk), "then": str(remedy)}
        fields |= {"evidence": answer.evidence} if answer.evidence else {}
        state.note("difference", fields, "warning")
        if remedy is Remedy.REPORT:
            self._done(compared, read, proof.counting(), columns=answer.columns)
            self._rest(read.rows, read.seconds + answer.seconds, AGAIN_S)
            return
        state.prove(proof, at_once=True)
        assert self._passed is not None
        until = state.now + self._options.wait_s
        self._correction = _Correction(remedy, answer, self._passed, until)
        self.wants_turn = True

    def _done(self, compared: _Range, read: RangeRead, proof: Proof, *, columns: str = "") -> None:
        """End the comparison of a range. `columns`: how the columns differ. If they differ, the round ends, too."""
        state, record = self.state, compared.record
        self._range = None
        upper = None if columns else read.chunk.upper
        after = proof.after_range(record, read.key, upper, read.rows, state.at)
        if not after.running and not after.found:
            fields = {"consumer": record.consumer, "table": record.label}
            state.note("proved", fields | {"rows": after.rows})
        state.prove(after, at_once=bool(proof.difference) or not after.running)

    # -- corrections -------------------------------------------------------------------------------------------

    def _correct_if_free(self, correction: _Correction) -> None:
        """Correct a difference when no other work runs on the table."""
        state, compared = self.state, self._range
        assert compared is not None
        record = state.records.get(compared.record.table_id)
        if record is None or not is_same(compared.record, record):
            self._leave(compared.record)
        elif correction.reserved is not None:
            if not state.is_unsaved(record.table_id):
                state.release(record.table_id)
                self._repair(compared, correction, replace(correction.reserved, record=record))
        elif state.now >= correction.until:
            self._leave(record)
        elif state.is_free(record.table_id):
            self._correct(compared, record, correction)

    def _correct(self, compared: _Range, record: TableRecord, correction: _Correction) -> None:
        state, answer = self.state, correction.answer
        to = state.dealt_with(record.name)
        if to < max(correction.to, record.from_lsn):
            return
        proof = self._proof(record)
        assert proof.difference is not None
        text = str(proof.difference)
        match correction.remedy:
            case Remedy.COPY:
                reason = f"the table differs from the server's: {text}"
                self._end_round(replace(proof, copied=True))
                state.save(waiting_for_copy(record, reason, to), why="copy needed")
            case Remedy.STOP:
                self._end_round(proof)
                stopped = differing(record, text, to, columns=bool(answer.columns))
                state.save(stopped, why="it differs")
            case _:
                self._rewrite(compared, record, correction, to)

    def _end_round(self, proof: Proof) -> None:
        """End the round early, because the table is being copied or is stopped."""
        assert self._range is not None
        assert self._range.read is not None
        rows = self._range.read.rows
        self._range = self._correction = None
        self.state.prove(proof.leaving_round(), at_once=True)
        self._rest(rows, 0.0)

    def _rewrite(
        self, compared: _Range, record: TableRecord, correction: _Correction, to: int
    ) -> None:
        """Begin to rewrite rows. If the table has a history, first reserve the table, and record that the history has
        to be compared with the table."""
        state = self.state
        applied = state.facts_of(record).applied
        if applied is None:
            self._ask(record)
            return
        if applied >= to:
            return  # the next entry of the table may have the next lsn
        effect = RepairRows(0, record, compared.run, compared.after, to, applied + 1)
        if not state.options.policy(record.name).history:
            self._repair(compared, correction, effect)
            return
        state.reserve(record.table_id)
        self._correction = replace(correction, reserved=effect)
        state.save(replace(record, copied_at=last_lsn(append_of(to) + 1)))

    def _ask(self, record: TableRecord) -> None:
        table_id, folder = record.table_id, record.lies_at

        def asked(answer: Answer) -> None:
            assert isinstance(answer, TableAsked)
            self.state.learn(record, answer.facts)

        self.begin([table_id], lambda run: AskTable(run, table_id, folder, False), asked)

    def _repair(self, compared: _Range, correction: _Correction, effect: RepairRows) -> None:
        self._correction = replace(correction, reserved=None)

        def repaired(answer: Answer) -> None:
            assert isinstance(answer, RowsRepaired)
            self._repaired(compared, correction, answer, effect.lsn)

        self.begin([effect.record.table_id], lambda run: replace(effect, run=run), repaired)

    def _repaired(
        self, compared: _Range, correction: _Correction, answer: RowsRepaired, lsn: int
    ) -> None:
        """Let the range be compared again after its rows were rewritten."""
        state, read, record = self.state, compared.read, compared.record
        assert read is not None
        busy_s = read.seconds + correction.answer.seconds + answer.seconds
        if answer.moved:
            self._leave(record, busy_s)
            return
        now = state.records[record.table_id]
        if answer.keys:
            state.committed(now, lsn)
            fields = {"consumer": record.consumer, "table": now.label, "rows": answer.keys}
            state.note("repaired", fields | {"lsn": lsn})
        proof = self._proof(now)
        state.prove(replace(proof, repaired=proof.repaired + answer.keys), at_once=True)
        self._range = self._correction = None
        self._again = replace(compared, suspects=NO_SUSPECTS, repairs=compared.repairs + 1)
        self._rest(read.rows, busy_s, AGAIN_S)

    # -- the end of a range ------------------------------------------------------------------------------------

    def _skip(self, record: TableRecord, why: str) -> None:
        state = self.state
        self._release()
        self._range = self._again = None
        proof = self._proof(record)
        if proof.skipped != why:
            fields = {"consumer": record.consumer, "table": record.label, "why": why}
            state.note("not_proved", fields, "warning")
        state.prove(proof.skipping(record, why, state.at))
        self._rest(0, 0.0)

    def _leave(self, record: TableRecord, busy_s: float = 0.0) -> None:
        """Give up the comparison of the range. The range is read again after a pause."""
        count, _ = self._later.get(record.table_id, (0, 0.0))
        self._later[record.table_id] = count + 1, self.state.now + backoff_s(_RETRY_S, count + 1)
        self.state.prove(replace(self._proof(record), last=self.state.at))
        rows = 0 if self._range is None or self._range.read is None else self._range.read.rows
        # A request may have waited for the reserved table. It is answered when the pause ends.
        least_s = AGAIN_S if self._release() else 0.0
        self._range = self._again = None
        self._rest(rows, busy_s, least_s)

    def _release(self) -> bool:
        """End the correction. Returns True if the table was reserved for the correction."""
        correction, self._correction = self._correction, None
        is_reserved = correction is not None and correction.reserved is not None
        if is_reserved:
            assert self._range is not None
            self.state.release(self._range.record.table_id)
        return is_reserved

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
        if not self.state.stopping:  # a job that is ending stops the work
            self.state.note_retry(failure, wait_s, record.label)
