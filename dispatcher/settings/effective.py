"""The settings in effect: the merged settings, each with its origin, and the defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import BaseModel

from dispatcher.settings.model import ConsumerSettings, LimitSettings, SourceSettings
from dispatcher.settings.reference import NONE, REQUIRED, SettingReference, daemon_settings
from dispatcher.yaml_settings.source import KeyPath, Tree

_SECRETS = frozenset({"password", "token", "secret"})
_HIDDEN = "(hidden)"
_DEFAULT = "default"
_ABSENT = object()


class EffectiveSetting(NamedTuple):
    """`path`: dotted; `value`: as text, hidden if it is a secret; `origin`: file:line, an environment variable, an
    option, or default."""

    path: str
    value: str
    origin: str


_NAMED: dict[str, type[BaseModel]] = {"consumers": ConsumerSettings, "sources": SourceSettings}
_OPTIONAL = (
    "front",
    "mqtt",
    "webhook",
)  # without the section, the daemon runs without this function


def effective_settings(tree: Tree) -> Iterator[EffectiveSetting]:
    """Yields all settings of a valid tree that have a value, in the order of the sections."""
    rows = list(daemon_settings())
    for row in rows:
        section, *rest = row.path.split(".")
        if section in _NAMED or (section == "state" and _of_the_other_store(tree, rest[0])):
            continue
        if section not in _OPTIONAL or section in tree.values:
            yield from _of(tree, (section,), rest, row)
    for place, model in _NAMED.items():
        for name in tree.values.get(place) or ():
            for row in rows:
                section, *rest = row.path.split(".")
                if section == place and not _of_the_other_source(tree, (place, name), rest[1]):
                    yield from _of(tree, (place, name), rest[1:], row)
                elif section == "defaults" and rest[0] in model.model_fields:
                    yield from _of(tree, (place, name), rest, row)


def _of_the_other_source(tree: Tree, path: tuple[str, str], key: str) -> bool:
    """True if `key` does not apply to the consumer or source at `path`: `tls` does not apply to files, and `files` does
    not apply to a server."""
    from_files = "files" in tree.values[path[0]][path[1]]
    return key == ("tls" if from_files else "files")


def _of_the_other_store(tree: Tree, key: str) -> bool:
    """True if `key` applies only to the kind of state store, file or database, that the settings do not choose."""
    state = tree.values.get("state")
    if isinstance(state, dict) and "mysql" in state:
        return key == "path"
    return key in ("mysql", "password", "password_file", "tls", "lease")


def _of(
    tree: Tree, path: KeyPath, rest: list[str], row: SettingReference
) -> Iterator[EffectiveSetting]:
    """Yields the values of the setting whose path is `path` followed by `rest`. A key that ends in [] stands for each
    element of a list."""
    for n, key in enumerate(rest):
        if key.endswith("[]"):
            values = _item(_value(tree, path), key.removesuffix("[]"))
            for index in range(len(values) if isinstance(values, list) else 0):
                inside = (*path, key.removesuffix("[]"), index)
                yield from _of(tree, inside, rest[n + 1 :], row)
            return
        path = (*path, key)
    inherited = ("defaults", *path[2:])
    value, origin = _value(tree, path), tree.origin(path)
    if value is _ABSENT and path[0] in _NAMED and path[2] in LimitSettings.model_fields:
        value, origin = _value(tree, inherited), tree.origin(inherited)
    dotted = ".".join(map(str, path))
    if value is not _ABSENT:
        text = _HIDDEN if path[-1] in _SECRETS else _text(value)
        yield EffectiveSetting(dotted, text, str(origin))
    elif row.default not in (NONE, REQUIRED):
        yield EffectiveSetting(dotted, row.default, _DEFAULT)


def _value(tree: Tree, path: KeyPath) -> Any:
    value: Any = tree.values
    for part in path:
        value = _item(value, part)
    return value


def _item(value: Any, part: str | int) -> Any:
    if isinstance(value, list) and isinstance(part, int):
        return value[part]
    return value.get(part, _ABSENT) if isinstance(value, dict) else _ABSENT


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if value is None else str(value)
