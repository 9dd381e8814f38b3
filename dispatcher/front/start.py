"""Decides where a dump begins: in the consumer's queue, or at a place that the daemon must find in the server's log.

The client's request decides where the dump begins, not the consumer's stored position. If the queue contains everything
that the client lacks, the session begins in the queue, and the relay drops events that the client already has.
Otherwise the session begins at the place that the client asks for, and the consumer reads the log from this place.

A client asks for a place in one of three ways:

* By file and offset. The offset may lie inside a transaction, because a client may advance its position with each
  event.
* By a set of MySQL's GTIDs. The client wants all transactions that are not in the set.
* By MariaDB's GTID state. In each domain, the client wants all transactions after the number in the state.

Sources: sql/rpl_binlog_sender.cc, Binlog_sender::check_start_file; MariaDB, sql/sql_repl.cc,
check_slave_start_position.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.dispatch.queue.queue import HeldRange
from dispatcher.dispatch.values.executed_position import ExecutedPosition, Mode
from dispatcher.dispatch.values.specs import AtFile, AtGtid, Earliest, Start
from dispatcher.front.dump.options import AfterGtids, AfterPlace
from dispatcher.model.gtid import GtidSet, MariadbGtids
from dispatcher.model.position import file_number

Wanted = AfterPlace | AfterGtids


@dataclass(frozen=True, slots=True)
class InQueue:
    """The session begins at the acknowledged position of the queue."""


Beginning = InQueue | Start


def beginning(
    wanted: Wanted, held: HeldRange | None, executed: GtidSet | MariadbGtids | None = None
) -> Beginning:
    """Return where the session of a dump begins. The source must have accepted the client's request.

    `held`: the range that the consumer's queue contains, None if the consumer has failed, or if the source's log is not
    the one that the consumer has read; `executed`: the source's executed GTIDs, None in a dump by file. GTIDs that the
    client has, but the source has not executed, are ignored, because a replica may have transactions of its own. On
    MySQL, single GTIDs are ignored; on MariaDB, whole domains.
    """
    match wanted:
        case AfterPlace(file, offset):
            if held is not None and _holds_place(held, file, offset):
                return InQueue()
            return AtFile(file, offset, inside=True) if file else Earliest()
        case AfterGtids(gtids):
            if held is not None and _holds_gtids(held, gtids):
                return InQueue()
            return AtGtid(str(gtids if executed is None else _of_source(gtids, executed)))


def _of_source(
    gtids: GtidSet | MariadbGtids, executed: GtidSet | MariadbGtids
) -> GtidSet | MariadbGtids:
    if isinstance(gtids, GtidSet) and isinstance(executed, GtidSet):
        return gtids.intersection(executed)
    assert isinstance(gtids, MariadbGtids) and isinstance(executed, MariadbGtids)
    domains = executed.domains()
    return MariadbGtids({name: gtid for name, gtid in gtids.domains().items() if name in domains})


def _holds_place(held: HeldRange, file: str, offset: int) -> bool:
    """True if the place lies between the acknowledged position and the queued one, and the queue has all transactions
    after the place."""
    first, last = held.acknowledged, held.queued
    if not (file and first.file and last.file):  # after a failover, the files are unknown at first
        return False
    if not held.anchored:
        return False
    if not _same_log(first, file) or not _same_log(last, file):
        return False
    return first.log_order <= (file_number(file), offset) <= last.log_order


def _same_log(executed: ExecutedPosition, file: str) -> bool:
    return executed.file.rpartition(".")[0] == file.rpartition(".")[0]


def _holds_gtids(held: HeldRange, gtids: GtidSet | MariadbGtids) -> bool:
    """True if the client has all transactions up to the acknowledged position. If the client also has transactions
    after that position, the relay drops these."""
    acknowledged = held.acknowledged.gtids
    if isinstance(gtids, MariadbGtids):
        return isinstance(acknowledged, MariadbGtids) and gtids.contains(acknowledged)
    if held.mode is not Mode.GTID or not isinstance(acknowledged, GtidSet):
        return False
    return gtids.contains(acknowledged)
