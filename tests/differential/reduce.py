"""Makes a failing table smaller as long as it fails, and prints it as SQL that reproduces the failure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.differential.tables import Delete, Insert, Step, Table, Undone, Update

Fails = Callable[[Table], bool]


def reduced(table: Table, fails: Fails, *, seconds: float) -> Table:
    """Returns the smallest failing table that was found within `seconds`. If the search has ended before, every further
    cut of `_smaller` gives a table that passes."""
    until = time.monotonic() + seconds
    done = False
    while not done:
        done = True
        for smaller in _smaller(table):
            if time.monotonic() > until:
                return table
            if fails(smaller):
                table, done = smaller, False
                break
    return table


def _smaller(table: Table) -> Iterator[Table]:
    """Yields tables with one part less, large parts first."""
    for i in range(len(table.transactions)):
        rest = table.transactions[:i] + table.transactions[i + 1 :]
        if rest:
            yield replace(table, transactions=rest)
    others = [column.name for column in table.columns if column.name != table.rid]
    for removed in (others[::2], others[1::2], *([name] for name in others)):
        if removed:
            yield _without(table, removed)
    for i, steps in enumerate(table.transactions):
        for cut in _cuts(steps):
            yield replace(
                table, transactions=table.transactions[:i] + (cut,) + table.transactions[i + 1 :]
            )
    yield from _plainer(table)


def _plainer(table: Table) -> Iterator[Table]:
    """Yields tables with one clause, setting or change less."""
    if table.keys:
        yield replace(table, keys=())
    if len(table.primary) > 1:
        yield replace(table, primary=(table.rid,))
    for column in table.columns:
        if column.clauses and column.written and column.name != table.rid:
            other = tuple(replace(c, clauses="") if c is column else c for c in table.columns)
            yield replace(table, columns=other)
    if table.engine != "InnoDB":
        yield replace(table, engine="InnoDB")
    if table.name != "t":
        yield replace(table, name="t")
    for i, column in enumerate(table.columns):
        plain = "id" if column.name == table.rid else f"c{i}"
        if column.name != plain:
            yield _renamed(table, column.name, plain)


def _without(table: Table, names: list[str]) -> Table:
    removed = set(names)

    def step(change: Step) -> Step | None:
        if isinstance(change, Insert):
            kept = [i for i, name in enumerate(change.columns) if name not in removed]
            rows = tuple(tuple(row[i] for i in kept) for row in change.rows)
            return replace(change, columns=tuple(change.columns[i] for i in kept), rows=rows)
        if isinstance(change, Update):
            values = tuple(value for value in change.values if value[0] not in removed)
            return replace(change, values=values) if values else None
        if isinstance(change, Undone):
            inner = step(change.step)
            return Undone(inner) if isinstance(inner, (Update, Delete)) else None
        return change

    transactions = []
    for steps in table.transactions:
        kept = tuple(shorter for change in steps if (shorter := step(change)) is not None)
        if kept:
            transactions.append(kept)
    return replace(
        table,
        columns=tuple(column for column in table.columns if column.name not in removed),
        primary=tuple(name for name in table.primary if name not in removed),
        keys=(),
        transactions=tuple(transactions),
    )


def _cuts(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    for i, change in enumerate(steps):
        if len(steps) > 1:
            yield steps[:i] + steps[i + 1 :]
        for smaller in _cut(change):
            yield steps[:i] + (smaller,) + steps[i + 1 :]


def _cut(step: Step) -> Iterator[Step]:
    if isinstance(step, Undone):
        yield step.step
    elif isinstance(step, (Update, Delete)):
        if len(step.rids) > 1:
            yield from (replace(step, rids=(number,)) for number in step.rids)
        if isinstance(step, Update) and len(step.values) > 1:
            for i in range(len(step.values)):
                yield replace(step, values=step.values[:i] + step.values[i + 1 :])
    elif len(step.rows) > 1:
        half = len(step.rows) // 2
        yield replace(step, rows=step.rows[:half])
        yield replace(step, rows=step.rows[half:])
    else:
        (row,) = step.rows
        for i, value in enumerate(row):
            if value != "NULL" and not value.isdigit():
                yield replace(step, rows=((*row[:i], "NULL", *row[i + 1 :]),))


def _renamed(table: Table, old: str, new: str) -> Table:
    def renamed(name: str) -> str:
        return new if name == old else name

    def step(change: Step) -> Step:
        if isinstance(change, Insert):
            return replace(change, columns=tuple(map(renamed, change.columns)))
        if isinstance(change, Update):
            values = tuple((renamed(column), value) for column, value in change.values)
            return replace(change, rid=renamed(change.rid), values=values)
        if isinstance(change, Undone):
            inner = step(change.step)
            return Undone(inner) if isinstance(inner, (Update, Delete)) else change
        return replace(change, rid=renamed(change.rid))

    columns = tuple(
        replace(
            column,
            name=renamed(column.name),
            clauses=column.clauses if column.written else column.clauses.replace(f"`{old}`", f"`{new}`"),
        )
        for column in table.columns
    )  # fmt: skip
    transactions = tuple(tuple(map(step, steps)) for steps in table.transactions)
    return replace(
        table,
        rid=renamed(table.rid),
        columns=columns,
        primary=tuple(map(renamed, table.primary)),
        keys=(),
        transactions=transactions,
    )
