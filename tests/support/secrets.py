"""Finds the secrets in the settings that tests write, and searches the output of the tests' programs for these
secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

LENGTH_MIN = 6  # a shorter secret may be a part of other words
_INLINE, _FILES = {"password", "token", "secret"}, {"password_file", "token_file", "secret_file"}
_OUTPUT = frozenset({"stderr", "stdout", "output", "log"})  # and *.log


def secrets_in(settings: Any, folder: Path = Path()) -> set[str]:
    """Returns the passwords and tokens in a tree of settings. The tree may contain itself. `folder`: the folder of the
    files that the settings name."""
    found: set[str] = set()
    values, seen = [settings], set[int]()
    while values:
        value = values.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            values += value.values()
            found |= set(_secrets_of(value, folder))
    return {secret for secret in found if len(secret) >= LENGTH_MIN}


def _secrets_of(section: dict[str, Any], folder: Path) -> Iterator[str]:
    for key, value in section.items():
        if not isinstance(value, str):
            continue
        if key in _INLINE and "${" not in value:
            yield value
        elif key in _FILES and (folder / value).is_file():
            yield (folder / value).read_text(encoding="utf-8", errors="replace").strip()


def leaks(folder: Path) -> list[str]:
    """Returns the files of output below the folder that contain a secret of a settings file below the folder."""
    secrets: set[str] = set()
    outputs: list[Path] = []
    for name, _, names in os.walk(folder):  # one walk only, because mirrors have thousands of files
        files = [Path(name, one) for one in names]
        outputs += [one for one in files if one.suffix == ".log" or one.name in _OUTPUT]
        for file in (one for one in files if one.suffix in (".yaml", ".yml")):
            try:
                settings = yaml.safe_load(file.read_bytes())
            except (yaml.YAMLError, ValueError, OSError):
                continue  # a test has written invalid settings
            secrets |= secrets_in(settings, file.parent)
    found = []
    for file in outputs:
        text = file.read_text(encoding="utf-8", errors="replace")
        found += [f"{file}: {secret}" for secret in sorted(secrets) if secret in text]
    return found
