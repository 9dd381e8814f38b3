"""Copies everything that one state store holds into another store, and moves the state from a file to a database or
back.

During a move no daemon may use either store: the move holds the locks of the file, and the lock of the database's
lease. The target gets everything in one transaction. Then the move marks the source as moved; the source keeps its
contents. No daemon opens a marked store, so a daemon with the former settings cannot continue from outdated positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dispatcher.dispatch.messages.effects import StoreVersions
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.settings.model import StateSettings
from dispatcher.state.database_dump import reading_database
from dispatcher.state.declaration_rows import insert_declarations, load_declarations
from dispatcher.state.files import beside
from dispatcher.state.lease import lease_row
from dispatcher.state.newest import Loss
from dispatcher.state.pages import rows_in_pages
from dispatcher.state.schema import mark_moved
from dispatcher.state.server.parts import PartRows, read_parts, write_parts
from dispatcher.state.server.schema import create_tables, readable
from dispatcher.state.server.session import DatabaseSession
from dispatcher.state.statements import Statements
from dispatcher.state.store import StateStore
from dispatcher.state.version_rows import load_versions, save_versions
from dispatcher.state.xa_rows import load_xa, save_xa
from dispatcher.stream.xa_store import XaChanges, XaEntry

_CONSUMERS = "name, session, acknowledged, covered, file_created, paused"
_SIZES = """
SELECT (SELECT count(*) FROM consumer) + (SELECT count(*) FROM stream) + (SELECT count(*) FROM prepared)
  + (SELECT count(*) FROM declaration)
"""


@dataclass(frozen=True, slots=True)
class StateCounts:
    """The counts of what was copied. `sessions`: consumers with a session; `declarations`: consumers that tokens have
    declared; `prepared_bytes`: the bytes of rows of prepared transactions.

    `losses`: consumers whose positions in the source are older than what was acknowledged, see `newest`.
    """

    installation: str
    epoch: int
    consumers: int
    positions: int
    sessions: int
    declarations: int
    connections: int
    table_versions: int
    prepared: int
    prepared_bytes: int
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A store with an open transaction. `load`, `save`: read and write a client's prepared transactions; `mark`: marks
    the store as moved."""

    db: Statements
    load: Callable[[str], list[XaEntry]]
    save: Callable[[str, list[XaEntry]], None]
    mark: Callable[[str], None]
    losses: tuple[Loss, ...] = ()


def move_state(source: StateSettings, target: StateSettings) -> StateCounts:
    """Move the state. Raises BinlogError. After an error the target is unchanged, except if the connection was lost
    during the commit or the source could not be marked."""
    if source.label == target.label:
        what = f"both settings name the store {source.label}"
        raise UserError(ErrorKind.SETTINGS, what, remedy="name another store in the new settings")
    with _used_alone(source) as old:
        with _used_alone(target, new=True) as new:
            counts = _copy(old, new)
        old.mark(target.label)
    return counts


def back_up_database(settings: StateSettings, target: Path) -> int:
    """Copy the state in a database, as it is at one moment, to a file that must not exist yet. Returns the size of the
    file in bytes."""
    with reading_database(settings) as db:
        place = _Place(db, lambda client: _load_parts(db, client), _refuse, _refuse)
        with _file(target, new=True) as copy:
            _copy(place, copy)
    return target.stat().st_size


def _refuse(*_: object) -> None:
    raise AssertionError("the source is only read")


