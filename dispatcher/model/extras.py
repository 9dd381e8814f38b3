"""The error for a missing module that only an optional extra of the project installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, part: str, *, program: bool = False) -> Iterator[None]:
    """Wrap the imports of `part`. If a third-party module is missing, raise a ModuleNotFoundError that names the extra
    to install; if `part` is a program, end it with this message and exit code 1.

    If a module of the project itself is missing, the original error is raised.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "dispatcher", "spark_sink"):
            raise
        what = f"{part} needs {missing}, which is not installed: pip install 'binlog-dispatcher[{extra}]'"
        if program:
            raise SystemExit(what) from error
        raise ModuleNotFoundError(what, name=error.name, path=error.path) from error
