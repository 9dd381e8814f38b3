"""How ALTER TABLE converts values on real servers: every change of a type that the mirror follows, value by value.

For each pair of types, the test alters a column with extreme values, once with a strict server and once with a lenient
server. The log has the rows from before the change (inserted) and after the change (updated). The earlier values,
converted by the mirror, must equal the later values, except for rows for which a predicate says that the mirror cannot
convert them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest
from pymysql.cursors import Cursor
from pyspark.sql import functions as F  # noqa: N812

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.sql.logged import SessionFacts
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.schema.columns import ColumnSignature
from spark_sink.mirror.schema.conversions import Kept, conversion
from spark_sink.mirror.schema.session_facts import StatementFacts, ValueRules
from spark_sink.mirror.schema.signature import (
    Recopy,
    SchemaChange,
    Signature,
    change_of,
    difference,
)
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from spark_sink.source.schemas import spark_schema
from tests.servers import Server
from tests.support.server_log import delivered_log, fresh_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.deep

NewDatabase = Callable[[Server], str]

_WHOLE = [
    "-1",
    "0",
    "1",
    "127",
    "128",
    "-129",
    "255",
    "256",
    "32767",
    "-32769",
    "65535",
    "65536",
    "8388607",
    "8388608",
]
_WHOLE += [
    "16777215",
    "16777217",
    "2147483647",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9007199254740993",
]
_WHOLE += [
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "99999",
    "1000000000",
]
_PARTS = [
    "0.5",
    "-0.5",
    "1.25",
    "-1.005",
    "999.99",
    "99999999.9999",
    "1e10",
    "0.0001",
    "16777217",
    "0.1",
]
# A lenient server cuts TINYTEXT at 255 bytes, even within a character, but a string cannot contain a part of a
# character. So the long text is chosen so that the cut is between two characters.
_TEXTS = [
    "''",
    "'a'",
    "'a '",
    "'  '",
    "'abcd'",
    "'abcde'",
    "'é'",
    "'日本'",
    "'😀'",
    "'A'",
    "REPEAT('x', 21)",
]
_TEXTS += ["REPEAT('y ', 130)", "CONCAT('x', REPEAT('é', 300))", "'a,c'", "'c'", "'b'", "'~[]|'"]
_BYTES = ["''", "x'00'", "'a'", "'a '", "x'61000000'", "x'ff00'", "'abcdefgh'", "REPEAT('z', 300)"]
_DATES = ["'2024-02-29'", "'0000-00-00'", "'1000-01-01'", "'9999-12-31'", "'2024-00-10'"]
_TIMES = [
    "'2024-02-29 00:00:00'",
    "'2024-02-29 10:11:12.5'",
    "'9999-12-31 23:59:59'",
    "'0000-00-00 00:00:00'",
]
_TIMES += ["'2024-02-29 10:11:12.123456'", "'2024-02-29 10:11:12.100'", "'1969-12-31 23:59:59.9'"]
_INSTANTS = [
    "'2024-02-29 10:11:12.123456'",
    "'1970-01-01 00:00:01'",
    "'2024-07-01 00:00:00.5'",
    "'0000-00-00 00:00:00'",
]
_HOURS = ["'838:59:59'", "'-838:59:59'", "'00:00:00'", "'-00:00:01.5'", "'10:11:12.123456'"]
_LABELS = ["'a'", "'b'", "'c'", "'B '", "0", "''"]
_MEMBERS = ["''", "'a'", "'a,b'", "'a,b,c'", "'c'"]
_JSON = ['\'{"b": 1, "a": [1.0, null]}\'', "'\"é\"'", "'null'", "'[]'"]
_BITS = ["0", "1", "b'1111111'", "255", "2048"]
_POINTS = ["ST_GeomFromText('POINT(1 2)')"]

TYPES: dict[str, list[str]] = {
    **dict.fromkeys(
        [f"{name}int{sign}" for name in ("tiny", "small", "medium", "", "big") for sign in ("", " unsigned")],
        _WHOLE,
    ),
    "year": ["2024", "0", "1901", "2155"],
    **dict.fromkeys(
        ["decimal(5,0)", "decimal(5,2)", "decimal(7,2) unsigned", "decimal(12,4)", "decimal(30,10)", "decimal(40,2)"],
        _WHOLE + _PARTS,
    ),
    **dict.fromkeys(["float", "double", "float unsigned", "double unsigned"], _WHOLE + _PARTS),
    **dict.fromkeys(["bit(1)", "bit(7)", "bit(8)", "bit(12)"], _BITS),
    "date": _DATES,
    **dict.fromkeys(["datetime", "datetime(1)", "datetime(3)", "datetime(6)"], _TIMES),
    **dict.fromkeys(["timestamp", "timestamp(2)", "timestamp(6)"], _INSTANTS),
    **dict.fromkeys(["time", "time(3)", "time(6)"], _HOURS),
    **dict.fromkeys(
        [
            "char(4)", "char(20)", "varchar(4)", "varchar(20)", "varchar(255)", "varchar(300)", "tinytext", "text",
            "longtext",
        ],
        _TEXTS,
    ),
    **dict.fromkeys(
        [
            f"{kind} character set {charset}"
            for charset in ("latin1", "ascii", "utf16")
            for kind in ("char(4)", "varchar(20)")
        ],
        _TEXTS,
    ),
    **dict.fromkeys(
        ["binary(4)", "binary(8)", "varbinary(4)", "varbinary(20)", "tinyblob", "blob", "longblob"], _BYTES
    ),
    **dict.fromkeys(
        [
            "enum('a','b')", "enum('a','b','c')", "enum('a','b','c','d')", "enum('c','b','a')", "enum('A','b','c')",
            "enum('a','b','c') character set latin1",
        ],
        _LABELS,
    ),
    **dict.fromkeys(["set('a','b')", "set('a','b','c')", "set('a','x','b','c')", "set('c','b','a')"], _MEMBERS),
    "json": _JSON,
    **dict.fromkeys(["geometry", "point"], _POINTS),
}  # fmt: skip
_COLUMNS_PER_TABLE = 25


@dataclass
class Case:
    """A table with one column per pair of types, and its values by id, before and after the ALTER."""

    pairs: tuple[tuple[str, str], ...]
    name: str
    before: dict[int, dict[str, Any]] = field(default_factory=dict)
    after: dict[int, dict[str, Any]] = field(default_factory=dict)
    arrays: list[pa.StructArray] = field(default_factory=list)
    layout: TableMap | None = None
    layout_after: TableMap | None = None
    change: SchemaChange | Recopy | None = None


def followed_pairs(*, strict: bool, mariadb: bool) -> Iterator[tuple[str, str]]:
    rules = ValueRules(
        StatementFacts(
            SessionFacts(STRICT_TRANS_TABLES if strict else 0, client=45, connection=45)
        ),
        InvalidDates.NULL,
    )
    for old in TYPES:
        for new in TYPES:
            # MariaDB's type JSON is a text type, also in the log.
            if mariadb and "json" in (old, new):
                continue
            if isinstance(conversion(_of(old), _of(new), rules), Kept):
                yield old, new


def _of(text: str) -> Any:
    kind, _, charset = text.partition(" character set ")
    word = kind.partition("(")[0]
    known = charset or (
        "utf8mb4"
        if word in ("char", "varchar", "tinytext", "text", "longtext", "enum", "set")
        else ""
    )
    return ColumnSignature.of_definition("c", kind, known, True, InvalidDates.NULL).column


def fill(server: Server, database: str, case: Case) -> None:
    """Create the table, and insert each value in a separate row."""
    columns = ", ".join(f"c{i} {old} NULL" for i, (old, _) in enumerate(case.pairs))
    statements = [
        "SET sql_mode = ''",
        "SET time_zone = '+00:00'",
        f"CREATE TABLE {case.name} (id INT AUTO_INCREMENT PRIMARY KEY, touched INT, {columns})"
        " CHARACTER SET utf8mb4",
    ]
    for i, (old, _) in enumerate(case.pairs):
        values = "), (".join(TYPES[old])
        statements.append(f"INSERT IGNORE INTO {case.name} (c{i}) VALUES ({values}), (NULL)")
    server.execute(*statements, database=database)


def alter(server: Server, database: str, case: Case, mode: str) -> None:
    """Run the ALTER, and then update all rows. If a strict server refuses the ALTER because of a row, delete the row
    and try again."""
    columns = ", ".join(f"MODIFY c{i} {new} NULL" for i, (_, new) in enumerate(case.pairs))
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        for _ in range(1000):
            try:
                cursor.execute(f"SET sql_mode = '{mode}'")
                cursor.execute(f"ALTER TABLE {case.name} {columns}, ALGORITHM=COPY")
                break
            except pymysql.err.MySQLError as error:
                cursor.execute(f"DELETE FROM {case.name} WHERE {refused_row(cursor, case, error)}")
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"UPDATE {case.name} SET touched = 1")


def refused_row(cursor: Cursor, case: Case, error: Exception) -> str:
    """Returns an SQL condition for the row to which the server's error refers by number or value."""
    if at := re.search(r"at row (\d+)", str(error)):
        cursor.execute(f"SELECT id FROM {case.name} ORDER BY id LIMIT 1 OFFSET {int(at[1]) - 1}")
        (found,) = cursor.fetchall()
        return f"id = {found[0]}"
    if at := re.search(r"(?:value:|converting) '([^']*)'", str(error)):
        return " OR ".join(f"c{i} = {at[1]}" for i in range(len(case.pairs)))
    raise error


