"""The options of a connection and of a binlog. They are the daemon's settings, with the same names.

The models of the settings check the options, so error messages are those of the daemon. Sizes are bytes, or text like
"64MiB".
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
"""Where a binlog begins. "earliest": at the oldest transaction that the server has. "latest": at the end of the log. A
GTID set, which may have gaps: at the first transaction that is not in the set. A tuple: at this file and offset. A
datetime with a time zone: at the first transaction that was committed at this time or later. A Position: at this
position."""


class TlsOptions(TypedDict, total=False):
    """The options of TLS. `mode`: as in MySQL's --ssl-mode. The paths name PEM files."""

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
    """The options of a `BinlogClient`."""

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
    ignore_statements_in: list[str]  # names or patterns of databases


class BinlogOptions(TypedDict, total=False):
    """The options of a `Binlog`."""

    tables: list[str]  # "database.table", also patterns such as "shop.order_*"
    exclude_tables: list[str]  # in the form of `tables`
    max_bytes_in_binlog_queue: ByteSize
    max_milliseconds_to_wait_in_binlog_queue: int
    on_queue_full: Literal["detach", "wait"]
    on_purged: Literal["fail", "latest"]
    assume_current_schema: bool


class StateOptions(TypedDict, total=False):
    """`path`: the SQLite file; its folder is created if it is missing."""

    path: str | Path
    max_bytes_in_spill: ByteSize
    max_bytes_in_prepared: ByteSize


State = str | os.PathLike[str] | StateOptions


def start_setting(start: StartAt) -> Any:
    """Converts a start to the value of the daemon's setting `start`. Raises UserError for an invalid value, and for a
    Position, which this setting cannot express."""
    if isinstance(start, str):
        return start
    if isinstance(start, GtidSet | MariadbGtids):
        return {"gtid": str(start)}
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UserError(
                ErrorKind.SETTINGS, "start: a datetime without a time zone", remedy="give it one"
            )
        return {"timestamp": start}
    if isinstance(start, tuple) and len(start) == 2:
        return {"file": start[0], "offset": start[1]}
    raise UserError(
        ErrorKind.SETTINGS,
        f"start: {type(start).__name__} is not a position in a log",
        remedy="use earliest, latest, a GtidSet, (file, offset), a datetime or a Position",
    )
