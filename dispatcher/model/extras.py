"""The error for a module that only an extra of the project installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, part: str) -> Iterator[None]:
    """Wrap the imports of `part`: if a foreign module is missing, raise ModuleNotFoundError that names the extra to
    install.

    If a module of the project itself is missing, its own error is raised.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "dispatcher", "spark_sink"):
            raise
        what = f"{part} needs {missing}, which is not installed: pip install 'binlog-dispatcher[{extra}]'"
        raise ModuleNotFoundError(what, name=error.name, path=error.path) from error
