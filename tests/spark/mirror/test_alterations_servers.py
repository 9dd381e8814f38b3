"""Random ALTERs on real servers: the columns that the mirror predicts equal the columns of the next table map."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing, suppress

import pymysql
import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import Ddl, TableChanges
from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.schema.signature import Recopy, Signature, change_of, difference
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from tests.servers import Server
from tests.support.server_log import delivered_log, fresh_log

NewDatabase = Callable[[Server], str]

_TYPES = (
    "INT", "BIGINT UNSIGNED", "VARCHAR(20)", "CHAR(3) CHARACTER SET latin1", "TEXT", "DATETIME(3)", "DATE",
    "DECIMAL(12,4)", "ENUM('a','b')", "SET('x','y')", "VARBINARY(5)", "BLOB", "TIME", "DOUBLE", "BIT(9)", "YEAR",
    "TIMESTAMP NULL", "VARCHAR(9) COLLATE utf8mb4_bin", "NATIONAL CHAR(2)", "BOOL", "REAL", "LONG VARCHAR",
)  # fmt: skip
_NAMES = tuple("abcdefgh")


def clause(chance: random.Random, mariadb: bool) -> str:
    """Returns a clause of ALTER TABLE. Many clauses do not fit the table, and the server refuses them."""
    one, other, kind = chance.choice(_NAMES), chance.choice(_NAMES), chance.choice(_TYPES)
    place = chance.choice(
        ["", "", " FIRST", f" AFTER {chance.choice(_NAMES)}", f" AFTER `{other.upper()}`"]
    )
    exists, lacks = (
        (" IF EXISTS", " IF NOT EXISTS") if mariadb and chance.random() < 0.3 else ("", "")
    )
    return chance.choice([
        f"ADD COLUMN{lacks} {one} {kind}{place}",
        f"ADD {one} {kind}{place}",
        f"ADD ({one} {kind}, {other} {chance.choice(_TYPES)})",
        f"DROP COLUMN{exists} {one}",
        f"DROP {one}",
        f"CHANGE{exists} {one} {other} {kind}{place}",
        f"CHANGE COLUMN {one} {one.upper()} {kind}{place}",
        f"MODIFY{exists} {one} {kind}{place}",
        f"RENAME COLUMN {one} TO {other}",
        "CONVERT TO CHARACTER SET utf8mb4",
        f"ALTER {one} DROP DEFAULT",
        "COMMENT = 'ADD z INT, DROP a'",
    ])  # fmt: skip


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118", "mariadb1011"])
def test_random_statements(
    kind: str, request: pytest.FixtureRequest, new_database: NewDatabase
) -> None:
    server: Server = request.getfixturevalue(kind)
    database, log = new_database(server), fresh_log(server)
    chance = random.Random(20261122)
    with closing(server.connect(database)) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, b TEXT)")
        cursor.execute("INSERT INTO t VALUES ()")
        done = 0
        for _ in range(400):
            clauses = ", ".join(clause(chance, server.mariadb) for _ in range(chance.randint(1, 4)))
            with suppress(pymysql.err.MySQLError):
                cursor.execute(f"ALTER TABLE t {clauses}")
                done += 1
                # With values other than NULL, the server would refuse many of the following changes of types.
                cursor.execute("INSERT INTO t (id) VALUES (NULL)")
    assert done > 60
    signature, checked, pending = Signature(()), 0, False
    for part in delivered.changes(delivered_log(server, log)):
        if isinstance(part, Ddl):
            for effect in effects_of(part.statement):
                if not isinstance(effect, AlterTable) or not signature.columns:
                    continue
                assert effect.copy_reason == "", part.statement.text
                change = change_of(signature, effect, InvalidDates.NULL, ())
                if isinstance(change, Recopy):
                    assert "the values" in change.reason or "digits" in change.reason, (
                        part.statement.text
                    )
                    signature = Signature(())
                else:
                    signature, pending = change.signature, True
        elif isinstance(part, TableChanges):
            if signature.columns and pending:
                assert difference(signature, part.table_map, InvalidDates.NULL) == ""
                checked += 1
            signature, pending = Signature.of_table_map(part.table_map, InvalidDates.NULL), False
    assert checked > 30