def read(server: Server, log: str, cases: dict[str, Case]) -> None:
    for part in delivered.changes(delivered_log(server, log)):
        if isinstance(part, Ddl):
            for effect in effects_of(part.statement):
                case = cases.get(effect.tables[0][1]) if effect.tables else None
                if isinstance(effect, AlterTable) and case is not None:
                    assert case.layout is not None
                    old = Signature.of_table_map(case.layout, InvalidDates.NULL)
                    case.change = change_of(old, effect, InvalidDates.NULL, ())
        elif isinstance(part, TableChanges):
            add(cases[part.table_map.table], part)


def add(case: Case, part: TableChanges) -> None:
    """Store the rows of one decoded batch, which may contain several kinds of changes."""
    ops = part.batch.column("op")
    inserted = part.batch.filter(pc.equal(ops, "insert")).column("after")
    if len(inserted):
        case.layout = part.table_map
        case.arrays.append(inserted)
        case.before |= {row["id"]: row for row in inserted.to_pylist()}
    for row in part.batch.filter(pc.equal(ops, "delete")).column("before").to_pylist():
        del case.before[row["id"]]
    updated = part.batch.filter(pc.equal(ops, "update")).column("after")
    if len(updated):
        case.layout_after = part.table_map
        case.after |= {row["id"]: row for row in updated.to_pylist()}


