"""The files in `data`: what each server did with each case, a line of JSON each, compressed.

The first line holds the server's FORMAT_DESCRIPTION and the tables that every case finds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from dispatcher.binlog.sql.generated import GeneratedColumn
from tests.statements.worlds import Column, Name, Snapshot, Table

FOLDED = "-folded"
DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case at a server. `error`: the number of the error with which the server refused the statement, 0 if it did
    not; `tables`: the tables before, as far as they differ from the base; `events`: the whole events of the log, of
    the kinds QUERY, TABLE_MAP, rows and MariaDB's GTID; `changed`: the tables that the statement changed, as they are
    afterwards, None for a table that is gone."""

    name: str
    group: str
    error: int
    tables: dict[Name, Table | None]
    events: tuple[bytes, ...]
    changed: dict[Name, Table | None]


@dataclass(frozen=True, slots=True)
class Recording:
    """`server`: the kind of server, with `-folded` for lower_case_table_names=1; `format`: its FORMAT_DESCRIPTION."""

    server: str
    format: bytes
    base: Snapshot
    cases: Sequence[Recorded]

    @property
    def folding(self) -> int:
        """The server's lower_case_table_names."""
        return int(self.server.endswith(FOLDED))


def path_of(server: str) -> Path:
    return DATA / f"{server}.jsonl.zst"


def write(recording: Recording) -> int:
    """Returns the size of the file in bytes."""
    lines = [
        {"format": recording.format.hex(), "base": _snapshot_json(recording.base)},
        *(_case_json(case) for case in recording.cases),
    ]
    text = "".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines
    )
    return path_of(recording.server).write_bytes(
        zstandard.ZstdCompressor(19).compress(text.encode())
    )


def read(path: Path) -> Recording:
    lines = zstandard.decompress(path.read_bytes()).decode().split("\n")
    head = json.loads(lines[0])
    cases = [_case(json.loads(line)) for line in lines[1:] if line]
    base = {name: table for name, table in _tables(head["base"]) if table is not None}
    return Recording(path.name.split(".")[0], bytes.fromhex(head["format"]), base, cases)


def _case_json(case: Recorded) -> dict[str, Any]:
    found: dict[str, Any] = {"name": case.name, "group": case.group}
    if case.error:
        found["error"] = case.error
    if case.tables:
        found["tables"] = _snapshot_json(case.tables)
    if case.events:
        found["events"] = [event.hex() for event in case.events]
    if case.changed:
        found["changed"] = _snapshot_json(case.changed)
    return found


def _case(found: dict[str, Any]) -> Recorded:
    return Recorded(
        found["name"],
        found["group"],
        found.get("error", 0),
        dict(_tables(found.get("tables", []))),
        tuple(bytes.fromhex(event) for event in found.get("events", ())),
        dict(_tables(found.get("changed", []))),
    )


def _snapshot_json(tables: Snapshot | dict[Name, Table | None]) -> list[list[Any]]:
    found: list[list[Any]] = []
    for name, table in sorted(tables.items()):
        if table is None:
            found.append([*name])
        else:
            columns = [[c.name, c.type, c.charset, int(c.nullable)] for c in table.columns]
            generated = [[one.name, one.sources] for one in table.generated or ()]
            values = [table.kind, columns, table.key, table.rows]
            found.append([*name, *values, *([generated] if generated else [])])
    return found


def _tables(found: Sequence[Sequence[Any]]) -> Iterator[tuple[Name, Table | None]]:
    for database, table, *rest in found:
        if not rest:
            yield (database, table), None
            continue
        kind, columns, key, rows, *generated = rest
        yield (
            (database, table),
            Table(
                kind,
                tuple(
                    Column(name, type_, charset, bool(null))
                    for name, type_, charset, null in columns
                ),
                tuple(key),
                None if rows is None else tuple(map(tuple, rows)),
                tuple(
                    GeneratedColumn(column, sources and tuple(sources))
                    for column, sources in (generated[0] if generated else ())
                ),
            ),
        )
