"""The commands `copy` and `verify`. `copy` only requests copies; the application that applies the consumer makes
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.names import folded_name
from dispatcher.mysql.answers import ask, text_value
from dispatcher.mysql.server_facts import lower_case_table_names
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.lake.control_table import ControlTable
from spark_sink.mirror.values.names import TableName, fits_pattern, table_label
from spark_sink.mirror.values.settings import CopySettings, MirrorSettings
from spark_sink.mirror.verify.verify import TableDifference, VerifyWatch, verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES
WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
AND TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')
"""


def copy_section(settings: MirrorSettings) -> CopySettings:
    """Returns the settings of copies. Raises `UserError` if the settings name no server to copy from."""
    if settings.copy_from is None:
        raise UserError(
            ErrorKind.SETTINGS,
            "the settings name no server to read tables from",
            remedy="add the section copy with mysql and password_file, and pass the file with --config",
        )
    return settings.copy_from


def require_proofs(settings: MirrorSettings) -> None:
    """Raises `UserError` if a job with these settings compares no tables with the server."""
    copy_section(settings)
    if not settings.prove.rows_per_second:
        raise UserError(
            ErrorKind.SETTINGS,
            "the settings let the job compare nothing with the server: prove.rows_per_second is 0",
            remedy="set it to the largest number of rows per second that may be read from the server, such as 1000",
        )


def run_copy(
    spark: SparkSession, settings: MirrorSettings, patterns: Sequence[str], consumer: str = ""
) -> list[TableName]:
    """Request copies of the server's tables that fit a pattern. Returns the names of these tables.

    The job that applies the tables' consumer makes the copies: at once if the job runs, otherwise when it runs next.
    This function creates no records of tables, because the job may at the same time create a record for one of the
    names. `consumer`: the consumer of tables that the mirror does not have yet, "" if only one consumer includes them.
    Tables that their consumer leaves out are not copied. Raises `UserError` if no table fits a pattern, if a pattern is
    the name of a table that is left out, if all tables are left out, or if several consumers include a table and
    `consumer` is "".
    """
    server = CopyServer.of_settings(copy_section(settings))
    with server.session() as connection:
        value = lower_case_table_names(connection)
        shown = ask(connection, _TABLES, lambda row: (text_value(row[0]), text_value(row[1])))
    names = [(folded_name(database, value), folded_name(table, value)) for database, table in shown]
    settings = settings.with_server_names(dict.fromkeys(settings.consumers, value))
    patterns = [folded_name(text, value) for text in patterns]
    control = ControlTable(spark, settings.target)
    owners = {
        record.name: record.consumer
        for record in control.records().values()
        if not record.is_dropped
    }
    chosen = mirrored_names(settings, _fitting(names, patterns), patterns, owners, consumer)
    control.request_copies(
        [(owners.get(name) or consumer or _consumer_of(settings, name), name) for name in chosen]
    )
    return chosen


def _fitting(names: Sequence[TableName], patterns: Sequence[str]) -> list[TableName]:
    labels = {name: table_label(name) for name in names}
    for pattern in patterns:
        if not any(fits_pattern(label, pattern) for label in labels.values()):
            raise UserError(
                ErrorKind.UNKNOWN_TABLE,
                f"no table fits {pattern!r}",
                remedy="write a name like database.table, or a pattern like 'shop.*'",
            )
    return sorted(
        name for name, label in labels.items() if any(fits_pattern(label, p) for p in patterns)
    )


def mirrored_names(
    settings: MirrorSettings,
    names: Sequence[TableName],
    patterns: Sequence[str],
    owners: Mapping[TableName, str],
    consumer: str,
) -> list[TableName]:
    """Returns the names of the tables that their consumer mirrors. The consumer of a table is its consumer in `owners`,
    else `consumer`; if `consumer` is "", it is enough that any consumer mirrors the table.

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


def _consumer_of(settings: MirrorSettings, name: TableName) -> str:
    fits = [key for key, consumer in settings.consumers.items() if not consumer.excludes(name)]
    if len(fits) == 1:
        return fits[0]
    raise UserError(
        ErrorKind.REQUEST,
        f"table {table_label(name)} can be of {len(fits)} consumers: {', '.join(fits)}",
        remedy="name the consumer with --consumer",
    )


def run_verify(
    spark: SparkSession,
    settings: MirrorSettings,
    patterns: Sequence[str],
    *,
    wait_s: float,
    watch: VerifyWatch,
) -> list[TableDifference]:
    """Compare the mirror's tables that fit a pattern with the server; without patterns, compare all tables that their
    consumers mirror."""
    section = copy_section(settings)
    with CopyServer.of_settings(section).session() as connection:
        value = lower_case_table_names(connection)
    settings = settings.with_server_names(dict.fromkeys(settings.consumers, value))
    patterns = [folded_name(text, value) for text in patterns]
    server = CopyServer.of_settings(section, settings.omitted_columns, settings.has_all_versions)
    existing = [
        record
        for record in ControlTable(spark, settings.target).records().values()
        if not record.is_dropped
    ]
    mirrored = {r.name for r in existing if not settings.excludes(r.consumer, r.name)}
    chosen = _fitting([r.name for r in existing], patterns) if patterns else sorted(mirrored)
    return verify(
        spark,
        server,
        settings.target,
        chosen,
        watch=watch,
        wait_s=wait_s,
        invalid_dates=settings.invalid_dates,
    )
