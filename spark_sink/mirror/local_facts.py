"""Reads facts about the tables of a target on a local file system, without Spark, because Spark takes long to start."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from spark_sink.mirror.copy.progress import CopyProgress
from spark_sink.mirror.copy.staged_copy import Commit, copy_id_of, newest_state, progress_of
from spark_sink.mirror.lake.commit_actions import commit_actions
from spark_sink.mirror.lake.local_control import LocalControl, LocalLog, local_target
from spark_sink.mirror.rules.control_rows import ControlRows
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.names import copy_folder, own_path

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("lsn", "kind", "database", "table", "rows", "committed_at")


class LocalFacts:
    """See `TargetFacts` of `table_lines`. The methods raise OSError and ValueError for files that only Delta can
    read."""

    def __init__(self, folder: Path, control: LocalControl) -> None:
        self._folder, self._control = folder, control
        self._newest: dict[str, tuple[dict[str, int], tuple[str, ...]]] = {}

    @classmethod
    def of(cls, target: str) -> LocalFacts | None:
        """Returns the facts of a target; None if only Spark can read it."""
        folder, control = local_target(target), LocalControl.of(target)
        return None if folder is None or control is None else cls(folder, control)

    def rows(self) -> ControlRows:
        return self._control.rows()

    def applied(self, record: TableRecord) -> int:
        recorded, _ = self._of_table(record)
        return recorded.get(f"binlog-dispatcher/table/{record.table_id}", -1)

    def features(self, record: TableRecord) -> tuple[str, ...]:
        return self._of_table(record)[1]

    def _of_table(self, record: TableRecord) -> tuple[dict[str, int], tuple[str, ...]]:
        """Returns the recorded versions of a table, and the features that it requires of its readers. The checksum file
        of the newest commit contains both; if this file is missing, the function reads the log."""
        place = record.lies_at
        if place not in self._newest:
            self._newest[place] = _newest_of(self._folder / place)
        return self._newest[place]

    def copied(self, record: TableRecord) -> CopyProgress | None:
        commits = list(_commits(self._folder / copy_folder(record.table_id)))
        return progress_of(newest_state(reversed(commits), copy_id_of(record)), record.label)

    def waiting(
        self, records: Sequence[TableRecord], applied: Mapping[str, int]
    ) -> dict[str, tuple[int, datetime | None]]:
        table = Path(own_path(str(self._folder), "log"))
        behind = {(r.consumer, *r.name): (r.table_id, applied[r.table_id]) for r in records}
        found: dict[str, tuple[int, datetime | None]] = {}
        for consumer, entries in _log_entries(table, min(applied.values())):
            for entry in entries.to_pylist():
                named = consumer, entry["database"], entry["table"]
                table_id, lsn = behind.get(named, ("", 0))
                if not table_id or entry["kind"] != "rows" or entry["lsn"] <= lsn:
                    continue
                rows, oldest = found.get(table_id, (0, None))
                times = [at for at in (oldest, entry["committed_at"]) if at is not None]
                found[table_id] = rows + entry["rows"], min(times, default=None)
        return found


def _newest_of(table: Path) -> tuple[dict[str, int], tuple[str, ...]]:
    commits = sorted((table / "_delta_log").glob("*.json"))
    if not commits:
        return {}, ()
    checksum = commits[-1].with_suffix(".crc")
    known: dict[str, Any] = json.loads(checksum.read_text("utf-8")) if checksum.exists() else {}
    if "setTransactions" in known and "protocol" in known:
        recorded = {txn["appId"]: int(txn["version"]) for txn in known["setTransactions"]}
        protocol = known["protocol"]
    else:
        log = LocalLog.read(table)
        recorded, protocol = log.recorded, log.protocol
    return recorded, tuple(sorted(protocol.get("readerFeatures") or ()))


def _commits(table: Path) -> Iterator[Commit]:
    for file in sorted((table / "_delta_log").glob("*.json")):
        for action in commit_actions(file.read_text("utf-8")):
            if info := action.get("commitInfo"):
                at = datetime.fromtimestamp(info["timestamp"] / 1000, UTC)
                yield at, info.get("userMetadata"), info.get("operationMetrics") or {}


def _log_entries(table: Path, after: int) -> Iterator[tuple[str, pa.Table]]:
    """Yields, for each file of the mirror's log that may have an entry with an lsn > `after`, the consumer and all
    entries of the file."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    log = LocalLog.read(table)
    for path, file in log.files.items():
        stats = json.loads(file.get("stats") or "{}")
        if stats.get("maxValues", {}).get("lsn", after + 1) <= after:
            continue
        entries = pq.read_table(table / unquote(path), columns=list(_COLUMNS), partitioning=None)
        yield dict(file["partitionValues"])["consumer"], entries
