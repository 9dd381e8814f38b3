"""Converts prepared XA transactions (`stream.xa_store`) to and from rows of the table `prepared`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.model.errors import ErrorKind
from dispatcher.model.position import LogPosition
from dispatcher.state.pages import rows_in_pages
from dispatcher.state.statements import Statements
from dispatcher.stream.xa_store import LogPoint, XaChanges, XaEntry, XaFault

_COLUMNS = (
    'number, xid, server, file, "offset", created, source, gno, ended, flaws, compression, size,'
    ' "rows"'
)

Data = bytes | memoryview


def _same(data: Data) -> Data:
    return data


def save_xa(
    db: Statements, client: str, changes: XaChanges, kept: Callable[[Data], Data] = _same
) -> None:
    """Write the changes within the caller's transaction. Entries that are stored already are replaced.

    `kept`: called with the rows of an entry; returns the value for the column `rows`, for example an id if the caller
    stores the rows in another table.
    """
    db.executemany(
        f"REPLACE INTO prepared (client, {_COLUMNS}) VALUES ({', '.join('?' * 14)})",
        [(client, *_row(entry, kept)) for entry in changes.put],
    )
    db.executemany(
        "UPDATE prepared SET ended = ? WHERE client = ? AND number = ?",
        [(json.dumps(_point_columns(end)), client, number) for number, end in changes.ended],
    )
    db.executemany(
        "DELETE FROM prepared WHERE client = ? AND number = ?",
        [(client, number) for number in changes.gone],
    )


def load_xa(db: Statements, client: str, found: Callable[[Data], Data] = _same) -> list[XaEntry]:
    """The client's transactions in the order of their numbers. `found`: the inverse of `kept`, see `save_xa`."""
    rows = rows_in_pages(db, "prepared", _COLUMNS, "number", client=client)
    return [_entry(row, found) for row in rows]


def _row(entry: XaEntry, kept: Callable[[Data], Data]) -> tuple[object, ...]:
    faults = [[fault.kind.value, fault.what, fault.remedy, fault.targets] for fault in entry.faults]
    end = entry.end and json.dumps(_point_columns(entry.end))
    rows = entry.rows
    payload = (
        (int(rows.compression), rows.uncompressed_size, kept(rows.data)) if rows else (None,) * 3
    )
    return entry.number, entry.xid, *_point_columns(entry.at), end, json.dumps(faults), *payload


def _entry(row: Sequence[Any], found: Callable[[Data], Data]) -> XaEntry:
    number, xid, *point, ended, faults, compression, size, data = row
    rows = None if compression is None else Payload(Compression(compression), size, found(data))
    flaws = tuple(
        XaFault(ErrorKind(kind), what, remedy, targets and tuple(map(tuple, targets)))
        for kind, what, remedy, targets in json.loads(faults)
    )
    return XaEntry(number, xid, _point(point), rows, flaws, ended and _point(json.loads(ended)))


def _point_columns(point: LogPoint) -> tuple[object, ...]:
    mark = point.mark
    return point.server, mark.file, mark.offset, mark.created, point.source, point.gno


def _point(columns: Sequence[Any]) -> LogPoint:
    server, file, offset, created, source, gno = columns
    return LogPoint(LogPosition(file, offset, created), source, gno, server)
