"""`--summary`: counts instead of events. Bytes of rows are those of their events, of compressed ones unpacked."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dispatcher.binlog.event.types import type_name
from dispatcher.inspect.entry import DELETES, INSERTS, ROWS, UPDATES, InspectEntry
from dispatcher.inspect.times import seconds_text

LARGEST = 10


@dataclass(slots=True)
class TableCounts:
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    bytes: int = 0
    transactions: int = 0
    unread_events: int = 0
    last_transaction: int = -1


@dataclass(slots=True)
class TransactionCounts:
    file: str
    offset: int
    gtid: str
    timestamp: int
    bytes: int = 0
    events: int = 0
    rows: int = 0


class Summary:
    """Takes entries in order. Inner events of a compressed transaction count as events, its bytes are the payload's."""

    def __init__(self) -> None:
        self.files: dict[str, int] = {}
        self.tables: dict[tuple[str, str], TableCounts] = {}
        self.events: Counter[int] = Counter()
        self.bytes: Counter[int] = Counter()
        self.transactions = 0
        self.first = self.last = 0
        self._largest: list[tuple[int, int, TransactionCounts]] = []
        self._current: TransactionCounts | None = None

    def add(self, entry: InspectEntry) -> None:
        size = entry.size if entry.inside < 0 else 0
        self.files[entry.file] = self.files.get(entry.file, 0) + size
        self.events[entry.kind] += 1
        self.bytes[entry.kind] += size
        if entry.timestamp:
            self.first = min(self.first, entry.timestamp) if self.first else entry.timestamp
            self.last = max(self.last, entry.timestamp)
        if entry.begins:
            self._close()
            if entry.in_transaction:
                self.transactions += 1
                self._current = TransactionCounts(
                    entry.file, entry.offset, entry.fields.gtid, entry.timestamp
                )
        if self._current is not None:
            self._current.bytes += size
            self._current.events += 1
        if entry.kind in ROWS:
            self._rows(entry)
        if entry.ends:
            self._close()

    def _rows(self, entry: InspectEntry) -> None:
        of = self.tables.setdefault((entry.fields.database, entry.fields.table), TableCounts())
        of.bytes += entry.size
        if of.last_transaction != self.transactions:
            of.last_transaction = self.transactions
            of.transactions += 1
        if entry.row_count < 0:
            of.unread_events += 1
            return
        if entry.kind in INSERTS:
            of.inserts += entry.row_count
        elif entry.kind in UPDATES:
            of.updates += entry.row_count
        elif entry.kind in DELETES:
            of.deletes += entry.row_count
        if self._current is not None:
            self._current.rows += entry.row_count

    def _close(self) -> None:
        if self._current is None:
            return
        item = (self._current.bytes, -self.transactions, self._current)
        self._current = None
        if len(self._largest) < LARGEST:
            heapq.heappush(self._largest, item)
        else:
            heapq.heappushpop(self._largest, item)

    def data(self) -> dict[str, Any]:
        """The summary as `docs/inspect.md` describes it."""
        self._close()
        return {
            "files": [{"file": name, "bytes": size} for name, size in self.files.items()],
            "first_time": seconds_text(self.first) or None,
            "last_time": seconds_text(self.last) or None,
            "transactions": self.transactions,
            "tables": [
                {
                    "database": database, "table": table, "transactions": of.transactions, "inserts": of.inserts,
                    "updates": of.updates, "deletes": of.deletes, "bytes": of.bytes, "unread_events": of.unread_events,
                }
                for (database, table), of in sorted(self.tables.items(), key=lambda item: -item[1].bytes)
            ],
            "largest_transactions": [
                {
                    "file": one.file, "offset": one.offset, "gtid": one.gtid or None,
                    "time": seconds_text(one.timestamp),
                    "bytes": one.bytes, "events": one.events, "rows": one.rows,
                }
                for _, _, one in sorted(self._largest, key=lambda item: item[:2], reverse=True)
            ],
            "events": [
                {"type": type_name(kind), "count": count, "bytes": self.bytes[kind]}
                for kind, count in self.events.most_common()
            ],
        }  # fmt: skip

    def json(self) -> str:
        return json.dumps(self.data(), ensure_ascii=False) + "\n"

    def text(self) -> str:
        found = self.data()
        parts = [
            _table("files", ("file", "bytes"), found["files"]),
            f"time   {found['first_time'] or '-'} to {found['last_time'] or '-'}\n"
            f"transactions   {found['transactions']}\n",
            _table(
                "tables",
                (
                    "database",
                    "table",
                    "transactions",
                    "inserts",
                    "updates",
                    "deletes",
                    "bytes",
                    "unread_events",
                ),
                found["tables"],
            ),
            _table(
                "largest transactions",
                ("file", "offset", "gtid", "time", "bytes", "events", "rows"),
                found["largest_transactions"],
            ),
            _table("events", ("type", "count", "bytes"), found["events"]),
        ]
        return "\n".join(part for part in parts if part)


def _table(title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> str:
    if not rows:
        return ""
    if "unread_events" in columns and not any(row["unread_events"] for row in rows):
        columns = tuple(column for column in columns if column != "unread_events")
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    widths = [
        max(len(name), *map(len, column))
        for name, column in zip(columns, zip(*cells, strict=True), strict=True)
    ]
    numeric = [all(isinstance(row[column], int) for row in rows) for column in columns]
    lines = [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(line, widths, numeric, strict=True)
        )
        for line in [[name.replace("_", " ") for name in columns], *cells]
    ]
    return f"{title}\n" + "".join(f"  {line.rstrip()}\n" for line in lines)


def _cell(value: object) -> str:
    return "-" if value is None or value == "" else str(value)
