"""A transaction as a program gets it: where it stands, its bytes, and its changes as Python values.

All of it is made when it is asked for: a program that looks only at positions pays for nothing else. The bytes are
views of the queue's memory, which they keep, whatever becomes of the queue.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from dispatcher.binlog import delivered
from dispatcher.binlog.delivered import Ddl, TableChanges
from dispatcher.binlog.events import (
    CHECKSUM_SIZE,
    HEADER_SIZE,
    MAGIC,
    EventType,
    Record,
    parse_gtid_event,
    parse_mariadb_gtid,
    parse_record,
)
from dispatcher.binlog.types import Column, InvalidDates, Type
from dispatcher.dispatch.queue import Single
from dispatcher.model.position import Position

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 1024  # that are Python values at a time
_MYSQL_GTIDS = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED)


@dataclass(frozen=True, slots=True)
class Change:
    """One row that was changed, or (`op` is "ddl") one statement that is no row change.

    `before`, `after`: column name to value, None where the operation has none; a column that the server left out of the
    row image (binlog_row_image) is not in it. Values are those of docs/types.md, as Python has them: int, float, str,
    Decimal, bytes, date, datetime (TIMESTAMP in UTC, DATETIME without a zone), timedelta for TIME, None for NULL.

    `query`, `database`: of a DDL statement its text and the session's default database, which is not necessarily that
    of the table; `table` is "" then. `ordinal` orders the changes of a transaction, and is the same in every replay.
    """

    op: str  # "insert", "update", "delete", "ddl"
    database: str
    table: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    ordinal: int
    query: str = ""


class Transaction:
    """One transaction of a server, as far as it is of the binlog's databases and tables; never a part of it."""

    __slots__ = ("_single",)

    def __init__(self, single: Single) -> None:
        self._single = single

    def __repr__(self) -> str:
        return f"<Transaction {self.gtid or f'{self.file}:{self.offset}'}, {self.size} bytes>"

    # -- where it stands -------------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Behind it: to acknowledge, or to begin at. Costs more than the other properties where sets of GTIDs are
        large; a program that acknowledges now and then asks for it as often."""
        return self._single.position

    @property
    def epoch(self) -> int:
        """One higher whenever history changed, as behind a gap (`on_purged="latest"`)."""
        return self._single.epoch

    @property
    def seq(self) -> int:
        """Grows with each transaction of an epoch; (`epoch`, `seq`) is the same in every replay."""
        return self._record.seq

    @property
    def file(self) -> str:
        """The server's binlog file that it stands in."""
        return self._record.file

    @property
    def offset(self) -> int:
        """In `file`, just behind it."""
        return self._record.offset

    @property
    def committed_at(self) -> datetime:
        """In UTC; to the microsecond with MySQL 8.0 and newer, else to the second."""
        return _EPOCH + timedelta(microseconds=self._record.commit_us)

    @property
    def gtid(self) -> str:
        """`uuid:number`, `uuid:tag:number`, MariaDB's `domain-server-sequence`, or "" where it has none."""
        kind, server_id, body = self._event(1)
        if kind in _MYSQL_GTIDS:
            gtid = parse_gtid_event(kind, body)
            return str(gtid) if gtid.source else ""
        if kind == EventType.MARIADB_GTID:
            return str(parse_mariadb_gtid(body, server_id))
        return ""

    # -- what it holds ---------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Bytes of its events."""
        return sum(len(part) for part in self._single.parts)

    def parts(self) -> list[bytes | memoryview]:
        """`data` as it lies there: without a copy, however large it is."""
        return [MAGIC, self._single.format.raw, *self._single.parts]

    @property
    def data(self) -> bytes:
        """A binlog with this transaction alone, for `mysqlbinlog` or `dispatcher.binlog.delivered`."""
        return b"".join(self.parts())

    def changes(self, *, invalid_dates: InvalidDates = InvalidDates.NULL) -> Iterator[Change]:
        """Its changes in the order in which they were made. Decodes on the calling thread: some 10 µs for a row of ten
        columns, and for a transaction that is large its tables as Arrow first (see `tables`).

        `invalid_dates`: see docs/types.md. Raises BinlogError for what cannot be decoded (UNSUPPORTED_TYPE,
        METADATA_MISSING, INVALID_VALUE, ROW_IMAGE, STATEMENT_FORMAT).
        """
        run: list[Iterator[Change]] = []
        for part in self.tables(invalid_dates=invalid_dates):
            if isinstance(part, TableChanges):
                run.append(_rows(part))
                continue
            yield from _in_order(run)
            run = []
            yield Change("ddl", part.database, "", None, None, part.ordinal, part.query)
        yield from _in_order(run)

    def tables(
        self, *, invalid_dates: InvalidDates = InvalidDates.NULL
    ) -> Iterator[TableChanges | Ddl]:
        """Its changes as Arrow, table by table: see `dispatcher.binlog.delivered.changes`."""
        return delivered.changes(self.data, invalid_dates=invalid_dates)

    # -- its first events ------------------------------------------------------------------------------------

    @property
    def _record(self) -> Record:
        _, _, body = self._event(0)
        record = parse_record(body)
        assert record is not None, "a transaction in a queue begins with its record"
        return record

    def _event(self, number: int) -> tuple[int, int, bytes]:
        """(type, server id, body) of one of the events that stand before the first rows: they lie in one part."""
        head, at = self._single.parts[0], 0
        for _ in range(number):
            at += int.from_bytes(head[at + 9 : at + 13], "little")
        end = at + int.from_bytes(head[at + 9 : at + 13], "little")
        checksum = CHECKSUM_SIZE if self._single.format.checksum else 0
        body = bytes(head[at + HEADER_SIZE : end - checksum])
        return head[at + 4], int.from_bytes(head[at + 5 : at + 9], "little"), body


