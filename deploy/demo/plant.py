"""Changes a Delta table as another program would, so that the demo shows that the mirror finds and repairs it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from deploy.demo.processes import DemoFailed

ROWS_MAX = 50_000  # more rows of a table would be copied, and not rewritten
_TRIES = 20


def lose_rows(folder: Path) -> int:
    """Remove the file with the fewest rows from the Delta table in the folder. Returns the number of its rows.

    Raises DemoFailed if the table has no such file, or if other commits are always faster.
    """
    for _ in range(_TRIES):
        commits = sorted((folder / "_delta_log").glob("[0-9]*.json"))
        files = _files(commits)
        sizes = {path: pq.read_metadata(folder / unquote(path)).num_rows for path in files}
        rows, path = min(((rows, path) for path, rows in sizes.items() if rows), default=(0, ""))
        if not 0 < rows <= ROWS_MAX:
            raise DemoFailed(f"{folder} has no file from which the demo can lose rows")
        removal = {"path": path, "deletionTimestamp": int(time.time() * 1000), "dataChange": True}
        number = int(commits[-1].stem) + 1
        try:
            with (folder / "_delta_log" / f"{number:020d}.json").open("x") as commit:
                commit.write(json.dumps({"remove": removal}) + "\n")
        except FileExistsError:
            continue  # a step of the mirror was faster
        return rows
    raise DemoFailed(f"{folder}: the demo could not commit")


def _files(commits: list[Path]) -> list[str]:
    """Returns the paths of the files that the table has after these commits."""
    files: dict[str, None] = {}
    for commit in commits:
        for action in map(json.loads, commit.read_text(encoding="utf-8").splitlines()):
            if "add" in action:
                files[action["add"]["path"]] = None
            elif "remove" in action:
                files.pop(action["remove"]["path"], None)
    return list(files)
