"""The control table of the simulated mirror, which is durable: records, requests, and how far the consumer is
applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.table_record import Request, TableRecord
from spark_sink.mirror.values.names import TableName


@dataclass
class Control:
    """`records`, `requests`: by id of table; `named`: ids of requests for copies, by the name that was asked for."""

    records: dict[str, TableRecord] = field(default_factory=dict)
    requests: dict[str, Request] = field(default_factory=dict)
    named: dict[TableName, str] = field(default_factory=dict)
    proofs: dict[str, Proof] = field(default_factory=dict)
    applied: int = 0
    serial: int = 0

    def store(
        self,
        records: Sequence[TableRecord],
        watermark: int | None,
        proofs: Sequence[Proof] = (),
    ) -> dict[str, tuple[int, datetime | None]]:
        """Write records, proofs and the watermark. Returns the serial of each record."""
        written: dict[str, tuple[int, datetime | None]] = {}
        for record in records:
            self.serial += 1
            self.records[record.table_id] = replace(record, serial=self.serial)
            written[record.table_id] = (self.serial, None)
        self.proofs |= {proof.table_id: proof for proof in proofs}
        if watermark is not None:
            self.applied = watermark
        return written

    def tables(self, name: TableName) -> list[TableRecord]:
        """Returns the records of tables that have the name, dropped ones included."""
        return [r for r in self.records.values() if not r.history and r.name == name]

    # -- requests ----------------------------------------------------------------------------------------------

    def standing(self) -> tuple[Mapping[str, Request], Mapping[TableName, str]]:
        """Returns the requests that no record answers: by id of table, and by name."""
        by_id = {i: r for i, r in self.requests.items() if self.records[i].handled != r.id}
        answered = {i for record in self.records.values() for i in record.answered.values()}
        return by_id, {name: i for name, i in self.named.items() if i not in answered}
