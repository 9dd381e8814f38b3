"""Names, statements and values with characters that a terminal acts on: text shows escapes, JSON is exact."""

from __future__ import annotations

import json

import pytest

from dispatcher.binlog.event.types import EventType
from dispatcher.binlog.table_map.column_types import Type
from tests.inspect.conftest import Inspect
from tests.support.hostile_text import HOSTILE, SHOWN, acts
from tests.support.log_file import LogFile
from tests.support.rows_encoder import Spec, integer, text

K = EventType
COLUMNS = [
    Spec(HOSTILE, Type.LONG, nullable=False),
    Spec("note", Type.VARCHAR, b"\x40\1", charset=255),
]


def hostile_log() -> bytes:
    """Two inserts into one table, so that kernels write the second."""
    log = LogFile()
    for number in (1, 2):
        log.gtid(number)
        log.query(f"BEGIN /* {HOSTILE} */", HOSTILE)
        log.add(K.ROWS_QUERY, b"\x10" + f"INSERT {HOSTILE}".encode())
        log.table(COLUMNS, database=HOSTILE, table=HOSTILE)
        log.rows(K.WRITE_ROWS, [[integer(number, 4), text(HOSTILE, 2)]])
        log.xid(number)
    log.query(f"CREATE TABLE t (a INT)\n# at 4\n{HOSTILE}", HOSTILE)
    log.add(K.ROTATE, (4).to_bytes(8, "little") + HOSTILE.encode())
    return log.bytes()


@pytest.mark.parametrize("options", [(), ("--summary",), ("--hexdump",)])
def test_text_has_no_character_that_a_terminal_acts_on(
    inspect: Inspect, options: tuple[str, ...]
) -> None:
    shown = inspect(hostile_log(), *options)
    assert shown.code == 0 and acts(shown.out) == []
    assert shown.out.count(SHOWN) >= 2


def test_names_stand_on_one_line(inspect: Inspect) -> None:
    out = inspect(hostile_log()).out
    assert f"### INSERT INTO `{SHOWN}`.`{SHOWN}`\n" in out
    assert f"###   `{SHOWN}`=2\n" in out
    assert f"#   {SHOWN} int" in out


def test_a_value_is_a_literal_with_escapes_of_bytes(inspect: Inspect) -> None:
    """These characters are escaped like other control characters, because a literal holds bytes."""
    literal = (
        r"'a\x1b[31mb\x1b]0;title\x07c\xc2\x9b2Jd\xe2\x80\xaee\xe2\x80\xa8f\x7fg\xe2\x81\xa6h\r\n"
        r"2026-01-01 error forged\xc2\x85i'"
    )
    assert inspect(hostile_log()).out.count(f"###   `note`={literal}\n") == 2


def test_an_ordinary_name_is_quoted_as_sql_quotes_it(inspect: Inspect) -> None:
    log = LogFile()
    log.gtid(1)
    log.table([Spec("läd`en", Type.LONG)], database="日本", table="a b")
    log.rows(K.WRITE_ROWS, [[integer(1, 4)]])
    log.xid()
    out = inspect(log.bytes()).out
    assert "### INSERT INTO `日本`.`a b`\n### SET\n###   `läd``en`=1\n" in out


def test_a_statement_cannot_show_an_event_that_is_not_there(inspect: Inspect) -> None:
    log = hostile_log()
    shown = inspect(log).out.splitlines()
    offsets = {event["offset"] for event in inspect(log, "--json").events}
    at = [line for line in shown if line.startswith("# at ")]
    assert len(at) == len(inspect(log, "--json").events)
    assert {int(line.split()[2]) for line in at} == offsets


@pytest.mark.parametrize("options", [("--json",), ("--json", "--summary")])
def test_json_is_exact(inspect: Inspect, options: tuple[str, ...]) -> None:
    shown = inspect(hostile_log(), *options)
    names = json.dumps(shown.events)
    assert json.dumps(HOSTILE) in names and acts(shown.out) == []


def test_a_filter_takes_the_name_itself(inspect: Inspect) -> None:
    assert inspect(hostile_log(), "--table", f"{HOSTILE}.{HOSTILE}", "--json").code == 0
