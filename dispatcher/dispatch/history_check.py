"""Is a place part of a server's history, and which place does a start mean there?

A server serves wrong positions without complaint: a GTID set from before a RESET just looks like a set that has some
transactions, a file of the same name like the same file. So both are checked before each dump: by the creation time of
the file that was being read, and, because that counts whole seconds, by its size and by what stands behind the place.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.executed_position import (
    ExecutedPosition,
    Mode,
    executed_of,
    make_executed,
    parse_gtids,
)
from dispatcher.dispatch.server_view import ServerView
from dispatcher.dispatch.specs import AtFile, AtGtid, AtTime, Earliest, Latest, Start
from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.position import Position, file_number

# Each place that a server is asked about costs a short dump. Consumers of one login stand near each other: where one of
# them has read this history, all have.
_PROBES_MAX = 8


def to_probe(places: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Of places (file, offset), those that a server is asked about: the last one in each file, and a few more."""
    ordered = sorted({(file, offset) for file, offset in places if file})
    last = {file: (file, offset) for file, offset in ordered}
    others = [place for place in ordered if place != last[place[0]]]
    return sorted([*last.values(), *others[:_PROBES_MAX]])


def resolve(view: ServerView, start: Start) -> ExecutedPosition:
    """The place that a start means on this server. Raises BinlogError if the server no longer has it, or never had."""
    found = view.starts.get(start)
    if isinstance(found, BinlogError):
        raise found
    if found is not None:
        return found
    executed = _named(view, start)
    if isinstance(start, AtGtid | AtFile):
        history(view, view.mode, view.server, executed, 0)
    return executed


def _named(view: ServerView, start: Start) -> ExecutedPosition:
    """Returns the position that a start names, as it stands. Raises BinlogError if the server counts in another way."""
    has_gtids = view.mode is Mode.GTID
    match start:
        case Earliest():
            oldest = view.files[0][0] if view.files else view.file
            return make_executed(view.mode, view.purged if has_gtids else "", oldest, 4)
        case Latest():
            return end_of(view)
        case AtGtid(gtids) if has_gtids:
            return make_executed(view.mode, gtids, "", 0)
        case AtGtid():
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                "start names a GTID set, but the server has no MySQL GTIDs",
                remedy="set gtid_mode=ON on the server, or start at earliest, latest or a file and offset",
            )
        case AtFile(file, offset) if not has_gtids:
            return make_executed(view.mode, "", file, offset)
        case AtFile(file, offset):
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                f"start names {file}:{offset}, but the server has GTIDs",
                remedy="start at a GTID set (SHOW BINLOG EVENTS shows the one before that offset), earliest or latest",
            )
        case AtTime():
            raise AssertionError("the log was not searched for the time")


def stored_place(mode: Mode, position: Position) -> ExecutedPosition:
    """The place of a position from the state store. Raises BinlogError if the server counted in another way then."""
    try:
        place = executed_of(mode, position)
    except UserError:
        place = None
    if (
        place is None
        or place.seq != make_executed(mode, position.gtid, place.file, place.offset).seq
    ):
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"the server's mode is {mode} now, the stored position {position.to_json()[:400]} is of another one",
        )
    return place


def history(
    view: ServerView,
    mode: Mode,
    server: str,
    place: ExecutedPosition,
    created: int,
    *,
    anchored: bool = False,
) -> None:
    """Raises BinlogError unless the server can go on from `place`, read from `server` when its file was `created`.

    `anchored`: all transactions of the place lie before its file and offset (see `Queue.is_anchored`).
    """
    if mode is not view.mode:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"the server's mode is {view.mode}, the position is of mode {mode}",
        )
    if mode is Mode.GTID:
        _gtid_history(view, place)
    elif server != view.server:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS, f"the position is of server {server}, this is {view.server}"
        )
    if not place.file or server != view.server:
        return
    if any(name == place.file for name, _ in view.files):
        _file_there(view, place, created, anchored)
    else:
        _file_gone(view, mode, place, anchored)


def _gtid_history(view: ServerView, place: ExecutedPosition) -> None:
    executed, purged = GtidSet.parse(view.executed), GtidSet.parse(view.purged)
    held = parse_gtids(Mode.GTID, str(place.gtids))
    assert isinstance(held, GtidSet)
    if unknown := held.subtract(executed):
        raise BinlogError(ErrorKind.HISTORY_DIFFERS, f"the server never executed {short(unknown)}")
    if missing := purged.subtract(held):
        raise BinlogError(ErrorKind.POSITION_PURGED, f"the server has purged {short(missing)}")


def _file_gone(view: ServerView, mode: Mode, place: ExecutedPosition, anchored: bool) -> None:
    """The server does not list the file of `place`."""
    if view.files and file_number(place.file) > file_number(view.files[-1][0]):
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"{place.file} is newer than the server's newest, {view.files[-1][0]}",
        )
    if mode is not Mode.GTID:
        raise BinlogError(ErrorKind.POSITION_PURGED, f"the server no longer has {place.file}")
    # All of an anchored place lay before its offset in its file, so all of it has been purged with the file. A server
    # that was restored from an older copy has the same GTIDs for other transactions, in later files.
    gtids = place.gtids
    assert isinstance(gtids, GtidSet)
    if anchored and (others := gtids.subtract(GtidSet.parse(view.purged))):
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"the server has purged {place.file}, but not {short(others)}, which was read from there or before",
        )


def _file_there(view: ServerView, place: ExecutedPosition, created: int, anchored: bool) -> None:
    sizes = dict(view.files)
    now = view.created.get(place.file, 0)
    if created and now and created != now:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"{place.file} was created at {now} (seconds since 1970), the one that was read at {created}",
        )
    if place.offset > sizes[place.file]:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"{place.file} has {sizes[place.file]} bytes, the position is {place.offset}",
        )
    at = view.boundaries.get((place.file, place.offset))
    if at is None:
        return
    if not at.whole:
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS, f"{place.file} has no event that ends at {place.offset}"
        )
    held = place.gtids
    if at.gtid and anchored and isinstance(held, GtidSet) and held.has(*at.gtid):
        source, number = at.gtid
        raise BinlogError(
            ErrorKind.HISTORY_DIFFERS,
            f"{source}:{number} begins at {place.file}:{place.offset}, and was read before it",
        )


def end_of(view: ServerView) -> ExecutedPosition:
    """Where the server's log ends."""
    return make_executed(view.mode, view.executed, view.file, view.offset)


def short(gtids: GtidSet) -> str:
    """A set for a message."""
    text = str(gtids)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(gtids)} transactions)"
