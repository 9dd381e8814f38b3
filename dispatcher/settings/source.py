"""Where settings come from: trees of plain values, and for each value the place it was written at.

Order, the later wins: files as they are named (a folder stands for its *.yaml, by name),
environment variables `DISPATCHER__SECTION__KEY`, command line. Mappings merge key by key, anything
else replaces.

YAML is read as nodes rather than values, because only nodes know their lines, and because a key
written twice must be found even where the values would be equal. `${NAME}` in a file's text stands
for an environment variable; `$${NAME}` for itself. pydantic-settings' sources are not used: they
know no lines, and silently pass over variables that match no setting.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

ENVIRONMENT_PREFIX = "DISPATCHER__"
# Values under these keys name files; relative ones are relative to the settings file that says so.
_PATH_KEYS = frozenset(
    {"password_file", "token_file", "path", "ca", "cert", "key", "server_public_key"}
)
_SECRET_KEYS = frozenset({"password", "token"})
# In the environment these may be written as a YAML list or mapping on one line.
_STRUCTURED_KEYS = frozenset({"databases", "tables", "start", "tls", "tokens"})
_VARIABLE = re.compile(r"(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """`name`: file, environment variable or option; `line` counts from 1, 0 where there is none."""

    name: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.name}:{self.line}" if self.line else self.name


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    origin: Origin
    path: KeyPath
    what: str

    def __str__(self) -> str:
        key = ".".join(str(part) for part in self.path)
        return f"{self.origin}: {key}: {self.what}" if key else f"{self.origin}: {self.what}"


@dataclass(slots=True)
class Tree:
    """Merged settings, the origin of each of their paths, and what was wrong with reading them."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    unread: set[KeyPath] = field(default_factory=set)  # what has no value because of a finding
    # Settings files that hold a secret themselves, and where the first one stands.
    inline_secrets: dict[Path, Origin] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin:
        """Of the path, or of the nearest of its parents that was written somewhere."""
        for end in range(len(path), -1, -1):
            if (found := self.origins.get(path[:end])) is not None:
                return found
        return Origin("settings")

    def find(self, path: KeyPath, what: str) -> None:
        # Of a value that was not read, or was read in part, enough is said; a section's other values are judged.
        if path not in self.unread and not (
            len(path) > 2 and any(u[: len(path)] == path for u in self.unread)
        ):
            self.findings.append(Finding(self.origin(path), path, what))

    def merge(self, values: Mapping[str, Any], origins: Mapping[KeyPath, Origin]) -> None:
        _merge(self.values, values)
        replaced = {path for path in origins if not isinstance(_at(values, path), dict)}
        # What is replaced leaves no origins of its old items behind.
        self.origins = {
            path: origin
            for path, origin in self.origins.items()
            if not any(path[:end] in replaced for end in range(1, len(path) + 1))
        }
        for path, origin in origins.items():
            # A section stays where it was opened first: that is where a missing key is reported.
            self.origins.setdefault(path, origin)


def read_sources(
    paths: Sequence[Path], overrides: Mapping[str, tuple[str, Any]], environment: Mapping[str, str]
) -> Tree:
    """All sources as one tree. `overrides`: dotted key to (option as typed, value)."""
    tree = Tree()
    for path in paths:
        for file in _files(path, tree):
            _read_file(file, environment, tree)
    _read_environment(environment, tree)
    for key, (option, value) in overrides.items():
        tree.merge(*_nested(tuple(key.split(".")), value, Origin(option)))
    return tree


def _files(path: Path, tree: Tree) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix in (".yaml", ".yml"))
    if not files:
        tree.findings.append(Finding(Origin(str(path)), (), "the folder holds no *.yaml file"))
    return files


def _read_file(file: Path, environment: Mapping[str, str], tree: Tree) -> None:
    try:
        node = YAML(typ="safe", pure=True).compose(file.read_text(encoding="utf-8"))
    except OSError as error:
        found = Finding(Origin(str(file)), (), f"cannot be read: {error.strerror}")
        tree.findings.append(found)
        return
    except UnicodeDecodeError:
        tree.findings.append(Finding(Origin(str(file)), (), "is not UTF-8 text"))
        return
    except (YAMLError, ValueError) as error:
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        line = mark.line + 1 if mark is not None else 0
        problem = (error.problem if isinstance(error, MarkedYAMLError) else None) or str(error)
        tree.findings.append(Finding(Origin(str(file), line), (), f"not YAML: {problem}"))
        return
    if node is None:
        return
    if not isinstance(node, MappingNode):
        origin = Origin(str(file), node.start_mark.line + 1)
        tree.findings.append(Finding(origin, (), "settings are a mapping of keys"))
        return
    reader = _Nodes(file, environment, tree)
    values = reader.value(node, ())
    tree.merge(values, reader.origins)


