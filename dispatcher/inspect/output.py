"""The two outputs: text, and JSON for programs.

The text contains the information of `mysqlbinlog -v`, in the same order and with the same marks: `# at 1234` gives the
offset of an event, and `###` lines show rows as statements. Unlike mysqlbinlog, the text shows the columns' real names.
The text cannot be executed as SQL. The JSON is one object per event and line; `docs/inspect.md` lists the fields.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Protocol

from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.inspect.entry import ROWS, Fields, InspectEntry, seconds_text
from dispatcher.inspect.row_text import RowsEvents, RowTexts
from dispatcher.model.printable import json_escaped, printable, printable_lines

_HEXDUMP_BYTES = 16
_SHOWN_MAX = 4096
_TABLE_MAP = int(EventType.TABLE_MAP)


class Output(Protocol):
    def head(self, file: str) -> str:
        """Returns the text before the first event of a file."""

    def render(self, entry: InspectEntry) -> list[bytes]: ...

    def rows(self, events: RowsEvents) -> list[tuple[int, bytes]]:
        """Returns for each rows event the number of its rows and their text. Raises `BinlogError`."""


class TextOutput:
    """Renders entries as lines of text."""

    def __init__(self, invalid_dates: InvalidDates, *, hexdump: bool = False) -> None:
        self._hexdump = hexdump
        self._rows = RowTexts(invalid_dates)
        self._shown: dict[tuple[str, str], Fields] = {}

    def head(self, file: str) -> str:
        return f"# {printable(file)}\n"

    def render(self, entry: InspectEntry) -> list[bytes]:
        fields = entry.fields
        note = _rows_note(entry) if entry.kind in ROWS else fields.note
        inside = f" (event {entry.inside + 1} of the payload)" if entry.inside >= 0 else ""
        text = (
            f"# at {entry.offset}{inside}\n# {seconds_text(entry.timestamp)}  server id {entry.server_id}"
            f"  end_log_pos {entry.log_pos}  {_title(entry.kind, note)}"
        )
        if self._hexdump and entry.raw is not None:
            text += hexdump(entry.raw, entry.offset if entry.inside < 0 else 0)
        if entry.error:
            text += f"### not shown: {printable(entry.error)}\n"
        if fields.lines and (entry.kind != _TABLE_MAP or self._changed(fields)):
            text += printable_lines(fields.lines)
        return [text.encode(), *entry.rows]

    def tail(self, kind: int, fields: Fields) -> bytes:
        """Returns the part of an event's text that begins with the name of the event's type, without the columns of a
        table map."""
        lines = "" if kind == _TABLE_MAP else printable_lines(fields.lines)
        return (_title(kind, fields.note) + lines).encode()

    def rows_name(self, database: str, table: str) -> bytes:
        """Returns a table's name as it is written in the head of the table's rows events."""
        return printable(f"{_name(database, table)}  ").encode()

    def _changed(self, table_map: Fields) -> bool:
        """True if the table's columns have not been shown yet, or have changed since they were last shown."""
        name = (table_map.database, table_map.table)
        before = self._shown.get(name)
        if before is not table_map and len(self._shown) >= _SHOWN_MAX:
            self._shown.clear()
        self._shown[name] = table_map
        return before is not table_map

    def rows(self, events: RowsEvents) -> list[tuple[int, bytes]]:
        """Renders each row as `### INSERT INTO ...` lines."""
        return self._rows.write(events)


class JsonOutput:
    """Renders entries as lines of JSON."""

    def __init__(self, invalid_dates: InvalidDates, *, hexdump: bool = False) -> None:
        self._invalid_dates = invalid_dates
        self._hexdump = hexdump

    def head(self, _file: str) -> str:
        return ""

    def render(self, entry: InspectEntry) -> list[bytes]:
        start = (
            f'{{"file":{_json(entry.file)},"offset":{entry.offset},"end_log_pos":{entry.log_pos}'
            f',"timestamp":{entry.timestamp},"time":"{seconds_text(entry.timestamp)}","server_id":{entry.server_id}'
            f',"size":{entry.size},"flags":{entry.flags},"type":"{type_name(entry.kind)}"'
        )
        if entry.inside >= 0:
            start += f',"payload_index":{entry.inside}'
        start += entry.fields.json()
        if self._hexdump and entry.raw is not None:
            start += f',"hex":"{entry.raw.hex()}"'
        end = [b"}\n"]
        if entry.error:
            start += f',"error":{_json(entry.error)}'
        elif entry.kind in ROWS and entry.row_count >= 0:
            rows = b"".join(entry.rows)[:-1]  # without the last row's comma
            end = [b',"row_count":%d,"rows":[' % entry.row_count, rows, b"]}\n"]
        return [start.encode("utf-8", "backslashreplace"), *end]

    def rows(self, events: RowsEvents) -> list[tuple[int, bytes]]:
        """Renders each row as `{"before":{...},"after":{...}},`, with the images that the operation has."""
        # Arrow is loaded only if rows are shown.
        from dispatcher.inspect.json_rows import json_rows  # noqa: PLC0415

        return json_rows(events, self._invalid_dates)


def hexdump(raw: bytes, offset: int) -> str:
    """Returns lines of 16 bytes each: offset, hexadecimal, ASCII."""
    lines = []
    for at in range(0, len(raw), _HEXDUMP_BYTES):
        piece = raw[at : at + _HEXDUMP_BYTES]
        left, right = piece[:8].hex(" "), piece[8:].hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"# {offset + at:8x}  {left:23}  {right:23}  |{shown}|\n")
    return "".join(lines)


def _rows_note(entry: InspectEntry) -> str:
    table = _name(entry.fields.database, entry.fields.table) if entry.fields.table else ""
    if entry.row_count < 0 or entry.error:
        return f"{table}  "
    return f"{table}  {entry.row_count} row{'' if entry.row_count == 1 else 's'}"


def _name(database: str, table: str) -> str:
    return f"`{database}`.`{table}`"


def _title(kind: int, note: str) -> str:
    """Returns the end of an event's second line: the event's type and the note."""
    return f"{type_name(kind)}{'  ' if note else ''}{printable(note)}\n"


@lru_cache(64)
def _json(text: str) -> str:
    return json_escaped(json.dumps(text, ensure_ascii=False))
