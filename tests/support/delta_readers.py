"""Reads Delta and Iceberg tables by programs without Spark, which `deploy/setup.sh readers` installs into
.cache/readers, and by a Trino server.

The file is also the program that runs there: it reads the format and paths of tables, and Trino's port, as JSON from
its input, and prints what each reader returns for each table. The path of an Iceberg table is that of its metadata
file.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

_PYTHON = Path(__file__).parents[2] / ".cache/readers/bin/python"
Rows = list[dict[str, Any]]


def read(paths: Sequence[str], form: str = "delta") -> dict[str, dict[str, Rows | str]]:
    """Returns, by reader with its version and by path, the rows as `comparable` returns them, or the reader's error.
    `form`: "delta" or "iceberg"."""
    from tests.support import trino_server  # noqa: PLC0415 - the readers' environment lacks its imports

    assert _PYTHON.exists(), "run deploy/setup.sh readers"
    with trino_server.started() as port:
        done = subprocess.run(
            [str(_PYTHON), __file__],
            input=json.dumps([form, list(paths), trino_server.VERSION, port]),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
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


def _duckdb(query: str, path: str) -> Rows:
    import duckdb  # type: ignore[import-not-found] # noqa: PLC0415

    with duckdb.connect() as connection:
        # Each extension is a file of a package; `INSTALL` would download it.
        for name in ("avro", "httpfs", "iceberg", "delta"):
            package = Path(importlib.import_module(f"duckdb_extension_{name}").__path__[0])
            (file,) = package.glob("**/*.duckdb_extension")
            connection.execute(f"LOAD '{file}'")
        connection.execute("SET TimeZone = 'UTC'")
        rows: Rows = connection.execute(query, [path]).to_arrow_table().to_pylist()
    return rows


def _pyiceberg(path: str) -> Rows:
    from pyiceberg.table import StaticTable  # noqa: PLC0415

    rows: Rows = StaticTable.from_metadata(path).scan().to_arrow().to_pylist()
    return rows


def _polars_iceberg(path: str) -> Rows:
    import polars as pl  # noqa: PLC0415

    rows: Rows = pl.scan_iceberg(path).collect().to_dicts()
    return rows


def _trino(form: str, port: int, path: str) -> Rows:
    import trino  # type: ignore[import-not-found] # noqa: PLC0415

    with trino.dbapi.connect(
        host="127.0.0.1", port=port, user="test", timezone="UTC"
    ) as connection:
        cursor = connection.cursor()
        location, table = f"file://{path}", f"t{hash(path) & 0xFFFFFFFF}"
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {form}.tables").fetchall()
        arguments = f"'tables', '{table}', '{location}'"
        if form == "iceberg":
            location, _, file = path.rpartition("/metadata/")
            arguments = f"'tables', '{table}', '{location}', '{file}'"
        cursor.execute(f"CALL {form}.system.register_table({arguments})").fetchall()
        cursor.execute(f"SELECT * FROM {form}.tables.{table}")
        found = cursor.fetchall()
        names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in found]


_READERS: dict[str, dict[str, Callable[[str], Rows]]] = {
    "delta": {
        "deltalake": _delta_rs,
        "polars": _polars,
        "duckdb": partial(_duckdb, "SELECT * FROM delta_scan($1)"),
    },
    "iceberg": {
        "pyiceberg": _pyiceberg,
        "polars": _polars_iceberg,
        "duckdb": partial(_duckdb, "SELECT * FROM iceberg_scan($1)"),
    },
}


def _answer(reader: Callable[[str], Rows], path: str) -> Rows | str:
    try:
        return comparable(reader(path))
    except Exception as error:  # noqa: BLE001 - each reader has exceptions of its own
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    chosen, tables, trino_version, trino_port = json.load(sys.stdin)
    answers = {
        f"{name} {importlib.metadata.version(name)}": {p: _answer(reader, p) for p in tables}
        for name, reader in _READERS[chosen].items()
    }
    by_trino = partial(_trino, chosen, trino_port)
    answers[f"Trino {trino_version}"] = {p: _answer(by_trino, p) for p in tables}
    json.dump(answers, sys.stdout)
