"""Changes the rows of a Delta table as another program would, without Spark."""

from __future__ import annotations

import io
import json
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

_TRIES = 50


def plant(folder: Path, key: str) -> int:
    """Change the largest file of a table: each column except `key` becomes NULL in one row, one row is lost, one is
    there twice, and one has another key. The file needs at least two rows more than the table has columns. Returns how
    many keys differ then."""
    keys = 0

    def change(rows: pa.Table) -> pa.Table:
        nonlocal keys
        changed, keys = _changed(rows, key)
        return changed

    _replace(folder, change, files_max=1)
    return keys


def empty(folder: Path) -> None:
    """Remove all rows of a table."""
    _replace(folder, partial(pa.Table.slice, length=0))


def overwrite(folder: Path, column: str, value: int) -> None:
    """Give all rows of a table the same value in a column."""

    def change(rows: pa.Table) -> pa.Table:
        place = rows.column_names.index(column)
        kind = rows.schema.field(place)
        return rows.set_column(place, kind, pa.array([value] * len(rows), kind.type))

    _replace(folder, change)


def _replace(
    folder: Path, change: Callable[[pa.Table], pa.Table], files_max: int = 1 << 30
) -> None:
    """Replace the largest files of a table by files with changed rows, in one commit."""
    for _ in range(_TRIES):
        commits = sorted((folder / "_delta_log").glob("[0-9]*.json"))
        added = sorted(_files(commits), key=lambda add: int(add["size"]), reverse=True)[:files_max]
        assert not any("deletionVector" in add for add in added), "rows that are gone would return"
        lines = [
            line
            for add in added
            for line in _lines(folder, add, change(_rows(folder / unquote(add["path"]))))
        ]
        if _committed(folder, int(commits[-1].stem) + 1, lines):
            return
    raise AssertionError("the mirror's commits are always faster")


def _changed(rows: pa.Table, key: str) -> tuple[pa.Table, int]:
    lines, keys = rows.to_pylist(), 3
    others = [name for name in rows.column_names if name != key]
    for i, name in enumerate(others):
        keys += lines[i][name] is not None
        lines[i][name] = None
    lost, doubled, last = len(others), len(others) + 1, len(others) + 2
    foreign = lines[last] | {key: lines[last][key] + 1_000_000}
    lines = [line for i, line in enumerate(lines) if i != lost] + [lines[doubled], foreign]
    return pa.Table.from_pylist(lines, rows.schema), keys


def _rows(path: Path) -> pa.Table:
    """Returns the rows of a file. Executors write the type INT96, which pyarrow reads as nanoseconds without a zone."""
    rows = pq.read_table(path)
    for place, kind in enumerate(rows.schema):
        if kind.type == pa.timestamp("ns"):
            moment = kind.with_type(pa.timestamp("us", "UTC"))
            rows = rows.set_column(place, moment, rows.column(place).cast(moment.type))
    return rows


def _lines(folder: Path, add: dict[str, Any], rows: pa.Table) -> list[str]:
    """Write a file with `rows`. Returns the lines of a commit that replaces an old file by the new one."""
    name, content = f"planted-{uuid.uuid4()}.parquet", io.BytesIO()
    pq.write_table(rows, content, use_deprecated_int96_timestamps=False)
    (folder / name).write_bytes(content.getvalue())
    now = int(time.time() * 1000)
    new = {"path": name, "partitionValues": {}, "size": len(content.getvalue())}
    new |= {"modificationTime": now, "dataChange": True}
    old = {"path": add["path"], "deletionTimestamp": now, "dataChange": True, "size": add["size"]}
    return [json.dumps({"add": new}), json.dumps({"remove": old})]


def _committed(folder: Path, version: int, lines: list[str]) -> bool:
    """Returns False if another commit has this version."""
    try:
        with (folder / "_delta_log" / f"{version:020d}.json").open("x") as commit:
            commit.write("\n".join(lines) + "\n")
    except FileExistsError:
        return False
    return True


def _files(commits: list[Path]) -> list[dict[str, Any]]:
    """Returns the actions `add` of the files that the table has after these commits."""
    files: dict[str, dict[str, Any]] = {}
    for commit in commits:
        for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    return list(files.values())
