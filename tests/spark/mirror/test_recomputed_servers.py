"""Generated columns on real servers: the mirror predicts every statement that changes the values of a generated column
on a server, and finds the same generated columns in a table's CREATE TABLE as on the server."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

import pymysql
import pytest

from dispatcher.binlog.sql.generated import generated_in
from dispatcher.binlog.sql.statement import parse_statement
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from spark_sink.mirror.schema.recomputed import Generated, generated_after
from spark_sink.mirror.schema.signature import Recopy, Signature, change_of
from spark_sink.mirror.schema.statements import AlterTable, CreateTable, effects_of
from spark_sink.source.table_rows.source_table import read_source_table
from tests.servers import Server
from tests.spark.mirror.copy.test_text_rows_servers import reading
from tests.support.statements import UTF8, as_logged

KINDS = ["mysql97", "mariadb118", "mariadb1011"]
TABLE = """CREATE TABLE `gen` (
  id INT PRIMARY KEY, z INT(5) ZEROFILL, i INT, d DECIMAL(9,2), e ENUM('a','b'), s VARCHAR(9), t TEXT, dt DATETIME(3),
  `odd``name` CHAR(3), f FLOAT, k INT DEFAULT 4,
  vz VARCHAR(30) AS (CONCAT(z)), sz VARCHAR(30) GENERATED ALWAYS AS (CONCAT(`Z`)) STORED, vi INT AS (i + 1),
  si VARCHAR(30) AS (HEX(i)) STORED, vd VARCHAR(40) AS (CONCAT(d)), sd VARCHAR(40) AS (CONCAT(d)) STORED,
  ve INT AS (e + 0), vs INT AS (LENGTH(s)), ss INT AS (LENGTH(s)) STORED, vt INT AS (LENGTH(t)),
  vdt VARCHAR(40) AS (CONCAT(dt)), vo VARCHAR(9) AS (CONCAT(`ODD``NAME`, '`')), vf VARCHAR(40) AS (CONCAT(f)),
  vv INT AS (vi + 1), vk INT AS (DEFAULT(k)), sk INT AS (DEFAULT(k) + 1) STORED, free INT
) CHARACTER SET latin1"""
CLAUSES = [
    "MODIFY z INT(9) ZEROFILL",
    "MODIFY z INT UNSIGNED",
    "MODIFY z BIGINT(5) ZEROFILL",
    "MODIFY z INT",
    "MODIFY i BIGINT",
    "MODIFY i INT COMMENT 'x'",
    "MODIFY i INT DEFAULT 4 FIRST",
    "MODIFY i VARCHAR(20)",
    "MODIFY d DECIMAL(12,4)",
    "MODIFY d DOUBLE",
    "MODIFY e ENUM('b','a')",
    "MODIFY e ENUM('a','b','c')",
    "MODIFY e VARCHAR(5)",
    "MODIFY s VARCHAR(9) CHARACTER SET utf16",
    "MODIFY s VARCHAR(19)",
    "MODIFY t LONGTEXT CHARACTER SET utf8mb4",
    "MODIFY dt DATETIME(6)",
    "MODIFY f DOUBLE",
    "CONVERT TO CHARACTER SET utf8mb4",
    "MODIFY free BIGINT",
    "MODIFY k INT DEFAULT 5",
    "ADD more INT DEFAULT 4",
    "DROP free",
    "COMMENT 'x'",
]


def rows(server: Server, database: str, names: list[str]) -> list[dict[str, object]]:
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM gen ORDER BY id")
        columns = [column[0] for column in cursor.description]
        found = [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]
    return [{name: row[name] for name in names} for row in found]


def known(query: str) -> Generated:
    (effect,) = effects_of(as_logged(query, "db", **UTF8))
    assert isinstance(effect, CreateTable) and effect.generated is not None
    return effect.generated


def signature_of(server: Server, database: str) -> tuple[Signature, Generated]:
    with reading(server) as connection:
        source = read_source_table(connection, database, "gen")
    table_map = TableMap(0, database, "gen", source.columns, source.key, "")
    return Signature.of_table_map(table_map, InvalidDates.NULL), source.generated


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_that_a_server_computes_again_is_expected(
    kind: str, request: pytest.FixtureRequest, new_database: Callable[[Server], str]
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    changed, followed = list[str](), list[str]()
    for clause in CLAUSES:
        server.execute("DROP TABLE IF EXISTS gen", TABLE, database=database)
        server.execute(
            "INSERT INTO gen (id, z, i, d, e, s, t, dt, `odd``name`, f, free)"
            " VALUES (1, 7, -7, 1.5, 'b', 'é', 'é', '2024-01-02 03:04:05.5', 'é', 0.1, 9)",
            database=database,
        )
        signature, generated = signature_of(server, database)
        names = [column.name for column in generated]
        before = rows(server, database, names)
        effects = effects_of(as_logged(f"ALTER TABLE gen {clause}", database, **UTF8))
        try:
            server.execute(f"ALTER TABLE gen {clause}", database=database)
        except pymysql.err.MySQLError:
            continue  # MySQL refuses some changes of such a column
        after = rows(server, database, names)
        changed += [clause] if after != before else []
        for effect in effects:
            assert isinstance(effect, AlterTable)
            found = [
                change_of(signature, effect, InvalidDates.NULL, facts)
                for facts in (generated, known(TABLE))
            ]
            if any(not isinstance(change, Recopy) for change in found):
                assert after == before, clause
                followed.append(clause)
        assert effects or after == before
    assert len(changed) >= 4, changed
    wanted = ["MODIFY i INT COMMENT 'x'", "MODIFY free BIGINT", "ADD more INT DEFAULT 4"]
    assert set(wanted) <= set(followed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_statement_tells_the_columns_that_the_server_tells(
    kind: str, request: pytest.FixtureRequest, new_database: Callable[[Server], str]
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    server.execute(TABLE, database=database)
    _, found = signature_of(server, database)
    told = {column.name: set(column.sources or ()) for column in known(TABLE)}
    assert [column.name for column in found] == list(told)
    for column in found:
        assert column.sources and set(column.sources) <= told[column.name], column
    statements = ["RENAME COLUMN i TO j", "CHANGE free new INT", "DROP vv"]
    if not server.mariadb:  # MySQL renames no column on which another one depends
        statements = statements[1:]
    for clause in statements:
        server.execute(f"ALTER TABLE gen {clause}", database=database)
        (effect,) = effects_of(as_logged(f"ALTER TABLE gen {clause}", database, **UTF8))
        assert isinstance(effect, AlterTable)
        after = generated_after(found, effect.clauses)
        _, found = signature_of(server, database)
        assert after == found


def test_a_server_without_generated_columns_has_none(
    mysql56: Server, new_database: Callable[[Server], str]
) -> None:
    database = new_database(mysql56)
    plain = re.sub(r"\n  vz .*free INT", " free INT", TABLE, flags=re.DOTALL)
    mysql56.execute(plain, database=database)
    assert signature_of(mysql56, database)[1] == ()
    create = parse_statement(as_logged(plain)).create
    assert create is not None and generated_in(as_logged(plain), create) == ()
