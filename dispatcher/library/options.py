"""What a program may say of a connection and a binlog: the daemon's settings, under their own names.

They are checked by the models of the settings, so what is wrong is said alike. Sizes are bytes, or text like "64MiB".
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypedDict

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import Position

ByteSize = int | str

StartAt = (
    Literal["earliest", "latest"] | GtidSet | MariadbGtids | tuple[str, int] | datetime | Position
)
"""Where a binlog begins: the oldest or the newest that the server has; behind a set of GTIDs, any set, with gaps; a
file and an offset; the first transaction that was committed at a moment (with its zone) or later; or behind a position
that a transaction had."""


class TlsOptions(TypedDict, total=False):
    """`mode` as in MySQL's --ssl-mode; PEM files."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]
    ca: str | Path
    cert: str | Path
    key: str | Path
    server_public_key: str | Path
    allow_public_key_retrieval: bool


class FilesOptions(TypedDict, total=False):
    """A folder of binlog files in place of a server: docs/files.md."""

    path: str | Path
    prefix: str
    follow: bool


class ConnectionOptions(TypedDict, total=False):
    """Of a `BinlogClient`."""

    password: str
    password_file: str | Path
    tls: TlsOptions
    files: FilesOptions
    max_bytes_to_merge: ByteSize
    max_bytes_in_all_queues: ByteSize
    failover_wait_seconds: int
    max_bytes_in_binlog_dispatcher_buffer: ByteSize
    max_flush_milliseconds_in_binlog_dispatcher: int
    heartbeat_milliseconds: int


class BinlogOptions(TypedDict, total=False):
    """Of a `Binlog`."""

    tables: list[str]  # "database.table"
    max_bytes_in_binlog_queue: ByteSize
    max_milliseconds_to_wait_in_binlog_queue: int
    on_queue_full: Literal["detach", "wait"]
    on_purged: Literal["fail", "latest"]
    assume_current_schema: bool


class StateOptions(TypedDict, total=False):
    """`path`: the SQLite file; its folder is made when missing."""

    path: str | Path
    max_bytes_in_spill: ByteSize
    max_bytes_in_prepared: ByteSize


State = str | os.PathLike[str] | StateOptions


def written(start: StartAt) -> Any:
    """As the settings write it. A position is not for them. Raises UserError."""
    if isinstance(start, str):
        return start
    if isinstance(start, GtidSet | MariadbGtids):
        return {"gtid": str(start)}
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UserError(
                ErrorKind.SETTINGS, "start: a datetime without a zone", remedy="give it one"
            )
        return {"timestamp": start}
    if isinstance(start, tuple) and len(start) == 2:
        return {"file": start[0], "offset": start[1]}
    raise UserError(
        ErrorKind.SETTINGS,
        f"start: {type(start).__name__} is no place in a log",
        remedy="say earliest, latest, a GtidSet, (file, offset), a datetime or a Position",
    )
