"""The commands `resolve`, `repair` and `copy`. They write requests into the control table. The application that applies
a consumer executes the requests for the consumer's tables: at once if the application runs, otherwise at its next
start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.names import folded_name
from dispatcher.mysql.answers import Row, ask, number_value, text_value
from dispatcher.mysql.server_facts import lower_case_table_names
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.rules.chosen_tables import (
    consumer_of,
    fitting_names,
    mirrored_names,
    repairable,
    resolvable,
    without_complete,
)
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.omitted import changed_masks
from spark_sink.mirror.rules.table_record import TableRecord, Wish
from spark_sink.mirror.values.names import TableName, table_label
from spark_sink.mirror.values.settings import MirrorSettings, copy_section

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
"""


def _name_and_rows(row: Row) -> tuple[str, str, int]:
    """Returns an answer of `_TABLES`, with the server's estimate of the rows."""
    return text_value(row[0]), text_value(row[1]), 0 if row[2] is None else number_value(row[2])


class RequestTable(Protocol):
    """The control table, with Spark (`ControlTable`) or without it (`LocalControl`)."""

    def rows(self) -> ControlRows: ...
    def request(self, table_id: str, wish: Wish) -> None: ...
    def request_copies(self, tables: Iterable[tuple[str, TableName]]) -> None: ...


def require_job_with_masks(
    rows: ControlRows, settings: MirrorSettings, changed_at: datetime, names: Iterable[TableName]
) -> None:
    """Raises `UserError` if the settings mask columns of one of the tables, and the job that would copy the table was
    started before the settings were changed: it would copy the rows with its own settings. `changed_at`: when the files
    of the settings were changed."""
    owners = {r.name: r.consumer for r in rows.records.values() if not r.is_dropped}
    for name in names:
        began = rows.claimed.get(owners.get(name, ""))
        if began is None or began > changed_at or not settings.table_policy(name).masks:
            continue
        raise UserError(
            ErrorKind.SETTINGS,
            f"the settings mask columns of {table_label(name)}, and were changed at {changed_at:%H:%M:%S} UTC, but the"
            f" job of the consumer {owners[name]} was started at {began:%H:%M:%S}, with the settings of that time",
            remedy="start the job again, so that it masks the columns, and repeat the command",
        )


def request_resolution(
    control: RequestTable,
    patterns: Sequence[str],
    wish: Wish,
    require: Callable[[ControlRows, Iterable[TableName]], None] = lambda *_: None,
) -> list[TableRecord]:
    """Request a resolution of tables. Returns the tables that the request concerns. Raises `UserError` as `resolvable`
    does. `require`: called with the tables that will be copied; it raises `UserError` if they must not be."""
    rows = control.rows()
    chosen = resolvable(rows, patterns, wish)
    if wish is Wish.RECOPY:
        require(rows, [record.name for record in chosen])
    for record in chosen:
        control.request(record.table_id, wish)
    return chosen


def request_repair(control: RequestTable, patterns: Sequence[str]) -> list[TableRecord]:
    """Request that tables are compared with the server, and that rows that differ are rewritten. Returns the tables.
    Raises `UserError` as `repairable` does."""
    chosen = repairable(control.rows().records.values(), patterns)
    for record in chosen:
        control.request(record.table_id, Wish.REPAIR)
    return chosen


@dataclass(frozen=True, slots=True)
class RequestedCopies:
    """`chosen`: the tables whose copies were requested; `complete`: the tables that were left out because they are
    complete; `rows_estimated`: for each chosen table, the server's estimate of its rows."""

    chosen: list[TableName]
    complete: list[TableName]
    rows_estimated: dict[TableName, int]


def request_copies(
    control: RequestTable,
    settings: MirrorSettings,
    patterns: Sequence[str],
    consumer: str = "",
    *,
    again: bool = False,
    require: Callable[[ControlRows, Iterable[TableName]], None] = lambda *_: None,
) -> RequestedCopies:
    """Request copies of the server's tables that fit a pattern.

    The job that applies the tables' consumer makes the copies: at once if the job runs, otherwise when it runs next.
    This function creates no records of tables, because the job may at the same time create a record for one of the
    names. `consumer`: the consumer of the tables that the mirror does not have yet, "" if only one consumer includes
    them; `again`: False to leave out a complete table whose masks are those of the settings, unless a pattern is its
    whole name; `require`: as of `request_resolution`. A table that its consumer's settings leave out is not copied.
    Raises `UserError` if no table fits a pattern, if a pattern is the whole name of a table that the settings leave
    out, if the settings leave out all tables that fit, or if several consumers include a table and `consumer` is "".
    """
    server = CopyServer.of_settings(copy_section(settings))
    with server.session() as connection:
        value = lower_case_table_names(connection)
        shown = ask(connection, _TABLES, _name_and_rows)
    estimates = {
        (folded_name(database, value), folded_name(table, value)): rows
        for database, table, rows in shown
    }
    names = list(estimates)
    settings = settings.with_server_names(dict.fromkeys(settings.consumers, value))
    patterns = [folded_name(text, value) for text in patterns]
    rows = control.rows()
    records = [record for record in rows.records.values() if not record.is_dropped]
    owners = {record.name: record.consumer for record in records}
    named = mirrored_names(settings, fitting_names(names, patterns), patterns, owners, consumer)
    current = [r for r in records if not changed_masks(r.signature, settings.table_policy(r.name))]
    chosen = named if again else without_complete(named, patterns, current)
    require(rows, chosen)
    if chosen:
        control.request_copies(
            [(owners.get(name) or consumer or consumer_of(settings, name), name) for name in chosen]
        )
    complete = [name for name in named if name not in chosen]
    return RequestedCopies(chosen, complete, {name: estimates[name] for name in chosen})
