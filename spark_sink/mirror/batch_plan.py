"""Divides a batch into steps: for each table, in order, runs of row changes and the statements that concern it. Pure.

Each step gets one version in the target: `(epoch, seq)` of its last transaction. The versions of a table increase from
step to step, so the version alone tells whether a step was applied, even if a replay divides the stream into other
batches. A run that was applied in part is applied again as a whole. This is harmless, because each row image is
complete and the last image of a key decides.

A run ends at a statement that concerns its table, at another layout and at another epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.statements import MirrorChange

TableName = tuple[str, str]  # database, table


@dataclass(frozen=True, slots=True)
class RawEntry:
    """A row of the raw stream without its payload: a slice of one table, or a statement (`ddl` is not "")."""

    number: int
    database: str
    table: str
    layout: str
    epoch: int
    first_seq: int
    last_seq: int
    rows: int
    table_map: bytes
    payload_bytes: int
    ddl: str
    sql_mode: int
    place: str


@dataclass(slots=True)
class RowRun:
    """Row changes of one table and one layout. `entries`: numbers of the raw rows that hold them."""

    epoch: int
    seq: int
    layout: str
    table_map: bytes
    entries: list[int] = field(default_factory=list)
    rows: int = 0
    payload_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that concerns the table."""

    epoch: int
    seq: int
    change: MirrorChange
    query: str
    place: str


Step = RowRun | Statement
# (query, default database, sql_mode) -> the changes of tables
StatementParser = Callable[[str, str, int], Iterable[MirrorChange]]
# database -> its mirrored tables
ListTables = Callable[[str], Iterable[str]]


def steps(
    entries: Iterable[RawEntry], read: StatementParser, mirrored: ListTables
) -> dict[TableName, list[Step]]:
    """Returns the steps by table, tables in the order of their first step.

    Raises `BinlogError` UNSUPPORTED_CHANGE for a statement that cannot be parsed, and if one transaction holds two
    layouts of a table, whose versions would be equal.
    """
    plan: dict[TableName, list[Step]] = {}
    for entry in sorted(entries, key=lambda entry: entry.number):
        if entry.ddl:
            for change in read(entry.ddl, entry.database, entry.sql_mode):
                statement = Statement(entry.epoch, entry.last_seq, change, entry.ddl, entry.place)
                for table in _tables(change, plan, mirrored):
                    plan.setdefault(table, []).append(statement)
        else:
            _add(plan.setdefault((entry.database, entry.table), []), entry)
    for table, table_steps in plan.items():
        _check(table, table_steps)
    return plan


def _tables(
    change: MirrorChange, plan: dict[TableName, list[Step]], mirrored: ListTables
) -> Iterator[TableName]:
    if change.table:
        yield change.database, change.table
        return
    planned = [table for database, table in plan if database == change.database]
    for table in dict.fromkeys((*planned, *mirrored(change.database))):
        yield change.database, table


def _add(table_steps: list[Step], entry: RawEntry) -> None:
    last = table_steps[-1] if table_steps else None
    if not isinstance(last, RowRun) or (last.epoch, last.layout) != (entry.epoch, entry.layout):
        last = RowRun(entry.epoch, entry.last_seq, entry.layout, entry.table_map)
        table_steps.append(last)
    last.seq = max(last.seq, entry.last_seq)
    last.entries.append(entry.number)
    last.rows += entry.rows
    last.payload_bytes += entry.payload_bytes


def _check(table: TableName, table_steps: list[Step]) -> None:
    for step, following in pairwise(table_steps):
        if (step.epoch, step.seq) < (following.epoch, following.seq):
            continue
        # Several statements of one transaction (DROP TABLE t, t) have the same effect on the table.
        if isinstance(step, Statement) and isinstance(following, Statement):
            continue
        raise BinlogError(
            ErrorKind.UNSUPPORTED_CHANGE,
            f"one transaction (seq {following.seq}) holds two layouts of {table[0]}.{table[1]}",
        )
