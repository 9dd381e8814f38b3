"""Decides where a dump begins: within the consumer's queue, or at a place that the server must find.

The client's request decides, not the stored position. The session begins in the queue if the queue holds everything
that the client lacks; then events that the client has are dropped before they are sent. Otherwise the session begins at
the client's place, and the consumer reads the log from there.

Three kinds of requests exist. By file and offset; the offset may lie inside a transaction, because a client may count
its position event by event. By MySQL's set of GTIDs: everything that is not in the set. By MariaDB's state: in each
domain everything behind the state's number.

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


def beginning(wanted: Wanted, held: HeldRange | None, executed: GtidSet | None = None) -> Beginning:
    """Return where the session of a dump begins.

    `held`: what the consumer's queue holds, None if the consumer has failed; `executed`: what the source has executed.
    A replica may also have transactions of its own, which are not in the source's log.
    """
    match wanted:
        case AfterPlace(file, offset):
            if held is not None and _holds_place(held, file, offset):
                return InQueue()
            return AtFile(file, offset, inside=True) if file else Earliest()
        case AfterGtids(gtids):
            if held is not None and _holds_gtids(held, gtids):
                return InQueue()
            if isinstance(gtids, GtidSet) and executed is not None:
                gtids = gtids.intersection(executed)
            return AtGtid(str(gtids))


def _holds_place(held: HeldRange, file: str, offset: int) -> bool:
    """True if the place lies between the acknowledged position and the queued one."""
    first, last = held.acknowledged, held.queued
    if not (file and first.file and last.file):  # after a failover the files are not known at first
        return False
    if not _same_log(first, file) or not _same_log(last, file):
        return False
    return first.log_order <= (file_number(file), offset) <= last.log_order


def _same_log(executed: ExecutedPosition, file: str) -> bool:
    return executed.file.rpartition(".")[0] == file.rpartition(".")[0]


def _holds_gtids(held: HeldRange, gtids: GtidSet | MariadbGtids) -> bool:
    """True if the client has everything up to the acknowledged position. Later transactions that the client has, too,
    are dropped."""
    acknowledged = held.acknowledged.gtids
    if isinstance(gtids, MariadbGtids):
        return isinstance(acknowledged, MariadbGtids) and gtids.contains(acknowledged)
    if held.mode is not Mode.GTID or not isinstance(acknowledged, GtidSet):
        return False
    return gtids.contains(acknowledged)
