"""A log of three transactions and a DDL statement, for the tests of `inspect`."""

from __future__ import annotations

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Type
from tests.support.log_file import TIME, LogFile
from tests.support.rows_encoder import Spec, date, integer, text

K = EventType
ORDERS = [
    Spec("id", Type.LONG, unsigned=True, nullable=False),
    Spec("customer", Type.VARCHAR, b"\xa0\0", charset=255),
    Spec("day", Type.DATE),
]


def order(number: int, customer: str | None, day: bytes | None = None) -> list[bytes | None]:
    return [integer(number, 4), None if customer is None else text(customer, 1), day]


def small_log() -> LogFile:
    """Returns three transactions, a minute apart: two of `orders`, one of another database; then a DDL statement."""
    log = LogFile()
    log.add(K.PREVIOUS_GTIDS, bytes(8))
    log.gtid(1)
    log.query("BEGIN")
    log.add(K.ROWS_QUERY, b"\x10INSERT INTO orders ...")
    log.table(ORDERS)
    log.rows(K.WRITE_ROWS, [order(1, "Ann", date(2026, 1, 2)), order(2, None)])
    log.xid(7)
    log.gtid(2, timestamp=TIME + 60)
    log.query("BEGIN", timestamp=TIME + 60)
    log.table(ORDERS, timestamp=TIME + 60)
    log.rows(K.UPDATE_ROWS, [order(1, "Ann"), order(1, "it's\n\x1b[1m")], timestamp=TIME + 60)
    log.xid(8, timestamp=TIME + 60)
    log.gtid(3, timestamp=TIME + 120)
    log.query("BEGIN", "bank", timestamp=TIME + 120)
    log.table(ORDERS, database="bank", table="bills", table_id=78, timestamp=TIME + 120)
    log.rows(K.DELETE_ROWS, [order(5, "x")], table_id=78, timestamp=TIME + 120)
    log.xid(9, timestamp=TIME + 120)
    log.gtid(4, timestamp=TIME + 180)
    log.query("ALTER TABLE orders ADD COLUMN more INT", timestamp=TIME + 180)
    log.add(K.ROTATE, (4).to_bytes(8, "little") + b"binlog.000002", timestamp=TIME + 180)
    return log
