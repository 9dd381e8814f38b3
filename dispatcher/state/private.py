"""Files that only the daemon's user may read: they hold rows, positions and tables of other people's databases."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def tighten(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Take the access of group and others away from these files and folders, as far as they exist.

    Returns those that belong to another user, whose mode this process may not change.
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
