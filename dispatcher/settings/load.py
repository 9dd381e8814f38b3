"""Settings from all their sources, or everything that is wrong with them at once.

Each consumer and each section is judged by itself, so that a mistake in one does not hide those in
the others; what concerns several (shared connections, tokens' scopes, who may listen where) is
judged over all that are sound.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.settings.exposure import warnings_of
from dispatcher.settings.model import (
    CONSUMER_NAME,
    NO_CREDENTIAL,
    NO_SOURCE,
    PER_CONNECTION,
    ApiSettings,
    ConsumerSettings,
    LimitSettings,
    Listen,
    LogSettings,
    Settings,
    SettingsSection,
    StateSettings,
)
from dispatcher.settings.source import KeyPath, Origin, Tree, read_sources

# Keys that are looked for in a consumer, and what is there instead.
_INSTEAD = {
    "hosts": "several hosts stand in mysql: user@host1:port,host2:port",
    "host": "the host stands in mysql: user@host:port",
    "port": "the port stands in mysql: user@host:port",
    "user": "the user stands in mysql: user@host:port",
    "failover_wait": "did you mean 'failover_wait_seconds'?",
    "max_bytes_in_spill": "it stands in state, for all consumers",
    "max_bytes_in_prepared": "it stands in state, for all consumers",
}
_EXPECTED = {
    "missing": "is missing",
    "string_type": "expected text; quote it if it is some",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "list_type": "expected a list",
    "tuple_type": "expected a list",
    "dict_type": "expected a mapping of keys",
    "model_type": "expected a mapping of keys",
    "model_attributes_type": "expected a mapping of keys",
    "path_type": "expected the name of a file",
    "too_short": "must not be empty",
}

S = TypeVar("S", bound=SettingsSection)


class SettingsError(UserError):
    """Settings that cannot be used; `findings` are its lines, in the order of the files."""

    def __init__(
        self, kind: ErrorKind, what: str, *, where: str = "", remedy: str | None = None
    ) -> None:
        super().__init__(kind, what, where=where, remedy=remedy)
        self.findings: tuple[str, ...] = tuple(what.splitlines())

    def __str__(self) -> str:
        return self.what


def load_settings(
    paths: Sequence[Path],
    overrides: Mapping[str, tuple[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read and check all settings; raises `SettingsError` with every finding.

    `paths`: YAML files, or folders of them, later ones win. `overrides`: dotted key to (the option
    as it was typed, value). `environment` defaults to the process's.
    """
    tree = read_sources(paths, overrides or {}, os.environ if environment is None else environment)
    values = tree.values
    _unknown(tree, (), values, ("defaults", "consumers", "api", "state", "log"))
    consumers = _consumers(tree)
    api = _section(tree, ("api",), ApiSettings, values.get("api"))
    state = _section(tree, ("state",), StateSettings, values.get("state"))
    log = _section(tree, ("log",), LogSettings, values.get("log"))
    _check_connections(tree, consumers)
    _check_listen(tree)
    if api is not None:
        declared = values["consumers"] if _is_mapping(values, "consumers") else {}
        _check_tokens(tree, api, declared)
    if tree.findings or api is None or state is None or log is None:
        lines = sorted(dict.fromkeys(tree.findings), key=lambda finding: finding.origin)
        raise SettingsError(ErrorKind.SETTINGS, "\n".join(str(finding) for finding in lines))
    return Settings(consumers=consumers, api=api, state=state, log=log, warnings=warnings_of(tree))


def parse_section(model: type[S], values: Mapping[str, Any], said_by: str) -> S:
    """One section from values that are at hand. Raises `SettingsError`; `said_by` stands before each finding."""
    tree = Tree(origins={(): Origin(said_by)})
    found = _section(tree, (), model, values)
    if found is None:
        raise SettingsError(ErrorKind.SETTINGS, "\n".join(map(str, tree.findings)))
    return found


def _consumers(tree: Tree) -> dict[str, ConsumerSettings]:
    written = tree.values.get("defaults")
    defaults: dict[str, Any] = written if isinstance(written, dict) else {}
    before = len(tree.findings)
    _section(tree, ("defaults",), LimitSettings, written)
    # What is wrong with a default is said once, at the default.
    wrong = {finding.path[1] for finding in tree.findings[before:] if len(finding.path) > 1}
    wrong |= {path[1] for path in tree.unread if path[:1] == ("defaults",) and len(path) > 1}
    usable = {key: value for key, value in defaults.items() if key not in wrong}
    if not _is_mapping(tree.values, "consumers") or not tree.values["consumers"]:
        # In a file that could not be read there may well be some.
        if all(finding.path for finding in tree.findings):
            tree.find(("consumers",), "at least one consumer is needed: a mapping of names")
        return {}
    consumers = {}
    for name, value in tree.values["consumers"].items():
        path = ("consumers", name)
        if not CONSUMER_NAME.match(name):
            tree.find(path, "a consumer's name is of letters, digits and _.-, at most 64")
        merged = {**usable, **value} if isinstance(value, dict) else value
        consumer = _section(tree, path, ConsumerSettings, merged, required=True)
        if consumer is not None:
            consumers[name] = consumer
        elif isinstance(merged, dict):
            _look_for_source(tree, path, merged)
    return consumers


