"""The output for people: what `mysqlbinlog -v` tells, in the same order and with the same marks.

`# at 1234` is where an event begins, `###` lines are rows as statements, with the columns' real names. It is for
reading: unlike mysqlbinlog's it is not meant to be run.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode.arrow_buffers import string_array
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.binlog.table_map.column_types import Column
from dispatcher.inspect.entry import ROWS, Fields, InspectEntry
from dispatcher.inspect.literals import literals
from dispatcher.inspect.tables import Table
from dispatcher.inspect.times import seconds_text
from dispatcher.inspect.values import absent_masks, both_signs, readable

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_ROW_BYTES = 16
_SHOWN_MAX = 4096
_TABLE_MAP = int(EventType.TABLE_MAP)


class TextOutput:
    """Renders entries as lines."""

    def __init__(self, *, hexdump: bool = False) -> None:
        self._hexdump = hexdump
        self._shown: dict[tuple[str, str], Fields] = {}

    def head(self, file: str) -> str:
        """What stands before the first event of a file."""
        return f"# {file}\n"

    def render(self, entry: InspectEntry) -> list[bytes]:
        fields = entry.fields
        note = f"{_label(entry)}  {_rows_text(entry)}" if entry.kind in ROWS else fields.note
        inside = f" (event {entry.inside + 1} of the payload)" if entry.inside >= 0 else ""
        text = (
            f"# at {entry.offset}{inside}\n# {seconds_text(entry.timestamp)}  server id {entry.server_id}"
            f"  end_log_pos {entry.log_pos}  {type_name(entry.kind)}{'  ' if note else ''}{_safe(note)}\n"
        )
        if self._hexdump and entry.raw is not None:
            text += hexdump(entry.raw, entry.offset if entry.inside < 0 else 0)
        if entry.error:
            text += _safe(f"### not shown: {entry.error}") + "\n"
        if fields.lines and (entry.kind != _TABLE_MAP or not self._known(fields)):
            text += _safe(fields.lines)
        return [text.encode("utf-8", "backslashreplace"), *entry.rows]

    def _known(self, fields: Fields) -> bool:
        """Were the columns of this table map shown before, and not changed since?"""
        before = self._shown.get((fields.database, fields.table))
        if before is not fields and len(self._shown) >= _SHOWN_MAX:
            self._shown.clear()
        self._shown[fields.database, fields.table] = fields
        return before is fields

    def rows(self, part: TableChanges, table: Table) -> pa.StringArray:
        """Each row as `### INSERT INTO ...` lines."""
        batch = part.batch
        before, after = batch.column("before"), batch.column("after")
        heads = string_array(
            [
                f"### INSERT INTO {table.label}\n### SET\n",
                f"### UPDATE {table.label}\n### WHERE\n",
                f"### DELETE FROM {table.label}\n### WHERE\n",
            ]
        )
        order = pc.index_in(batch.column("op"), string_array(["insert", "update", "delete"]))
        between = string_array(["", "### SET\n", ""])
        return pc.binary_join_element_wise(
            heads.take(order),
            self._image(part, before, "before_absent", table),
            between.take(order),
            self._image(part, after, "after_absent", table),
            "",
            null_handling="replace",
            null_replacement="",
        )

    def _image(
        self, part: TableChanges, image: pa.StructArray, absent: str, table: Table
    ) -> pa.Array:
        if image.null_count == len(image):
            return pa.nulls(len(image), pa.string())
        missing = absent_masks(part.batch, absent)
        pieces: list[pa.Array | str] = []
        for i, (field, column) in enumerate(zip(image.type, part.table_map.columns, strict=True)):
            start = f"###   `{field.name.replace('`', '``')}`="
            shown = _shown(image.field(i), column, i, table)
            if missing is None:
                # The ends of one column and the start of the next are one text: half the pieces to join.
                pieces += [("\n" if pieces else "") + start, shown]
                continue
            piece = pc.binary_join_element_wise(
                start, shown, "\n", "", null_handling="replace", null_replacement="NULL"
            )
            pieces.append(pc.if_else(missing.get(field.name, False), "", piece))
        tail = [] if missing is not None else ["\n"]
        joined = pc.binary_join_element_wise(
            *pieces, *tail, "", null_handling="replace", null_replacement="NULL"
        )
        return joined if image.null_count == 0 else pc.if_else(image.is_valid(), joined, None)


def _shown(values: pa.Array, column: Column, number: int, table: Table) -> pa.Array:
    shown = literals(values, column)
    if number in table.no_charset and pa.types.is_binary(values.type):
        return pc.coalesce(literals(readable(values), column), shown)
    return both_signs(values, shown) if number in table.no_sign else shown


def _label(entry: InspectEntry) -> str:
    return f"`{entry.fields.database}`.`{entry.fields.table}`" if entry.fields.table else ""


def _rows_text(entry: InspectEntry) -> str:
    if entry.row_count < 0 or entry.error:
        return ""
    return f"{entry.row_count} row{'' if entry.row_count == 1 else 's'}"


def _safe(text: str) -> str:
    """Without what a terminal would obey."""
    if text.removesuffix("\n").isprintable():  # inner newlines are not, but most texts have none
        return text
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def hexdump(raw: bytes, offset: int) -> str:
    """16 bytes a line: offset, hexadecimal, ASCII."""
    lines = []
    for at in range(0, len(raw), _ROW_BYTES):
        piece = raw[at : at + _ROW_BYTES]
        left, right = piece[:8].hex(" "), piece[8:].hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"# {offset + at:8x}  {left:23}  {right:23}  |{shown}|\n")
    return "".join(lines)
