"""Checks whether a position is part of a server's history, and finds the position on a server that a start means.

A server accepts wrong positions without an error: it interprets a GTID set from before a RESET as a set of its present
transactions, and an offset of a file from before a RESET as an offset of its present file with the same name. So before
each dump, the daemon compares the recorded creation time of the position's file with that of the server's file. Because
this time has only whole seconds, the daemon also checks the file's size and the event at the offset.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    Mode,
    executed_of,
    executed_set,
    make_executed,
    parse_set,
)
from dispatcher.dispatch.values.server_view import ServerView
from dispatcher.dispatch.values.specs import AtFile, AtGtid, AtTime, Earliest, Latest, Start
from dispatcher.model.errors import SEEK, BinlogError, ErrorKind, UserError
from dispatcher.model.gtid import ExecutedSet
from dispatcher.model.position import MARIADB_SERVER, Position, file_number

# Each offset about which the daemon asks a server costs a short dump, so the daemon checks only a few offsets. A few
# offsets suffice, because the consumers of one login are near each other in the log: if one of them has read this
# history, all of them have.
_PROBES_MAX = 8


def offsets_to_probe(offsets: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Choose the files and offsets about which to ask the server: the last offset in each file, and a few more."""
    ordered = sorted({(file, offset) for file, offset in offsets if file})
    last = {file: (file, offset) for file, offset in ordered}
    others = [at for at in ordered if at != last[at[0]]]
    return sorted([*last.values(), *others[:_PROBES_MAX]])


# -- starts ---------------------------------------------------------------------------------------------------


def resolve_start(view: ServerView, start: Start) -> ExecutedPosition:
    """Returns the position that a start means on this server. Raises BinlogError if the server has purged the position
    or never had it, or if the search for the start has failed."""
    result = view.starts.get(start)
    if isinstance(result, BinlogError):
        raise result
    if result is not None:
        return result
    executed = _named(view, start)
    if isinstance(start, AtGtid | AtFile):
        check_history(view, view.mode, view.server, executed, 0)
    return executed


def _named(view: ServerView, start: Start) -> ExecutedPosition:
    """Returns the position that a start names. Raises BinlogError if the server's mode has no such positions."""
    has_gtids = view.mode.by_gtid
    match start:
        case Earliest():
            oldest = view.files[0][0] if view.files else view.file
            return make_executed(view.mode, view.purged if has_gtids else "", oldest, 4)
        case Latest():
            return end_of_log(view)
        case AtGtid(gtids) if has_gtids:
            return make_executed(view.mode, gtids, "", 0)
        case AtGtid():
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                "a GTID set is no position of this server: it has no MySQL GTIDs",
                remedy="set gtid_mode=ON on the server, or start at earliest, latest or a file and offset",
            )
        case AtFile(file, offset) if not has_gtids:
            return make_executed(view.mode, "", file, offset)
        case AtFile(file, offset):
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                f"{file}:{offset} is no position of this server: it has GTIDs",
                remedy="start at a GTID set (SHOW BINLOG EVENTS shows the one before that offset), earliest or latest",
            )
        case AtTime():
            raise AssertionError("the log was not searched for the time")


def end_of_log(view: ServerView) -> ExecutedPosition:
    return make_executed(view.mode, view.executed, view.file, view.offset)


# -- positions ------------------------------------------------------------------------------------------------


def stored_position(mode: Mode, position: Position) -> ExecutedPosition:
    """Converts a position from the state store. Raises BinlogError if the position was stored in another mode."""
    try:
        executed = executed_of(mode, position)
    except UserError:
        executed = None
    if executed is None or not executed.seq_fits(mode):
        if mode.mariadb and position.server.startswith(MARIADB_SERVER):
            raise _other_hosts(mode, position)
        raise _differs(
            f"the server's mode is {mode} now, but the stored position is of another mode: {position.to_json()[:400]}"
        )
    return executed


def _other_hosts(mode: Mode, position: Position) -> BinlogError:
    """Returns the error if the position is of one host of MariaDB and the settings name several hosts, or the other way
    round."""
    now, before = ("several hosts", "one host") if mode is Mode.DOMAINS else ("one host", "several")
    return BinlogError(
        ErrorKind.HISTORY_DIFFERS,
        f"the settings name {now} of MariaDB now, and the stored position is of {before}",
        remedy=f"name {before} again; or, if its readers can begin at its stored position, move the consumer to"
        f" {position.gtid or 'earliest'}: {SEEK}",
    )


