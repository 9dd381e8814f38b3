"""Modes of the daemon's files: the files contain rows of the sources' databases, so only the daemon's user may read
them."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def tighten(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Remove access by group and others from the files and folders that exist.

    Returns the paths whose mode this process may not change, because they belong to another user.
    """
    refused = []
    for path in paths:
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            if mode & _OTHERS:
                path.chmod(mode & ~_OTHERS)
        except FileNotFoundError:
            continue
        except PermissionError:
            refused.append(path)
    return tuple(refused)
