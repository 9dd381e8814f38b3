"""Changes the rows of a Delta table behind the mirror's back, without Spark."""

from __future__ import annotations

import io
import json
import time
import uuid
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

_TRIES = 50


def plant(folder: Path, key: str) -> int:
    """Change the largest file of a table with at least four rows more than it has other columns than `key`: each of
    these columns becomes NULL in one row, one row is lost, one is there twice, and one has another key. Returns how
    many keys differ then."""
    for _ in range(_TRIES):
        commits = sorted((folder / "_delta_log").glob("[0-9]*.json"))
        path, size = max(_files(commits).items(), key=lambda file: file[1])
        rows = pq.read_table(folder / unquote(path))
        changed, keys = _changed(rows, key)
        if _committed(folder, int(commits[-1].stem) + 1, path, size, changed):
            return keys
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


def _committed(folder: Path, version: int, path: str, size: int, rows: pa.Table) -> bool:
    """Replace a file by one with `rows`. Returns False if another commit has this version."""
    name, content = f"planted-{uuid.uuid4()}.parquet", io.BytesIO()
    pq.write_table(rows, content, use_deprecated_int96_timestamps=False)
    (folder / name).write_bytes(content.getvalue())
    now = int(time.time() * 1000)
    add = {"path": name, "partitionValues": {}, "size": len(content.getvalue())}
    add |= {"modificationTime": now, "dataChange": True}
    remove = {"path": path, "deletionTimestamp": now, "dataChange": True, "size": size}
    lines = [json.dumps({"add": add}), json.dumps({"remove": remove})]
    try:
        with (folder / "_delta_log" / f"{version:020d}.json").open("x") as commit:
            commit.write("\n".join(lines) + "\n")
    except FileExistsError:
        return False
    return True


def _files(commits: list[Path]) -> dict[str, int]:
    """Returns the sizes of the files that the table has after these commits, by path."""
    files: dict[str, int] = {}
    for commit in commits:
        for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = action["add"]["size"]
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    return files
