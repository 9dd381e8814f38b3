"""How readings are made of what a client prints, and compared."""

from __future__ import annotations

from tests.front.clients.printed import Printed
from tests.front.clients.readings import Collector, Reading, Row, Start, Transaction, Until

_PRINTED = """# at 4
#700101  0:00:00 server id 1  end_log_pos 0 	Rotate to binlog.000007  pos: 4
# at 157
#260101  0:00:00 server id 1  end_log_pos 236 CRC32 0x01 	GTID	last_committed=0
SET @@SESSION.GTID_NEXT= '3E11FA47-71CA-11E1-9E33-C80AA9429562:5'/*!*/;
# at 236
#260101  0:00:00 server id 1  end_log_pos 300 CRC32 0x01 	Query	thread_id=1
BEGIN
/*!*/;
# at 300
#260101  0:00:00 server id 1  end_log_pos 400 CRC32 0x01 	Write_rows: table id 1 flags: STMT_END_F
### INSERT INTO `shop`.`marks`
### SET
###   @1=9
# at 400
#260101  0:00:00 server id 1  end_log_pos 431 CRC32 0x01 	Xid = 5
COMMIT/*!*/;
# at 431
#260101  0:00:00 server id 1  end_log_pos 510 CRC32 0x01 	GTID	last_committed=1
SET @@SESSION.GTID_NEXT= '3E11FA47-71CA-11E1-9E33-C80AA9429562:6'/*!*/;
# at 510
#260101  0:00:00 server id 1  end_log_pos 600 CRC32 0x01 	Query	thread_id=1
use `shop`/*!*/;
SET TIMESTAMP=1/*!*/;
CREATE TABLE t (
  id INT)
/*!*/;
"""
_SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def row(database: str, key: int) -> Row:
    return Row(database, "t", "insert", key, None, f"@1={key}")


def test_the_text_of_the_tool_becomes_transactions_with_places() -> None:
    collector = Collector(Until("shop", 9), Start("binlog.000001", 4, f"{_SOURCE}:1-4"))
    printed = Printed("binlog.000001")
    for line in _PRINTED.splitlines():
        printed.line(collector, line)
    first, second = collector.transactions
    inserted = Row("shop", "marks", "insert", 9, None, "@1=9")
    assert first == Transaction((inserted,), "binlog.000007", 431, f"{_SOURCE}:5")
    assert second.rows[0].after == "CREATE TABLE t (\n  id INT)"
    assert second.rows[0].database == "shop"
    assert collector.place == Start("binlog.000007", 600, f"{_SOURCE}:1-6")
    assert collector.done


def test_rows_of_a_transaction_without_an_end_are_dropped() -> None:
    collector = Collector(Until("shop", rows=2), Start("f"))
    collector.row(row("shop", 1))
    collector.end("f", 10)
    collector.row(row("shop", 2))
    assert collector.done
    assert collector.reading.keys == [("shop", "t", "insert", 1)]
    assert collector.place == Start("f", 10)


def test_a_set_of_mariadb_keeps_the_newest_gtid_of_a_domain() -> None:
    collector = Collector(Until("shop", 1), Start("f", 4, "0-1-5,7-1-2"), mariadb=True)
    collector.end("f", 10, "0-1-6")
    assert collector.place.gtids == "0-1-6,7-1-2"


def test_a_reading_of_some_databases_has_no_rows_of_others() -> None:
    mixed = Transaction((row("shop", 1), row("others", 2)), "f", 10)
    alone = Transaction((row("others", 3),), "f", 20)
    reading = Reading([mixed, alone], Start("f", 20)).only("shop")
    assert reading.transactions == [Transaction((row("shop", 1),), "f", 10)]
    assert reading.stored == Start("f", 20)
