"""Parses the output of `mysqlbinlog -vv` and `mariadb-binlog -vv`: position, type, GTID and rows of each event."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_AT = re.compile(r"# at (\d+)\Z")
_HEADER = re.compile(
    r"#\d{6} +\d+:\d\d:\d\d server id (\d+) +end_log_pos (\d+) (?:CRC32 0x[0-9a-f]+ )?(.*)\Z"
)
_GTID_NEXT = re.compile(r"SET @@SESSION\.GTID_NEXT= '(.*)'")
_ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `")

# The words that a tool prints after an event's header, and the name of this event type in the manual.
_NAMES = (
    ("Start: binlog", "FORMAT_DESCRIPTION_EVENT"), ("Previous-GTIDs", "PREVIOUS_GTIDS_EVENT"),
    ("Gtid list", "GTID_LIST_EVENT"), ("Binlog checkpoint", "BINLOG_CHECKPOINT_EVENT"),
    ("GTID ", "GTID_EVENT"), ("GTID\t", "GTID_EVENT"), ("Query_compressed", "QUERY_COMPRESSED_EVENT"),
    ("Query\t", "QUERY_EVENT"), ("Table_map", "TABLE_MAP_EVENT"), ("Update_rows_partial", "PARTIAL_UPDATE_ROWS_EVENT"),
    ("Write_rows", "WRITE_ROWS_EVENT"), ("Update_rows", "UPDATE_ROWS_EVENT"), ("Delete_rows", "DELETE_ROWS_EVENT"),
    ("Write_compressed_rows", "WRITE_ROWS_COMPRESSED_EVENT"),
    ("Update_compressed_rows", "UPDATE_ROWS_COMPRESSED_EVENT"),
    ("Delete_compressed_rows", "DELETE_ROWS_COMPRESSED_EVENT"), ("Rows_query", "ROWS_QUERY_EVENT"),
    ("Annotate_rows", "ANNOTATE_ROWS_EVENT"), ("Xid = ", "XID_EVENT"), ("XA PREPARE", "XA_PREPARE_EVENT"),
    ("XID = ", "XA_PREPARE_EVENT"), ("Intvar", "INTVAR_EVENT"), ("Rand", "RAND_EVENT"), ("User_var", "USER_VAR_EVENT"),
    ("Execute_load_query", "EXECUTE_LOAD_QUERY_EVENT"), ("Rotate to", "ROTATE_EVENT"), ("Stop", "STOP_EVENT"),
    ("Transaction_Payload", "TRANSACTION_PAYLOAD_EVENT"),
)  # fmt: skip


@dataclass
class PrintedEvent:
    """One event in a tool's output."""

    offset: int
    end_log_pos: int
    server_id: int
    type: str
    gtid: str = ""
    rows: int = field(default=0)


def read(output: str) -> list[PrintedEvent]:
    """Returns the events, in order. MariaDB's tool prints the position of a table map before the annotation that
    precedes the table map, so positions are assigned to events by their order."""
    positions: list[int] = []
    events: list[PrintedEvent] = []
    for line in output.splitlines():
        if match := _AT.match(line):
            positions.append(int(match[1]))
        elif match := _HEADER.match(line):
            events.append(PrintedEvent(-1, int(match[2]), int(match[1]), _type(match[3])))
            if match[3].lstrip("\t").startswith("GTID "):
                events[-1].gtid = match[3].split()[1]
        elif match := _GTID_NEXT.match(line):
            if match[1] != "AUTOMATIC":
                events[-1].gtid = match[1].lower()
                if events[-1].gtid.count(":") == 2:  # the tool prints the same name for both types
                    events[-1].type = "GTID_TAGGED_EVENT"
        elif line.startswith("#Begin_load_query"):
            events[-1].type = "BEGIN_LOAD_QUERY_EVENT"
        elif _ROW.match(line):
            events[-1].rows += 1
    assert len(positions) == len(events), (len(positions), len(events))
    for event, offset in zip(events, positions, strict=True):
        event.offset = offset
    return events


def _type(text: str) -> str:
    text = text.lstrip("\t")
    return next(
        (name for start, name in _NAMES if text.startswith(start)), "" if not text.strip() else text
    )
