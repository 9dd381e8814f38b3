"""Positions of a copy: up to where its rows may show transactions, and whether the log has reached that position. Pure.

A copy's rows may show every transaction that was committed when they were read, so the log has to be replayed up to a
position that covers all of these transactions. On the server that the consumer reads, this position is the end of its
binlog, asked for after the rows were read: a transaction is in the binlog before its rows are visible. On a replica,
which has another binlog, it is the GTID set that the replica has received and executed.

The rows of a table without a key come from one snapshot, which shows each transaction of the table as a whole or not at
all. The log's changes of transactions that the snapshot shows are left out (`Snapshot`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import Position, file_number, packed_seq

if TYPE_CHECKING:
    import pyarrow as pa


def is_mariadb_position(position: Position) -> bool:
    return position.server.startswith("mariadb-")


def contains_executed(position: Position, executed: Position) -> bool:
    """True if the log up to `position` holds all transactions of `executed`, which the server of the copy has reported.

    Raises `BinlogError` SERVER_SETTING if the two cannot be compared.
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
        f"the copied server ({copied_server}) is not the one that the consumer reads ({consumer_server}), and without"
        " GTIDs on both their positions cannot be compared",
        remedy="copy from the server that the consumer reads, or set gtid_mode=ON on both",
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Says which transactions of a table the rows of its copy show. It is sent to the executors.

    `begin`: S, a position of the log; `executed`: what the server of the copy had executed when the snapshot was made,
    as `copy.server.snapshot_position` returns it: its `seq` is the number of GTIDs, or the packed file and offset.
    """

    begin: Position
    executed: Position

    def unseen(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the changes of transactions that the snapshot does not show.

        For a MySQL server with GTIDs, the executed set decides. For another server, the place in its log decides: `seq`
        is that of the transaction's end. For a replica of MariaDB, the numbers of each domain decide. Raises
        `BinlogError` if the changes lack what is compared.
        """
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        by_place = self.executed.seq == packed_seq(self.executed.file, self.executed.offset)
        if by_place and self.begin.server == self.executed.server:
            return changes.filter(pc.greater(changes.column("seq"), self.executed.seq))
        if by_place and not is_mariadb_position(self.executed):
            raise not_comparable(self.begin.server, self.executed.server)
        gtids = changes.column("gtid").dictionary_encode()
        if gtids.null_count:
            raise BinlogError(
                ErrorKind.SERVER_SETTING,
                "transactions without a GTID were committed during the copy of a table without a key",
                where=self.begin.server,
                remedy="copy the table again when all transactions have a GTID",
            )
        shown = _mariadb_shown if by_place else _mysql_shown
        unseen = [not is_shown for is_shown in shown(self.executed.gtid, gtids.dictionary)]
        return changes.filter(pa.array(unseen, pa.bool_()).take(gtids.indices))


def _mysql_shown(executed: str, gtids: pa.Array) -> list[bool]:
    shown = GtidSet.parse(executed)
    return [shown.contains(GtidSet.parse(gtid)) for gtid in gtids.to_pylist()]


def _mariadb_shown(executed: str, gtids: pa.Array) -> list[bool]:
    shown = MariadbGtids.parse(executed)
    return [shown.contains(MariadbGtids.parse(gtid)) for gtid in gtids.to_pylist()]