def _copy(source: _Place, target: _Place) -> StateCounts:
    installation, epoch = source.db.execute("SELECT id, epoch FROM installation").fetchone()
    target.db.execute("UPDATE installation SET id = ?, epoch = ?", (installation, epoch))
    consumers = list(rows_in_pages(source.db, "consumer", _CONSUMERS, "name"))
    values = ", ".join("?" * 6)
    target.db.executemany(f"INSERT INTO consumer ({_CONSUMERS}) VALUES ({values})", consumers)
    declarations = load_declarations(source.db)
    insert_declarations(target.db, declarations)
    clients = _clients(source.db, "stream")
    versions = 0
    for client in clients:
        stored = load_versions(source.db, client)
        assert stored is not None and stored.position is not None
        versions += len(stored.versions)
        save_versions(target.db, client, StoreVersions(stored.position, stored))
    entries: list[XaEntry] = []
    for client in _clients(source.db, "prepared"):
        prepared = source.load(client)
        target.save(client, prepared)
        entries += prepared
    return StateCounts(
        installation,
        epoch,
        len(consumers),
        sum(row[2] is not None for row in consumers),
        sum(row[1] > 0 for row in consumers),
        len(declarations),
        len(clients),
        versions,
        len(entries),
        sum(len(entry.rows.data) for entry in entries if entry.rows is not None),
        source.losses,
    )


def _clients(db: Statements, table: str) -> list[str]:
    query = f"SELECT DISTINCT client FROM {table} ORDER BY client"
    return [str(client) for (client,) in db.execute(query)]


@contextmanager
def _used_alone(state: StateSettings, *, new: bool = False) -> Iterator[_Place]:
    """Open the store of these settings for one transaction, so that no daemon can use it. `new`: True if the store must
    be empty."""
    if state.mysql is None:
        with _file(state.path, new=new) as place:
            yield place
    else:
        with _database(state, new=new) as place:
            yield place


# -- a file ---------------------------------------------------------------------------------------------------


@contextmanager
def _file(path: Path, *, new: bool) -> Iterator[_Place]:
    if new and path.exists():
        raise UserError(
            ErrorKind.SETTINGS, f"{path} exists already", remedy="name a file that does not exist"
        )
    if not new and not path.is_file():
        raise UserError(
            ErrorKind.SETTINGS, f"{path}: no such file", remedy="check state.path in the settings"
        )
    if new:
        beside(path, ".newest").unlink(missing_ok=True)  # left from an earlier store
    try:
        with closing(StateStore(path)) as store, store.transaction() as db:
            yield _Place(
                db,
                lambda client: load_xa(db, client),
                lambda client, entries: save_xa(db, client, XaChanges(tuple(entries), (), ())),
                lambda target: mark_moved(db, target),
                store.losses,
            )
    except BaseException:
        if new:
            for end in ("", "-wal", "-shm", ".lock", ".newest"):
                beside(path, end).unlink(missing_ok=True)
        raise


# -- a database -----------------------------------------------------------------------------------------------


@contextmanager
def _database(state: StateSettings, *, new: bool) -> Iterator[_Place]:
    with closing(DatabaseSession(state)) as session:
        (create_tables if new else readable)(session)
        with session.transaction() as db:
            row = lease_row(db, lock=True)
            if not row.free:
                what = f"a daemon uses the state: {row.address} has the lease, in term {row.term}"
                remedy = f"stop all daemons that use {state.label}"
                raise BinlogError(ErrorKind.STATE_STORE, what, where=state.label, remedy=remedy)
            if new and db.execute(_SIZES).fetchone()[0]:
                what = "the database holds a state already"
                remedy = "name an empty database; if it holds the copy of a move that was interrupted, drop its tables"
                raise UserError(ErrorKind.SETTINGS, what, where=state.label, remedy=remedy)
            # A cluster compares only changed rows. So change the row of the lease: then another daemon cannot take the
            # lease meanwhile.
            db.execute("UPDATE lease SET writes = writes + 1")
            yield _Place(
                db,
                lambda client: _load_parts(db, client),
                lambda client, entries: _save_parts(db, client, entries),
                lambda target: _mark(db, target),
            )


def _load_parts(db: Statements, client: str) -> list[XaEntry]:
    return load_xa(db, client, lambda key: read_parts(db, key))


def _save_parts(db: Statements, client: str, entries: list[XaEntry]) -> None:
    parts = PartRows(entries)
    for group in (*parts.groups, parts.small):
        write_parts(db, group)
    save_xa(db, client, XaChanges(tuple(entries), (), ()), parts.keys())


def _mark(db: Statements, target: str) -> None:
    db.execute("UPDATE installation SET moved_to = ?", (target,))
