"""Reads the settings from all sources and validates them. All errors are reported together, with file and line.

Each consumer and each section is validated separately, so that an error in one section does not hide errors in others.
Checks that need several sections (shared connections, the consumers of tokens, the listen address) use only valid
sections.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from dispatcher.model.subscription import NamePatterns
from dispatcher.settings.api import ApiSettings
from dispatcher.settings.exposure import warnings_of
from dispatcher.settings.front import FrontSettings, parse_front_listen
from dispatcher.settings.model import (
    CONSUMER_NAME,
    NO_CREDENTIAL,
    NO_SOURCE,
    PER_CONNECTION,
    ConsumerSettings,
    LimitSettings,
    LogSettings,
    Settings,
    SourceSettings,
    StateSettings,
)
from dispatcher.settings.mqtt import MqttSettings
from dispatcher.settings.webhook import WebhookSettings
from dispatcher.yaml_settings.section import parse_listen
from dispatcher.yaml_settings.server import SET_ELSEWHERE
from dispatcher.yaml_settings.source import EXPECTED_MAPPING, KeyPath, Tree, read_sources
from dispatcher.yaml_settings.validation import raise_findings, read_section, suggestion

NO_CONSUMERS = (
    "at least one consumer is required, such as shop: {mysql: repl@db1:3306, password_file: repl.password,"
    " databases: [shop]}"
)

C = TypeVar("C", ConsumerSettings, SourceSettings)


def load_settings(
    paths: Sequence[Path],
    overrides: Mapping[str, tuple[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read and validate the settings. Raises `SettingsError` with all errors.

    `paths`: YAML files, or folders of them; later files override earlier files. `overrides`: maps a dotted key to
    (command line option, value). `environment`: by default the environment of the process.
    """
    return validated_settings(read_tree(paths, overrides, environment))


