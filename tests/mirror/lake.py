"""Reads the mirror's own tables, the control table and the log, from their files without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from spark_sink.mirror.rules.states import Copying, Creating, state_from

Row = dict[str, Any]


def _actions(folder: Path) -> Iterator[Row]:
    """Yields the actions of a Delta table's commits, in order. Files that no action names may be incomplete."""
    for commit in sorted((folder / "_delta_log").glob("[0-9]*.json")):
        for line in commit.read_text("utf-8").splitlines():
            yield json.loads(line)


def control_rows(target: Path) -> list[Row]:
    """Returns each row that was ever written into the control table, in order, including those that compaction has
    deleted."""
    folder = target / "_binlog" / "tables"
    rows = {}
    for file in {action["add"]["path"] for action in _actions(folder) if "add" in action}:
        for row in pq.read_table(folder / file).to_pylist():
            detail = json.loads(row["detail"] or "{}")
            rows[row["serial"], row["table_id"]] = row | {"detail": detail}
    return [rows[key] for key in sorted(rows)]


def table_states(target: Path, consumer: str) -> dict[str, Row]:
    """Returns the newest row of each table of a consumer, except dropped tables, by database.table."""
    newest = {row["table_id"]: row for row in control_rows(target) if row["kind"] == "table"}
    return {
        f"{row['database']}.{row['table']}": row
        for row in newest.values()
        if row["consumer"] == consumer and row["state"] != "dropped"
    }


def is_copied(row: Row) -> bool:
    """True if all rows of a table have been copied; the log may still be replayed on them."""
    return not isinstance(state_from(row["detail"]["state"]), Creating | Copying)


def log_rows(target: Path, consumer: str) -> list[Row]:
    """Returns the entries of a consumer in the log, by lsn, without their payloads."""
    folder = target / "_binlog" / "log"
    files: set[str] = set()
    for action in _actions(folder):
        if "add" in action:
            files.add(action["add"]["path"])
        elif "remove" in action:
            files.discard(action["remove"]["path"])
    rows: list[Row] = []
    for path in files:
        if f"consumer={consumer}/" not in path:
            continue
        with pq.ParquetFile(folder / unquote(path)) as source:
            names = [n for n in source.schema_arrow.names if n not in ("payload", "small_payload")]
            rows += source.read(columns=names).to_pylist()
    return sorted(rows, key=lambda row: row["lsn"])
