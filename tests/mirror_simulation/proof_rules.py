"""Assertions about proofs: a difference is reported if and only if a table differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from spark_sink.mirror.rules.proofs import Proof, is_provable
from spark_sink.mirror.rules.table_record import TableRecord
from tests.mirror_simulation.lake import Lake
from tests.mirror_simulation.log import Rows
from tests.mirror_simulation.server import Server


class ProofRules:
    """`planted`: ids of tables whose rows were changed behind the mirror's back."""

    def __init__(self, server: Server, lake: Lake, planted: set[str]) -> None:
        self._server, self._lake, self._planted = server, lake, planted

    def stores(self, proofs: Sequence[Proof]) -> None:
        """Check proofs that are about to be stored: no difference is reported where there is none."""
        for proof in proofs:
            is_false = proof.difference is not None and proof.table_id not in self._planted
            assert not is_false, f"a false report about {proof.table_id}: {proof.difference}"

    def found(self, records: Iterable[TableRecord], proofs: dict[str, Proof], since: float) -> int:
        """Assert that each planted difference that is still in its table was found by a round that began at `since` or
        later. Everything is applied to the tables. Returns how many tables differ."""
        differing = 0
        for record in records:
            proof = proofs.get(record.table_id)
            server = self._server.tables.get(record.name)
            if not is_provable(record) or server is None or not server.keyed:
                continue
            assert proof is not None, f"{record.label} is not proved"
            is_proved = proof.begun >= since and not proof.running and not proof.skipped
            assert is_proved, f"{record.label} is not proved again: {proof}"
            table = self._lake.of(record)
            differs = _values(Counter() if table is None else table.rows) != _values(server.rows)
            differing += differs
            is_right = differs == (proof.difference is not None)
            assert is_right, f"{record.label} differs: {differs}, and its proof is {proof}"
        return differing


def _values(rows: Rows) -> Counter[frozenset[tuple[str, int | None]]]:
    return Counter(frozenset(row) for row in rows.elements())
