"""Tests whether the log that a consumer reads has reached the position that a server had executed when rows were read
from this server. Pure.

Rows may show any transaction that was committed when they were read, so the log has to be read up to a position that
covers all of these transactions. If the rows were read from the consumer's server, this position is the end of the
server's binlog after the rows were read, because a transaction is in the binlog before its rows are visible. If the
rows were read from a replica, which has another binlog, the position is the GTID set that the replica has received and
executed.
"""

from __future__ import annotations

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import MARIADB_SERVER, Position, file_number, packed_seq


def is_mariadb_position(position: Position) -> bool:
    return position.server.startswith(MARIADB_SERVER)


def is_place(position: Position) -> bool:
    """True if the position's seq is computed from its file and offset, which have a meaning only on the position's own
    server. False if the position is a set of GTIDs; its seq then grows with the set."""
    return position.seq == packed_seq(position.file, position.offset)


def has_same_seqs(one: Position, other: Position) -> bool:
    """True if the seqs of two positions can be compared."""
    return one.server == other.server and is_place(one) == is_place(other)


def contains_executed(position: Position, executed: Position) -> bool:
    """True if the log up to `position` contains all transactions of `executed`, a position that was reported by the
    server from which the rows were read.

    Raises `BinlogError` SERVER_SETTING if the two positions cannot be compared.
    """
    if position.server == executed.server and position.file and executed.file:
        ours = (file_number(position.file), position.offset)
        return ours >= (file_number(executed.file), executed.offset)
    if not position.gtid or not executed.gtid:
        raise not_comparable(position.server, executed.server)
    if is_mariadb_position(position):
        return MariadbGtids.parse(position.gtid).contains(MariadbGtids.parse(executed.gtid))
    return GtidSet.parse(position.gtid).contains(GtidSet.parse(executed.gtid))


def not_comparable(consumer_server: str, copied_server: str) -> BinlogError:
    return BinlogError(
        ErrorKind.SERVER_SETTING,
        f"the copied server ({copied_server}) is not the server that the consumer reads ({consumer_server}), and the"
        " positions of two servers cannot be compared unless both servers use GTIDs",
        remedy="copy from the server that the consumer reads, or set gtid_mode=ON on both servers",
    )
