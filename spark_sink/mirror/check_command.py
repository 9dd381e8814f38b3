"""The command `check`: what `run` would fail at, where the target has values that the settings mask, and which columns
that the settings mask or leave out do not exist."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.names import folded_name
from dispatcher.model.nearest import did_you_mean
from dispatcher.model.subscription import is_pattern
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.server_facts import lower_case_table_names
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.lake.local_control import local_target
from spark_sink.mirror.rules.omitted import has_column, lacking_text
from spark_sink.mirror.values.names import fits_pattern, own_path, table_label
from spark_sink.mirror.values.settings import NAMING_KEYS, MirrorSettings, NamingKey
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.options import SourceOptions
from spark_sink.source.table_rows.column_names import read_column_names

RETRY_S = 5  # how long `check` waits for a daemon that does not answer; `run` waits for `retry_timeout_seconds`
_OTHERS = 0o077  # the permissions of all but the owner


@dataclass(slots=True)
class Findings:
    """`masked`: the masked columns as in the settings, with their masks. Each warning and error is one line."""

    masked: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def check_mirror(settings: MirrorSettings) -> Findings:
    """Ask the daemon for each consumer, log in to the server of the copies, compare the columns that the settings name
    with the server's tables, and list the masked columns. Does not start Spark, and does not change which reader has a
    consumer."""
    found = Findings()
    refusals = (_refusal(settings, consumer, RETRY_S) for consumer in settings.consumers)
    found.errors += (str(error) for error in refusals if error is not None)
    naming = _naming(settings)
    if settings.copy_from is not None:
        try:
            with CopyServer.of_settings(settings.copy_from).session() as connection:
                if naming:
                    _check_columns(connection, settings, found)
        except BinlogError as error:
            found.errors.append(f"copy: {error}")
    elif naming:
        keys = " and ".join(sorted({key for _, key, _ in naming}))
        found.warnings.append(
            f"the columns that {keys} names were not compared with the tables: the settings have no section copy, which"
            " names a server to ask"
        )
    found.masked = [
        f"{table}.{column} ({form})"
        for table, section in settings.tables.items()
        for column, form in (section.mask or {}).items()
    ]
    if found.masked:
        found.warnings.append(_unmasked_log(settings))
    return found


def require_consumer(settings: MirrorSettings) -> None:
    """Raises `UserError` if the daemon knows none of the consumers: the job would wait for them for ever. Returns if it
    knows one, or does not answer."""
    error: BinlogError | None = None
    for consumer in settings.consumers:
        error = _refusal(settings, consumer, retry_s=1)
        if error is None or error.kind is not ErrorKind.UNKNOWN_CONSUMER:
            return
    if error is not None:
        raise UserError(error.kind, error.what, where=error.where, remedy=error.remedy) from error


def _refusal(settings: MirrorSettings, consumer: str, retry_s: int) -> BinlogError | None:
    """Asks the daemon for a session that reads nothing and fences no reader. Returns its error, None for none.
    `retry_s`: how long to wait for a daemon that does not answer."""
    impatient = settings.model_copy(update={"retry_timeout_seconds": retry_s})
    options = SourceOptions.parse(impatient.source_options(consumer))
    with closing(ConsumerClient(options.address, consumer)) as client:
        try:
            client.open_session(None, read_only=True)
        except BinlogError as error:
            return error
    return None


def _naming(settings: MirrorSettings) -> list[tuple[str, NamingKey, list[str]]]:
    """Returns the columns that the settings mask or leave out, with the pattern of tables and the key."""
    return [
        (pattern, key, list(columns))
        for pattern, section in settings.tables.items()
        for key in NAMING_KEYS
        if (columns := getattr(section, key))
    ]


def _check_columns(connection: Connection, settings: MirrorSettings, found: Findings) -> None:
    """Add an error for each column that the settings mask or leave out and that no table has, and a warning for what
    the account does not see. Raises `BinlogError`."""
    value = lower_case_table_names(connection)
    settings = settings.with_server_names(dict.fromkeys(settings.consumers, value))
    tables = {
        (folded_name(database, value), folded_name(table, value)): columns
        for (database, table), columns in read_column_names(connection).items()
    }
    for pattern, key, named in _naming(settings):
        where = f"tables.{pattern}.{key}"
        fits = [name for name in tables if settings.naming_pattern(name, key) == pattern]
        if not fits:
            labels = [table_label(name) for name in tables]
            found.warnings.append(f"{where}: {_why_none(pattern, key, labels)}")
            continue
        known = list(dict.fromkeys(column for name in fits for column in tables[name].names))
        one = len(fits) == 1
        subject = (
            f"table {table_label(fits[0])} has no" if one else f"no table that fits {pattern} has a"
        )
        partial = any(tables[name].partial for name in fits)
        for column in named:
            if has_column(column, known):
                continue
            text = f"{where}: {lacking_text(subject, key, column, known)}"
            if partial:  # the column may be one that the account does not see
                found.warnings.append(
                    f"{text} (the account sees only some columns; GRANT SELECT on the table)"
                )
            else:
                found.errors.append(text)


def _why_none(pattern: str, key: NamingKey, labels: Sequence[str]) -> str:
    """Returns why a pattern's value of `key` concerns no table. `labels`: the tables that the account sees."""
    if any(fits_pattern(label, pattern) for label in labels):
        return f"it has no effect, because an earlier pattern of tables sets {key} for the same tables; move it up"
    hint = "" if is_pattern(pattern) else did_you_mean(pattern, labels)
    return (
        f"the account sees no table that fits {pattern}, so its columns were not checked"
        f"{hint or '; correct the name, or GRANT SELECT on the table'}"
    )


def _unmasked_log(settings: MirrorSettings) -> str:
    """Returns what a person must know about the log of a mirror that masks columns."""
    path = own_path(settings.target, "log")
    days = f"{settings.log_days} day{'s' if settings.log_days != 1 else ''}"
    text = (
        f"{path} has the values of masked columns as the server sends them, for {days} (log_days)"
    )
    do = ["let only those read it who may see them", "encrypt the storage"]
    if settings.log_days > 1:
        do.insert(1, "set log_days: 1")
    local = local_target(path)
    if local is not None and _others_may_read(local):
        do[0] = f"others can read it now: chmod go= {local}"
    return f"{text}; {', '.join(do)} (docs/masks.md)"


def _others_may_read(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & _OTHERS)
    except OSError:
        return False
