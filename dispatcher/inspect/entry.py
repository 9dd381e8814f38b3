"""The model of `inspect`: an event, its fields, and the table of a rows event."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.statement import QueryKind
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError
from dispatcher.model.printable import json_escaped

K = EventType

GTIDS = frozenset((K.GTID, K.ANONYMOUS_GTID, K.GTID_TAGGED, K.MARIADB_GTID))
STATEMENTS = frozenset((K.QUERY, K.MARIADB_QUERY_COMPRESSED, K.EXECUTE_LOAD_QUERY))
INSERTS = frozenset(
    (K.WRITE_ROWS, K.WRITE_ROWS_V1, K.MARIADB_WRITE_ROWS_COMPRESSED, K.MARIADB_WRITE_ROWS_COMPRESSED_V1)
)  # fmt: skip
UPDATES = frozenset(
    (K.UPDATE_ROWS, K.UPDATE_ROWS_V1, K.PARTIAL_UPDATE_ROWS, K.MARIADB_UPDATE_ROWS_COMPRESSED,
     K.MARIADB_UPDATE_ROWS_COMPRESSED_V1)
)  # fmt: skip
DELETES = frozenset(
    (K.DELETE_ROWS, K.DELETE_ROWS_V1, K.MARIADB_DELETE_ROWS_COMPRESSED, K.MARIADB_DELETE_ROWS_COMPRESSED_V1)
)  # fmt: skip
ROWS = INSERTS | UPDATES | DELETES
# Events that belong to the statement after them.
BEFORE_STATEMENTS = frozenset(
    (K.ROWS_QUERY, K.MARIADB_ANNOTATE_ROWS, K.INTVAR, K.RAND, K.USER_VAR, K.BEGIN_LOAD_QUERY, K.APPEND_BLOCK,
     K.DELETE_FILE, K.CREATE_FILE, K.TRANSACTION_CONTEXT)
)  # fmt: skip
# Events that belong to a whole transaction and not to one of its tables.
IN_TRANSACTIONS = frozenset(
    (K.XID, K.XA_PREPARE, K.TRANSACTION_PAYLOAD, K.LOAD, K.NEW_LOAD, K.EXEC_LOAD)
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Fields:
    """The fields of an event, with the names in `docs/inspect.md`. Events with equal bodies share one `Fields` object.

    `data`: the fields of the JSON output. `gtid`, `table`, `database` and `query_kind`: the values of an event that has
    them, else empty. `error`: why the body cannot be parsed. `note`: the end of the event's second line in the text
    output; `lines`: the lines after it. `statement`: the statement of a QUERY event. `rows_of`: the table of a rows
    event. `complete_later`: parses the rest of a body that was parsed only in part.
    """

    data: dict[str, Any] = field(default_factory=dict)
    gtid: str = ""
    database: str = ""
    table: str = ""
    query_kind: QueryKind | None = None
    statement: LoggedStatement | None = None
    error: str = ""
    note: str = ""
    lines: str = ""
    complete_later: Callable[[Fields], None] | None = None
    rows_of: Table | None = None
    _json: str | None = None

    def complete(self) -> None:
        """Parse the rest of a body that was parsed only in part. Only the output needs these fields. Raises
        `BinlogError`."""
        if self.complete_later is not None:
            complete, self.complete_later = self.complete_later, None
            complete(self)

    def json(self) -> str:
        """Returns `data` as the rest of a JSON object, such as `,"gtid":"..."`; "" if `data` is empty."""
        if self._json is None:
            text = json.dumps(self.data, ensure_ascii=False, separators=(",", ":"), default=str)
            self._json = "," + json_escaped(text)[1:-1] if self.data else ""
        return self._json


@dataclass(slots=True, eq=False)
class Table:
    """One version of a table's columns.

    `body`: a TABLE_MAP body that names all columns. `map`: the parsed TABLE_MAP, None if the event's body cannot be
    parsed; `error` says why. `no_sign`, `no_charset`: indices of the columns whose sign or character set the log does
    not contain. `undecodable`: why no row of this table can be decoded, "" if rows can be decoded. `map_fields`: the
    fields that all TABLE_MAP events of this version share, None before the first such event is parsed; `rows_fields`:
    the same for rows events.
    """

    id: int
    database: str
    name: str
    body: bytes
    map: TableMap | None = None
    error: str = ""
    no_sign: frozenset[int] = frozenset()
    no_charset: frozenset[int] = frozenset()
    undecodable: str = ""
    map_fields: Fields | None = None
    rows_fields: Fields | None = None

    @property
    def label(self) -> str:
        return ".".join("`" + name.replace("`", "``") + "`" for name in (self.database, self.name))


class InspectEntry:
    """An event: its header, its offset, its fields.

    `begins`: True if a transaction begins with the event, or if the event is outside of transactions. `ends`: True if
    the event is the last one of its transaction. `rows`: the event's rows as output text; `row_count`: the number of
    rows, -1 if the rows cannot be read, and `error` then says why. `inside`: the event's number in the
    TRANSACTION_PAYLOAD at `offset`, -1 if the event is not in a TRANSACTION_PAYLOAD. `raw`: the event's bytes for a
    hexdump.
    """

    __slots__ = (
        "begins", "ends", "error", "fields", "file", "flags", "in_transaction", "inside", "kind", "log_pos", "offset",
        "raw", "row_count", "rows", "server_id", "size", "timestamp",
    )  # fmt: skip

    def __init__(self, file: str, line: list[int], fields: Fields, inside: int) -> None:
        """`line`: the event's row of `Block.events`."""
        self.file = file
        (_, self.size, self.kind, self.timestamp, self.server_id, self.log_pos, self.flags,
         self.offset) = line  # fmt: skip
        self.fields = fields
        self.inside = inside
        self.begins = self.in_transaction = self.ends = False
        self.error = fields.error
        self.row_count = 0
        self.rows: list[bytes] = []
        self.raw: bytes | None = None


def error_text(error: BinlogError) -> str:
    return f"{error.kind}: {error.what}"


def time_text(micros: int) -> str:
    """Returns microseconds since 1970 as ISO 8601 in UTC. Returns "" for 0, which servers write for an unknown time."""
    seconds, fraction = divmod(micros, 1_000_000)
    return f"{seconds_text(seconds)[:-1]}.{fraction:06}Z" if micros else ""


@lru_cache(4096)
def seconds_text(seconds: int) -> str:
    """Returns seconds since 1970 as ISO 8601 in UTC; "" for 0."""
    if not seconds:
        return ""
    try:
        return (_EPOCH + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{seconds} s since 1970Z"
