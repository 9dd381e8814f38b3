"""Reads the state of each table, and how far it is applied, from the control table and the log, for the commands
`tables` and `top`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from dispatcher.model.sizes import duration_text
from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.rules.chosen_tables import selected
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.proofs import Proof
from spark_sink.mirror.rules.states import Creating, TableState
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.names import TableName


@dataclass(frozen=True, slots=True)
class TableLine:
    """A line of `tables`.

    `waiting_rows`: how many row changes in the log are not applied to the table yet; `lag_s`: seconds since the oldest
    of these changes was committed, None if there is no such change; `since`: when the state was written; `copied`: how
    far the copy is while the table is being copied, else None; `catalog`: the table's name in the catalog;
    `catalog_error`: why the table is not registered under the wanted name, "" if it is; `requires`: the features of
    Delta that the table requires of its readers; `proved`, `proved_rows`: the begin of the last comparison that
    compared the whole table with the server's table and found no difference, None if there was none, and how many rows
    it has compared; `differs`: the newest difference, "" after a later comparison of the whole table that found none;
    `evidence`: path of the file with this difference; `not_proved`: why the table cannot be compared; `repaired_rows`:
    how many keys with rows that differed were rewritten.
    """

    consumer: str
    table: str
    state: str
    applied_lsn: int
    waiting_rows: int
    lag_s: float | None
    since: datetime | None
    reason: str
    copied: CopyProgress | None = None
    catalog: str = ""
    catalog_error: str = ""
    requires: tuple[str, ...] = ()
    proved: datetime | None = None
    proved_rows: int = 0
    differs: str = ""
    evidence: str = ""
    not_proved: str = ""
    repaired_rows: int = 0

    def as_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.__slots__}
        for name in ("since", "proved"):
            values[name] = values[name].isoformat() if values[name] else None
        return values | {"copied": asdict(self.copied) if self.copied else None}


class TableFacts(Protocol):
    """What is known of tables besides their records and proofs."""

    def applied(self, record: TableRecord) -> int:
        """Returns the lsn that a table's Delta table records; -1 if the Delta table records no lsn, or does not
        exist."""

    def features(self, record: TableRecord) -> tuple[str, ...]:
        """Returns, sorted, the features that a table requires of its readers."""

    def copied(self, record: TableRecord) -> CopyProgress | None:
        """Returns the progress of a copy that runs, from the copy's folder; None if the copy has not begun."""

    def waiting(
        self, records: Sequence[TableRecord], applied: Mapping[str, int]
    ) -> dict[str, tuple[int, datetime | None]]:
        """Returns, by table id, the number of row changes that each table does not have yet, and the commit time of the
        oldest. `applied`: the lsn up to which each table is applied."""


class TargetFacts(TableFacts, Protocol):
    """Facts about the tables of a target, read with Spark (`SparkFacts`) or without it (`LocalFacts`)."""

    def rows(self) -> ControlRows:
        """Returns the rows of the control table that no newer row replaces."""


def table_lines(
    facts: TargetFacts,
    patterns: Sequence[str] = (),
    interval_s: Callable[[TableName], float] = lambda _: 0.0,
) -> list[TableLine]:
    """Returns, for the tables of a target and their histories, how far the log is applied to them. `interval_s`:
    returns the shortest time between two steps of a table, by the table's name. Raises `UserError` for a pattern that
    fits no table."""
    control_rows = facts.rows()
    tables = [
        *control_rows.records.values(),
        *control_rows.histories.values(),
        *_asked_for(control_rows),
    ]
    return lines_of(facts, selected(tables, patterns), control_rows.proofs, interval_s)


def lines_of(
    facts: TableFacts,
    records: Sequence[TableRecord],
    proofs: Mapping[str, Proof],
    interval_s: Callable[[TableName], float] = lambda _: 0.0,
) -> list[TableLine]:
    """Returns the lines of these tables and histories, in the order of `records`. `proofs`: by table id."""
    applied = {
        r.table_id: max(r.from_lsn, facts.applied(r)) if r.folder else r.from_lsn for r in records
    }
    waiting = facts.waiting(records, applied) if records else {}
    now = datetime.now(UTC)
    lines = []
    for record in records:
        rows, oldest = waiting.get(record.table_id, (0, None))
        lag_s = None if oldest is None else max(0.0, (now - oldest).total_seconds())
        lines.append(
            TableLine(
                record.consumer,
                record.label,
                str(record.word),
                applied[record.table_id],
                rows,
                lag_s,
                record.at.replace(tzinfo=UTC) if record.at else None,
                record.reason or (_why_waits(record, interval_s) if rows else ""),
                facts.copied(record) if record.word is TableState.COPYING else None,
                record.registered,
                record.refused,
                facts.features(record) if record.folder else (),
                *_proof(proofs.get(record.table_id), record),
            )
        )
    return lines


