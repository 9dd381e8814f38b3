"""A transaction that a program gets from a binlog: its position, its bytes, and its changes as Python values.

Each property is computed when the program reads it, so a program that reads only positions decodes no rows. The bytes
are views of the queue's memory, which stays allocated while the views exist.

Rows are decoded column by column. Each call costs about a millisecond, whether it decodes one row or thousands. So a
`DecodeGroup` decodes the changes of a transaction together with those of the following transactions, up to 256 KiB of
binlog. If a transaction cannot be decoded, only this transaction raises the error.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.event.gtid import parse_gtid_event, parse_mariadb_gtid
from dispatcher.binlog.event.header import CHECKSUM_SIZE, HEADER_SIZE, MAGIC, EventHeader
from dispatcher.binlog.event.record import Record, parse_record
from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Column, InvalidDates, Type
from dispatcher.dispatch.queue.queue import QueuedTransaction
from dispatcher.model.errors import BinlogError
from dispatcher.model.position import Position
from dispatcher.stream.segments import release_pages

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS = 1024  # of a large transaction, this many rows are converted to Python values at a time
_GROUP_BYTES = 1 << 18
_MYSQL_GTIDS = (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED)


class Change(NamedTuple):
    """One changed row or, if `op` is "ddl", one statement that is not a row change.

    `before`, `after`: maps from column name to value, or None if the operation has no such image. A column that the
    server left out of the row image (binlog_row_image) is missing in the map. docs/types.md describes the values. Their
    Python types are int, float, str, Decimal, bytes, date, datetime (TIMESTAMP in UTC, DATETIME without a time zone),
    timedelta for TIME, None for NULL.

    For a DDL statement, `query` is the statement's text, `table` is "", and `database` is the session's default
    database, which may differ from the table's database. `maybe_temporary`: True if the log does not say whether the
    statement changed a table or a temporary table of the same name. `ordinal`: the number of the change within its
    transaction, the same in every replay.
    """

    op: str  # "insert", "update", "delete", "ddl"
    database: str
    table: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    ordinal: int
    query: str = ""
    maybe_temporary: bool = False


class Transaction:
    """One transaction of a server, with all its changes to the binlog's databases and tables."""

    __slots__ = ("_group", "_index", "_single")

    def __init__(self, group: DecodeGroup, index: int) -> None:
        self._group = group
        self._index = index
        self._single = group.singles[index]

    def __repr__(self) -> str:
        return f"<Transaction {self.gtid or f'{self.file}:{self.offset}'}, {self.size} bytes>"

    # -- position and GTID -----------------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """The position after the transaction. A program can acknowledge it, or begin a binlog at it.

        If GTID sets are large, this property takes longer than the others, so read it only as often as you acknowledge.
        """
        return self._single.position

    @property
    def epoch(self) -> int:
        """A number that grows after a reset of the server's log, after `BinlogClient.forget`, and after a gap
        (`on_purged="latest"`)."""
        return self._single.epoch

    @property
    def seq(self) -> int:
        """A number that grows with each transaction of an epoch. A transaction has the same (`epoch`, `seq`) in every
        replay."""
        return self._single.seq

    @property
    def file(self) -> str:
        """The server's binlog file in which the transaction ends."""
        return self._record.file

    @property
    def offset(self) -> int:
        """The offset in `file` at which the transaction ends."""
        return self._record.offset

    @property
    def committed_at(self) -> datetime:
        """The time of the commit in UTC, exact to the microsecond for MySQL 8.0 and newer, else to the second."""
        return _EPOCH + timedelta(microseconds=self._record.commit_us)

    @property
    def gtid(self) -> str:
        """The GTID: `uuid:number`, `uuid:tag:number` or MariaDB's `domain-server-sequence`; "" if the transaction has
        none."""
        kind, server_id, body = self._event(1)
        if kind in _MYSQL_GTIDS:
            gtid = parse_gtid_event(kind, body)
            return str(gtid) if gtid.source else ""
        if kind == EventType.MARIADB_GTID:
            return str(parse_mariadb_gtid(body, server_id))
        return ""

    # -- bytes and changes -----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of bytes of the transaction's events."""
        return sum(len(part) for part in self._single.parts)

    def parts(self) -> list[bytes | memoryview]:
        """Returns the bytes of `data` in parts, without copying them."""
        return _log([self._single])

    @property
    def data(self) -> bytes:
        """A binlog that contains only this transaction, for `mysqlbinlog` or `dispatcher.binlog.decode.delivered`."""
        data = b"".join(self.parts())
        for part in self._single.parts:
            release_pages(part)
        return data

    def changes(self, *, invalid_dates: InvalidDates = InvalidDates.NULL) -> Iterator[Change]:
        """Yields the transaction's changes in the order in which they were made.

        Decodes in the calling thread. A group of 256 KiB takes some milliseconds. A larger transaction is first decoded
        to Arrow as a whole (see `tables`). `invalid_dates`: see docs/types.md. Raises BinlogError if a change cannot be
        decoded (UNSUPPORTED_TYPE, METADATA_MISSING, INVALID_VALUE, ROW_IMAGE, STATEMENT_FORMAT).
        """
        changes = self._group.changes(self._index, invalid_dates)
        return iter(changes) if changes is not None else self._changes(invalid_dates)

    def _changes(self, invalid_dates: InvalidDates) -> Iterator[Change]:
        run: list[Iterator[Change]] = []
        for part in self.tables(invalid_dates=invalid_dates):
            if isinstance(part, TableChanges):
                run.append(_rows(part))
                continue
            yield from heapq.merge(*run, key=_ordinal)
            run = []
            yield _statement(part)
        yield from heapq.merge(*run, key=_ordinal)

    def tables(
        self, *, invalid_dates: InvalidDates = InvalidDates.NULL
    ) -> Iterator[TableChanges | Ddl]:
        """Yields the transaction's changes as Arrow batches, table by table: see
        `dispatcher.binlog.decode.delivered.changes`."""
        return delivered.changes(self.data, invalid_dates=invalid_dates)

    # -- the first events ------------------------------------------------------------------------------------

    @property
    def _record(self) -> Record:
        _, _, body = self._event(0)
        record = parse_record(body)
        assert record is not None, "a transaction in a queue begins with its record"
        return record

    def _event(self, number: int) -> tuple[int, int, bytes]:
        """Returns type, server id and body of an event before the first rows event. These events are always in the
        first part."""
        head, at = self._single.parts[0], 0
        for _ in range(number):
            at += EventHeader.read(head, at).size
        header = EventHeader.read(head, at)
        end = at + header.size - CHECKSUM_SIZE * self._single.format.checksum
        return header.type, header.server_id, bytes(head[at + HEADER_SIZE : end])


