"""Facts about positions in a server's log, computed from the log itself."""

from __future__ import annotations

from dispatcher.dispatch.values.executed_position import (
    ExecutedPosition,
    executed_set,
    parse_set,
)
from dispatcher.model.position import Position
from tests.support.fake_server import Server


def file_index(server: Server, name: str) -> int | None:
    """The index of a file that the server has or had; None if it never had it."""
    files = server.log.files[: server.extent[0]]
    return next((i for i, file in enumerate(files) if file.name == name), None)


def distance(server: Server, a: ExecutedPosition, b: ExecutedPosition) -> int | None:
    """Bytes of the server's log between two positions; None if their files are purged."""
    if a.seq == b.seq and a.gtids == b.gtids:
        return 0
    at = [_bytes_before(server, place) for place in (a, b)]
    if at[0] is None or at[1] is None:
        return None
    return abs(at[0] - at[1])


def _bytes_before(server: Server, place: ExecutedPosition) -> int | None:
    index = file_index(server, place.file)
    if index is None or index < server.oldest:
        return None
    return sum(file.size for file in server.log.files[:index]) + place.offset


def lost_to_purge(server: Server, place: ExecutedPosition | None) -> bool:
    """True if the server has purged a transaction after the position."""
    if place is None:
        return False
    if server.mode.by_gtid:
        return not executed_set(place.gtids).contains(parse_set(server.mode, server.purged))
    index = file_index(server, place.file)
    return index is not None and index < server.oldest


def needed_file(server: Server, position: Position) -> int:
    """The index of the oldest file with a transaction after the position."""
    if not server.mode.by_gtid:
        return file_index(server, position.file) or 0
    held = parse_set(server.mode, position.gtid)
    done = server.log.transactions[: server.stop.transactions]
    name = next((t.file for t in done if not held.has(t.source, t.gno)), None)
    index = None if name is None else file_index(server, name)
    return server.extent[0] - 1 if index is None else index
