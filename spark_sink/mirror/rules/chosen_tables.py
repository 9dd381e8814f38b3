"""Determines which tables a person's command concerns: by patterns, by the tables' states, and by the settings.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.names import folded_name
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.states import LeftOut, Stopped, TableState
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.values.names import TableName, fits_pattern, table_label
from spark_sink.mirror.values.settings import MirrorSettings

# The requests that let a stopped table continue.
RESOLUTIONS = (Wish.APPLIED, Wish.SKIP, Wish.RETRY, Wish.RECOPY, Wish.PARTIAL)


def selected(records: Iterable[TableRecord], patterns: Sequence[str]) -> list[TableRecord]:
    """Returns, sorted, the tables whose database.table fits one of the patterns, or all tables if there are no
    patterns. Dropped tables are left out.

    Raises `UserError` for a pattern that fits no table.
    """
    tables = sorted(
        (record for record in records if not record.is_dropped),
        key=lambda record: (record.consumer, record.name),
    )
    for pattern in patterns:
        if not any(fits_pattern(record.label, pattern) for record in tables):
            raise UserError(
                ErrorKind.UNKNOWN_TABLE,
                f"no table of the mirror fits {pattern!r}{_in_lower_case(tables, pattern)}",
                remedy="python -m spark_sink tables shows the tables; write a name like database.table",
            )
    fits = [r for r in tables if any(fits_pattern(r.label, pattern) for pattern in patterns)]
    return fits if patterns else tables


def _in_lower_case(tables: Iterable[TableRecord], pattern: str) -> str:
    """Returns, as a part of a message, which tables would fit the pattern if case was ignored; "" if none would."""
    folded = folded_name(pattern, 1)
    fits = [r.label for r in tables if fits_pattern(folded_name(r.label, 1), folded)]
    return f", but without case {', '.join(fits[:3])}" if fits else ""


def resolvable(rows: ControlRows, patterns: Sequence[str], wish: Wish) -> list[TableRecord]:
    """Returns the tables that fit a pattern and that the request `wish`, one of `RESOLUTIONS`, concerns.

    Raises `UserError` for a pattern that no table fits, and if no table is in a state that `wish` resolves. For a
    history, RECOPY is the only resolution, and the pattern must be the history's own name.
    """
    chosen = selected(_tables_and_histories(rows, patterns), patterns)
    left_out = [record for record in chosen if isinstance(record.state, LeftOut)]
    if left_out and (len(left_out) == len(chosen) or any(r.label in patterns for r in left_out)):
        raise UserError(
            ErrorKind.REQUEST,
            f"the settings leave out {', '.join(record.label for record in left_out)}",
            remedy="change include or exclude of the consumer in the mirror's settings, and start the job again",
        )
    chosen = [record for record in chosen if record not in left_out]
    if wish is not Wish.RECOPY:
        chosen = [record for record in chosen if record.word is TableState.STOPPED]
    if wish is not Wish.RECOPY and any(record.history for record in chosen):
        raise UserError(
            ErrorKind.REQUEST,
            f"a history cannot continue as {wish}",
            remedy="--as recopy: its current versions become the rows that the table has now",
        )
    if not chosen:
        raise UserError(
            ErrorKind.REQUEST,
            f"no table that fits {', '.join(patterns)} is stopped",
            remedy="python -m spark_sink tables shows the states",
        )
    return chosen


def repairable(records: Iterable[TableRecord], patterns: Sequence[str]) -> list[TableRecord]:
    """Returns the tables that fit a pattern and whose rows can be repaired.

    Raises `UserError` for a pattern that no table fits, and if no table that fits is complete, or is stopped because it
    differs.
    """
    chosen = [record for record in selected(records, patterns) if _may_repair(record)]
    if not chosen:
        raise UserError(
            ErrorKind.REQUEST,
            f"no table that fits {', '.join(patterns)} is complete, or stopped because its rows differ",
            remedy="python -m spark_sink tables shows the states, and what to do about a stopped table",
        )
    return chosen


def _may_repair(record: TableRecord) -> bool:
    differs = isinstance(record.state, Stopped) and record.state.differs
    return differs or record.word is TableState.COMPLETE


def _tables_and_histories(rows: ControlRows, patterns: Sequence[str]) -> list[TableRecord]:
    """Returns the tables that fit a pattern, and the histories whose own names are patterns."""
    named = {pattern for pattern in patterns if "*" not in pattern}
    return [*rows.records.values(), *(r for r in rows.histories.values() if r.label in named)]


def without_complete(
    names: Sequence[TableName], patterns: Sequence[str], records: Iterable[TableRecord]
) -> list[TableName]:
    """Returns the names, without those of complete tables. A complete table is kept if one of the patterns is its whole
    name."""
    complete = {record.name for record in records if record.word is TableState.COMPLETE}
    return [name for name in names if name not in complete or table_label(name) in patterns]


def fitting_names(names: Sequence[TableName], patterns: Sequence[str]) -> list[TableName]:
    labels = {name: table_label(name) for name in names}
    for pattern in patterns:
        if not any(fits_pattern(label, pattern) for label in labels.values()):
            raise _fits_none(pattern)
    return sorted(
        name for name, label in labels.items() if any(fits_pattern(label, p) for p in patterns)
    )


def require_fits(names: Iterable[TableName], patterns: Sequence[str]) -> None:
    """Raises `UserError` for a pattern that fits no name even without case. Whether case counts, only the server
    knows."""
    folded = [folded_name(table_label(name), 1) for name in names]
    for pattern in patterns:
        if not any(fits_pattern(label, folded_name(pattern, 1)) for label in folded):
            raise _fits_none(pattern)


def _fits_none(pattern: str) -> UserError:
    return UserError(
        ErrorKind.UNKNOWN_TABLE,
        f"no table fits {pattern!r}",
        remedy="write a name like database.table, or a pattern like 'shop.*'",
    )


def mirrored_names(
    settings: MirrorSettings,
    names: Sequence[TableName],
    patterns: Sequence[str],
    owners: Mapping[TableName, str],
    consumer: str,
) -> list[TableName]:
    """Returns the names of the tables that their consumer mirrors. The consumer of a table is the one in `owners`, or
    `consumer` if `owners` lacks the table. If `consumer` is "", it is enough that any consumer mirrors the table.

    Raises `UserError` if a pattern is the name of a table that is left out, or if all tables are left out.
    """

    def is_left_out(name: TableName) -> bool:
        owner = owners.get(name, consumer)
        consumers = [owner] if owner else settings.consumers
        return all(settings.excludes(key, name) for key in consumers)

    left_out = [name for name in names if is_left_out(name)]
    named = [name for name in left_out if table_label(name) in patterns]
    if refused := named or (left_out if len(left_out) == len(names) else []):
        raise UserError(
            ErrorKind.REQUEST,
            f"the settings leave out {', '.join(map(table_label, refused))}",
            remedy="change include or exclude of the consumer in the mirror's settings, and start the job again",
        )
    return [name for name in names if name not in left_out]


def consumer_of(settings: MirrorSettings, name: TableName) -> str:
    fits = [key for key, consumer in settings.consumers.items() if not consumer.excludes(name)]
    if len(fits) == 1:
        return fits[0]
    raise UserError(
        ErrorKind.REQUEST,
        f"table {table_label(name)} can be of {len(fits)} consumers: {', '.join(fits)}",
        remedy="name the consumer with --consumer",
    )
