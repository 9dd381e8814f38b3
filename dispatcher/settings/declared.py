"""The rules for consumers that tokens declare over the API: which consumers the settings permit, and which settings
apply to a declared consumer.

A source of the settings (`SourceSettings`) limits the names of its consumers, the databases and tables that these
consumers read, and the number of these consumers. The daemon checks names and numbers once, when a consumer is
declared. It checks databases and tables also at each start and reload: a declared consumer whose tables the settings no
longer permit stays stored, but does not run.

`load` refuses settings with a consumer whose name a token may declare. If a reload adds a consumer with the name of a
declared consumer, the daemon removes the declared consumer and runs the consumer of the settings, because a token must
not block a consumer of the settings.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import ValidationError

from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.subscription import NamePatterns, TablePattern, covers, covers_database
from dispatcher.settings.model import (
    ConsumerSettings,
    DeclaredConsumer,
    Settings,
    SourceSettings,
    StartSettings,
    TablePatternSettings,
)

DAY_S = 86_400


class Running(NamedTuple):
    """`settings`: the settings, with the declared consumers among `consumers`; `refused`: the declared consumers that
    do not run, each with the reason; `replaced`: the names of declared consumers that are also names of consumers in
    the settings."""

    settings: Settings
    refused: Mapping[str, UserError]
    replaced: tuple[str, ...]


def with_declared(settings: Settings, declared: Iterable[Declaration]) -> Running:
    """Returns the settings with all declared consumers that they permit."""
    consumers: dict[str, ConsumerSettings] = dict(settings.consumers)
    refused: dict[str, UserError] = {}
    replaced = []
    for declaration in declared:
        if declaration.name in settings.consumers:
            replaced.append(declaration.name)
            continue
        try:
            consumers[declaration.name] = declared_consumer(declaration, settings)
        except UserError as error:
            refused[declaration.name] = error
    return Running(settings.model_copy(update={"consumers": consumers}), refused, tuple(replaced))


def source_of(settings: Settings, permitted: Collection[str] | None, name: str | None) -> str:
    """Returns the name of the source in which a token declares a consumer.

    `permitted`: the sources of the token, None for all; `name`: the source that the request names, None if it names
    none. Raises UserError.
    """
    sources = [each for each in settings.sources if permitted is None or each in permitted]
    if name is None and len(sources) == 1:
        return sources[0]
    if name in sources:
        assert name is not None
        return name
    if not sources:
        what = "the settings have no source whose consumers this token may declare"
        remedy = "add the section sources to the daemon's settings, and the source to the token"
        raise UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)
    listed = ", ".join(sources)
    if name is None:
        what, remedy = "the request names no source", f"set source to one of {listed}"
        raise UserError(ErrorKind.REQUEST, what, remedy=remedy)
    what = f"the token may not declare consumers of the source {name!r}"
    raise UserError(ErrorKind.FORBIDDEN, what, remedy=f"set source to one of {listed}")


def admit(
    wanted: Declaration, declared: Mapping[str, Declaration], settings: Settings
) -> Declaration | None:
    """Returns the stored declaration that equals `wanted`; None if `wanted` is new and permitted.

    Raises UserError: CONSUMER_EXISTS if another consumer has the name, FORBIDDEN if the settings do not permit
    `wanted`.
    """
    existing = declared.get(wanted.name)
    if wanted.name in settings.consumers:
        what = f"the settings have a consumer {wanted.name}"
        raise UserError(ErrorKind.CONSUMER_EXISTS, what, remedy="choose another name")
    if existing is not None and existing.owner != wanted.owner:
        what = f"another token has declared a consumer {wanted.name}"
        raise UserError(ErrorKind.CONSUMER_EXISTS, what, remedy="choose another name")
    if existing is not None and not existing.same_content(wanted):
        differing = [
            f"{key} {json.dumps(existing.content[key])}, not {json.dumps(value)}"
            for key, value in wanted.content.items()
            if key != "start" and existing.content[key] != value
        ]
        what = f"consumer {wanted.name} is declared with {'; '.join(differing)}"
        raise UserError(ErrorKind.CONSUMER_EXISTS, what)
    declared_consumer(wanted, settings)
    if existing is None:
        _check_name(wanted, settings.sources[wanted.source])
        _check_number(wanted, declared.values(), settings.sources[wanted.source])
    return existing


def declared_consumer(declaration: Declaration, settings: Settings) -> DeclaredConsumer:
    """Returns the settings of a declared consumer. Raises UserError if the settings do not permit it."""
    source = settings.sources.get(declaration.source)
    if source is None:
        what = f"the settings have no source {declaration.source!r}"
        remedy = "name the source in the section sources again, or delete the consumer"
        raise UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)
    wanted = _tables(declaration)
    _check_databases(declaration, wanted.databases, source, settings)
    _check_tables(declaration, wanted, source)
    own = {
        "start": StartSettings.parse(json.loads(declaration.start)),
        "declared_by": declaration.owner,
        "excluded_by_source": source.excluded_patterns,
    }
    limits = {key: getattr(source, key) for key in source.model_fields_set & _SHARED}
    tables = {key: getattr(wanted, key) for key in TablePatternSettings.model_fields}
    return DeclaredConsumer.model_construct(**{**limits, **tables, **own})


_SHARED = (
    SourceSettings.model_fields.keys() & ConsumerSettings.model_fields.keys()
) - TablePatternSettings.model_fields.keys()


def consumer_of_all(source: SourceSettings) -> ConsumerSettings:
    """Returns the settings of a consumer that reads everything that a source permits."""
    keys = source.model_fields_set & ConsumerSettings.model_fields.keys()
    return ConsumerSettings.model_construct(**{key: getattr(source, key) for key in keys})


def expired(declared: Iterable[Declaration], settings: Settings, now_s: float) -> tuple[str, ...]:
    """Returns the names of the declared consumers that no reader has called for `max_days_unread`. A consumer does not
    expire if the settings no longer contain its source."""
    limits = {name: source.max_days_unread for name, source in settings.sources.items()}
    return tuple(
        each.name
        for each in declared
        if (days := limits.get(each.source, 0)) and now_s - each.read_s > days * DAY_S
    )


def _tables(declaration: Declaration) -> TablePatternSettings:
    values = {
        "databases": declaration.databases,
        "tables": declaration.tables,
        "exclude_tables": declaration.exclude_tables,
    }
    try:
        return TablePatternSettings.model_validate(values)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"]))
        text = str(detail.get("ctx", {}).get("error", detail["msg"]))
        what = f"{place}: {text}" if place else text
        raise UserError(ErrorKind.REQUEST, what) from None


def _check_databases(
    declaration: Declaration, wanted: Sequence[str], source: SourceSettings, settings: Settings
) -> None:
    state = settings.state.mysql
    for database in wanted:
        if state is not None and database == state.database:
            what = f"{database} is the database of the daemon's state"
            raise UserError(ErrorKind.FORBIDDEN, what, remedy="leave it out of databases")
        if not any(covers_database(allowed, database) for allowed in source.databases):
            raise _not_permitted(declaration, "databases", database, source.databases)


def _check_tables(
    declaration: Declaration, wanted: TablePatternSettings, source: SourceSettings
) -> None:
    patterns = wanted.table_patterns
    allowed = source.table_patterns
    if allowed is not None and patterns is None:
        what = f"sources.{declaration.source} permits only some tables, and the request names none"
        remedy = f"set tables to some of {', '.join(source.tables or ())}"
        raise UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)
    for text, (database, table) in zip(wanted.tables or (), patterns or (), strict=True):
        if allowed is not None and not _is_covered(database, table, allowed):
            raise _not_permitted(declaration, "tables", text, source.tables or ())
        if _is_covered(database, table, source.excluded_patterns):
            what = f"sources.{declaration.source}.exclude_tables excludes {text!r}"
            raise UserError(ErrorKind.FORBIDDEN, what, remedy="leave it out of tables")


def _is_covered(database: str, table: str, patterns: Iterable[TablePattern]) -> bool:
    """True if one of `patterns` matches every table that the patterns `database` and `table` match."""
    return any(
        covers(of_database, database) and covers(of_table, table)
        for of_database, of_table in patterns
    )


def _not_permitted(
    declaration: Declaration, key: str, text: str, allowed: Sequence[str]
) -> UserError:
    permitted = ", ".join(allowed)
    what = f"sources.{declaration.source}.{key} ({permitted}) does not permit {text!r}"
    remedy = "name databases and tables that the source permits, or change the settings"
    return UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)


def _check_name(wanted: Declaration, source: SourceSettings) -> None:
    if not NamePatterns(source.names).match(wanted.name):
        names = ", ".join(source.names)
        what = f"sources.{wanted.source}.names ({names}) does not permit the name {wanted.name}"
        raise UserError(ErrorKind.FORBIDDEN, what, remedy=f"choose a name like {names}")


def _check_number(
    wanted: Declaration, declared: Iterable[Declaration], source: SourceSettings
) -> None:
    owners = [each.owner for each in declared if each.source == wanted.source]
    for count, limit, who, key in (
        (len(owners), source.max_consumers, "all tokens have", "max_consumers"),
        (
            owners.count(wanted.owner),
            source.max_consumers_per_token,
            "this token has",
            "max_consumers_per_token",
        ),
    ):
        if count >= limit:
            limited_by = f"sources.{wanted.source}.{key}"
            what = f"{who} {count} declared consumers, as many as {limited_by} allows"
            remedy = (
                "delete one that is no longer read (DELETE /v1/consumers/NAME), or raise the limit"
            )
            raise UserError(ErrorKind.FORBIDDEN, what, remedy=remedy)
