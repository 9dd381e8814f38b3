"""Reads settings from their sources into one tree of plain values, and records the file and line of each value.

The sources are YAML files in the given order (a folder stands for its *.yaml and *.yml files in the order of their
names), then environment variables `DISPATCHER__SECTION__KEY`, then the command line. Each source overrides the sources
before it. Mappings are merged key by key; any other value replaces the value of the earlier source. `${NAME}` in a file
stands for the value of an environment variable, `$${NAME}` for the text `${NAME}`.

The module reads YAML as nodes, because plain values have no line numbers and do not show duplicate keys. It does not
use pydantic-settings, which records no line numbers and ignores unknown environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from dispatcher.model.printable import printable
from dispatcher.yaml_settings.yaml_nodes import InvalidYaml, line_of, read_nodes, value_of

ENVIRONMENT_PREFIX = "DISPATCHER__"
EXPECTED_MAPPING = "expected a mapping (key: value)"
# The values of these keys are file names; relative names are relative to the folder of the settings file.
_PATH_KEYS = frozenset(
    {
        "password_file",
        "token_file",
        "secret_file",
        "ca_file",
        "path",
        "spill_path",
        "ca",
        "cert",
        "key",
        "server_public_key",
    }
)
_SECRET_KEYS = frozenset({"password", "token", "secret"})
# In an environment variable the values of these keys may be a YAML list or mapping on one line.
_STRUCTURED_KEYS = frozenset(
    {"databases", "tables", "exclude_tables", "start", "tls", "tokens", "consumers", "include", "exclude", "conf",
     "proxies", "names", "events"}
)  # fmt: skip
_VARIABLE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Where a value was set. `name`: a file, an environment variable or a command line option; `line`: counted from 1;
    0 if the place has no line."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass(frozen=True, slots=True)
class Finding:
    """One error in the settings, and its place."""

    origin: Origin
    path: KeyPath
    message: str

    def __str__(self) -> str:
        key = ".".join(map(str, self.path))
        line = f"{self.origin}: {key}: {self.message}" if key else f"{self.origin}: {self.message}"
        return printable(line)  # keys, values and names of files may contain any character


@dataclass(slots=True)
class Tree:
    """The merged settings, the origin of each path, and the errors found so far."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unread: set[KeyPath] = field(default_factory=set)  # paths without a value because of a finding
    # For each settings file that contains a secret: where the first secret is.
    inline_secrets: dict[Path, Origin] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Returns where the path was set, or where its nearest parent that has an origin was set."""
        for end in range(len(path), -1, -1):
            if (origin := self.origins.get(path[:end])) is not None:
                return origin
        return Origin("settings")

    def report(self, path: KeyPath, message: str) -> None:
        """Add a finding, unless the value already has one because it could not be read completely."""
        partly_read = len(path) > 2 and any(u[: len(path)] == path for u in self.unread)
        if path not in self.unread and not partly_read:
            self.findings.append(Finding(self.origin(path), path, message))

    def merge(self, values: Mapping[str, Any], origins: Mapping[KeyPath, Origin]) -> None:
        _merge(self.values, values)
        replaced = {path for path in origins if not isinstance(_value_at(values, path), dict)}
        # Drop the origins of the items of replaced values.
        self.origins = {
            path: origin
            for path, origin in self.origins.items()
            if not any(path[:end] in replaced for end in range(1, len(path) + 1))
        }
        for path, origin in origins.items():
            # A section keeps its first origin: the error for a missing key names this place.
            self.origins.setdefault(path, origin)


def read_sources(
    paths: Sequence[Path],
    overrides: Mapping[str, tuple[str, Any]],
    environment: Mapping[str, str],
    *,
    prefix: str = ENVIRONMENT_PREFIX,
) -> Tree:
    """Read all sources. Errors are added to the tree's findings.

    `overrides`: maps a dotted key to (command line option, value); `prefix`: the prefix of the names of the environment
    variables.
    """
    tree = Tree()
    for path in paths:
        for file in _files(path, tree):
            _read_file(file, environment, tree)
    _read_environment(environment, tree, prefix)
    for key, (option, value) in overrides.items():
        tree.merge(*_nested(tuple(key.split(".")), value, Origin(option)))
    return tree


def _files(path: Path, tree: Tree) -> list[Path]:
    try:
        if not path.is_dir():
            return [path]
        files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
    except OSError as error:
        _add_finding(tree, path, f"cannot be read: {error.strerror}")
        return []
    if not files:
        _add_finding(tree, path, "the folder contains no *.yaml or *.yml file")
    return files


def _add_finding(tree: Tree, file: Path, message: str, line: int = 0) -> None:
    tree.findings.append(Finding(Origin(str(file), line), (), message))


def _read_file(file: Path, environment: Mapping[str, str], tree: Tree) -> None:
    try:
        node = read_nodes(file.read_text(encoding="utf-8"))
    except OSError as error:
        _add_finding(tree, file, f"cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        _add_finding(tree, file, "is not UTF-8 text")
    except InvalidYaml as error:
        _add_finding(tree, file, f"invalid YAML: {error.problem}", error.line)
    else:
        if isinstance(node, MappingNode):
            reader = _NodeReader(Origin(str(file)), tree, file, environment)
            tree.merge(reader.value(node, ()), reader.origins)
        elif node is not None:
            _add_finding(tree, file, EXPECTED_MAPPING, line_of(node))
        else:
            tree.origins.setdefault((), Origin(str(file)))  # an empty file


class _NodeReader:
    """Converts YAML nodes to plain values, and records their lines and errors.

    `file`: None for the value of an environment variable, in which `${NAME}` and file names are left as they are.
    """

    def __init__(
        self,
        origin: Origin,
        tree: Tree,
        file: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.origins: dict[KeyPath, Origin] = {}
        self._of = origin
        self._tree = tree
        self._file = file
        self._environment = environment or {}
        self._open: list[Node] = []

    def value(self, node: Node, path: KeyPath) -> Any:
        self.origins.setdefault(path, self._origin(node))
        if any(node is outer for outer in self._open):
            self._tree.unread.add(path)
            return self._report(node, path, "this alias refers to a value that contains it")
        self._open.append(node)
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, path)
            if isinstance(node, SequenceNode):
                return [self.value(item, (*path, n)) for n, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._report(key_node, path, "a key must be text, not a list or mapping")
                continue
            # Do not convert a key to a number or null: the name of a database or a consumer may be 2024 or null.
            key: str = key_node.value
            if key in values:
                self._report(
                    key_node, (*path, key), f"duplicate key, already set in line {lines[key]}"
                )
                continue
            lines[key] = line_of(key_node)
            self.origins[(*path, key)] = self._origin(key_node)
            values[key] = self.value(value_node, (*path, key))
        return values

    def _scalar(self, node: ScalarNode, path: KeyPath) -> Any:
        try:
            value = value_of(node)
        except ValueError as error:
            self._tree.unread.add(path)
            return self._report(node, path, f"invalid YAML value: {error}")
        if not isinstance(value, str) or self._file is None:
            return value
        if path and path[-1] in _SECRET_KEYS and _VARIABLE.sub("", value):
            self._tree.inline_secrets.setdefault(self._file, self._origin(node))
        value = _VARIABLE.sub(lambda match: self._variable(match, node, path), value)
        if path and path[-1] in _PATH_KEYS and value:
            try:
                return str(self._file.parent / Path(value).expanduser())
            except RuntimeError:  # pathlib's error for a user without a home directory
                self._report(node, path, f"{value}: there is no home directory of this user")
        return value

    def _variable(self, match: re.Match[str], node: Node, path: KeyPath) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name not in self._environment:
            self._report(node, path, f"the environment variable {name} is not set; export it")
            self._tree.unread.add(path)
            return ""
        return self._environment[name]

    def _report(self, node: Node, path: KeyPath, message: str) -> None:
        self._tree.findings.append(Finding(self._origin(node), path, message))

    def _origin(self, node: Node) -> Origin:
        return self._of if self._file is None else Origin(self._of.name, line_of(node))


def _read_environment(environment: Mapping[str, str], tree: Tree, prefix: str) -> None:
    for name in sorted(environment):
        if not name.startswith(prefix):
            continue
        origin = Origin(f"environment variable {name}")
        parts = [part.lower() for part in name[len(prefix) :].split("__")]
        if not all(parts):
            message = f"unknown variable; write it like {prefix}SECTION__KEY"
            tree.findings.append(Finding(origin, (), message))
            continue
        if parts[0] in ("consumers", "sources") and len(parts) > 1:
            parts[1] = _declared_name(parts[0], parts[1], tree)
        value: Any = environment[name]
        if parts[-1] in _STRUCTURED_KEYS and value[:1] in ("[", "{"):
            try:
                node = read_nodes(value)
            except InvalidYaml:
                tree.findings.append(Finding(origin, tuple(parts), "invalid YAML list or mapping"))
                continue
            value = _NodeReader(origin, tree).value(node, tuple(parts))
        tree.merge(*_nested(tuple(parts), value, origin))


def _declared_name(section: str, name: str, tree: Tree) -> str:
    """Returns the consumer or source to which a variable refers. The variable contains the name of the consumer or
    source in upper case, with `_` in place of `-` and `.`."""
    values = tree.values.get(section)
    for declared in values if isinstance(values, dict) else ():
        if re.sub(r"[-.]", "_", declared.lower()) == name:
            return str(declared)
    return name


def _nested(
    path: KeyPath, value: Any, origin: Origin
) -> tuple[dict[str, Any], dict[KeyPath, Origin]]:
    tree: Any = value
    for part in reversed(path):
        tree = {part: tree}
    return tree, {path[:end]: origin for end in range(1, len(path) + 1)}


def _merge(into: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        old = into.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _merge(old, value)
        else:
            into[key] = value


def _value_at(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[part]
    return values
