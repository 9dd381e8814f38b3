"""Assertions about proofs: a difference is reported, and rows are rewritten, if and only if a table differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from spark_sink.mirror.rules.effects import RepairRows
from spark_sink.mirror.rules.proofs import Proof, is_provable
from spark_sink.mirror.rules.records import name_at
from spark_sink.mirror.rules.states import Stopped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.policies import OnDifference
from tests.mirror_simulation.lake import Lake
from tests.mirror_simulation.log import Rows
from tests.mirror_simulation.server import Server


class ProofRules:
    """`planted`: ids of tables whose rows another program has changed; `clock`: returns the time, s since 1970."""

    def __init__(self, server: Server, lake: Lake, planted: set[str]) -> None:
        self._server, self._lake, self._planted = server, lake, planted
        self.clock: Callable[[], float] = lambda: 0.0
        self._equal: dict[str, float] = {}  # by table id, when a table that differed was made equal

    def stores(self, proofs: Sequence[Proof]) -> None:
        """Check proofs that are about to be stored: a proof reports no difference of a table that does not differ."""
        for proof in proofs:
            if proof.difference is None or proof.table_id in self._planted:
                continue
            is_false = proof.difference.at > self._equal.get(proof.table_id, -1.0)
            assert not is_false, f"a false report about {proof.table_id}: {proof.difference}"

    def repaired(self, effect: RepairRows) -> None:
        """Check a table of which rows were just rewritten."""
        record = effect.record
        assert record.table_id in self._planted, f"rows of {record.label} are rewritten"
        table = self._lake.of(record)
        truth = self._server.log.at(name_at(record, effect.to + 1), effect.to)
        assert table is not None
        assert truth is not None
        if _values(table.rows) == _values(self._lake.values.of(record).rows(truth.rows)):
            self.equal(record.table_id)

    def equal(self, table_id: str) -> None:
        """The table's rows are equal again. Its proof may still show a difference."""
        self._planted.discard(table_id)
        self._equal[table_id] = self.clock()

    def corrected(self, records: Iterable[TableRecord], wanted: OnDifference) -> None:
        """Assert that no table differs any more, or that the tables that differ are stopped. Everything is applied to
        the tables."""
        for record in records:
            if wanted is OnDifference.STOP:
                is_stopped = isinstance(record.state, Stopped) and record.state.differs
                assert is_stopped or not self._differs(record), f"{record.label} is not stopped"
            else:
                assert not self._differs(record), f"{record.label} is not repaired"

    def _differs(self, record: TableRecord) -> bool:
        server = self._server.tables.get(record.name)
        if not is_provable(record) or server is None or not server.keyed:
            return False
        if not self._lake.values.is_current(record):
            return False
        table = self._lake.of(record)
        wanted = self._lake.values.of(record).rows(server.rows)
        return _values(Counter() if table is None else table.rows) != _values(wanted)

    def found(self, records: Iterable[TableRecord], proofs: dict[str, Proof], since: float) -> int:
        """Assert that each planted difference that is still in its table was found by a round that began at `since` or
        later. Everything is applied to the tables. Returns how many tables differ."""
        differing = 0
        for record in records:
            proof = proofs.get(record.table_id)
            server = self._server.tables.get(record.name)
            if not is_provable(record) or server is None or not server.keyed:
                continue
            if not self._lake.values.is_current(record):
                continue
            assert proof is not None, f"{record.label} is not proved"
            is_proved = proof.begun >= since and not proof.running and not proof.skipped
            assert is_proved, f"{record.label} is not proved again: {proof}"
            differs = self._differs(record)
            differing += differs
            is_right = differs == (proof.difference is not None)
            assert is_right, f"{record.label} differs: {differs}, and its proof is {proof}"
        return differing


def _values(rows: Rows) -> Counter[frozenset[tuple[str, int | None]]]:
    return Counter(frozenset(row) for row in rows.elements())
