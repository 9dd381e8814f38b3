"""The two outputs: text for people, JSON for programs.

The text tells what `mysqlbinlog -v` tells, in the same order and with the same marks: `# at 1234` is the offset of an
event, `###` lines are rows as statements, with the columns' real names. It cannot be run. The JSON is one object per
event and line; `docs/inspect.md` lists the fields.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from dispatcher.binlog.decode import arrow_buffers
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.decode.json_render import absent_masks, json_text
from dispatcher.binlog.event.types import EventType, type_name
from dispatcher.inspect.entry import ROWS, Fields, InspectEntry, Table, seconds_text
from dispatcher.inspect.values import literals, with_texts

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_HEXDUMP_BYTES = 16
_SHOWN_MAX = 4096
_TABLE_MAP = int(EventType.TABLE_MAP)


class Output(Protocol):
    def head(self, file: str) -> str:
        """Returns the text before the first event of a file."""

    def render(self, entry: InspectEntry) -> list[bytes]: ...

    def rows(self, part: TableChanges, table: Table) -> pa.StringArray:
        """Renders each row of a batch."""


class TextOutput:
    """Renders entries as lines of text."""

    def __init__(self, *, hexdump: bool = False) -> None:
        self._hexdump = hexdump
        self._shown: dict[tuple[str, str], Fields] = {}

    def head(self, file: str) -> str:
        return f"# {file}\n"

    def render(self, entry: InspectEntry) -> list[bytes]:
        fields = entry.fields
        note = _rows_note(entry) if entry.kind in ROWS else fields.note
        inside = f" (event {entry.inside + 1} of the payload)" if entry.inside >= 0 else ""
        text = (
            f"# at {entry.offset}{inside}\n# {seconds_text(entry.timestamp)}  server id {entry.server_id}"
            f"  end_log_pos {entry.log_pos}  {type_name(entry.kind)}{'  ' if note else ''}{_safe(note)}\n"
        )
        if self._hexdump and entry.raw is not None:
            text += hexdump(entry.raw, entry.offset if entry.inside < 0 else 0)
        if entry.error:
            text += _safe(f"### not shown: {entry.error}") + "\n"
        if fields.lines and (entry.kind != _TABLE_MAP or self._changed(fields)):
            text += _safe(fields.lines)
        return [text.encode("utf-8", "backslashreplace"), *entry.rows]

    def _changed(self, table_map: Fields) -> bool:
        """True if the table's columns were not shown yet, or have changed since."""
        name = (table_map.database, table_map.table)
        before = self._shown.get(name)
        if before is not table_map and len(self._shown) >= _SHOWN_MAX:
            self._shown.clear()
        self._shown[name] = table_map
        return before is not table_map

    def rows(self, part: TableChanges, table: Table) -> pa.StringArray:
        """Renders each row as `### INSERT INTO ...` lines."""
        batch = part.batch
        heads = arrow_buffers.string_array([
            f"### INSERT INTO {table.label}\n### SET\n",
            f"### UPDATE {table.label}\n### WHERE\n",
            f"### DELETE FROM {table.label}\n### WHERE\n",
        ])  # fmt: skip
        between = arrow_buffers.string_array(["", "### SET\n", ""])
        order = pc.index_in(
            batch.column("op"), arrow_buffers.string_array(["insert", "update", "delete"])
        )
        return _joined(
            heads.take(order),
            self._image(part, "before", table),
            between.take(order),
            self._image(part, "after", table),
            null="",
        )

    def _image(self, part: TableChanges, which: str, table: Table) -> pa.Array:
        """Renders one image of each row as `###   column=value` lines; null where the row has none."""
        image, absent = part.batch.column(which), part.batch.column(f"{which}_absent")
        if image.null_count == len(image):
            return pa.nulls(len(image), pa.string())
        all_present = absent.null_count == len(absent)
        masks = {} if all_present else absent_masks(absent)
        pieces: list[pa.Array | str] = []
        for i, (field, column) in enumerate(zip(image.type, part.table_map.columns, strict=True)):
            start = f"###   `{field.name.replace('`', '``')}`="
            shown = literals(image.field(i), column, i, table)
            if all_present:
                # The end of one column and the start of the next in one text: half the pieces to join.
                pieces += [("\n" if pieces else "") + start, shown]
                continue
            piece = _joined(start, shown, "\n")
            mask = masks.get(field.name)
            pieces.append(
                piece if mask is None else pc.if_else(arrow_buffers.booleans(mask), "", piece)
            )
        joined = _joined(*pieces, "\n" if all_present else "")
        return joined if image.null_count == 0 else pc.if_else(image.is_valid(), joined, None)


class JsonOutput:
    """Renders entries as lines of JSON."""

    def __init__(self, *, hexdump: bool = False) -> None:
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
            rows = b"".join(entry.rows)[:-1]  # each row ends in a comma
            end = [b',"row_count":%d,"rows":[' % entry.row_count, rows, b"]}\n"]
        return [start.encode("utf-8", "backslashreplace"), *end]

    def rows(self, part: TableChanges, table: Table) -> pa.StringArray:
        """Renders each row as `{"before":{...},"after":{...}},`, with the images that the operation has."""
        batch = part.batch
        if table.no_charset:
            columns = [
                with_texts(column, table) if pa.types.is_struct(column.type) else column
                for column in batch.columns
            ]
            batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        images = json_text(batch)
        before, after = images.column("before"), images.column("after")
        both = pc.binary_join_element_wise('{"before":', before, ',"after":', after, "},", "")
        if before.null_count == 0 and after.null_count == 0:
            return both
        return pc.coalesce(
            both,
            pc.binary_join_element_wise('{"before":', before, "},", ""),
            pc.binary_join_element_wise('{"after":', after, "},", ""),
        )


def hexdump(raw: bytes, offset: int) -> str:
    """16 bytes a line: offset, hexadecimal, ASCII."""
    lines = []
    for at in range(0, len(raw), _HEXDUMP_BYTES):
        piece = raw[at : at + _HEXDUMP_BYTES]
        left, right = piece[:8].hex(" "), piece[8:].hex(" ")
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"# {offset + at:8x}  {left:23}  {right:23}  |{shown}|\n")
    return "".join(lines)


def _rows_note(entry: InspectEntry) -> str:
    table = f"`{entry.fields.database}`.`{entry.fields.table}`" if entry.fields.table else ""
    if entry.row_count < 0 or entry.error:
        return f"{table}  "
    return f"{table}  {entry.row_count} row{'' if entry.row_count == 1 else 's'}"


def _safe(text: str) -> str:
    """Escapes the control characters that a terminal would act on."""
    if text.removesuffix(
        "\n"
    ).isprintable():  # newlines within a text are not, but most texts have none
        return text
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


@lru_cache(64)
def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _joined(*pieces: pa.Array | str, null: str = "NULL") -> pa.Array:
    return pc.binary_join_element_wise(*pieces, "", null_handling="replace", null_replacement=null)