class DecodeGroup:
    """Transactions that were taken from a queue together, in their order."""

    def __init__(self, singles: Sequence[QueuedTransaction]) -> None:
        self.singles = singles
        # By the transaction's index; each entry is returned once.
        self._decoded: dict[int, list[Change]] = {}
        self._invalid_dates = InvalidDates.NULL
        self._decodable = True  # False after decoding several transactions together has failed

    def changes(self, index: int, invalid_dates: InvalidDates) -> list[Change] | None:
        """Returns the changes of one transaction, or None if the transaction must be decoded alone."""
        if invalid_dates is not self._invalid_dates:
            self._decoded, self._invalid_dates = {}, invalid_dates
        if index not in self._decoded and self._decodable:
            self._decoded = self._decode(index, self._end(index))
        return self._decoded.pop(index, None)

    def _end(self, first: int) -> int:
        """Returns the index after the last transaction that is decoded together with the transaction `first`."""
        left, end = _GROUP_BYTES, first
        while end < len(self.singles) and left >= 0:
            left -= sum(map(len, self.singles[end].parts))
            end += 1
        return end if left >= 0 else end - 1

    def _decode(self, first: int, end: int) -> dict[int, list[Change]]:
        """Returns the changes by transaction index. Returns {} for a single transaction, and if one of several
        transactions cannot be decoded."""
        if end - first < 2:
            return {}
        decoded: dict[int, list[Change]] = {}
        indices = {single.seq: n for n, single in enumerate(self.singles[first:end], first)}
        by_seq = {seq: decoded.setdefault(n, []) for seq, n in indices.items()}
        try:
            data = b"".join(_log(self.singles[first:end]))
            for part in delivered.changes(data, invalid_dates=self._invalid_dates):
                if isinstance(part, TableChanges):
                    seqs = part.batch.column("seq").to_pylist()
                    for seq, change in zip(seqs, _rows(part), strict=True):
                        by_seq[seq].append(change)
                else:
                    by_seq[part.seq].append(_statement(part))
        except BinlogError:
            # From now on each transaction is decoded alone, so that only the transaction with the error raises it.
            self._decodable = False
            return {}
        for changes in decoded.values():
            changes.sort(key=_ordinal)
        return decoded


def joined(transactions: Sequence[Transaction]) -> bytes:
    """Returns a binlog that contains only these transactions, in their order, for
    `dispatcher.binlog.decode.delivered`."""
    return b"".join(_log([transaction._single for transaction in transactions]))  # noqa: SLF001


def _log(singles: Iterable[QueuedTransaction]) -> list[bytes | memoryview]:
    """Returns, in parts, a binlog that contains only these transactions."""
    out: list[bytes | memoryview] = [MAGIC]
    format_ = None
    for single in singles:
        if single.format is not format_:
            format_ = single.format
            out.append(format_.raw)
        out += single.parts
    return out


def _ordinal(change: Change) -> int:
    return change.ordinal


def _statement(part: Ddl) -> Change:
    database, text = part.statement.database, part.statement.text
    return Change("ddl", database, "", None, None, part.ordinal, text, part.maybe_temporary)


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
        images = [row if exists else None for row, exists in zip(images, present, strict=True)]
    absent = batch.column(f"{which}_absent")
    if absent.null_count < len(absent):
        for row, absent_names in zip(images, absent.to_pylist(), strict=True):
            if row is not None and absent_names is not None:
                for name in absent_names:
                    del row[name]
    return images


def _python(values: pa.Array, column: Column) -> list[Any]:
    kind, type_ = values.type, column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # Cast to a type without a time zone, because Python needs a time zone database to convert Arrow's time zone.
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
