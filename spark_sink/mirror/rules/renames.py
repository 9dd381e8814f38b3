"""Computes how a RENAME TABLE changes names and records. An lsn is the number of the statement in the mirror's log.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from spark_sink.mirror.rules.records import name_at, renamed
from spark_sink.mirror.rules.states import Creating
from spark_sink.mirror.rules.table_record import Move, TableRecord
from spark_sink.mirror.rules.transitions import copied_again, in_copy
from spark_sink.mirror.values.names import TableName, folder_name


def folder_of(name: TableName) -> str:
    """Returns the folder of a table, below the target."""
    return "/".join(map(folder_name, name))


def names_after(
    names: Iterable[TableName], pairs: Sequence[tuple[TableName, TableName]]
) -> dict[TableName, TableName]:
    """Returns, by its old name, the name that each table of `names` has after the renames `pairs`. The renames are
    executed one after the other."""
    now = {name: name for name in names}
    for old, new in pairs:
        for origin, name in now.items():
            if name == old:
                now[origin] = new
                break
    return now


def _origins_after(pairs: Sequence[tuple[TableName, TableName]]) -> dict[TableName, TableName]:
    """Returns the tables that a statement renames: a mapping from the name before the statement to the name after
    it."""
    # If a pair before this pair gave a table the name `old`, this pair renames that table again. Then `old` is not the
    # name that the table had before the statement.
    origins = [old for n, (old, _) in enumerate(pairs) if old not in {new for _, new in pairs[:n]}]
    return names_after(origins, pairs)


def misses(record: TableRecord, pairs: Sequence[tuple[TableName, TableName]], lsn: int) -> bool:
    """True if the RENAME at `lsn` concerns the table but has not changed its record: when the rules had to execute the
    statement, the log had lost it."""
    name = name_at(record, lsn)
    concerned = [
        old for old, new in _origins_after(pairs).items() if old != new and name in (old, new)
    ]
    return bool(concerned) and all(former.until != lsn for former in record.names)


@dataclass(frozen=True, slots=True)
class Crossings:
    """The tables that a RENAME moves from mirrored to excluded names, or from excluded to mirrored names.

    `leaving`: the old names of mirrored tables that get excluded names; `arriving`: the new names of tables that had
    excluded names.
    """

    leaving: tuple[TableName, ...]
    arriving: tuple[TableName, ...]


def crossings(
    pairs: Sequence[tuple[TableName, TableName]], excluded: Callable[[TableName], bool]
) -> Crossings:
    """Returns the tables that a RENAME moves from excluded to mirrored names, or from mirrored to excluded names."""
    after = _origins_after(pairs)
    return Crossings(
        tuple(old for old, new in after.items() if excluded(new) and not excluded(old)),
        tuple(new for old, new in after.items() if excluded(old) and not excluded(new)),
    )


def names_in_the_way(
    tables: dict[TableName, TableRecord], pairs: Sequence[tuple[TableName, TableName]]
) -> list[TableName]:
    """Returns the names that the statement gives to a table although another table of `tables` has the name and is not
    renamed. This other table does not exist on the server. `tables`: the tables before the statement, by name; dropped
    tables are included.

    Examples of such a table are one whose DROP TABLE was purged before it was read, and one whose copy was requested
    before the server gave the requested name to another table.
    """
    after = names_after((n for n, record in tables.items() if not record.is_dropped), pairs)
    got = {new for old, new in after.items() if old != new}
    return [name for name, new in after.items() if name == new and name in got]


def names_of_unknown(
    tables: dict[TableName, TableRecord], pairs: Sequence[tuple[TableName, TableName]]
) -> list[TableName]:
    """Returns the names that the statement gives to tables without a record. `tables`: by name, before the statement,
    dropped ones included."""
    existing = {name for name, record in tables.items() if not record.is_dropped}
    return [new for old, new in _origins_after(pairs).items() if old != new and old not in existing]


def records_after(
    tables: dict[TableName, TableRecord], pairs: Sequence[tuple[TableName, TableName]], lsn: int
) -> list[TableRecord]:
    """Returns the changed records. `tables`: by name, before the statement, dropped ones included. `names_in_the_way`
    must return nothing for them.

    A table that is being copied begins its copy again, because the copier reads rows by the table's name: some of the
    copied rows may come from the table that has this name now. If a renamed table gets the folder of a dropped table,
    the dropped table's record loses the folder.
    """
    existing = {name: record for name, record in tables.items() if not record.is_dropped}
    after = names_after(existing, pairs)
    changed = []
    for old, new in after.items():
        if old == new:
            continue
        record = renamed(existing[old], new, lsn)
        lies_at = record.lies_at
        if isinstance(record.state, Creating) or in_copy(record, lsn):
            record = replace(copied_again(record), from_lsn=lsn)
        elif record.is_live:
            record = replace(record, from_lsn=lsn)
        if record.folder:
            record = replace(record, move=Move(lies_at), folder=folder_of(new))
        changed.append(record)
    # A renamed table owns the folder of its new name even if it has no Delta table yet.
    taken = {folder_of(record.name) for record in changed}
    dropped = (record for record in tables.values() if record.is_dropped)
    lost = (record for record in dropped if record.folder in taken)
    return changed + [replace(record, folder="", move=None) for record in lost]
