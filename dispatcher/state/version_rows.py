"""Converts table versions to and from rows of the tables `stream` and `table_version`."""

from __future__ import annotations

import json

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.dispatch.tables.versions import StoredVersions
from dispatcher.model.position import LogPosition
from dispatcher.state.pages import rows_in_pages
from dispatcher.state.statements import Statements

_COLUMNS = (
    "database_name, table_name, start_file, start_offset, start_created, end_file, end_offset,"
    " end_created, open, definition"
)


def load_versions(db: Statements, client: str) -> StoredVersions | None:
    """The stored table versions of a client; None before the first `save_versions`."""
    row = db.execute(
        'SELECT server, file, "offset", created FROM stream WHERE client = ?', (client,)
    ).fetchone()
    if row is None:
        return None
    versions = tuple(
        ((v[0], v[1]), LogPosition(*v[2:5]), LogPosition(*v[5:8]), json.loads(v[9]), bool(v[8]))
        for v in rows_in_pages(db, "table_version", _COLUMNS, "rowid", client=client)
    )
    return StoredVersions(row[0], LogPosition(*row[1:]), versions)


def save_versions(db: Statements, client: str, versions: StoreVersions) -> None:
    """Write how far a client has read, and its table versions if they are given, within the caller's transaction."""
    mark = (versions.position.file, versions.position.offset, versions.position.created)
    if versions.versions is None:
        query = 'UPDATE stream SET file = ?, "offset" = ?, created = ? WHERE client = ?'
        db.execute(query, (*mark, client))
        return
    db.execute("DELETE FROM stream WHERE client = ?", (client,))
    db.execute("DELETE FROM table_version WHERE client = ?", (client,))
    row = (client, versions.versions.server, *mark)
    db.execute("INSERT INTO stream VALUES (?, ?, ?, ?, ?)", row)
    db.executemany(
        f"INSERT INTO table_version (client, {_COLUMNS}) VALUES ({', '.join('?' * 11)})",
        [
            (
                client, *name, start.file, start.offset, start.created, end.file, end.offset, end.created,
                int(open_), json.dumps(definition),
            )
            for name, start, end, definition, open_ in versions.versions.versions
        ],
    )  # fmt: skip
