"""Finds damaged or missing files of a Delta table, after a read has failed.

The exception of a reader rarely shows whether a file is lost, or the storage has only failed for a moment. So this
module reads each file that the exception names once more. A file is lost if it is missing, or if its content is not
valid.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.commit_actions import commit_actions

if TYPE_CHECKING:
    from spark_sink.mirror.lake.file_system import FileSystem

MISSING = "it does not exist"
# Spark's text for a file that a task could not read.
_NAMED = re.compile(r"while reading file (\S+\.(?:parquet|json))\.?(?=\s|$)")
# The messages of Delta's exceptions for a log whose files contradict each other.
_INCONSISTENT = re.compile(
    r"\[(?:DELTA_VERSIONS_NOT_CONTIGUOUS|DELTA_MISSING_PART_FILES|DELTA_TRUNCATED_TRANSACTION_LOG"
    r"|DELTA_LOG_FILE_NOT_FOUND\w*|DELTA_STATE_RECOVER_ERROR|DELTA_CHECKPOINT_\w+)\][^\n]*"
    r"|Could not find any delta files for version \d+"
)


@contextmanager
def naming_damage(
    system: Callable[[], FileSystem], path: str, remedy: str | None = None
) -> Iterator[None]:
    """Raises `BinlogError` TARGET_FILES in place of an exception if a file of the Delta table at `path` is lost.

    `remedy`: replaces the default remedy of the error's kind.
    """
    try:
        yield
    except BinlogError as error:
        if remedy is None or error.kind is not ErrorKind.TARGET_FILES:
            raise
        raise BinlogError(error.kind, error.what, where=error.where, remedy=remedy) from error
    except Exception as error:
        if damage := table_damage(system(), error):
            raise lost_files(path, damage, remedy) from error
        raise


def lost_files(path: str, damage: str, remedy: str | None = None) -> BinlogError:
    """Returns the error for a Delta table that has lost files."""
    text = f"the Delta table at {path} cannot be read: {damage}"
    return BinlogError(ErrorKind.TARGET_FILES, text, remedy=remedy)


def table_damage(system: FileSystem, error: BaseException) -> str:
    """Finds out, from an exception of Spark or Delta, which file of a Delta table is lost, or why the table's log
    cannot be read. Returns this as a text; "" if nothing is known to be lost."""
    text = str(error)
    if match := _INCONSISTENT.search(text):
        return match[0].strip()
    for path in dict.fromkeys(map(unquote, _NAMED.findall(text))):
        if why := why_lost(system, path):
            return f"{path}: {why}"
    return ""


def why_lost(system: FileSystem, path: str) -> str:
    """Returns why a file (Parquet, or a JSON object per line) is lost; "" if the file is intact."""
    if path.endswith(".json"):
        return _why_no_json(system.read(path))
    if (local := system.local(path)) is not None:
        return why_unreadable(local)
    if not system.exists(path):
        return MISSING
    with tempfile.TemporaryDirectory(prefix="binlog-dispatcher-") as folder:
        return why_unreadable(system.fetch(path, folder))


def why_unreadable(path: str) -> str:
    """Returns why a local Parquet file is lost; "" if the whole file can be read. Raises `OSError` if the file system
    fails, because the file may then be intact."""
    if not Path(path).exists():
        return MISSING
    try:
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                file.read_row_group(group)
    except pa.ArrowException as error:
        return _first_line(error)
    except OSError as error:
        # An `OSError` of the file system has an error number; the `OSError` of Arrow for damaged content has none.
        if error.errno is not None:
            raise
        return _first_line(error)
    return ""


def _why_no_json(text: str | None) -> str:
    if text is None:
        return MISSING
    try:
        list(commit_actions(text))
    except ValueError as error:
        return f"no JSON: {error}"
    return ""


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
