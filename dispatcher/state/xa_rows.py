"""Rows of prepared XA transactions (`binlog.prepared`) as rows of the state store's table `prepared`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.binlog.stream.xa_store import LogPoint, XaChanges, XaEntry, XaFault
from dispatcher.model.errors import ErrorKind
from dispatcher.model.position import LogPosition

_COLUMNS = (
    "number, xid, server, file, offset, created, source, gno, ended, flaws, compression, size, rows"
)


def save_xa(db: sqlite3.Connection, client: str, changes: XaChanges) -> None:
    """Within the caller's transaction. What is put may be there already."""
    db.executemany(
        f"INSERT OR REPLACE INTO prepared (client, {_COLUMNS}) VALUES ({', '.join('?' * 14)})",
        [(client, *_row(entry)) for entry in changes.put],
    )
    db.executemany(
        "UPDATE prepared SET ended = ? WHERE client = ? AND number = ?",
        [(_spot_text(end), client, number) for number, end in changes.ended],
    )
    db.executemany(
        "DELETE FROM prepared WHERE client = ? AND number = ?",
        [(client, number) for number in changes.gone],
    )


def load_xa(db: sqlite3.Connection, client: str) -> list[XaEntry]:
    """In the order in which they were read."""
    query = f"SELECT {_COLUMNS} FROM prepared WHERE client = ? ORDER BY number"
    return [_entry(row) for row in db.execute(query, (client,))]


def _row(entry: XaEntry) -> tuple[object, ...]:
    at, rows = entry.at, entry.rows
    flaws = [[f.kind.value, f.what, f.remedy, f.targets] for f in entry.flaws]
    held = (None, None, None)
    if rows is not None:
        held = (int(rows.compression), rows.uncompressed_size, rows.data)  # type: ignore[assignment]
    return (
        entry.number, entry.xid, at.server, at.mark.file, at.mark.offset, at.mark.created, at.source, at.gno,
        entry.end and _spot_text(entry.end), json.dumps(flaws), *held,
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> XaEntry:
    (
        number,
        xid,
        server,
        file,
        offset,
        created,
        source,
        gno,
        ended,
        flaws,
        compression,
        size,
        data,
    ) = row
    rows = None if compression is None else Payload(Compression(compression), size, data)
    found = tuple(
        XaFault(
            ErrorKind(kind), what, remedy, targets and tuple(tuple(target) for target in targets)
        )
        for kind, what, remedy, targets in json.loads(flaws)
    )
    at = LogPoint(LogPosition(file, offset, created), source, gno, server)
    return XaEntry(number, xid, at, rows, found, ended and _spot(ended))


def _spot_text(spot: LogPoint) -> str:
    mark = spot.mark
    return json.dumps([spot.server, mark.file, mark.offset, mark.created, spot.source, spot.gno])


def _spot(text: str) -> LogPoint:
    server, file, offset, created, source, gno = json.loads(text)
    return LogPoint(LogPosition(file, offset, created), source, gno, server)
