"""The control table on a local file system, without Spark: starting Spark takes longer than a person's command.

This module reads Delta's log itself, and appends rows in commits of its own (Delta protocol, "Add File"). To make a
commit, this module links a complete file to the commit's final name. This fails if another writer has already made a
commit with that name; the rows then get other numbers, and are written again.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.commit_actions import commit_actions
from spark_sink.mirror.lake.control_file import NAMES, copy_rows, file_of, request_row
from spark_sink.mirror.rules.control_rows import ControlRows, Row, latest_rows
from spark_sink.mirror.rules.table_record import Wish
from spark_sink.mirror.values.names import TableName, own_path

_ATTEMPTS = 20
# A table of a later protocol needs Delta's own reader and writer.
_READER_MAX, _WRITER_MAX = 1, 2


@dataclass(slots=True)
class LocalLog:
    """The newest version of a Delta table, from the files of its log. `files`: the table's files; `recorded`: the
    version that is recorded for each application id."""

    version: int = -1
    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, table: Path) -> LocalLog:
        """Read a log; the version is -1 if there is no table. Raises OSError, and ValueError for a log that only Delta
        can read."""
        log, folder = cls(), table / "_delta_log"
        newest = folder / "_last_checkpoint"
        if newest.exists():
            log._read_checkpoint(folder, int(json.loads(newest.read_text())["version"]))
        while (commit := folder / f"{log.version + 1:020d}.json").exists():
            for action in commit_actions(commit.read_text("utf-8")):
                log._apply(action)
            log.version += 1
        return log

    def _read_checkpoint(self, folder: Path, version: int) -> None:
        import pyarrow.parquet as pq  # noqa: PLC0415

        file = folder / f"{version:020d}.checkpoint.parquet"
        if not file.exists():
            raise ValueError(f"the checkpoint {version} has several parts")
        for row in pq.read_table(file).to_pylist():
            self._apply({name: value for name, value in row.items() if value is not None})
        self.version = version

    def _apply(self, action: Mapping[str, Any]) -> None:
        if add := action.get("add"):
            self.files[add["path"]] = add
        elif removed := action.get("remove"):
            self.files.pop(removed["path"], None)
        elif txn := action.get("txn"):
            self.recorded[txn["appId"]] = int(txn["version"])
        elif protocol := action.get("protocol"):
            self.protocol = protocol

    @property
    def is_plain(self) -> bool:
        """True if no feature changes how files are read and commits are made."""
        protocol = self.protocol
        return (
            protocol.get("minReaderVersion", 0) <= _READER_MAX
            and protocol.get("minWriterVersion", 0) <= _WRITER_MAX
            and not any(file.get("deletionVector") for file in self.files.values())
        )


def local_target(target: str) -> Path | None:
    """Returns the folder of a target on a local file system; None for another file system."""
    parts = urlsplit(target)
    if parts.scheme not in ("", "file") or parts.netloc:
        return None
    return Path(unquote(parts.path) if parts.scheme else target)


class LocalControl:
    """Reads the control table, and writes people's requests into it."""

    def __init__(self, table: Path) -> None:
        self._table = table

    @classmethod
    def of(cls, target: str) -> LocalControl | None:
        """Returns the control table of a target; None if only Spark can read it, or if there is none."""
        folder = local_target(target)
        if folder is None:
            return None
        table = Path(own_path(str(folder), "tables"))
        try:
            log = LocalLog.read(table)
        except (OSError, ValueError):
            return None
        return cls(table) if log.version >= 0 and log.is_plain else None

    def rows(self) -> ControlRows:
        """Returns the rows that no newer row replaces. Raises `BinlogError` TARGET_FILES."""
        return self._read()[1]

    def request(self, table_id: str, wish: Wish) -> None:
        """Write a request about a table. Raises `BinlogError`."""
        self._append([request_row(table_id, wish)])

    def request_copies(self, tables: Iterable[tuple[str, TableName]]) -> None:
        """Request copies of tables, by consumer and name, in one commit. Raises `BinlogError`."""
        self._append(copy_rows(tables))

    def _read(self) -> tuple[int, ControlRows]:
        """Returns the newest version and its rows. While this method reads, another process may delete a file that a
        newer version of the table no longer has. So after a failure, the method reads the newest version."""
        import pyarrow.parquet as pq  # noqa: PLC0415

        log = LocalLog.read(self._table)
        while True:
            rows: list[Row] = []
            try:
                for path in log.files:
                    file = self._table / unquote(path)
                    rows += pq.read_table(file, columns=list(NAMES), partitioning=None).to_pylist()
            except (OSError, ValueError) as error:
                newer = LocalLog.read(self._table)
                if newer.version == log.version:
                    raise BinlogError(
                        ErrorKind.TARGET_FILES,
                        f"the control table cannot be read: {error}",
                        where=str(self._table),
                    ) from None
                log = newer
            else:
                return log.version, latest_rows(rows)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        try:
            for _ in range(_ATTEMPTS):
                version, before = self._read()
                at = datetime.now(UTC)
                for number, row in enumerate(rows, before.serial + 1):
                    row |= {"serial": number, "at": at}
                if self._commit(version + 1, rows):
                    return
        except OSError as error:
            raise BinlogError(
                ErrorKind.TARGET_FILES,
                f"the request cannot be written: {error}",
                where=str(self._table),
                remedy="run the command as a user who may write into the target",
            ) from None
        raise BinlogError(
            ErrorKind.TARGET_FILES,
            "the request was not written, because other programs write all the time",
            where=str(self._table),
            remedy="try again",
        )

    def _commit(self, version: int, rows: Sequence[Row]) -> bool:
        """Write rows as one commit. Returns False if another writer has made the commit with this version."""
        data, name = file_of(rows), f"part-00000-{uuid.uuid4()}.parquet"
        _write(self._table / name, data)
        now = int(datetime.now(UTC).timestamp() * 1000)
        add = {
            "path": name,
            "partitionValues": {},
            "size": len(data),
            "modificationTime": now,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}),
        }
        info = {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "isolationLevel": "Serializable",
            "isBlindAppend": True,
            "engineInfo": "binlog-dispatcher",
            "txnId": str(uuid.uuid4()),
        }
        lines = [json.dumps({"commitInfo": info}), json.dumps({"add": add})]
        folder = self._table / "_delta_log"
        draft = folder / f".{uuid.uuid4()}.tmp"
        _write(draft, "".join(f"{line}\n" for line in lines).encode())
        try:
            _put(draft, folder / f"{version:020d}.json")
        except FileExistsError:
            (self._table / name).unlink()
            return False
        finally:
            draft.unlink()
        return True


def _put(draft: Path, path: Path) -> None:
    """Give a complete file its final name. Raises FileExistsError if there is such a file."""
    try:
        os.link(draft, path)
    except PermissionError:  # a file system without hard links
        _write(path, draft.read_bytes())


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