def mirrored(spark: SparkSession, cases: list[Case]) -> dict[str, dict[int, dict[str, Any]]]:
    """Returns the rows that the mirror has after each change, by table and id. `refused_N`: True if the predicate of
    column N is true for the row.

    All tables are columns of one frame, because a job per table would be slow.
    """
    tables = [
        pa.Table.from_batches([pa.RecordBatch.from_struct_array(a) for a in case.arrays])
        for case in cases
    ]
    longest = max(table.num_rows for table in tables)
    columns: dict[str, pa.Array] = {}
    expressions = []
    for case, table in zip(cases, tables, strict=True):
        assert isinstance(case.change, SchemaChange), (case.pairs, case.change)
        for name in table.column_names:
            column = table.column(name).combine_chunks()
            padding = pa.nulls(longest - table.num_rows, column.type)
            columns[f"{case.name}_{name}"] = pa.concat_arrays([column, padding])
        for source in case.change.columns:
            value = F.col(f"{case.name}_{source.source}")
            if source.spark_type != source.spark_type_before:
                value = value.try_cast(source.spark_type)
            expressions.append(value.alias(f"{case.name}-{source.name}"))
        for unless in case.change.unless:
            number = re.search(r"`(c\d+)`", unless.predicate)
            assert number is not None
            predicate = re.sub(r"`(c\d+|id)`", rf"`{case.name}_\1`", unless.predicate)
            alias = f"{case.name}-refused_{number[1]}"
            expressions.append(F.coalesce(F.expr(predicate), F.lit(False)).alias(alias))
    values_before = pa.table(columns)
    schema = spark_schema(values_before.schema)
    frame = spark.createDataFrame(values_before, schema).select(*expressions).toArrow()
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for case in cases:
        places = [
            (i, name.partition("-")[2])
            for i, name in enumerate(frame.column_names)
            if name.partition("-")[0] == case.name
        ]
        values = [(name, frame.column(i).to_pylist()) for i, name in places]
        rows: dict[int, dict[str, Any]] = {}
        for place in range(frame.num_rows):
            row: dict[str, Any] = {}
            for name, column in values:
                row[name] = column[place] or (
                    row.get(name) if name.startswith("refused") else column[place]
                )
            if row["id"] is not None:
                rows[row["id"]] = row
        found[case.name] = rows
    return found


@pytest.mark.parametrize("mode", ["STRICT_TRANS_TABLES", ""])
@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_values_that_are_followed_equal_the_servers(
    kind: str,
    mode: str,
    spark: SparkSession,
    request: pytest.FixtureRequest,
    new_database: NewDatabase,
) -> None:
    server: Server = request.getfixturevalue(kind)
    database, log = new_database(server), fresh_log(server)
    pairs = list(followed_pairs(strict=bool(mode), mariadb=server.mariadb))
    assert len(pairs) > 600
    parts = [pairs[i : i + _COLUMNS_PER_TABLE] for i in range(0, len(pairs), _COLUMNS_PER_TABLE)]
    cases = {f"t{i}": Case(tuple(part), f"t{i}") for i, part in enumerate(parts)}
    for case in cases.values():
        fill(server, database, case)
        alter(server, database, case, mode)
    read(server, log, cases)
    mirror = mirrored(spark, list(cases.values()))
    wrong, followed = [], 0
    for name, case in cases.items():
        assert isinstance(case.change, SchemaChange) and case.layout_after is not None
        assert difference(case.change.signature, case.layout_after, InvalidDates.NULL) == ""
        assert case.after.keys() == case.before.keys()
        for i, (old, new) in enumerate(case.pairs):
            for number, row in case.after.items():
                ours = mirror[name][number]
                if ours.get(f"refused_c{i}"):
                    continue
                followed += 1
                if ours[f"c{i}"] != row[f"c{i}"]:
                    was = case.before[number][f"c{i}"]
                    wrong.append(
                        f"{old} -> {new}: {was!r} is {row[f'c{i}']!r}, mirrored {ours[f'c{i}']!r}"
                    )
    assert "\n".join(wrong) == ""
    assert followed > 10 * len(pairs)