def _look_for_source(tree: Tree, path: KeyPath, values: Mapping[str, Any]) -> None:
    """The model looks for it only where all else is well."""
    if values.keys().isdisjoint(("mysql", "files")):
        tree.find(path, NO_SOURCE)
    elif "files" not in values and values.keys().isdisjoint(("password", "password_file")):
        tree.find(path, NO_CREDENTIAL)


def _section(
    tree: Tree, path: KeyPath, model: type[S], value: Any, *, required: bool = False
) -> S | None:
    """The section as a value; None with findings noted when it is not sound."""
    if value is None and not required:
        value = {}
    try:
        return model.model_validate(value)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_input=False):
            tree.find((*path, *detail["loc"]), _what(detail, model))
        return None


def _what(detail: ErrorDetails, model: type[BaseModel]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        if issubclass(model, LimitSettings) and len(detail["loc"]) == 1 and key in _INSTEAD:
            return f"unknown key; {_INSTEAD[key]}"
        return _unknown_key(key, _keys(model, detail["loc"][:-1]))
    if kind == "value_error":
        return str(detail.get("ctx", {}).get("error", detail["msg"]))
    return _EXPECTED.get(kind, detail["msg"].replace("Input should be", "must be"))


def _keys(model: type[BaseModel], loc: KeyPath) -> Iterable[str]:
    """The keys that are known at a location within a model."""
    for part in loc:
        if isinstance(part, int) or part not in model.model_fields:
            continue
        nested = model.model_fields[part].annotation
        candidates = [nested, *getattr(nested, "__args__", ())]
        for candidate in candidates:
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                model = candidate
    return model.model_fields


def _unknown_key(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"unknown key; did you mean {close[0]!r}?" if close else "unknown key"


def _unknown(tree: Tree, path: KeyPath, values: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in values:
        if key not in known:
            tree.find((*path, key), _unknown_key(key, known))


def _check_connections(tree: Tree, consumers: Mapping[str, ConsumerSettings]) -> None:
    first: dict[object, str] = {}
    for name, consumer in consumers.items():
        if not consumer.use_binlog_client:
            continue
        other = first.setdefault(consumer.connection_key, name)
        for keys in PER_CONNECTION:
            ours, theirs = (_at(one, keys) for one in (consumer, consumers[other]))
            if ours == theirs:
                continue
            values = "" if keys == ("tls",) else f" ({ours} and {theirs})"
            tree.find(
                ("consumers", name, *keys),
                f"differs from consumers.{other}{values},"
                f" see {tree.origin(('consumers', other, *keys))}; both share the connection"
                f" {consumer.label}: make them equal, or give one use_binlog_client: false",
            )


def _at(consumer: ConsumerSettings, keys: tuple[str, ...]) -> object:
    value: object = consumer
    for key in keys:
        value = getattr(value, key, None)
    return value


def _check_listen(tree: Tree) -> None:
    api = tree.values.get("api")
    if not isinstance(api, dict) or "listen" not in api or api.get("tokens"):
        return
    try:
        listen = Listen.parse(api["listen"])
    except ValueError:  # said already
        return
    if not listen.loopback:
        tree.find(
            ("api", "listen"),
            "without api.tokens the daemon listens on a loopback address only, such as"
            f" 127.0.0.1:{listen.port}",
        )


def _check_tokens(tree: Tree, api: ApiSettings, declared: Mapping[str, Any]) -> None:
    seen: set[str] = set()
    for n, token in enumerate(api.tokens):
        path = ("api", "tokens", n)
        if token.secret in seen:
            tree.find(path, "the same token stands in the list twice")
        seen.add(token.secret)
        for name in token.consumers if token.consumers != "all" else ():
            if name not in declared:
                close = difflib.get_close_matches(name, list(declared), n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                tree.find((*path, "consumers"), f"there is no consumer {name!r}{hint}")


def _is_mapping(values: Mapping[str, Any], key: str) -> bool:
    return isinstance(values.get(key), dict)
