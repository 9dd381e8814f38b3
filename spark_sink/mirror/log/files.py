"""Finds which files of the log contain which entries (see `binlog_log`). The list of files is read once from the
table's state, and then updated from the table's commits.

If a Delta table has changed, a query on it first computes the table's state with Spark jobs, which takes seconds. The
commits since the last read name the new files and their smallest and largest lsn (number of an entry). Such a commit
has a few kilobytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.commit_actions import commit_actions
from spark_sink.mirror.lake.damage import lost_files, naming_damage
from spark_sink.mirror.lake.delta_log import delta_version, table_files
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.values.entries import append_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# At most this many files of a consumer are kept in memory. If older files are needed, the table's state is read again.
FILES_MAX = 100_000
_LSN_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class LogFile:
    """`path`: relative to the table, not encoded; `first`, `last`: its smallest and largest lsn."""

    path: str
    consumer: str
    day: date
    first: int
    last: int


class LostFileError(BinlogError):
    """Files of the log are lost, and with these files the appends `first` to `last`."""

    first = last = 0


def lost_file(file: LogFile, path: str, why: str) -> LostFileError:
    """Returns the error for a lost file of the log. `path`: its full path; `why`: why the file cannot be read."""
    error = LostFileError(
        ErrorKind.TARGET_FILES, f"{path}, a file of the mirror's log, cannot be read: {why}"
    )
    # If a file has no statistics, its appends are not known; it contains entries of at least one append.
    error.first = append_of(file.first)
    error.last = error.first if file.last == _LSN_MAX else append_of(file.last)
    return error


def log_is_shorter(consumer: str, path: str) -> BinlogError:
    """Returns the error for a log that ends before the lsn up to which the consumer's tables are applied. `path`: the
    log's path."""
    return BinlogError(
        ErrorKind.TARGET_FILES,
        f"the tables of consumer {consumer} are ahead of the log: it was deleted, or restored from an older copy",
        where=path,
        remedy=remedies.of_lost_log(path),
    )


@dataclass(frozen=True, slots=True)
class LogCommit:
    """The files that one commit of the log added, and the paths that it removed."""

    added: tuple[LogFile, ...]
    removed: frozenset[str]


def added_file(path: str, values: Mapping[str, str], stats: str | None) -> LogFile:
    """Returns the file of an `add` action. `values`: the values of its partition; `stats`: JSON, None if there are
    none."""
    statistics = json.loads(stats) if stats else {}
    return LogFile(
        unquote(path),
        values["consumer"],
        date.fromisoformat(values["day"]),
        statistics.get("minValues", {}).get("lsn", 0),
        statistics.get("maxValues", {}).get("lsn", _LSN_MAX),
    )


def parse_commit(text: str) -> LogCommit:
    """Parse a commit of Delta's log: a JSON object with one action per line."""
    actions = list(commit_actions(text))
    adds = (action["add"] for action in actions if "add" in action)
    return LogCommit(
        tuple(added_file(add["path"], add["partitionValues"], add.get("stats")) for add in adds),
        frozenset(unquote(action["remove"]["path"]) for action in actions if "remove" in action),
    )


@dataclass(slots=True)
class _Known:
    """All files of a consumer with entries after the lsn `floor`, in version `version` of the log's table."""

    version: int
    floor: int
    files: dict[str, LogFile] = field(default_factory=dict)


class LogFiles:
    """The files of the log's table at `path`. Not thread-safe."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark, self._path = spark, path
        self._known: dict[str, _Known] = {}
        self._commits: dict[int, LogCommit] = {}

    def after(self, consumer: str, lsn: int) -> list[LogFile]:
        """Returns, in order, the consumer's files that contain an lsn > `lsn` in the newest version of the table.

        Raises `BinlogError` TARGET_FILES if the table's own log is damaged.
        """
        system = partial(FileSystem, self._spark)
        with naming_damage(system, self._path, remedies.of_lost_log(self._path)):
            return self._after(consumer, lsn)

    def _after(self, consumer: str, lsn: int) -> list[LogFile]:
        newest = delta_version(self._spark, self._path)
        if newest < 0:
            return []
        known = self._known.get(consumer)
        if known is None or lsn < known.floor or not self._follow(known, consumer, newest):
            known = self._known[consumer] = self._load(consumer, lsn)
        newer = sorted((f for f in known.files.values() if f.last > lsn), key=lambda f: f.first)
        self._bound(known)
        oldest = min(each.version for each in self._known.values())
        self._commits = {v: commit for v, commit in self._commits.items() if v > oldest}
        return newer

    def _follow(self, known: _Known, consumer: str, newest: int) -> bool:
        """Apply the commits up to version `newest` to `known`. Returns False if one of these commits no longer
        exists."""
        for version in range(known.version + 1, newest + 1):
            commit = self._commits.get(version)
            if commit is None:
                path = f"{self._path}/_delta_log/{version:020d}.json"
                text = FileSystem(self._spark).read(path)
                if text is None:
                    return False
                try:
                    commit = self._commits[version] = parse_commit(text)
                except ValueError as error:
                    raise lost_files(self._path, f"{path}: no JSON: {error}") from error
            for path in commit.removed:
                known.files.pop(path, None)
            known.files |= _of(consumer, known.floor, commit.added)
            known.version = version
        return True

    def _load(self, consumer: str, floor: int) -> _Known:
        version, frame = table_files(self._spark, self._path)
        rows = frame.where(frame["partitionValues"]["consumer"] == consumer)
        added = (
            added_file(row["path"], row["partitionValues"], row["stats"])
            for row in rows.select("path", "partitionValues", "stats").toLocalIterator()
        )
        return _Known(version, floor, _of(consumer, floor, added))

    @staticmethod
    def _bound(known: _Known) -> None:
        if len(known.files) <= FILES_MAX:
            return
        newest = sorted(known.files.values(), key=lambda f: f.last)[-FILES_MAX // 2 :]
        known.floor = newest[0].last
        known.files = {f.path: f for f in newest}


def _of(consumer: str, floor: int, files: Iterable[LogFile]) -> dict[str, LogFile]:
    return {f.path: f for f in files if f.consumer == consumer and f.last > floor}
