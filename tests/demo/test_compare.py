"""The comparison finds every way in which two tables can differ."""

# ruff: noqa: DTZ001 - MySQL gives instants as UTC without saying so

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deploy.demo import delta
from deploy.demo.compare import Result, Row, Table, compare, rows_of_delta

LINES = Table("shop", "lines", ("order", "line", "price", "note"), ("order", "line"))
ROWS: list[Row] = [
    (1, 1, Decimal("1.50"), "é"),
    (1, 2, Decimal("2.00"), None),
    (2, 1, Decimal("0.00"), ""),
]


def outcome(mirrored: list[Row], mysql: list[Row] = ROWS) -> Result:
    return compare(LINES, mysql, mirrored)


def test_equal_tables_in_any_order() -> None:
    result = outcome(ROWS[::-1])
    assert (result.equal, result.fine, result.examples) == (3, True, [])


def test_empty_tables_are_equal() -> None:
    assert outcome([], []).fine


@pytest.mark.parametrize(
    ("mirrored", "counts", "example"),
    [
        (ROWS[1:], (2, 0, 1, 0), "order 1, line 1 is only in MySQL"),
        ([*ROWS, (3, 1, None, None)], (3, 0, 0, 1), "order 3, line 1 is only in Delta"),
        ([*ROWS, ROWS[0]], (3, 0, 0, 1), "twice in Delta"),
        ([], (0, 0, 3, 0), "only in MySQL"),
    ],
)
def test_rows_on_one_side_only_are_counted(
    mirrored: list[Row], counts: tuple[int, int, int, int], example: str
) -> None:
    result = outcome(mirrored)
    assert (result.equal, result.different, result.missing, result.extra) == counts
    assert not result.fine and any(example in text for text in result.examples)


@pytest.mark.parametrize(
    "row",
    [
        (1, 2, Decimal("2.01"), None),
        (1, 2, Decimal("2.00"), ""),
        (1, 2, None, None),
        (1, 2, Decimal("2.00"), "None"),
    ],
)
def test_one_value_differs(row: Row) -> None:
    result = outcome([ROWS[0], row, ROWS[2]])
    assert (result.equal, result.different, result.fine) == (2, 1, False)
    assert "in MySQL and" in result.examples[0]


# -- a table on disk -----------------------------------------------------------------------------------------

FIELDS = ("id", "day", "at", "blob")
TABLE = Table("shop", "t", FIELDS, ("id",))


def commit(folder: Path, number: int, *actions: dict[str, Any]) -> None:
    log = folder / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(json.dumps(action) for action in actions)
    (log / f"{number:020}.json").write_text(lines + "\n")


def metadata(*names: str, **types: str) -> dict[str, Any]:
    fields = [{"name": name, "type": types.get(name, "string")} for name in names]
    schema = json.dumps({"type": "struct", "fields": fields})
    return {"metaData": {"schemaString": schema, "partitionColumns": []}}


def protocol(version: int, *features: str) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": version, "readerFeatures": list(features)}}


def data(folder: Path, name: str, **columns: Any) -> dict[str, Any]:
    pq.write_table(pa.table(columns), folder / name.replace("%20", " "))
    return {"add": {"path": name}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    commit(tmp_path, 0, protocol(3, "timestampNtz"), metadata("id", "day"))
    return tmp_path


def test_the_table_is_the_files_added_and_not_removed(folder: Path) -> None:
    commit(folder, 1, data(folder, "a.parquet", id=[1, 2], day=[None, date(2024, 2, 29)]))
    commit(folder, 2, data(folder, "b%20c.parquet", id=[3], day=[None]))
    commit(
        folder,
        3,
        {"remove": {"path": "a.parquet"}},
        metadata(*FIELDS),
        data(
            folder,
            "d.parquet",
            id=[1],
            day=[None],
            at=pa.array([datetime(2026, 1, 2, 3, 4, 5, 6, UTC)], pa.timestamp("us", "UTC")),
            blob=[b"\0\xff"],
        ),
    )
    rows = rows_of_delta(folder, TABLE)
    assert sorted(rows) == [
        (1, None, datetime(2026, 1, 2, 3, 4, 5, 6), b"\0\xff"),
        (3, None, None, None),
    ]


def test_older_files_of_a_widened_column_are_cast(folder: Path) -> None:
    wide = {"id": "decimal(12,2)", "day": "timestamp_ntz"}
    new = {"id": [Decimal("2.50")], "day": [datetime(2024, 3, 1, 12)]}
    commit(folder, 1, data(folder, "a.parquet", id=[1], day=[date(2024, 2, 29)]))
    commit(folder, 2, metadata("id", "day", **wide), data(folder, "b.parquet", **new))
    commit(folder, 3, data(folder, "c.parquet", id=[Decimal("3.00")]))
    rows = sorted(row[:2] for row in rows_of_delta(folder, TABLE))
    assert rows == [
        (Decimal("1.00"), datetime(2024, 2, 29)),
        (Decimal("2.50"), datetime(2024, 3, 1, 12)),
        (Decimal("3.00"), None),
    ]


def test_int96_timestamps_keep_their_microseconds_in_all_years(folder: Path) -> None:
    moments = [datetime(1000, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)]
    columns = {"id": [1, 2], "at": pa.array(moments, pa.timestamp("us"))}
    pq.write_table(pa.table(columns), folder / "old.parquet", use_deprecated_int96_timestamps=True)
    commit(folder, 1, metadata("id", "at"), {"add": {"path": "old.parquet"}})
    assert [row[2] for row in rows_of_delta(folder, TABLE)] == moments


def test_a_table_without_rows_has_no_folder_or_no_files(tmp_path: Path, folder: Path) -> None:
    assert rows_of_delta(tmp_path / "none", TABLE) == []
    assert rows_of_delta(folder, TABLE) == []


def test_a_missing_column_is_a_difference_and_an_additional_one_an_error(folder: Path) -> None:
    commit(folder, 1, data(folder, "a.parquet", id=[1], day=[None]))
    assert not compare(TABLE, [(1, None, None, None)], rows_of_delta(folder, TABLE)).fine
    commit(folder, 2, metadata("id", "day", "zip"))
    with pytest.raises(delta.UnreadableDelta, match="zip"):
        rows_of_delta(folder, TABLE)


def test_an_unsupported_or_incomplete_log_is_refused(folder: Path) -> None:
    commit(folder, 1, protocol(3, "deletionVectors", "timestampNtz"))
    with pytest.raises(delta.UnreadableDelta, match="deletionVectors"):
        delta.read(folder)
    commit(folder, 1, protocol(2))
    with pytest.raises(delta.UnreadableDelta, match="version 2"):
        delta.read(folder)
    commit(folder, 1)
    commit(folder, 3)
    with pytest.raises(delta.UnreadableDelta, match="all commits"):
        delta.read(folder)
