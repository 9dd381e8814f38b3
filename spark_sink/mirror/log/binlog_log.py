"""The mirror's log: a Delta table with the changes that the daemon delivered for the consumers.

An append contains the entries of one micro-batch of one consumer, for all tables. An entry is rows of one table with
the same columns, or a statement. The last entry of an append (END) contains the position at which the micro-batch ends.
Each append has a number, which its commit records (`txnAppId` of the consumer, `txnVersion`). So the newest recorded
number shows where the log ends, and no append is made twice: see the module `append`. The number of an entry, `lsn`,
begins with the number of its append.

A payload is the bytes of the rows of an entry. Payloads of at most `INLINE_BYTES` are in the column `small_payload`.
Larger payloads are in the column `payload`, which `entries` does not read.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from dispatcher.model.position import Position
from spark_sink.mirror.lake.damage import naming_damage, why_lost
from spark_sink.mirror.lake.delta_log import has_commit, recorded_versions
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.log.files import LogFile, LogFiles, LostFileError, lost_file
from spark_sink.mirror.log.rows import LogRows
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.values.entries import (
    INLINE_BYTES,
    LogEnd,
    LogEntry,
    append_of,
    first_lsn,
    last_lsn,
)
from spark_sink.source.raw_entries import EntryKind, statement_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = "_binlog/log"
INLINE_APPENDS = 4  # a read of more appends omits payloads larger than INLINE_BYTES / 16
# The limits of files in an older day and in the newest day. A day with more files is compacted.
COMPACTED_FILES, COMPACTED_FILES_TODAY = 500, 10_000

_WRITING = {
    "spark.sql.parquet.compression.codec": "zstd",
    # Without this setting, Spark sorts the rows, with their payloads, by partition before it writes them.
    "spark.sql.maxConcurrentOutputFileWriters": "4",
}
_DEFAULTS: dict[str, Any] = {
    "database": "",
    "table": "",
    "layout": "",
    "epoch": 0,
    "first_seq": 0,
    "last_seq": 0,
    "rows": 0,
    "inserts": 0,
    "updates": 0,
    "deletes": 0,
    "table_map": b"",
    "payload_bytes": 0,
    "file": "",
    "pos": 0,
    "gap": False,
}


class BinlogLog:
    """Reads the log of a target, deletes its old days, and compacts its files. Several threads may use one object."""

    def __init__(self, spark: SparkSession, target: str) -> None:
        """`target`: folder of the mirror, any path that Spark can write. The log's table may not exist yet: the first
        `LogAppender.claim` creates it."""
        self._spark = spark
        self._session = spark.newSession()
        prepare_writing(self._session)
        self.path = f"{target.rstrip('/')}/{FOLDER}"
        self._files = LogFiles(self._session, self.path)
        self._rows = LogRows(self._session, self.path)
        self._listing = threading.Lock()  # guards `_files`
        self._lock = threading.Lock()  # guards `_appended`
        self._system = FileSystem(spark)
        self._appended: dict[str, tuple[int, int]] = {}  # (table version, append) by consumer

    # -- reading ---------------------------------------------------------------------------------------------

    def end(self, consumer: str) -> LogEnd | None:
        """Returns the number of the consumer's last append and its newest END entry; None if it has no append."""
        if (number := self.last_append(consumer)) < 1:
            return None
        newest = self._newest_end(consumer, number)
        return LogEnd(number, newest[1] if newest else None)

    def _newest_end(self, consumer: str, number: int) -> tuple[int, Position] | None:
        """Returns (lsn, position) of the newest END entry up to the append `number`, if any. Reads the newest few
        appends first."""
        appends, read_to = 4, last_lsn(number)
        while read_to >= 0:
            after = max(0, first_lsn(number - appends)) - 1
            files = [f for f in self._after(consumer, after) if f.first <= read_to]
            entries = self._read_newest(files, after, read_to) if files else []
            if ends := [e for e in entries if e.kind is EntryKind.END and e.position is not None]:
                assert ends[-1].position is not None
                return ends[-1].lsn, ends[-1].position
            appends, read_to = appends * 64, after
        return None

    def _read_newest(self, files: Sequence[LogFile], after: int, last: int) -> list[LogEntry]:
        """Read the statements and END entries of files. If a file is lost, this is an error only if the file may
        contain the newest END entry."""
        try:
            return self._read(files, after, last, ())
        except LostFileError:
            entries: list[LogEntry] = []
            for file in sorted(files, key=lambda f: f.last, reverse=True):
                entries = [*self._read([file], after, last, ()), *entries]
                if any(entry.kind is EntryKind.END for entry in entries):
                    return entries
            raise

    def first_lsn_held(self, consumer: str) -> int | None:
        """Returns the smallest lsn of the consumer's entries in the log; None if the log has no entry of the
        consumer."""
        files = self._after(consumer, -1)
        return files[0].first if files else None

    def last_append(self, consumer: str) -> int:
        """Returns the number of the consumer's last append, 0 if there is none. Runs no Spark job."""
        with self._lock:
            version, number = self._appended.get(consumer, (-1, 0))
            if version < 0 or has_commit(self._system, self.path, version + 1):
                with naming_damage(
                    lambda: self._system, self.path, remedies.of_lost_log(self.path)
                ):
                    recorded = recorded_versions(self._spark, self.path, log_app_id(consumer))
                version, number = recorded[0], max(0, recorded[1])
                self._appended[consumer] = version, number
        return number

    def entries(
        self,
        consumer: str,
        after: int,
        *,
        appends_max: int = 16,
        before: int | None = None,
        tables: Collection[tuple[str, str]] | None = None,
    ) -> list[LogEntry]:
        """Returns the consumer's entries with lsn > `after`, in order, of at most `appends_max` appends.

        `before`: only entries with a smaller lsn are returned; `tables`: entries with rows are returned only for these
        tables, (database, table). Statements and END entries are always returned, claims are never returned. An empty
        list means that the log contains no such entry.
        """
        files = self._after(consumer, after)
        while files:
            last = last_lsn(append_of(after) + appends_max)
            if before is not None:
                last = min(last, before - 1)
            chosen = [f for f in files if f.first <= last]
            if chosen and (held := self._read(chosen, after, last, tables)):
                return held
            # These appends contain only claims, or their days were deleted.
            files = [f for f in files if f.last > last]
            if before is not None and last == before - 1:
                return []
            after = max(last, min((f.first for f in files), default=0) - 1)
        return []

    def _read(
        self,
        files: Sequence[LogFile],
        after: int,
        last: int,
        tables: Collection[tuple[str, str]] | None,
    ) -> list[LogEntry]:
        # If many appends are read, a smaller limit decides which payloads are omitted.
        span = append_of(last) - append_of(after)
        limit = INLINE_BYTES if span <= INLINE_APPENDS else INLINE_BYTES >> 4
        with self._naming_lost(files):
            rows = self._rows.read([f.path for f in files], after, last, limit, tables)
        return sorted(map(entry_of, rows), key=lambda entry: entry.lsn)

    def payloads(self, spark: SparkSession, consumer: str, lsns: Sequence[int]) -> DataFrame:
        """Returns a frame of `spark` with the columns `lsn` and `payload`, and with one row for each of the entries
        `lsns`."""
        paths = [f.path for f in self._files_with(consumer, lsns)]
        return (
            self._rows.frame(spark, paths)
            .where(F.col("lsn").isin(list(lsns)))
            .select("lsn", F.coalesce("small_payload", "payload").alias("payload"))
        )

    def local_payloads(self, consumer: str, lsns: Sequence[int]) -> dict[int, bytes] | None:
        """Returns the payloads of the entries `lsns`, by lsn, without a Spark job; None if the log is not on a local
        file system."""
        files = self._files_with(consumer, lsns)
        with self._naming_lost(files):
            return self._rows.local_payloads([f.path for f in files], lsns)

    def require_files(self, consumer: str, lsns: Sequence[int]) -> None:
        """Raises `LostFileError` if at least one file with these entries cannot be read."""
        self._require(self._files_with(consumer, lsns))

    @contextmanager
    def _naming_lost(self, files: Sequence[LogFile]) -> Iterator[None]:
        """Raises `LostFileError` in place of an exception of the body if at least one of `files` is lost."""
        try:
            yield
        except Exception:
            self._require(files)
            raise

    def _require(self, files: Sequence[LogFile]) -> None:
        for file in files:
            path = f"{self.path}/{file.path}"
            if why := why_lost(self._system, path):
                raise lost_file(file, path, why)

    def _files_with(self, consumer: str, lsns: Sequence[int]) -> list[LogFile]:
        wanted = sorted(lsns)
        return [
            f
            for f in self._after(consumer, wanted[0] - 1)
            if bisect_left(wanted, f.first) < bisect_right(wanted, f.last)
        ]

    def _after(self, consumer: str, lsn: int) -> list[LogFile]:
        with self._listing:
            return self._files.after(consumer, lsn)

    # -- retention -------------------------------------------------------------------------------------------

    def days(self, consumer: str) -> dict[date, int]:
        """Returns the days of the consumer's entries in the log, each with its largest lsn."""
        days: dict[date, int] = {}
        for f in self._after(consumer, -1):
            days[f.day] = max(f.last, days.get(f.day, 0))
        return days

    def forget(self, consumer: str, before: date) -> None:
        """Drop the consumer's days before `before`. Never drops the day of the newest END entry, or later days."""
        newest = self._newest_end(consumer, self.last_append(consumer))
        if newest is None:
            return
        kept = (day for day, last in self.days(consumer).items() if last >= newest[0])
        day = min([before, *kept])
        DeltaTable.forPath(self._session, self.path).delete(
            (F.col("consumer") == consumer) & (F.col("day") < F.lit(day))
        )

    def compact(self, consumer: str) -> None:
        """Rewrite the days that have many files into few files. A rewrite never conflicts with an append.

        The newest day may have more files than an older one, because it still grows, and its rows should not be
        rewritten each hour.
        """
        files: dict[date, int] = {}
        for f in self._after(consumer, -1):
            files[f.day] = files.get(f.day, 0) + 1
        newest = max(files, default=None)
        for day, count in sorted(files.items()):
            if count <= (COMPACTED_FILES_TODAY if day == newest else COMPACTED_FILES):
                continue
            (
                DeltaTable.forPath(self._session, self.path)
                .optimize()
                .where(f"consumer = {_literal(consumer)} AND day = DATE'{day}'")
                .executeCompaction()
            )


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def log_app_id(consumer: str) -> str:
    """Returns the id under which the log records the numbers of a consumer's appends."""
    return f"binlog-dispatcher/log/{consumer}"


def prepare_writing(session: SparkSession) -> None:
    """Configure how Spark writes the log's files. `session` must write no other files."""
    configured = session.sparkContext.getConf()
    for key, value in _WRITING.items():
        if not configured.contains(key):
            session.conf.set(key, value)


def entry_of(row: dict[str, Any]) -> LogEntry:
    """Returns the entry for a row of the log. The entry's payload is `small_payload`. The columns `payload`, `run`,
    `consumer` and `day` are not used."""
    values = {
        name: default if row[name] is None else row[name] for name, default in _DEFAULTS.items()
    }
    position = row["position"]
    kind = EntryKind(row["kind"])
    return LogEntry(
        lsn=row["lsn"],
        kind=kind,
        statement=statement_of(row) if kind is EntryKind.STATEMENT else None,
        payload=row["small_payload"],
        committed_at=row["committed_at"],
        position=None if position is None else Position.from_json(position),
        **values,
    )
