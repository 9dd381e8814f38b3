"""Rows of prepared XA transactions (`binlog.prepared`) as rows of the state store's table `prepared`."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from dispatcher.binlog.event.transaction_payload import Compression, Payload
from dispatcher.binlog.stream.xa_store import Changes, Entry, Flaw, Spot
from dispatcher.model.errors import Kind
from dispatcher.model.position import Mark

_COLUMNS = (
    "number, xid, server, file, offset, created, source, gno, ended, flaws, compression, size, rows"
)


def save(db: sqlite3.Connection, client: str, changes: Changes) -> None:
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


def load(db: sqlite3.Connection, client: str) -> list[Entry]:
    """In the order in which they were read."""
    query = f"SELECT {_COLUMNS} FROM prepared WHERE client = ? ORDER BY number"
    return [_entry(row) for row in db.execute(query, (client,))]


def _row(entry: Entry) -> tuple[object, ...]:
    at, rows = entry.at, entry.rows
    flaws = [[f.kind.value, f.what, f.remedy, f.targets] for f in entry.flaws]
    held = (None, None, None)
    if rows is not None:
        held = (int(rows.compression), rows.uncompressed_size, rows.data)  # type: ignore[assignment]
    return (
        entry.number, entry.xid, at.server, at.mark.file, at.mark.offset, at.mark.created, at.source, at.gno,
        entry.end and _spot_text(entry.end), json.dumps(flaws), *held,
    )  # fmt: skip


def _entry(row: Sequence[Any]) -> Entry:
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
        Flaw(Kind(kind), what, remedy, targets and tuple(tuple(target) for target in targets))
        for kind, what, remedy, targets in json.loads(flaws)
    )
    at = Spot(Mark(file, offset, created), source, gno, server)
    return Entry(number, xid, at, rows, found, ended and _spot(ended))


def _spot_text(spot: Spot) -> str:
    mark = spot.mark
    return json.dumps([spot.server, mark.file, mark.offset, mark.created, spot.source, spot.gno])


def _spot(text: str) -> Spot:
    server, file, offset, created, source, gno = json.loads(text)
    return Spot(Mark(file, offset, created), source, gno, server)
