"""Which rows of mysqlbinlog's output are counted, and where the client goes on."""

from __future__ import annotations

import pytest

from deploy.demo.replication import Place, PrintedRows, ReplicationResult

HEADER = "#261126  6:20:00 server id 1  end_log_pos {} CRC32 0x1f2e3d4c \t{}"
BEGINNING = [
    "# at 4",
    HEADER.format(126, "Start: binlog v 4, server v 9.7.4 created 261126  6:19:58"),
]


def transaction(end: int, *tables: str) -> list[str]:
    """The output for a transaction of 100 bytes that inserts a row into each table."""
    lines = ["# at 200", HEADER.format(end - 60, "GTID\tlast_committed=0\tsequence_number=1")]
    for table in tables:
        lines += [HEADER.format(end - 20, "Write_rows: table id 90 flags: STMT_END_F")]
        lines += [f"### INSERT INTO {table}", "### SET", f"###   @1={end}"]
    return [*lines, "# at 280", HEADER.format(end, "Xid = 17"), "COMMIT/*!*/;"]


def rows_of(*parts: list[str]) -> PrintedRows:
    rows = PrintedRows(("shop",))
    for part in parts:
        rows.drop()
        rows.read("binlog.000001", part)
    return rows


def test_rows_of_other_databases_are_not_counted() -> None:
    mine = transaction(300, "`shop`.`a`", "`other`.`a`", "`shop`.`b`")
    rows, without = (
        rows_of([*BEGINNING, *mine]),
        rows_of(transaction(300, "`shop`.`a`", "`shop`.`b`")),
    )
    rows.end()
    without.end()
    assert (rows.count, without.count) == (2, 2)
    assert rows.digest == without.digest


def test_a_client_goes_on_where_its_last_transaction_begins() -> None:
    first, second = transaction(300, "`shop`.`a`"), transaction(500, "`shop`.`a`")
    rows = rows_of([*BEGINNING, *first])
    assert (rows.place, rows.count) == (None, 0)
    rows = rows_of([*BEGINNING, *first, *second[:-4]])
    assert (rows.place, rows.count) == (Place("binlog.000001", 300), 1)
    start = HEADER.format(0, "Start: binlog v 4, server v 9.7.4 created 261126  6:19:58")
    whole = rows_of([*BEGINNING, *first, *second])
    again = rows_of([*BEGINNING, *first, *second[:-4]], [start, *second])
    assert again.place == Place("binlog.000001", 300)
    for each in (whole, again):
        each.end()
    assert (whole.count, whole.digest) == (again.count, again.digest)


@pytest.mark.parametrize(("same", "words"), [(True, "equal to"), (False, "they differ")])
def test_the_result_is_one_line(same: bool, words: str) -> None:
    text = str(ReplicationResult(("shop", "billing"), 7, 7 if same else 8, same))
    assert words in text and "7 rows of shop and billing" in text and "\n" not in text
