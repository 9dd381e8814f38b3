"""Reads, compares and repairs ranges of tables, and plants differences into Delta tables."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.effects import CompareKeyRange, ReadKeyRange, RepairRows
from spark_sink.mirror.rules.events import RangeCompared, RangeRead, RowsRepaired
from spark_sink.mirror.rules.omitted import changed_masks
from spark_sink.mirror.rules.plan import route
from spark_sink.mirror.rules.proofs import NO_TABLE, confirmed
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.schema.statements import effects_of
from spark_sink.mirror.values.entries import LogEntry
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy
from spark_sink.source.raw_entries import EntryKind
from spark_sink.source.table_rows.chunks import Bound, Chunk
from tests.mirror_simulation.column_values import ColumnValues, images
from tests.mirror_simulation.lake import Lake, LakeTable
from tests.mirror_simulation.log import Row, Rows, ServerTable
from tests.mirror_simulation.server import Server

KEY = "id INT"
LISTED_MAX = 4  # so many differing keys of a range can be rewritten
FOREIGN_ID = 1_000_000  # the server's rows have smaller keys
_SECONDS = 0.1

Keyed = dict[int, Counter[frozenset[tuple[str, int | None]]]]  # the rows of each key


@dataclass
class _Held:
    """A range that was read. `columns`: None if the server has no such table; `confirmed`: the keys that differ, as two
    readings have shown."""

    effect: ReadKeyRange
    chunk: Chunk
    columns: tuple[str, ...] | None
    rows: dict[int, Row]
    confirmed: tuple[int, ...] = ()


class Proofs:
    """The prover of the simulated job, which keeps the range that it has read last."""

    def __init__(self, lake: Lake) -> None:
        self._lake, self._log = lake, lake.log
        self._server: Server | None = None
        self._early: dict[int, ServerTable | None] = {}
        self._held: dict[int, _Held] = {}

    def serves(self, server: Server) -> None:
        self._server = server

    @property
    def server(self) -> Server:
        assert self._server is not None
        return self._server

    def forget(self) -> None:
        """Forget the ranges that the former job has read: a new job counts its works anew."""
        self._early.clear()
        self._held.clear()

    def reads_now(self, effect: ReadKeyRange) -> None:
        """Let the rows of the range be the server's rows at this time."""
        table = self.server.tables.get(effect.record.name)
        self._early[effect.run] = None if table is None else table.copy()

    def read(self, effect: ReadKeyRange) -> RangeRead:
        """Raises BinlogError for a value that stops the table."""
        now = self.server.tables.get(effect.record.name)
        table = self._early.pop(effect.run, now)
        executed, chunk = self.server.position(), effect.chunk
        if table is None:
            self._held = {effect.run: _Held(effect, chunk, None, {})}
            return RangeRead(effect.run, executed, "", chunk, 0, _SECONDS)
        if not table.keyed:
            return RangeRead(effect.run, executed, "", chunk, 0, _SECONDS, "it has no key")
        values = self._lake.values.under(effect.record.name)
        if changed_masks(effect.record.signature, TablePolicy(masks=values.rules.masks)):
            return RangeRead(effect.run, executed, "", chunk, 0, _SECONDS, "its masks have changed")
        lower = chunk.lower if effect.key == KEY else None
        keys = sorted(i for i in map(_id, table.rows) if lower is None or i > int(lower[0]))
        upper = chunk.upper
        if not effect.is_fixed and len(keys) > effect.rows_max:
            upper = (str(keys[effect.rows_max - 1]),)
        chunk = Chunk(lower, upper)
        rows = {_id(row): row for row in table.rows if _is_in(_id(row), chunk)}
        if not values.are_plain:
            values.require_valid(rows.values())
            rows = {key: values.row(row) for key, row in rows.items()}
        self._held = {effect.run: _Held(effect, chunk, table.columns, rows)}
        ranges = -(-len(table.rows) // effect.rows_max)
        return RangeRead(effect.run, executed, KEY, chunk, len(rows), _SECONDS, ranges=ranges)

    def compare(self, effect: CompareKeyRange) -> RangeCompared:
        """Raises BinlogError if the log has lost an entry."""
        held, record = self._held[effect.read], effect.record
        table = self._lake.folders.get(record.lies_at) if record.folder else None
        if record.folder and (table is None or table.owner != record.table_id):
            return _moved(effect)
        to = effect.to if table is None else max(effect.to, table.version)
        wanted = self._wanted(held, record, effect.after, to)
        if wanted is None:
            return _moved(effect)
        rows: Rows = Counter() if table is None else table.rows
        columns = _column_difference(held.columns, table)
        if columns:
            return self._answer(effect, held, columns, [])
        present = _by_key([row for row in rows.elements() if _is_in(_id(row), held.chunk)])
        expected = _by_key(list(wanted.values()))
        keys = sorted(present.keys() | expected.keys())
        return self._answer(
            effect, held, "", [i for i in keys if present.get(i) != expected.get(i)]
        )

    def _wanted(
        self, held: _Held, record: TableRecord, after: int, to: int
    ) -> dict[int, Row] | None:
        """Returns the rows that the range has to have at the lsn `to`; None if a statement has changed the table.
        Raises BinlogError if the log has lost an entry."""
        if self._log.lost_behind(after, to + 1) is not None:
            raise BinlogError(ErrorKind.TARGET_FILES, "a part of the log is lost")
        wanted: dict[int, Row] = dict(held.rows)
        for entry in self._log.between(after, to + 1):
            if _concerns(entry, record):
                return None
            if entry.kind is EntryKind.ROWS and (entry.database, entry.table) == record.name:
                self._settle(entry, wanted, held.chunk, record.name)
        return wanted

    def repair(self, effect: RepairRows) -> RowsRepaired:
        """Rewrite the keys that differ, in one commit. Raises BinlogError if the log has lost an entry."""
        held, record = self._held[effect.read], effect.record
        table = self._lake.folders.get(record.lies_at)
        moved = RowsRepaired(effect.run, True, 0, _SECONDS)
        if table is None or table.owner != record.table_id or table.version >= effect.lsn:
            return moved
        wanted = self._wanted(held, record, effect.after, effect.to)
        if wanted is None:
            return moved
        present = _by_key([row for row in table.rows.elements() if _is_in(_id(row), held.chunk)])
        expected = _by_key(list(wanted.values()))
        keys = [i for i in held.confirmed if present.get(i) != expected.get(i)]
        for key in keys:
            for row in [row for row in table.rows if _id(row) == key]:
                del table.rows[row]
            if key in wanted:
                values = dict(wanted[key])
                table.rows[tuple((c, values[c]) for c in table.columns)] += 1
        if keys:
            table.commit(effect.lsn)
        return RowsRepaired(effect.run, False, len(keys), _SECONDS)

    def _settle(self, entry: LogEntry, rows: dict[int, Row], chunk: Chunk, name: TableName) -> None:
        changes, values = self._log.changes[entry.lsn], self._lake.values.under(name)
        if not values.are_plain:
            values.require_valid(images(changes))
            changes = [values.change(change) for change in changes]
        for change in changes:
            if change.before is not None:
                rows.pop(_id(change.before), None)
            if change.after is not None and _is_in(_id(change.after), chunk):
                rows[_id(change.after)] = change.after

    @staticmethod
    def _answer(
        effect: CompareKeyRange, held: _Held, columns: str, differing: list[int]
    ) -> RangeCompared:
        found, suspects = tuple(differing[:LISTED_MAX]), held.effect.suspects
        is_confirmed = confirmed(suspects, columns, found)
        evidence = f"evidence/{effect.run}" if is_confirmed else ""
        held.confirmed = tuple(key for key in found if key in suspects.keys)
        return RangeCompared(effect.run, False, columns, len(differing), found, _SECONDS, evidence)


def _moved(effect: CompareKeyRange) -> RangeCompared:
    return RangeCompared(effect.run, True, "", 0, (), _SECONDS)


def _column_difference(columns: tuple[str, ...] | None, table: LakeTable | None) -> str:
    if columns is None:
        return NO_TABLE
    if table is None or not table.rows or set(columns) == set(table.columns):
        return ""
    return f"the server has {', '.join(columns)}, the mirror {', '.join(table.columns)}"


def _concerns(entry: LogEntry, record: TableRecord) -> bool:
    items = route(entry, effects_of, lambda: [record.name], lambda _: False)
    is_rows = entry.kind is EntryKind.ROWS
    return not is_rows and any(name == record.name for name, _ in items)


def _id(row: Row) -> int:
    key = dict(row)["id"]
    assert key is not None
    return key


def _is_in(key: int, chunk: Chunk) -> bool:
    return (chunk.lower is None or key > _int(chunk.lower)) and (
        chunk.upper is None or key <= _int(chunk.upper)
    )


def _int(bound: Bound) -> int:
    return int(bound[0])


def _by_key(rows: list[Row]) -> Keyed:
    found: Keyed = {}
    for row in rows:
        found.setdefault(_id(row), Counter())[frozenset(row)] += 1
    return found


# -- planted differences -------------------------------------------------------------------------------------------


def plant(rng: random.Random, table: LakeTable, values: ColumnValues) -> str:
    """Change rows of a Delta table as another program would. Masked columns get the masks of other values. Returns what
    was done, "" if nothing could be done."""
    ways: list[Callable[[random.Random, LakeTable], str]] = [_foreign_row]
    if table.rows:
        ways += [_lost_row, _doubled_row, _other_value]
    if table.rows and len(table.columns) > 1:
        ways += [_wrong_default]
    way = rng.choice(ways)(rng, table)
    table.rows = values.rows(table.rows)
    return way


def _lost_row(rng: random.Random, table: LakeTable) -> str:
    del table.rows[rng.choice(sorted(table.rows))]
    return "lost row"


def _doubled_row(rng: random.Random, table: LakeTable) -> str:
    table.rows[rng.choice(sorted(table.rows))] += 1
    return "doubled row"


def _foreign_row(rng: random.Random, table: LakeTable) -> str:
    number = FOREIGN_ID + rng.randrange(1000)
    table.rows[tuple((c, number if c == "id" else 1) for c in table.columns)] += 1
    return "foreign row"


def _other_value(rng: random.Random, table: LakeTable) -> str:
    row = rng.choice(sorted(table.rows))
    del table.rows[row]
    table.rows[_with_other(row, table.columns[-1])] += 1
    return "other value"


def _wrong_default(_: random.Random, table: LakeTable) -> str:
    changed = Counter({_with_other(row, table.columns[-1]): n for row, n in table.rows.items()})
    table.rows = changed
    return "wrong default"


def _with_other(row: Row, column: str) -> Row:
    """Returns a row with another value of a column."""
    return tuple((c, 1000 + (v or 0) if c == column and c != "id" else v) for c, v in row)