def _proof(
    proof: Proof | None, record: TableRecord
) -> tuple[datetime | None, int, str, str, str, int]:
    """Returns the last six values of a table's line."""
    if proof is None or not record.is_live:
        return None, 0, "", "", "", 0
    found = proof.difference
    proved = None if proof.proved is None else datetime.fromtimestamp(proof.proved, UTC)
    differs, evidence = ("", "") if found is None else (str(found), found.evidence)
    # The next comparison, which a copy asks for, finds out whether the reason still holds.
    skipped = "" if proof.doubted else proof.skipped
    return proved, proof.proved_rows, differs, evidence, skipped, proof.repaired


def completed_line(line: TableLine, complete: Callable[[str], str]) -> TableLine:
    """Returns the line with complete commands in its texts. `complete`: adds the options of this process to the
    commands in a text, and names its program (`own_command.completing`)."""
    return replace(
        line,
        reason=complete(line.reason),
        catalog_error=complete(line.catalog_error),
        not_proved=complete(line.not_proved),
    )


def proof_text(line: TableLine, now: datetime) -> str:
    """Returns what a person needs to know about the proof of a table; "" if nothing is known."""
    texts = []
    if line.differs:
        texts.append(f"differs: {line.differs}")
    elif line.not_proved:
        texts.append("not proved")
    elif line.proved is not None:
        age = duration_text((now - line.proved).total_seconds())
        texts.append(f"proved {age} ago, {line.proved_rows} rows")
    if line.repaired_rows:
        texts.append(f"{line.repaired_rows} rows repaired")
    return ", ".join(texts)


def text_lines(lines: Sequence[TableLine], now: datetime) -> list[str]:
    """Returns what `tables` prints: a heading, and for each table one line, and one more for each longer text."""
    if not lines:
        return ["the mirror has no tables yet"]
    rows = [("consumer", "table", "state", "rows behind", "lag", "")]
    for line in lines:
        lag = "-" if line.lag_s is None else f"{line.lag_s:.0f} s"
        waiting = str(line.waiting_rows)
        note = proof_text(line, now)
        rows.append((line.consumer, line.table, line.state, waiting, lag, note))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    texts = []
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        texts.append("  ".join([*cells, row[-1]]).rstrip())
        if number:
            texts += (f"    {text}" for text in _further_texts(lines[number - 1]))
    return texts


def _further_texts(line: TableLine) -> Iterator[str]:
    if line.reason:
        yield line.reason
    if line.evidence:
        yield f"the rows that differ: {line.evidence}"
    if line.not_proved:
        yield f"not proved: {line.not_proved}"
    if line.catalog_error:
        yield line.catalog_error
    if line.requires:
        yield f"a program that reads it must know these features of Delta: {', '.join(line.requires)}"
    if line.copied is not None:
        yield str(line.copied)


def _why_waits(record: TableRecord, interval_s: Callable[[TableName], float]) -> str:
    """Returns why the changes of a table may wait for the table's next step, if nothing else explains this."""
    pause_s = interval_s(record.name) if record.is_live and not record.history else 0.0
    return f"its steps wait for seconds_between_steps: {pause_s:g}" if pause_s else ""


def _asked_for(control_rows: ControlRows) -> list[TableRecord]:
    """Returns records for the tables whose copy a person has requested, and for which the job has not created a record
    yet."""
    reason = "a copy was asked for; the job makes it when it runs"
    live = {
        (record.consumer, record.name)
        for record in control_rows.records.values()
        if not record.is_dropped
    }
    return [
        TableRecord(f"asked/{consumer}/{name}", consumer, *name, state=Creating(), reason=reason)
        for consumer, name in control_rows.named.keys() - live
    ]
