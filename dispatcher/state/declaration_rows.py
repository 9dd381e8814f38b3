"""Reads and writes the consumers that tokens have declared over the API, in both stores."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.dispatch.values.declaration import Declaration
from dispatcher.state.pages import rows_in_pages
from dispatcher.state.statements import Statements

COLUMNS = "name, owner, content, declared_at, read_at"


def load_declarations(db: Statements) -> list[Declaration]:
    """Returns all declarations, in the order of the consumers' names. Raises BinlogError (STATE_STORE) for an
    unreadable row."""
    rows = rows_in_pages(db, "declaration", COLUMNS, "name")
    return [Declaration.from_row(*row) for row in rows]


def insert_declarations(db: Statements, declarations: Sequence[Declaration]) -> None:
    rows = [each.to_row() for each in declarations]
    db.executemany(f"INSERT INTO declaration ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", rows)


def replace_declaration(db: Statements, declaration: Declaration) -> None:
    """Store a declaration, and delete what is stored for a consumer of this name, so that the new consumer begins at
    its `start`."""
    delete_declaration(db, declaration.name)
    insert_declarations(db, [declaration])


def delete_declaration(db: Statements, consumer: str) -> None:
    """Delete a declaration, and what is stored for its consumer."""
    for table in ("declaration", "consumer"):
        db.execute(f"DELETE FROM {table} WHERE name = ?", (consumer,))


def note_reads(db: Statements, consumers: Sequence[str], read_s: int) -> None:
    """Store that readers of these consumers have called at this time."""
    rows = [(read_s, name) for name in consumers]
    db.executemany("UPDATE declaration SET read_at = ? WHERE name = ?", rows)
