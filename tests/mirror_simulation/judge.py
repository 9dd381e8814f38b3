"""Judges what the rules of the mirror do. Every check raises AssertionError."""

from __future__ import annotations

from spark_sink.mirror.rules.effects import StoreRecords
from spark_sink.mirror.values.names import TableName
from tests.mirror_simulation.control import Control
from tests.mirror_simulation.lake import Lake
from tests.mirror_simulation.proof_rules import ProofRules
from tests.mirror_simulation.queue_rules import QueueRules
from tests.mirror_simulation.server import Server
from tests.mirror_simulation.table_rules import TableRules
from tests.mirror_simulation.value_rules import ValueRules
from tests.mirror_simulation.watermark_rules import WatermarkRules
from tests.mirror_simulation.work_rules import WorkRules


class Judge:
    """`excluded`: names whose tables the settings leave out."""

    def __init__(
        self, server: Server, lake: Lake, control: Control, excluded: set[TableName]
    ) -> None:
        self.tables = TableRules(server, lake, control, excluded)
        self.works = WorkRules(control, excluded)
        self.watermark = WatermarkRules(lake, control, excluded)
        self.queues = QueueRules()
        self.proofs = ProofRules(server, lake, self.tables.planted)
        self.values = ValueRules(server, lake, control)
        self._control = control
        self._applied = 0

    def stores(self, effect: StoreRecords) -> None:
        """A StoreRecords is about to be written."""
        self._applied = self._control.applied
        self.watermark.stores(effect.watermark)
        self.proofs.stores(effect.proofs)

    def stored(self, effect: StoreRecords) -> None:
        self.watermark.stored(self._applied, effect.records)
        self.tables.stored(effect.records)
        self.values.stored(effect.records)