def _in_order(run: Sequence[Iterator[Change]]) -> Iterator[Change]:
    return heapq.merge(*run, key=lambda change: change.ordinal)


def _rows(part: TableChanges) -> Iterator[Change]:
    database, table = part.table_map.database, part.table_map.table
    for start in range(0, len(part.batch), _ROWS):
        batch = part.batch.slice(start, _ROWS)
        columns = part.table_map.columns
        images = (_images(batch, "before", columns), _images(batch, "after", columns))
        ops, ordinals = batch.column("op").to_pylist(), batch.column("ordinal").to_pylist()
        for op, before, after, ordinal in zip(ops, *images, ordinals, strict=True):
            yield Change(op, database, table, before, after, ordinal)


def _images(
    batch: pa.RecordBatch, which: str, columns: Sequence[Column]
) -> list[dict[str, Any] | None]:
    image = batch.column(which)
    if image.null_count == len(image):
        return [None] * len(image)
    names = [field.name for field in image.type]
    values = [_python(image.field(i), column) for i, column in enumerate(columns)]
    images: list[dict[str, Any] | None] = [
        dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)
    ]
    if image.null_count:
        present = image.is_valid().to_pylist()
        images = [row if there else None for row, there in zip(images, present, strict=True)]
    absent = batch.column(f"{which}_absent")
    if absent.null_count < len(absent):
        for row, lacking in zip(images, absent.to_pylist(), strict=True):
            if row is not None and lacking is not None:
                for name in lacking:
                    del row[name]
    return images


def _python(values: pa.Array, column: Column) -> list[Any]:
    kind, type_ = values.type, column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Without Arrow's zone, for which Python would need a database of zones.
        values = values.cast(pa.timestamp("us"))
        return [
            None if value is None else value.replace(tzinfo=UTC) for value in values.to_pylist()
        ]
    plain: list[Any] = values.to_pylist()
    if type_ in (Type.TIME2, Type.TIME_OLD):
        return [None if value is None else timedelta(microseconds=value) for value in plain]
    if type_ == Type.LONGLONG and pa.types.is_decimal(kind):
        return [None if value is None else int(value) for value in plain]
    if type_ == Type.NEWDECIMAL and pa.types.is_string(kind):
        return [None if value is None else Decimal(value) for value in plain]
    return plain
