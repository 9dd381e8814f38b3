"""Derives the unique keys of a table, and the key that the server uses as the primary key, from statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dispatcher.binlog.sql.alter_clauses import ParsedAlter
from dispatcher.binlog.sql.alteration import PlacedColumn
from dispatcher.binlog.sql.clauses import (
    DefinedColumn,
    DropKeyClause,
    PrimaryKeyClause,
    RenameKeyClause,
    UniqueKeyClause,
)

KeyParts = list[list[Any]]
"""[column (None: an expression), prefix in characters (0: the whole column)] for each part."""
Keys = dict[str, KeyParts]
"""The unique keys by name; a name that begins with `?` stands for a name that the server has chosen."""

PRIMARY = "PRIMARY"
_SIZED = ("char(", "varchar(", "binary(", "varbinary(")
_LONG = ("blob", "text", "geometry", "json")


class _UnclearKeysError(Exception):
    pass


def created_keys(
    defined: Sequence[DefinedColumn],
    written: Iterable[PrimaryKeyClause | UniqueKeyClause],
    columns: Sequence[dict[str, Any]],
) -> Keys | None:
    """Return the unique keys of a new table; None if they are not known. Makes the columns of the primary key NOT
    NULL."""
    keys: Keys = {}
    try:
        for column in defined:
            _add_inline(keys, column)
        for clause in written:
            _add(keys, clause, columns)
    except _UnclearKeysError:
        return None
    named = {name for name, _ in keys.get(PRIMARY, ())}
    for entry in columns:
        if entry["name"] in named:
            entry["nullable"] = False
            entry.pop("nullable_unknown", None)
    return keys


def altered_keys(
    before: Mapping[str, Sequence[Sequence[Any]]] | None,
    placed: Sequence[PlacedColumn[Mapping[str, Any]]],
    parsed: ParsedAlter,
    columns: Sequence[dict[str, Any]],
) -> Keys | None:
    """Return the unique keys after a statement; None if they are not known. `placed`, `columns`: the columns after the
    statement."""
    if before is None:
        return None
    keys: Keys = {name: [list(part) for part in parts] for name, parts in before.items()}
    try:
        _drop(keys, parsed)
        keys = _renamed(keys, placed)
        for column in placed:
            if column.definition is not None:
                _add_inline(keys, column.definition)
        for clause in (*parsed.clauses, *parsed.definition):
            if isinstance(clause, UniqueKeyClause) or (
                isinstance(clause, PrimaryKeyClause) and clause.columns
            ):
                _add(keys, clause, columns)
    except _UnclearKeysError:
        return None
    return keys


def row_key(keys: Keys | None, columns: Sequence[Mapping[str, Any]]) -> KeyParts | None:
    """Return the primary key; without one, the only unique key without prefixes and without columns that can be NULL,
    which the server uses in its place; [] if there is no such key; None if it is not known which key this is."""
    if keys is None:
        return None
    if PRIMARY in keys:
        return keys[PRIMARY]
    by_name = {column["name"]: column for column in columns}
    candidates = []
    for parts in keys.values():
        if any(name is None or prefix for name, prefix in parts):
            continue
        used = [by_name[name] for name, _ in parts]
        if any(column.get("nullable_unknown") or _long(column) for column in used):
            return None
        if not any(column["nullable"] for column in used):
            candidates.append(parts)
    if len(candidates) > 1:
        return None
    return candidates[0] if candidates else []


def _long(column: Mapping[str, Any]) -> bool:
    """True if MariaDB implements a key of the whole column as a hash. Such a key cannot replace the primary key."""
    return any(word in str(column["mysql_type"]).partition("(")[0] for word in _LONG)


def _add_inline(keys: Keys, column: DefinedColumn) -> None:
    if column.primary:
        keys[PRIMARY] = [[column.name, 0]]
    if column.unique:
        _add_named(keys, "", [[column.name, 0]])


def _add(
    keys: Keys, clause: PrimaryKeyClause | UniqueKeyClause, columns: Sequence[Mapping[str, Any]]
) -> None:
    by_name = {column["name"].lower(): column for column in columns}
    parts: KeyParts = []
    prefixes = clause.prefixes or (0,) * len(clause.columns)
    for name, prefix in zip(clause.columns, prefixes, strict=True):
        if name is None:
            parts.append([None, 0])
            continue
        column = by_name.get(name.lower())
        if column is None:
            raise _UnclearKeysError
        parts.append([column["name"], _prefix(str(column["mysql_type"]), prefix)])
    if isinstance(clause, PrimaryKeyClause):
        keys[PRIMARY] = parts
    elif clause.if_not_exists:
        raise _UnclearKeysError
    else:
        _add_named(keys, clause.name, parts)


def _prefix(kind: str, prefix: int) -> int:
    """Return the prefix as the server stores it: 0 for the length of the whole column."""
    if prefix and kind.startswith(_SIZED) and int(kind.partition("(")[2].rstrip(")")) <= prefix:
        return 0
    return prefix


def _add_named(keys: Keys, name: str, parts: KeyParts) -> None:
    if name.lower() in (key.lower() for key in keys):
        raise _UnclearKeysError
    keys[name or f"?{len(keys)}"] = parts


def _drop(keys: Keys, parsed: ParsedAlter) -> None:
    """Remove the keys that the statement drops, and rename keys."""
    for clause in (*parsed.clauses, *parsed.definition):
        match clause:
            case PrimaryKeyClause() if not clause.columns:
                keys.pop(PRIMARY, None)
            case DropKeyClause():
                _pop(keys, clause.name)
            case RenameKeyClause():
                parts = _pop(keys, clause.old)
                if parts is not None:
                    _add_named(keys, clause.new, parts)


def _pop(keys: Keys, name: str) -> KeyParts | None:
    found = [key for key in keys if key.lower() == name.lower()]
    if found:
        return keys.pop(found[0])
    if any(key.startswith("?") for key in keys):
        raise _UnclearKeysError  # the name may be one that the server has chosen
    return None  # an index that is not unique, or a constraint


def _renamed(keys: Keys, placed: Sequence[PlacedColumn[Mapping[str, Any]]]) -> Keys:
    """Return the keys by the new names of their columns, without the keys whose only column is dropped."""
    after = {c.before["name"]: c for c in placed if c.before is not None}
    out: Keys = {}
    for key, parts in keys.items():
        if any(name is not None and name not in after for name, _ in parts):
            if len(parts) > 1:
                raise _UnclearKeysError
            continue
        if any(name and prefix and after[name].definition is not None for name, prefix in parts):
            raise _UnclearKeysError
        out[key] = [[None if name is None else after[name].name, prefix] for name, prefix in parts]
    return out
