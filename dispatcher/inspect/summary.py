"""Implements `--summary`, which shows counts instead of events. The bytes of a table are the bytes of its rows events
after decompression."""

from __future__ import annotations

import heapq
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dispatcher.binlog.event.types import type_name
from dispatcher.inspect.entry import DELETES, INSERTS, ROWS, UPDATES, InspectEntry, seconds_text
from dispatcher.model.printable import json_escaped, printable

LARGEST = 10
_COUNTS = ("transactions", "inserts", "updates", "deletes", "bytes", "unread_events")


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
    """Counts entries in the order of the log. For a compressed transaction, the summary counts the events after
    decompression, but the bytes before decompression."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}
        self._tables: dict[tuple[str, str], TableCounts] = {}
        self._events: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()
        self._transactions = 0
        self._first = self._last = 0
        self._largest: list[tuple[int, int, TransactionCounts]] = []
        self._current: TransactionCounts | None = None

    def add(self, entry: InspectEntry) -> None:
        size = entry.size if entry.inside < 0 else 0
        self._files[entry.file] = self._files.get(entry.file, 0) + size
        self._events[entry.kind] += 1
        self._bytes[entry.kind] += size
        if entry.timestamp:
            self._first = min(self._first or entry.timestamp, entry.timestamp)
            self._last = max(self._last, entry.timestamp)
        if entry.begins:
            self._close()
            if entry.in_transaction:
                self._transactions += 1
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
        name = (entry.fields.database, entry.fields.table)
        table = self._tables.setdefault(name, TableCounts())
        table.bytes += entry.size
        if table.last_transaction != self._transactions:
            table.last_transaction = self._transactions
            table.transactions += 1
        if entry.row_count < 0:
            table.unread_events += 1
            return
        if entry.kind in INSERTS:
            table.inserts += entry.row_count
        elif entry.kind in UPDATES:
            table.updates += entry.row_count
        elif entry.kind in DELETES:
            table.deletes += entry.row_count
        if self._current is not None:
            self._current.rows += entry.row_count

    def _close(self) -> None:
        """End the current transaction. Record the transaction if it is one of the largest."""
        if self._current is None:
            return
        item = (self._current.bytes, -self._transactions, self._current)
        self._current = None
        if len(self._largest) < LARGEST:
            heapq.heappush(self._largest, item)
        else:
            heapq.heappushpop(self._largest, item)

    def data(self) -> dict[str, Any]:
        """Returns the summary as `docs/inspect.md` describes it."""
        self._close()
        tables = sorted(self._tables.items(), key=lambda item: -item[1].bytes)
        largest = sorted(self._largest, key=lambda item: item[:2], reverse=True)
        return {
            "files": [{"file": name, "bytes": size} for name, size in self._files.items()],
            "first_time": seconds_text(self._first) or None,
            "last_time": seconds_text(self._last) or None,
            "transactions": self._transactions,
            "tables": [
                {"database": database, "table": name} | {key: getattr(table, key) for key in _COUNTS}
                for (database, name), table in tables
            ],
            "largest_transactions": [
                {
                    "file": each.file, "offset": each.offset, "gtid": each.gtid or None,
                    "time": seconds_text(each.timestamp),
                    "bytes": each.bytes, "events": each.events, "rows": each.rows,
                }
                for _, _, each in largest
            ],
            "events": [
                {"type": type_name(kind), "count": count, "bytes": self._bytes[kind]}
                for kind, count in self._events.most_common()
            ],
        }  # fmt: skip

    def json(self) -> str:
        return json_escaped(json.dumps(self.data(), ensure_ascii=False)) + "\n"

    def text(self) -> str:
        data = self.data()
        parts = [
            _table("files", data["files"]),
            f"time   {data['first_time'] or '-'} to {data['last_time'] or '-'}\n"
            f"transactions   {data['transactions']}\n",
            _table("tables", data["tables"]),
            _table("largest transactions", data["largest_transactions"]),
            _table("events", data["events"]),
        ]
        return "\n".join(part for part in parts if part)


def _table(title: str, rows: list[dict[str, Any]]) -> str:
    """Returns the rows as a text table with headings. Numbers are right-aligned. Returns "" if there are no rows."""
    if not rows:
        return ""
    columns = [key for key in rows[0] if key != "unread_events" or any(row[key] for row in rows)]
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
    return "-" if value is None or value == "" else printable(str(value))