class _Nodes:
    """YAML nodes to plain values, noting lines and what is wrong on the way."""

    def __init__(self, file: Path, environment: Mapping[str, str], tree: Tree) -> None:
        self.origins: dict[KeyPath, Origin] = {}
        self._file = file
        self._environment = environment
        self._tree = tree
        self._constructor = YAML(typ="safe", pure=True).constructor
        self._open: list[Node] = []

    def value(self, node: Node, path: KeyPath) -> Any:
        self.origins.setdefault(path, self._origin(node))
        if any(node is outer for outer in self._open):
            self._tree.unread.add(path)
            return self._wrong(node, path, "an alias of what it stands in")
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
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._wrong(key_node, path, "a key is one word")
                continue
            # The text as written: a database or a consumer may well be called 2024 or null.
            key = str(key_node.value)
            if key in values:
                what = f"duplicate key; the first is in line {lines[key]}"
                self._wrong(key_node, (*path, key), what)
                continue
            lines[key] = line
            self.origins[(*path, key)] = Origin(str(self._file), line)
            values[key] = self.value(value_node, (*path, key))
        return values

    def _scalar(self, node: Node, path: KeyPath) -> Any:
        try:
            value = self._constructor.construct_object(node)
        except (YAMLError, ValueError) as error:
            problem = error.problem if isinstance(error, MarkedYAMLError) else None
            self._tree.unread.add(path)
            return self._wrong(node, path, f"not a YAML value: {problem or error}")
        if not isinstance(value, str):
            return value
        if path and path[-1] in _SECRET_KEYS and _VARIABLE.sub("", value):
            self._tree.inline_secrets.setdefault(self._file, self._origin(node))
        value = _VARIABLE.sub(lambda match: self._variable(match, node, path), value)
        if path and path[-1] in _PATH_KEYS and value:
            return str(self._file.parent / Path(value).expanduser())
        return value

    def _variable(self, match: re.Match[str], node: Node, path: KeyPath) -> str:
        escaped, name = match.groups()
        if escaped:
            return match[0][1:]
        if name not in self._environment:
            self._wrong(node, path, f"the environment variable {name} is not set")
            self._tree.unread.add(path)
            return ""
        return self._environment[name]

    def _wrong(self, node: Node, path: KeyPath, what: str) -> None:
        self._tree.findings.append(Finding(self._origin(node), path, what))

    def _origin(self, node: Node) -> Origin:
        return Origin(str(self._file), node.start_mark.line + 1)


def _read_environment(environment: Mapping[str, str], tree: Tree) -> None:
    for name in sorted(environment):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        origin = Origin(f"environment variable {name}")
        parts = [part.lower() for part in name[len(ENVIRONMENT_PREFIX) :].split("__")]
        if not all(parts):
            what = f"write it like {ENVIRONMENT_PREFIX}API__LISTEN"
            tree.findings.append(Finding(origin, (), what))
            continue
        if parts[0] == "consumers" and len(parts) > 1:
            parts[1] = _declared_name(parts[1], tree)
        value: Any = environment[name]
        if parts[-1] in _STRUCTURED_KEYS and value[:1] in ("[", "{"):
            try:
                value = YAML(typ="safe", pure=True).load(value)
            except (YAMLError, ValueError):
                tree.findings.append(Finding(origin, tuple(parts), "not a YAML list or mapping"))
                continue
        tree.merge(*_nested(tuple(parts), value, origin))


def _declared_name(name: str, tree: Tree) -> str:
    """A variable's name can hold neither small letters nor `-` and `.`, a consumer's name can."""
    consumers = tree.values.get("consumers")
    for declared in consumers if isinstance(consumers, dict) else ():
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


def _at(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[part]
    return values