def read_tree(
    paths: Sequence[Path],
    overrides: Mapping[str, tuple[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Tree:
    """Read the settings without validating them; see `load_settings`. The tree also records where each value was
    set."""
    return read_sources(paths, overrides or {}, os.environ if environment is None else environment)


def validated_settings(tree: Tree) -> Settings:
    """Validate settings that were read. Raises `SettingsError` with all errors."""
    values = tree.values
    sections = (
        "defaults",
        "consumers",
        "sources",
        "api",
        "front",
        "state",
        "log",
        "mqtt",
        "webhook",
    )
    for key in values:
        if key not in sections:
            tree.report((key,), f"unknown key{_section_meant(key, values[key], sections)}")
    defaults = _defaults(tree)
    sources = _sources(tree, defaults)
    consumers = _consumers(tree, defaults)
    api = read_section(tree, ("api",), ApiSettings, values.get("api"))
    state = read_section(tree, ("state",), StateSettings, values.get("state"))
    log = read_section(tree, ("log",), LogSettings, values.get("log"))
    mqtt = front = webhook = None
    if "front" in values:
        front = read_section(tree, ("front",), FrontSettings, values["front"], required=True)
    if "mqtt" in values:
        mqtt = read_section(tree, ("mqtt",), MqttSettings, values["mqtt"], required=True)
    if "webhook" in values:
        webhook = read_section(
            tree, ("webhook",), WebhookSettings, values["webhook"], required=True
        )
    _check_connections(tree, consumers, sources)
    _check_names(tree, consumers, sources)
    _check_mqtt(tree, consumers)
    if state is not None:
        _check_state_database(
            tree, {**_paths("consumers", consumers), **_paths("sources", sources)}, state
        )
    _check_listen(tree)
    _check_front(tree)
    if api is not None and state is not None:
        _check_address(tree, api, state)
    if api is not None:
        _check_tokens(tree, api)
    raise_findings(tree)
    # If a section is None, it has findings.
    assert api is not None and state is not None and log is not None
    sections_warnings = (each.warnings for each in (mqtt, webhook) if each is not None)
    warnings = (*warnings_of(tree), *chain.from_iterable(sections_warnings))
    return Settings(
        consumers=consumers,
        sources=sources,
        api=api,
        front=front,
        state=state,
        log=log,
        mqtt=mqtt,
        webhook=webhook,
        warnings=warnings,
    )


def _section_meant(key: str, value: Any, sections: Sequence[str]) -> str:
    """Returns the advice for an unknown section."""
    if isinstance(value, dict) and not value.keys().isdisjoint(("mysql", "files", "databases")):
        return "; write a consumer below the key consumers"
    return suggestion(key, sections)


def _defaults(tree: Tree) -> dict[str, Any]:
    """The valid keys of `defaults`."""
    section = tree.values.get("defaults")
    defaults: dict[str, Any] = section if isinstance(section, dict) else {}
    before = len(tree.findings)
    read_section(tree, ("defaults",), LimitSettings, section)
    # An invalid default is reported once, not again for each consumer.
    invalid = {finding.path[1] for finding in tree.findings[before:] if len(finding.path) > 1}
    invalid |= {path[1] for path in tree.unread if path[:1] == ("defaults",) and len(path) > 1}
    return {key: value for key, value in defaults.items() if key not in invalid}


def _consumers(tree: Tree, defaults: Mapping[str, Any]) -> dict[str, ConsumerSettings]:
    given = tree.values.get("consumers")
    if not given and tree.values.get("sources"):
        return {}  # all consumers are declared over the API
    if not isinstance(given, dict) or not given:
        # Report this only if all files could be read, because another file may contain consumers. Do not report it if
        # a finding says already that the key is misspelt, or where consumers belong.
        known = any(not f.path or "consumers" in f.message for f in tree.findings)
        if not known:
            tree.report(("consumers",), NO_CONSUMERS)
        return {}
    return _named_sections(tree, "consumers", ConsumerSettings, given, defaults)


def _sources(tree: Tree, defaults: Mapping[str, Any]) -> dict[str, SourceSettings]:
    given = tree.values.get("sources", {})
    if not isinstance(given, dict):
        tree.report(("sources",), EXPECTED_MAPPING)
        return {}
    applied = {k: value for k, value in defaults.items() if k in SourceSettings.model_fields}
    return _named_sections(tree, "sources", SourceSettings, given, applied)


def _named_sections(
    tree: Tree,
    section: str,
    model: type[C],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> dict[str, C]:
    """The consumers or sources that are valid, with the defaults of keys that they do not set."""
    valid = {}
    for name, value in given.items():
        path = (section, name)
        if not CONSUMER_NAME.match(name):
            rule = "at most 64 letters, digits, '_', '.' and '-', beginning with a letter or digit"
            tree.report(path, f"invalid {section.removesuffix('s')} name; use {rule}")
        merged = {**defaults, **value} if isinstance(value, dict) else value
        read = read_section(tree, path, model, merged, required=True)
        if read is not None:
            valid[name] = read
        elif isinstance(merged, dict):
            _check_source(tree, path, merged)
    return valid


def _paths(section: str, settings: Mapping[str, C]) -> dict[tuple[str, str], C]:
    return {(section, name): value for name, value in settings.items()}


def _check_source(tree: Tree, path: KeyPath, values: Mapping[str, Any]) -> None:
    """Report a missing source or password of a consumer that has other invalid keys. The model checks the source and
    the password only if all keys are valid."""
    if values.keys().isdisjoint(("mysql", "files")):
        tree.report(path, NO_SOURCE)
    elif "files" not in values and values.keys().isdisjoint(("password", "password_file")):
        in_address = any(
            f.path == (*path, "mysql") and SET_ELSEWHERE in f.message for f in tree.findings
        )
        if not in_address:
            tree.report(path, NO_CREDENTIAL)


def _check_connections(
    tree: Tree,
    consumers: Mapping[str, ConsumerSettings],
    sources: Mapping[str, SourceSettings],
) -> None:
    sharing: dict[tuple[str, str], ConsumerSettings | SourceSettings] = {
        ("consumers", name): consumer
        for name, consumer in consumers.items()
        if consumer.use_binlog_client
    }
    sharing |= _paths("sources", sources)
    first: dict[object, tuple[str, str]] = {}
    accounts: dict[str, tuple[str, str]] = {}
    for path, connection in sharing.items():
        # Two connections with one label would log in with one identity, and each login would end the dump of the other.
        other = accounts.setdefault(connection.label, path)
        if connection.connection_key != sharing[other].connection_key:
            tree.report(
                path,
                f"has another password than {'.'.join(other)} for {connection.label}, see {tree.origin(other)}:"
                f" set the same password for both{_instead(path, other)}",
            )
        other = first.setdefault(connection.connection_key, path)
        for keys in PER_CONNECTION:
            value, other_value = (_setting(of, keys) for of in (connection, sharing[other]))
            if value == other_value:
                continue
            values = "" if keys == ("tls",) else f" ({value} and {other_value})"
            tree.report(
                (*path, *keys),
                f"differs from {'.'.join(other)}{values}, see {tree.origin((*other, *keys))};"
                f" both share the connection {connection.label}: set equal values"
                f"{_instead(path, other)}",
            )


def _instead(path: tuple[str, str], other: tuple[str, str]) -> str:
    """Returns a second remedy if both paths are consumers of the settings, else ""."""
    both = path[0] == other[0] == "consumers"
    return ", or set use_binlog_client: false for one of them" if both else ""


def _check_names(
    tree: Tree,
    consumers: Mapping[str, ConsumerSettings],
    sources: Mapping[str, SourceSettings],
) -> None:
    """Report a consumer of the settings if a source permits tokens to declare a consumer of the same name: this
    declared consumer may exist already."""
    for name in consumers:
        for source, settings in sources.items():
            if NamePatterns(settings.names).match(name):
                what = f"sources.{source}.names permits tokens to declare a consumer of this name"
                tree.report(("consumers", name), f"{what}; rename the consumer, or change names")


def _setting(section: object, keys: Sequence[str]) -> object:
    for key in keys:
        section = getattr(section, key, None)
    return section


def _check_mqtt(tree: Tree, consumers: Mapping[str, ConsumerSettings]) -> None:
    if "mqtt" not in tree.values:
        for name, consumer in consumers.items():
            if consumer.mqtt.commits:
                remedy = "set the section mqtt with the broker's url"
                tree.report(("consumers", name, "mqtt", "commits"), f"there is no broker; {remedy}")


def _check_state_database(
    tree: Tree,
    readers: Mapping[tuple[str, str], ConsumerSettings | SourceSettings],
    state: StateSettings,
) -> None:
    """Report a consumer that names the database of the state. Each acknowledgement of this consumer would write a
    change that the consumer gets and acknowledges, without end."""
    for path, reader in readers.items():
        if state.mysql is not None and state.mysql.database in reader.databases:
            remedy = "remove this database from the consumer, or keep the state in a database of another name"
            message = f"{state.mysql.database} is the database of the state (state.mysql); {remedy}"
            tree.report((*path, "databases"), message)


def _check_listen(tree: Tree) -> None:
    api = tree.values.get("api")
    if not isinstance(api, dict) or "listen" not in api or api.get("tokens"):
        return
    try:
        listen = parse_listen(api["listen"])
    except ValueError:  # reported already
        return
    if not listen.loopback:
        remedy = f"set api.tokens, or listen on 127.0.0.1:{listen.port}"
        tree.report(
            ("api", "listen"),
            f"without api.tokens the daemon listens on loopback addresses only; {remedy}",
        )


def _check_front(tree: Tree) -> None:
    front, api = tree.values.get("front"), tree.values.get("api")
    if not isinstance(front, dict) or "listen" not in front:
        return
    try:
        listen = parse_front_listen(front["listen"])
    except ValueError:  # reported already
        return
    if listen.loopback:
        return
    instead = f"or listen on 127.0.0.1:{listen.port}"
    if not (isinstance(api, dict) and api.get("tokens")):
        what = "without api.tokens the front listens on loopback addresses only"
        tree.report(("front", "listen"), f"{what}; set api.tokens, {instead}")
    if not front.get("tls"):
        what = "without front.tls the front listens on loopback addresses only"
        tree.report(("front", "listen"), f"{what}; set front.tls, {instead}")


def _check_address(tree: Tree, api: ApiSettings, state: StateSettings) -> None:
    """Report port 0 without `api.advertise` if daemons share the state: a standby has to tell readers the address of
    the leader."""
    if state.mysql is not None and api.advertise is None and not api.listen.port:
        remedy = "set a port, or set api.advertise to the URL at which readers reach this daemon"
        what = "with port 0 the other daemons of this state do not know the address of this daemon"
        tree.report(("api", "listen"), f"{what}; {remedy}")


def _check_tokens(tree: Tree, api: ApiSettings) -> None:
    consumers, sources = (_mapping(tree, key) for key in ("consumers", "sources"))
    seen: set[str] = set()
    for n, token in enumerate(api.tokens):
        path = ("api", "tokens", n)
        if token.secret in seen:
            tree.report(path, "the same token is listed twice; remove one")
        seen.add(token.secret)
        for name in token.consumers if token.consumers != "all" else ():
            if name not in consumers:
                hint = suggestion(name, consumers)
                tree.report((*path, "consumers"), f"there is no consumer {name!r}{hint}")
        for name in token.sources if token.sources != "all" else ():
            if name not in sources:
                hint = suggestion(name, sources)
                tree.report((*path, "sources"), f"there is no source {name!r}{hint}")


def _mapping(tree: Tree, section: str) -> Mapping[str, Any]:
    value = tree.values.get(section)
    return value if isinstance(value, dict) else {}
