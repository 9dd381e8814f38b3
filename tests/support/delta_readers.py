"""Reads Delta tables by programs without Spark, which `deploy/setup.sh readers` installs into .cache/readers.

The file is also the program that runs there: it reads paths of tables as JSON from its input, and prints what each
reader returns for each table.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

_PYTHON = Path(__file__).parents[2] / ".cache/readers/bin/python"
Rows = list[dict[str, Any]]


def read(paths: Sequence[str]) -> dict[str, dict[str, Rows | str]]:
    """Returns, by reader with its version and by path, the rows as `comparable` returns them, or the reader's error."""
    assert _PYTHON.exists(), "run deploy/setup.sh readers"
    done = subprocess.run(
        [str(_PYTHON), __file__],
        input=json.dumps(paths),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, Rows | str]] = json.loads(done.stdout)
    return result


def comparable(rows: Iterable[dict[str, Any]]) -> Rows:
    """Returns rows in the order of their ids, with values that JSON has."""
    plain = [{name: _plain(value) for name, value in row.items()} for row in rows]
    return sorted(plain, key=lambda row: int(row["id"]))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return moment.isoformat(timespec="microseconds")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


def _delta_rs(path: str) -> Rows:
    from deltalake import DeltaTable  # type: ignore[import-not-found] # noqa: PLC0415

    rows: Rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return rows


def _polars(path: str) -> Rows:
    import polars as pl  # type: ignore[import-not-found] # noqa: PLC0415

    rows: Rows = pl.read_delta(path).to_dicts()
    return rows


_READERS: dict[str, Callable[[str], Rows]] = {"deltalake": _delta_rs, "polars": _polars}


def _answer(reader: Callable[[str], Rows], path: str) -> Rows | str:
    try:
        return comparable(reader(path))
    except Exception as error:  # noqa: BLE001 - each reader has exceptions of its own
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    tables = json.load(sys.stdin)
    answers = {
        f"{name} {importlib.metadata.version(name)}": {p: _answer(reader, p) for p in tables}
        for name, reader in _READERS.items()
    }
    json.dump(answers, sys.stdout)