def check_history(
    view: ServerView,
    mode: Mode,
    server: str,
    executed: ExecutedPosition,
    created: int,
    *,
    anchored: bool = False,
) -> None:
    """Raises BinlogError if the server cannot continue from `executed`.

    `server`: the server from which the position was read. `created`: creation time of the position's file, s since
    1970, 0 = unknown. `anchored`: True if all transactions of the position lie before its file and offset (see
    `QueueFiles`).
    """
    if mode is not view.mode:
        raise _differs(f"the server's mode is {view.mode}, the position is of mode {mode}")
    if mode.by_gtid:
        _check_gtids(view, executed)
        _check_continuation(view, server, executed)
    elif server != view.server:
        raise _differs(f"the position is of server {server}, this is {view.server}")
    if not executed.file or server != view.server:
        return
    size = dict(view.files).get(executed.file)
    if size is None:
        _check_missing_file(view, mode, executed, anchored)
    else:
        _check_file(view, executed, size, created, anchored)


def _check_gtids(view: ServerView, executed: ExecutedPosition) -> None:
    gtids = executed_set(executed.gtids)
    if unknown := unwritten(view, gtids):
        raise _differs(f"the server never executed {abbreviated(unknown)}")
    if missing := parse_set(view.mode, view.purged).subtract(gtids):
        raise BinlogError(
            ErrorKind.POSITION_PURGED, f"the server has purged {abbreviated(missing)}"
        )


def continuation(mode: Mode, server: str, executed: ExecutedPosition) -> AtGtid | None:
    """Returns the search that shows whether a server's log contains MariaDB's GTIDs of a position, and everything that
    follows them; None if the mode needs no search.

    MySQL's set names its transactions: a server that has executed the set has these transactions. MariaDB's position
    names one transaction of each domain, and a server that has executed a transaction with a higher number may lack the
    named transaction.
    """
    if mode is not Mode.DOMAINS:
        return None
    return AtGtid(str(executed.gtids), server if executed.file else "")


def _check_continuation(view: ServerView, server: str, executed: ExecutedPosition) -> None:
    start = continuation(view.mode, server, executed)
    found = None if start is None else view.starts.get(start)
    if isinstance(found, BinlogError):
        raise found
    if start is not None and found is None and server != view.server:
        raise _differs(f"the log of server {view.server} was not searched for {executed.gtids}")


def unwritten(view: ServerView, gtids: ExecutedSet) -> ExecutedSet:
    """Returns the transactions of a set that the server's log cannot hold. The result contains no transaction that is
    being committed: the server sends such a transaction to replicas before it adds the transaction to its executed
    set."""
    return gtids.subtract(view.written)


def _check_missing_file(
    view: ServerView, mode: Mode, executed: ExecutedPosition, anchored: bool
) -> None:
    file, gtids = executed.file, executed.gtids
    if view.files and file_number(file) > file_number(view.files[-1][0]):
        raise _differs(f"{file} is newer than the server's newest, {view.files[-1][0]}")
    if not mode.by_gtid:
        raise BinlogError(ErrorKind.POSITION_PURGED, f"the server no longer has {file}")
    # All transactions of an anchored position lie before its file and offset, so they were purged with the file. After
    # a restore from an older copy, a server has the same GTIDs for other transactions, in later files.
    if anchored and (others := executed_set(gtids).subtract(parse_set(view.mode, view.purged))):
        raise _differs(
            f"the server has purged {file}, but not {abbreviated(others)}, which was read from there or before"
        )


def is_purged_up_to(view: ServerView, server: str, executed: ExecutedPosition) -> bool:
    """True if the server has purged the position's file, and exactly the transactions of its set.

    There are two possible reasons, which no answer of the server can distinguish. Either nothing was written between
    the position and the purge. Or the server was restored from an older copy of itself, has executed other transactions
    with the same numbers, and has purged these.
    """
    if not executed.file or server != view.server or not view.mode.by_gtid:
        return False
    missing = executed.file not in dict(view.files)
    return missing and executed.gtids == parse_set(view.mode, view.purged)


def _check_file(
    view: ServerView, executed: ExecutedPosition, size: int, created: int, anchored: bool
) -> None:
    file, offset, gtids = executed.file, executed.offset, executed.gtids
    now = view.created.get(file, 0)
    if created and now and created != now:
        raise _differs(
            f"{file} was created at {now} (seconds since 1970), the one that was read at {created}"
        )
    if offset > size:
        raise _differs(f"{file} has {size} bytes, the position is {offset}")
    boundary = view.boundaries.get((file, offset))
    if boundary is None:
        return
    if not boundary.whole:
        raise _differs(f"{file} has no event that ends at {offset}")
    gtid = boundary.gtid
    if gtid and anchored and view.mode.by_gtid and executed_set(gtids).has(*gtid):
        raise _differs(f"{gtid[0]}:{gtid[1]} begins at {file}:{offset}, and was read before it")


def _differs(text: str) -> BinlogError:
    return BinlogError(ErrorKind.HISTORY_DIFFERS, text)


def abbreviated(gtids: ExecutedSet) -> str:
    """Returns a set as text for a message, at most about 200 characters."""
    text = str(gtids)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(gtids)} transactions)"
