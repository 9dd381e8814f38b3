"""The error for a module that only an extra of the project installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, part: str) -> Iterator[None]:
    """Around imports of `part`: raise ModuleNotFoundError with the extra to install, if a module of others is missing.

    A module of the project itself that is missing is another fault, and keeps its error.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "dispatcher", "spark_sink"):
            raise
        what = f"{part} needs {missing}, which is not installed: pip install 'binlog-dispatcher[{extra}]'"
        raise ModuleNotFoundError(what, name=error.name, path=error.path) from error
