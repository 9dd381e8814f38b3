"""Which entries of the log lie before a position of the server, without Spark."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dispatcher.model.position import Position
from spark_sink.mirror.log.binlog_log import BinlogLog
from spark_sink.mirror.rules.states import Live, Stopped
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.values.entries import LogEntry, append_of, first_lsn
from spark_sink.mirror.verify.verify import (
    TableDifference,
    Verdict,
    _Moving,
    _TableEntries,
    compared_records,
)
from spark_sink.source.raw_entries import EntryKind
from tests.mirror_rules.test_plan import entry
from tests.support.hostile_text import HOSTILE, SHOWN, acts
from tests.support.statements import as_logged

RECORD = TableRecord("m", "shop", "shop", "t")
SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def position(seq: int) -> Position:
    return Position(SERVER, f"{SERVER}:1-{seq}", "binlog.000001", 100 * seq, seq, 1)


def append(number: int, *, rows: int) -> list[LogEntry]:
    """Returns an append's entries: one with the transactions up to seq 10 * number, if there are any, and its end."""
    lsn, seq = first_lsn(number), 10 * number
    changed = entry(lsn, "t", database="shop", rows=rows, first_seq=seq - 9, last_seq=seq)
    end = entry(lsn + 1, kind=EntryKind.END, position=position(seq))
    return [changed, end] if rows else [end]


class Log:
    def __init__(self, *appends: list[LogEntry]) -> None:
        self.held = [each for found in appends for each in found]

    def entries(self, _consumer: str, after: int, **_: Any) -> list[LogEntry]:
        later = [each for each in self.held if each.lsn > after]
        return [each for each in later if append_of(each.lsn) == append_of(later[0].lsn)]


def entries_of(log: Log, applied: int, seq: int) -> _TableEntries:
    binlog_log = cast("BinlogLog", SimpleNamespace(entries=log.entries))
    return _TableEntries(binlog_log, RECORD, applied, position(seq), lambda: position(seq))


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_consumers_tables_with_one_name_the_complete_one_is_compared(order: int) -> None:
    ours = TableRecord("1", "shop", "shop", "t", serial=1)
    theirs = TableRecord("2", "billing", "shop", "t", state=Stopped(7, Live()), serial=2)
    assert compared_records([ours, theirs][::order]) == {("shop", "t"): ours}


def test_a_table_as_of_the_end_of_the_newest_append_needs_no_further_one() -> None:
    log = Log(append(1, rows=1), append(2, rows=0))
    end = log.held[-1].lsn
    found = entries_of(log, end, 20)
    found.read_to_position(time.monotonic())
    assert found.last_before == end
    assert not found.beyond(end)


def test_the_table_has_to_reach_the_last_entry_before_the_position() -> None:
    log = Log(append(1, rows=1), append(2, rows=1), append(3, rows=1))
    found = entries_of(log, first_lsn(1), 20)
    found.read_to_position(time.monotonic())
    assert found.last_before == first_lsn(2)
    assert not found.beyond(first_lsn(2))
    assert found.beyond(first_lsn(3))


def test_a_log_that_has_not_reached_the_position_is_waited_for_until_the_deadline() -> None:
    found = entries_of(Log(append(1, rows=1)), first_lsn(1), 20)
    with pytest.raises(_Moving, match="has not reached"):
        found.read_to_position(time.monotonic())


@pytest.mark.parametrize("statement", ["ALTER TABLE t ADD COLUMN a INT", "TRUNCATE TABLE t"])
def test_the_table_has_to_reach_a_statement_before_the_position(statement: str) -> None:
    changed, end = append(2, rows=1)
    ddl = replace(changed, kind=EntryKind.STATEMENT, statement=as_logged(statement, "shop"))
    log = Log(append(1, rows=1), [ddl, end])
    found = entries_of(log, first_lsn(1), 20)
    found.read_to_position(time.monotonic())
    assert found.last_before == ddl.lsn


def test_a_statement_of_another_table_is_not_waited_for() -> None:
    changed, end = append(2, rows=1)
    ddl = replace(
        changed, kind=EntryKind.STATEMENT, statement=as_logged("TRUNCATE TABLE u", "shop")
    )
    found = entries_of(Log(append(1, rows=1), [ddl, end]), first_lsn(1), 20)
    found.read_to_position(time.monotonic())
    assert found.last_before == first_lsn(1)


def test_a_version_behind_a_statement_beyond_the_position_is_beyond() -> None:
    changed, end = append(3, rows=1)
    ddl = replace(
        changed, kind=EntryKind.STATEMENT, statement=as_logged("TRUNCATE TABLE t", "shop")
    )
    found = entries_of(Log(append(1, rows=1), append(2, rows=1), [ddl, end]), first_lsn(1), 20)
    found.read_to_position(time.monotonic())
    assert found.beyond(ddl.lsn)


def test_a_difference_has_one_line_and_one_for_each_key_whatever_their_texts() -> None:
    found = TableDifference(
        HOSTILE, Verdict.DIFFERENT, keys=((HOSTILE, "missing"), ("2", HOSTILE)), reason=HOSTILE
    )
    first, *keys = str(found).splitlines()
    assert first.count(SHOWN) == 2 and acts(str(found)) == []
    assert keys == [f"    {SHOWN}: missing", f"    2: {SHOWN}"]
