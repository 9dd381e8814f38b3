"""Determines which transactions the copy of a table without a key shows. Pure.

The copy's rows come from one snapshot, which shows each transaction of the table as a whole or not at all. When the log
is replayed on the copy, the changes of these transactions are left out (`Snapshot`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import Position
from spark_sink.source.table_rows.positions import (
    has_same_seqs,
    is_mariadb_position,
    is_place,
    not_comparable,
)

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Determines which transactions of a table are contained in the rows of its copy. Picklable, because it is sent to
    the executors.

    `begin`: S, the position at the end of the mirror's log when the copy began; `executed`: the position that the
    server of the copy had executed when it made the snapshot. `table_server.snapshot_position` returns this position.
    Its `seq` is the number of executed transactions on a MySQL server with GTIDs; otherwise, it is computed from file
    and offset.
    """

    begin: Position
    executed: Position

    def unseen(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the changes of transactions that the snapshot does not show.

        On a MySQL server with GTIDs, the snapshot shows the transactions in the server's executed set. On MySQL without
        GTIDs, and on MariaDB if the copy and the log come from one host, the snapshot shows the transactions whose
        `seq` is not larger than that of the snapshot. If the log comes from several hosts of MariaDB, or from another
        host than the copy, the snapshot shows, of each GTID domain, the transactions up to the domain's executed
        number. Raises `BinlogError` if a change lacks its GTID, or if offsets in the binlogs of two servers would have
        to be compared.
        """
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.compute as pc  # noqa: PLC0415

        by_place = is_place(self.executed)
        if by_place and has_same_seqs(self.begin, self.executed):
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
