"""One event on its way to the output."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.sql.statement import QueryKind

if TYPE_CHECKING:
    from dispatcher.inspect.tables import Table

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
# Belong to the statement that follows them.
BEFORE_STATEMENTS = frozenset(
    (K.ROWS_QUERY, K.MARIADB_ANNOTATE_ROWS, K.INTVAR, K.RAND, K.USER_VAR, K.BEGIN_LOAD_QUERY, K.APPEND_BLOCK,
     K.DELETE_FILE, K.CREATE_FILE, K.TRANSACTION_CONTEXT)
)  # fmt: skip
# Stand in a transaction, whatever it is about.
IN_TRANSACTIONS = frozenset(
    (K.XID, K.XA_PREPARE, K.TRANSACTION_PAYLOAD, K.LOAD, K.NEW_LOAD, K.EXEC_LOAD)
)


@dataclass(slots=True)
class Fields:
    """What an event holds, by the names of `docs/inspect.md`. Events that are equal share one, and so its renderings.

    `gtid`, `table`, `database`, `query_kind`: also in `data`, as far as the event has them; `error`: why the body could
    not be read; `lines`: further lines of the text output; `note`: the end of its first line;
    `rows_of`: the table of a rows event.
    """

    data: dict[str, Any] = field(default_factory=dict)
    gtid: str = ""
    database: str = ""
    table: str = ""
    query_kind: QueryKind | None = None
    sql_mode: int = 0
    error: str = ""
    note: str = ""
    lines: str = ""
    later: Callable[[Fields], None] | None = None
    rows_of: Table | None = None
    _json: str | None = None

    def complete(self) -> None:
        """Fill in what is needed only where the event is shown."""
        if self.later is not None:
            later, self.later = self.later, None
            later(self)

    def json(self) -> str:
        """`data` as the rest of a JSON object: `,"gtid":"..."`; "" where there is none."""
        if self._json is None:
            text = json.dumps(self.data, ensure_ascii=False, separators=(",", ":"), default=str)
            self._json = "," + text[1:-1] if self.data else ""
        return self._json


class InspectEntry:
    """An event: its header, its place, what it holds.

    `begins`: a transaction begins with it, or it is in none; `ends`: it is the last one of its transaction;
    `in_transaction`: it is part of one. `rows`: its rows, rendered; `row_count`: -1 where they could not be read, and
    `error` says why. `inside`: its number in the TRANSACTION_PAYLOAD at `offset`, or -1. `raw`: its bytes, where the
    output shows them.
    """

    __slots__ = (
        "begins", "ends", "error", "fields", "file", "flags", "in_transaction", "inside", "kind", "log_pos", "offset",
        "raw", "row_count", "rows", "server_id", "size", "timestamp",
    )  # fmt: skip

    def __init__(self, file: str, line: list[int], fields: Fields, inside: int) -> None:
        self.file = file
        (
            _,
            self.size,
            self.kind,
            self.timestamp,
            self.server_id,
            self.log_pos,
            self.flags,
            self.offset,
        ) = line
        self.fields = fields
        self.inside = inside
        self.begins = self.in_transaction = self.ends = False
        self.error = fields.error
        self.row_count = 0
        self.rows: list[bytes] = []
        self.raw: bytes | None = None
