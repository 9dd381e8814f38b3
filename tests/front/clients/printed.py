"""Parses the output of `mysqlbinlog -v` and `mariadb-binlog -v` while these tools run: rows, statements, ends of
transactions."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from tests.front.clients.readings import Collector, Row

_HEADER = re.compile(
    r"#\d{6} +\d+:\d\d:\d\d server id \d+ +end_log_pos (\d+) (?:CRC32 0x[0-9a-f]+ )?\s*(.*)\Z"
)
_GTID_NEXT = re.compile(r"SET @@SESSION\.GTID_NEXT= ?'([^']+)'")
_GTID_OF_MARIADB = re.compile(r"GTID (\d+-\d+-\d+)\b")
_ROTATE = re.compile(r"Rotate to (\S+) +pos: (\d+)")
_ROW = re.compile(r"### (INSERT INTO|UPDATE|DELETE FROM) `([^`]+)`\.`([^`]+)`")
_VALUE = re.compile(r"###   @(\d+)=(.*)\Z", re.DOTALL)
_USE = re.compile(r"use `([^`]+)`")
_OPS = {"INSERT INTO": "insert", "UPDATE": "update", "DELETE FROM": "delete"}
_END = "/*!*/;"
# Statements that the tool adds itself; they are not from the log.
_OWN = re.compile(
    r"(SET |use `|DELIMITER|BINLOG '|/\*!\\C|/\*M?!\d+ SET |ROLLBACK /\*)", re.IGNORECASE
)
_BEGINS = ("BEGIN", "START TRANSACTION")
LONGEST = 200


def short(value: str) -> str:
    """Returns the value, or for a long value its digest."""
    if len(value) <= LONGEST:
        return value
    digest = hashlib.blake2b(value.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    return f"{len(value)}:{digest}"


@dataclass(slots=True)
class PrintedRow:
    op: str
    database: str
    table: str
    images: dict[str, list[str]] = field(default_factory=dict)
    image: str = ""

    def row(self) -> Row:
        before = self.images.get("WHERE")
        after = self.images.get("SET")
        first = (after or before or ["@1="])[0].partition("=")[2]
        key = int(first) if first.lstrip("-").isdigit() else None
        return Row(self.database, self.table, self.op, key, _joined(before), _joined(after))


def _joined(image: list[str] | None) -> str | None:
    return None if image is None else ", ".join(image)


@dataclass(slots=True)
class Printed:
    """The state of the parser. `line` parses one line. Rows have no offsets, because the tools print the rows of a
    statement at its end."""

    file: str
    offset: int = 0
    gtid: str = ""
    in_transaction: bool = False
    database: str = ""
    _kind: str = ""
    _statement: list[str] = field(default_factory=list)
    _row: PrintedRow | None = None

    def line(self, collector: Collector, line: str) -> None:
        if line.startswith("### "):
            self._row_line(collector, line)
            return
        self._end_row(collector)
        if line.startswith("# at ") or not line:
            return
        if line.startswith("#"):
            if match := _HEADER.match(line):
                self._header(int(match[1]), match[2])
            return
        self._statement.append(line)
        if line.endswith(_END):
            text = "\n".join(self._statement).removesuffix(_END).strip()
            self._statement.clear()
            self._executed(collector, text)

    def _header(self, end: int, text: str) -> None:
        self._statement.clear()
        self._kind = text.split(None, 1)[0] if text else ""
        if match := _ROTATE.search(text):
            self.file, self.offset = match[1], int(match[2])
            return
        if end:
            self.offset = end
        if match := _GTID_OF_MARIADB.match(text):
            self.gtid = match[1]

    def _executed(self, collector: Collector, text: str) -> None:
        if match := _GTID_NEXT.match(text):
            self.gtid = "" if match[1] == "AUTOMATIC" else match[1].lower()
        elif match := _USE.match(text):
            self.database = match[1]
        elif text in _BEGINS:
            self.in_transaction = True
        elif text == "COMMIT":
            self._commit(collector)
        elif text == "ROLLBACK":
            collector.rollback()
            self._commit(collector)
        elif self._kind == "Query" and not _OWN.match(text):
            collector.row(Row(self.database, "", "ddl", None, None, short(text), self.offset))
            if not self.in_transaction:
                self._commit(collector)

    def _commit(self, collector: Collector) -> None:
        self.in_transaction = False
        collector.end(self.file, self.offset, self.gtid)

    def _row_line(self, collector: Collector, line: str) -> None:
        if match := _ROW.match(line):
            self._end_row(collector)
            self._row = PrintedRow(_OPS[match[1]], match[2], match[3])
            return
        row = self._row
        assert row is not None, line[:200]
        if match := _VALUE.match(line):
            row.images[row.image].append(f"@{match[1]}={short(match[2])}")
        else:
            row.image = line[4:].strip()
            row.images[row.image] = []

    def _end_row(self, collector: Collector) -> None:
        if self._row is not None:
            collector.row(self._row.row())
            self._row = None
