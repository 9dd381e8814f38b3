"""Ranges of a key: the literals, the conditions, and on real servers that each row is in one range."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dispatcher.binlog.table_map.column_types import Column, Type
from dispatcher.mysql.answers import fetch
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.source.table_rows.chunks import (
    Bound,
    Chunk,
    bound_of,
    boundary_query,
    chunk_query,
    chunk_rows,
    key_expression,
    key_literal,
    range_condition,
)
from spark_sink.source.table_rows.session import open_session
from spark_sink.source.table_rows.source_table import SourceTable, read_source_table
from spark_sink.source.table_rows.table_server import boundary_row
from tests.servers import Server
from tests.spark.mirror.copy.conftest import add_reader, copy_settings

NewDatabase = Callable[[Server], str]


def column(name: str, code: int, charset: int = 0, declared: str = "") -> Column:
    return Column(name, code, 0, False, False, charset, (), True, declared)


def test_conditions() -> None:
    a, b, c = (column(name, Type.LONG) for name in "abc")
    assert range_condition([a], Chunk(None, None)) == ""
    assert range_condition([a], Chunk(("1",), ("5",))) == "((`a` > 1)) AND ((`a` <= 5))"
    assert range_condition([a, b, c], Chunk(("1", "2", "3"), None)) == (
        "((`a` > 1) OR (`a` = 1 AND `b` > 2) OR (`a` = 1 AND `b` = 2 AND `c` > 3))"
    )
    assert (
        range_condition([a, b], Chunk(None, ("1", "2"))) == "((`a` < 1) OR (`a` = 1 AND `b` <= 2))"
    )


@pytest.mark.parametrize(
    ("of", "charset", "text", "literal"),
    [
        (column("a", Type.LONGLONG), "", "-5", "-5"),
        (column("a", Type.NEWDECIMAL), "", "1.50", "1.50"),
        (column("a", Type.DOUBLE), "", "1.5", "1.5e0"),
        (column("a", Type.DOUBLE), "", "1e-7", "1e-7"),
        (column("a", Type.DATETIME2), "", "0000-00-00 00:00:00", "'0000-00-00 00:00:00'"),
        (column("a", Type.VARCHAR, 8), "latin1", "E92720", "_latin1 X'E92720'"),
        (column("a", Type.VARCHAR, 63), "", "", "X''"),
        (column("a", Type.STRING, 63, "uuid"), "", "123e4567-e89b-12d3-a456-426655440000",
         "'123e4567-e89b-12d3-a456-426655440000'"),
    ],
)  # fmt: skip
def test_literals(of: Column, charset: str, text: str, literal: str) -> None:
    assert key_literal(of, charset, text) == literal


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (column("a", Type.LONG), "1 OR 1"),
        (column("a", Type.DATE), "2024'--"),
        (column("a", Type.VARCHAR, 8), "E9'"),
        (column("a", Type.VARCHAR, 8), "E"),
        (column("a", Type.STRING, 63, "inet6"), "::1'"),
    ],
)
def test_a_server_cannot_write_sql_into_a_bound(of: Column, text: str) -> None:
    with pytest.raises(ValueError, match="instead of"):
        key_literal(of, "latin1", text)


def test_rows_of_a_chunk() -> None:
    def table(row_bytes: int) -> SourceTable:
        return SourceTable("d", "t", (), (), (), "", "InnoDB", 0, row_bytes, False)

    assert chunk_rows(table(100), 32 << 20) == 335_544
    assert chunk_rows(table(1 << 20), 32 << 20) == 1000
    assert chunk_rows(table(0), 1 << 40) == 1_000_000
    assert chunk_rows(table(100), 32 << 20, 7) == 7


KEYS: dict[str, tuple[str, list[str]]] = {
    "integer": ("a BIGINT UNSIGNED, PRIMARY KEY (a)", ["0", "1", "18446744073709551615", "7", "200"]),
    "decimal": ("a DECIMAL(20,5), PRIMARY KEY (a)", ["-1.5", "0", "99999.00001", "99999.00002", "3"]),
    "double": ("a DOUBLE, PRIMARY KEY (a)", ["-0.1", "0", "1e300", "0.30000000000000004", "0.3"]),
    "float": ("a FLOAT, PRIMARY KEY (a)", ["-0.1", "0", "1e30", "0.3", "123456.789"]),
    "bit": ("a BIT(64), PRIMARY KEY (a)", ["0", "1", "0xFFFFFFFFFFFFFFFF", "0x8000000000000000", "9"]),
    "year": ("a YEAR, PRIMARY KEY (a)", ["0", "1901", "2155", "2024", "2025"]),
    "date": ("a DATE, PRIMARY KEY (a)",
             ["'0000-00-00'", "'2023-02-31'", "'2024-00-00'", "'2024-02-29'", "'9999-12-31'"]),
    "datetime": ("a DATETIME(6), PRIMARY KEY (a)", ["'0000-00-00'", "'2024-02-29 10:00:00.000001'",
                 "'2024-02-29 10:00:00.000002'", "'9999-12-31 23:59:59.999999'", "'0001-01-01'"]),
    "timestamp": ("a TIMESTAMP(3) NOT NULL DEFAULT 0, PRIMARY KEY (a)", ["'0000-00-00'", "'1970-01-01 00:00:01'",
                  "'2038-01-19 03:14:07.999'", "'2024-06-01 12:00:00.5'", "'2024-06-01 12:00:00.501'"]),
    "time": ("a TIME(2), PRIMARY KEY (a)", ["'-838:59:59'", "'838:59:59'", "'-00:00:00.01'", "0", "'12:00'"]),
    "enum": ("a ENUM('z','y','x','it''s','ü'), PRIMARY KEY (a)", ["1", "2", "3", "4", "5"]),
    "set": ("a SET('z','y','x'), PRIMARY KEY (a)", ["0", "1", "4", "7", "3"]),
    "latin1": ("a VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci, PRIMARY KEY (a)",
               ["'Ä'", "'az'", "'b'", "''", "'it''s \\\\'"]),
    "utf8mb4": ("a VARCHAR(20) CHARACTER SET utf8mb4, PRIMARY KEY (a)", ["'ß'", "'😀'", "'A'", "'b '", "'日本'"]),
    "utf16": ("a CHAR(20) CHARACTER SET utf16, PRIMARY KEY (a)", ["'ß'", "'😀'", "'A'", "'b'", "''"]),
    "utf8": ("a VARCHAR(20) CHARACTER SET utf8, PRIMARY KEY (a)", ["'ß'", "'é'", "'A'", "'b'", "'€'"]),
    "binary": ("a BINARY(4), PRIMARY KEY (a)", ["''", "X'01'", "X'00000001'", "X'FF'", "'abc'"]),
    "varbinary": ("a VARBINARY(9), PRIMARY KEY (a)", ["''", "X'00'", "X'0000'", "X'FF'", "'abc'"]),
    "blob": ("a BLOB, PRIMARY KEY (a(9))", ["''", "X'00'", "X'0000'", "X'FF'", "'abc'"]),
    "text": ("a TEXT CHARACTER SET utf8mb4, PRIMARY KEY (a(9))", ["'ß'", "'é'", "'A'", "'b'", "'€'"]),
    "composite": ("a VARCHAR(9) CHARACTER SET latin1, b INT, c DATE, PRIMARY KEY (a, c, b)",
                  ["'x', 1, '2024-01-01'", "'x', 1, '2024-01-02'", "'x', 2, '2024-01-01'", "'y', 0, '2020-01-01'",
                   "'é', -1, '2020-01-01'"]),
    "unique": ("a INT, b INT NOT NULL, UNIQUE KEY other (a), UNIQUE KEY k (b)",
               ["NULL, 1", "NULL, 2", "1, 3", "2, 4", "3, 9"]),
}  # fmt: skip
MARIADB_KEYS = {
    "uuid": ("a UUID, PRIMARY KEY (a)", ["'123e4567-e89b-12d3-a456-426655440000'", "UUID()", "UUID()",
             "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"]),
    "inet6": ("a INET6, PRIMARY KEY (a)", ["'::'", "'::1'", "'::ffff:1.2.3.4'", "'2001:db8::1'", "'ffff::'"]),
}  # fmt: skip


def test_every_row_is_in_one_chunk_of_any_key(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    add_reader(server)
    keys = KEYS | (MARIADB_KEYS if server.mariadb else {})
    for name, (columns, values) in keys.items():
        server.execute(
            "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
            f"CREATE TABLE {database}.{name} ({columns})",
            *(f"INSERT INTO {database}.{name} VALUES ({value})" for value in values),
        )
    connection = open_session(CopyServer.of_settings(copy_settings(server)).endpoint)
    for name, (_, values) in keys.items():
        source = read_source_table(connection, database, name)
        assert source.key, name
        prefixed = name in ("blob", "text")
        assert source.key_name == ("" if prefixed else "k" if name == "unique" else "PRIMARY"), name
        counted = ", ".join(key_expression(column) for column in source.key_columns)
        for rows in (1, 2):
            found, lower = [], None
            while True:
                texts = boundary_row(connection, boundary_query(source, lower, rows))
                upper: Bound | None = None if texts is None else bound_of(source, texts)
                part = fetch(connection, chunk_query(source, counted, Chunk(lower, upper)))
                assert len(part) == rows or upper is None, (name, lower, upper)
                found += part
                if upper is None:
                    break
                lower = upper
            assert len(found) == len(set(map(tuple, found))) == len(values), name
    connection.close()


# Texts that are equal to another one by some of the collations: by case, accents, spaces at the end, or expansion.
ALIKE = ["a", "A", "á", "a ", "ß", "ss", "S", ""]
COLLATIONS = ["utf8mb4_general_ci", "utf8mb4_unicode_ci", "utf8mb4_bin", "latin1_german2_ci"]


def test_equal_texts_in_composite_keys_lie_in_one_chunk_each(
    any_server: Server, new_database: NewDatabase
) -> None:
    """Chunk bounds lie inside and between the groups of texts that the collation considers equal."""
    server, database = any_server, new_database(any_server)
    add_reader(server)
    connection = open_session(CopyServer.of_settings(copy_settings(server)).endpoint)
    collations = COLLATIONS + ["utf8mb4_0900_ai_ci", "utf8mb4_0900_as_cs"] * (
        server.kind == "mysql97"
    )
    for collation in collations:
        charset = collation.partition("_")[0]
        text = f"VARCHAR(5) CHARACTER SET {charset} COLLATE {collation}"
        dates, amounts, states = ["0000-00-00", "2024-02-29"], ["-0.50", "10.00"], ["z", "a"]
        rows = [
            f"('{a}', {n}, '{dates[n % 2]}', {amounts[n // 2 % 2]}, '{states[n // 4 % 2]}')"
            for n, a in enumerate(ALIKE * 8)
        ]
        server.execute(
            "SET sql_mode = '', NAMES utf8mb4",
            f"CREATE TABLE {collation} (a {text}, n INT, d DATE, m DECIMAL(4,2), e ENUM('z','a'),"
            " PRIMARY KEY (e, a, m, d, n))",
            f"INSERT INTO {collation} VALUES {', '.join(rows)}",
            database=database,
        )
        source = read_source_table(connection, database, collation)
        for size in (1, 2, 5):
            found, lower = list[int](), None
            while True:
                texts = boundary_row(connection, boundary_query(source, lower, size))
                upper: Bound | None = None if texts is None else bound_of(source, texts)
                part = fetch(connection, chunk_query(source, "n", Chunk(lower, upper)))
                found += [int(str(n)) for (n,) in part]
                if upper is None:
                    break
                lower = upper
            assert sorted(found) == list(range(len(rows))), (collation, size)
    connection.close()


def test_the_walk_and_the_chunks_use_the_index(mysql97: Server, new_database: NewDatabase) -> None:
    database = new_database(mysql97)
    add_reader(mysql97)
    mysql97.execute(
        f"CREATE TABLE {database}.t (a VARCHAR(9) CHARACTER SET latin1, b INT, c TEXT, d INT,"
        " PRIMARY KEY (a, b), KEY (d))",
        f"INSERT INTO {database}.t VALUES "
        + ", ".join(f"('k{i % 7}', {i}, 'x', {i})" for i in range(500)),
    )
    connection = open_session(CopyServer.of_settings(copy_settings(mysql97)).endpoint)
    source = read_source_table(connection, database, "t")
    bound = ("_latin1 X'6B33'", "100")
    for query in (
        boundary_query(source, bound, 10),
        chunk_query(source, "*", Chunk(bound, ("_latin1 X'6B33'", "200"))),
    ):
        ((*_, plan),) = fetch(connection, f"EXPLAIN FORMAT=JSON {query}")
        assert '"PRIMARY"' in str(plan) and "filesort" not in str(plan), plan
        assert "range" in str(plan), plan
    connection.close()
