"""Which readers of Delta and of Iceberg read a mirrored table, by what has happened to the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import assert_equal
from tests.spark.facts import both_lines
from tests.spark.mirror.conftest import Mirror
from tests.spark.mirror.test_iceberg import Published
from tests.support import delta_readers
from tests.support.delta_readers import comparable

_TARGETS = Path(__file__).parents[3] / "docs" / "targets.md"
_COLUMNS = (
    "id INT PRIMARY KEY, n INT, price DECIMAL(7,2), day DATE, at TIMESTAMP(6) NULL, label VARCHAR(40),"
    " data VARBINARY(8), x DOUBLE, `größe` SMALLINT, `a-b` INT"
)
_VALUES = (
    "(1, 10, 12.50, '1999-12-31', '2021-01-01 00:00:00.5', 'größer', x'00ff', 0.25, 5, 7),"
    " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), (3, 30, -1, NULL, NULL, '', '', -2, 0, 0)"
)
# What happens to a table, in the words of docs/targets.md: name of the table, statements.
_CHANGES = {
    "rows are inserted, updated and deleted": ("plain", ()),
    "a column is added": ("added", ("ADD more INT",)),
    "a column is added with a value": ("filled", ("ADD more INT NOT NULL DEFAULT 4",)),
    "the table has a column with a space or a point in its name": ("odd", ()),
    "the table has a `DATETIME` column": ("moments", ()),
    "a column is renamed": ("renamed", ("RENAME COLUMN label TO text",)),
    "a column is dropped": ("dropped", ("DROP COLUMN label",)),
    "a column's type is widened": ("widened", ("MODIFY n BIGINT",)),
    "the table has deletion vectors (from 64 MiB)": ("vectors", ()),
}
_MORE_COLUMNS = {"odd": "`c d` INT, `e.f` INT", "moments": "moment DATETIME(6)"}
_PLAIN = {"plain", "added", "filled"}
_ODD_NAMES = ("a b.c", "größe", "50%", "_hidden", "日本")


def requirements(folder: str) -> str:
    """Returns what the newest protocol of a table requires of its readers."""
    protocol: dict[str, Any] = {}
    for commit in sorted((Path(folder) / "_delta_log").glob("*.json")):
        for line in commit.read_text("utf-8").splitlines():
            protocol = json.loads(line).get("protocol", protocol)
    features = sorted(protocol.get("readerFeatures", ()))
    named = f": {', '.join(f'`{name}`' for name in features)}" if features else ""
    return f"reader version {protocol['minReaderVersion']}{named}"


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_a_table_requires_of_its_readers_what_its_history_needs(mirror: Mirror) -> None:
    source, target = mirror.source, mirror.target
    tables = [table for table, _ in _CHANGES.values()]
    for table in tables:
        more = f", {_MORE_COLUMNS[table]}" if table in _MORE_COLUMNS else ""
        source.execute(f"CREATE TABLE {table} ({_COLUMNS}{more})")
        names = "id, n, price, day, at, label, data, x, `größe`, `a-b`"
        source.execute(f"INSERT INTO {table} ({names}) VALUES {_VALUES}")
    source.execute("UPDATE moments SET moment = '2020-02-29 23:59:59.123456' WHERE id = 1")
    for name in _ODD_NAMES:
        source.execute(f"CREATE TABLE `{name}` (id INT PRIMARY KEY)")
        source.execute(f"INSERT INTO `{name}` VALUES (1)")
    assert mirror.run() == 0
    folders = {table: target.of(source, table) for table in (*tables, *_ODD_NAMES)}
    readable = {*tables, *_ODD_NAMES} - {"odd", "moments"}
    for answers in delta_readers.read([folders[table] for table in readable]).values():
        for table in readable:
            assert answers[folders[table]] == comparable(source.rows(table)), table

    mirror.spark.sql(
        f"ALTER TABLE delta.`{folders['vectors']}`"
        " SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    )
    for table, clauses in _CHANGES.values():
        source.execute(*(f"ALTER TABLE {table} {clause}" for clause in clauses))
        source.execute(
            f"UPDATE {table} SET n = 11 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 3",
            f"INSERT INTO {table} (id, n) VALUES (4, 40)",
        )
    assert mirror.run() == 0
    assert_equal(source, target, *tables)
    found = delta_readers.read([folders[table] for table in tables])
    lines = [
        f"| | requires | Spark {mirror.spark.version} | {' | '.join(found)} |",
        "|---" * (len(found) + 3) + "|",
    ]
    for what, (table, _) in _CHANGES.items():
        cells = [requirements(folders[table]), "reads"]
        for reader, answers in found.items():
            answer, rows = answers[folders[table]], comparable(source.rows(table))
            if isinstance(answer, str):
                print(f"{reader}, {table}: {answer}")
                assert table not in _PLAIN
                cells.append("refuses")
            elif table == "widened" and "n" not in answer[0]:
                for row in rows:
                    del row["n"]
                assert answer == rows, reader
                cells.append("leaves out the column")
            else:
                assert answer == rows, (reader, table)
                cells.append("reads")
        lines.append(f"| {what} | {' | '.join(cells)} |")
    matrix = "\n".join(lines)
    print(matrix)
    assert matrix in _TARGETS.read_text("utf-8")


# The same for Iceberg tables, which have no deletion vectors.
_ICEBERG_CHANGES = {
    **{what: change for what, change in _CHANGES.items() if change[0] != "vectors"},
    "a `DATE` becomes a `DATETIME`, which rewrites all rows": (
        "rewritten",
        ("MODIFY day DATETIME",),
    ),
    "the table is renamed": ("moved", ()),
}


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_readers_of_iceberg_read_each_table(mirror: Mirror, tmp_path: Path) -> None:
    """Spark reads such tables in `test_iceberg_readers`, from a REST catalog."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "file:///"}
    published = Published(mirror, properties)
    source = mirror.source
    tables = [table for table, _ in _ICEBERG_CHANGES.values()]
    for table in tables:
        more = f", {_MORE_COLUMNS[table]}" if table in _MORE_COLUMNS else ""
        source.execute(f"CREATE TABLE {table} ({_COLUMNS}{more})")
        names = "id, n, price, day, at, label, data, x, `größe`, `a-b`"
        source.execute(f"INSERT INTO {table} ({names}) VALUES {_VALUES}")
    source.execute("UPDATE moments SET moment = '2020-02-29 23:59:59.123456' WHERE id = 1")
    assert published.apply() == 0
    for table, clauses in _ICEBERG_CHANGES.values():
        source.execute(*(f"ALTER TABLE {table} {clause}" for clause in clauses))
        source.execute(
            f"UPDATE {table} SET n = 11 WHERE id = 1",
            f"DELETE FROM {table} WHERE id = 3",
            f"INSERT INTO {table} (id, n) VALUES (4, 40)",
        )
    source.execute("RENAME TABLE moved TO other_name")
    code = published.apply()
    assert code == 0, [
        line for line in both_lines(mirror.spark, str(mirror.target.path)) if line.reason
    ]
    current = {table: "other_name" if table == "moved" else table for table in tables}
    files = {
        table: published.catalog.load_table(f"{source.database}.{name}").metadata_location
        for table, name in current.items()
    }
    found = delta_readers.read(list(files.values()), "iceberg")
    lines = [f"| | {' | '.join(found)} |", "|---" * (len(found) + 1) + "|"]
    for what, (table, _) in _ICEBERG_CHANGES.items():
        cells = []
        for reader, answers in found.items():
            answer = answers[files[table]]
            cells.append("refuses" if isinstance(answer, str) else "reads")
            if isinstance(answer, str):
                print(f"{reader}, {table}: {answer}")
                assert "ModuleNotFoundError" not in answer
            else:
                assert answer == comparable(source.rows(current[table])), (reader, table)
        lines.append(f"| {what} | {' | '.join(cells)} |")
    matrix = "\n".join(lines)
    print(matrix)
    assert matrix in _TARGETS.read_text("utf-8")
