"""Who else can come by a secret: every user of the machine by its file, a stranger on the network by its server's name.

Access by the file's group is not reported: a file of root's that the daemon's group may read is the usual way to give a
service its settings.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dispatcher.settings.model import ConsumerSettings
from dispatcher.settings.source import KeyPath, Tree

_NAMES_A_SECRET_FILE = frozenset({"password_file", "token_file", "key"})


def warnings_of(tree: Tree) -> tuple[str, ...]:
    """One line for each such file: settings with a password or token in them, and the files that settings name."""
    files: dict[Path, str] = {}
    for file, origin in tree.inline_secrets.items():
        files[file] = f"{origin}: every user of this machine can read the secret in this file"
    for path, value in _leaves(tree.values, ()):
        if path[-1] in _NAMES_A_SECRET_FILE and isinstance(value, str):
            what = f"{tree.origin(path)}: every user of this machine can read {value}"
            files.setdefault(Path(value), what)
    return tuple(
        f"{what}; make the daemon's user its owner, then: chmod 600 {file}"
        for file, what in files.items()
        if _readable_by_all(file)
    )


def password_warnings(consumers: Mapping[str, ConsumerSettings]) -> tuple[str, ...]:
    """One line for each connection to another machine on which whoever answers may learn the password."""
    found: dict[str, list[str]] = {}
    for name, consumer in consumers.items():
        if consumer.mysql is None or all(host.loopback for host in consumer.mysql.addresses):
            continue
        tls = consumer.tls
        if tls.mode in ("preferred", "required"):
            what = f"tls.mode {tls.mode} does not verify who the server is"
        elif tls.mode == "disabled" and tls.allow_public_key_retrieval:
            what = "tls.allow_public_key_retrieval takes the key of whoever answers"
        else:
            continue
        found.setdefault(f"{consumer.label}: {what}", []).append(name)
    return tuple(
        f"{what}, and one who answers in its place can learn the password;"
        f" set tls.mode to verify_identity, with tls.ca (for consumers.{', consumers.'.join(names)})"
        for what, names in found.items()
    )


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
    """True if others may read the file, and may come through all folders above it."""
    try:
        real = file.resolve()
        return bool(real.stat().st_mode & stat.S_IROTH) and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in real.parents
        )
    except OSError:  # a file that cannot be read is reported as that
        return False
