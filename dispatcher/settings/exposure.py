"""Warnings about exposed secrets: files with secrets that every user can read, and connections on which an attacker can
learn the password.

A file that its group can read causes no warning: the settings file of a service often belongs to root, and only the
service's group can read it.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dispatcher.settings.model import ConnectionSettings, Settings
from dispatcher.yaml_settings.section import HostPort
from dispatcher.yaml_settings.server import MysqlTlsSettings
from dispatcher.yaml_settings.source import KeyPath, Tree

_SECRET_FILE_KEYS = frozenset({"password_file", "token_file", "secret_file", "key"})


def warnings_of(tree: Tree) -> tuple[str, ...]:
    """Returns one line per file that every user can read. Checks the settings files that contain a secret, and the
    files of secrets to which settings refer."""
    messages: dict[Path, str] = {}
    for file, origin in tree.inline_secrets.items():
        messages[file] = f"{origin}: every user of this machine can read the secret in this file"
    for path, value in _leaves(tree.values, ()):
        if path[-1] in _SECRET_FILE_KEYS and isinstance(value, str):
            message = f"{tree.origin(path)}: every user of this machine can read {value}"
            messages.setdefault(Path(value), message)
    return tuple(
        f"{message}; make the daemon's user its owner and run: chmod 600 {file}"
        for file, message in messages.items()
        if _readable_by_all(file)
    )


def password_warnings(settings: Settings) -> tuple[str, ...]:
    """Returns a warning for each connection to another machine on which a program that poses as the server could learn
    the password."""
    names_by_risk: dict[str, list[str]] = {}
    connections: dict[str, ConnectionSettings] = {
        f"consumers.{name}": each for name, each in settings.consumers.items()
    }
    connections |= {f"sources.{name}": each for name, each in settings.sources.items()}
    for path, each in connections.items():
        if each.mysql is not None and (risk := _risk(each.mysql.addresses, each.tls)):
            names_by_risk.setdefault(f"{each.label}: {risk}", []).append(path)
    state = settings.state
    if state.mysql is not None and (risk := _risk([state.mysql.address], state.tls)):
        names_by_risk.setdefault(f"{state.label}: {risk}", []).append("state")
    return tuple(
        f"{risk}, so an impostor of the server can learn the password; set tls.mode to verify_identity, and tls.ca"
        f" (for {', '.join(names)})"
        for risk, names in names_by_risk.items()
    )


def _risk(addresses: Sequence[HostPort], tls: MysqlTlsSettings) -> str:
    """Returns how a program that poses as the server at these addresses could learn the password; "" if no such program
    could."""
    if all(address.loopback for address in addresses):
        return ""
    if tls.mode in ("preferred", "required"):
        return f"tls.mode {tls.mode} does not verify the server's identity"
    if tls.mode == "disabled" and tls.allow_public_key_retrieval:
        return "tls.allow_public_key_retrieval accepts an unverified key"
    return ""


def _leaves(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from _leaves(item, (*path, n))
    elif path:
        yield path, value


def _readable_by_all(file: Path) -> bool:
    """True if every user can read the file and search all folders above it."""
    try:
        real = file.resolve()
        return bool(real.stat().st_mode & stat.S_IROTH) and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in real.parents
        )
    except OSError:  # reported elsewhere as a file that cannot be read
        return False
