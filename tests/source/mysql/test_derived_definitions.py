"""A definition that is derived from a statement equals the one that the server shows after it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

from pymysql.err import MySQLError

from dispatcher.binlog.sql.comments import ServerVersion
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.binlog.sql.statement import parse_statement
from dispatcher.binlog.table_map import derivation
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.column_types import CHARACTER_TYPES
from dispatcher.binlog.table_map.derivation import (
    Definition,
    derived_definitions,
    difference,
    with_database_collation,
)
from dispatcher.model.errors import BinlogError
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import connect
from dispatcher.mysql.table_schema import definitions
from tests.servers import Server
from tests.support.accounts import account

Name = tuple[str, str]

# No statement shows these: collations with the table's own character set, and system-versioned tables.
UNCLEAR = re.compile(r"BINARY,|uca1400|ALTER TABLE r ")

# Statements of one table after the other. `?` before a statement: a server that refuses it is passed over.
SCRIPT = """
CREATE TABLE a (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, n VARCHAR(20), t TEXT, d DECIMAL(9,3))
ALTER TABLE a ADD x INT FIRST, ADD COLUMN (y TINYINT(1), z DATETIME(3) NOT NULL), DROP COLUMN d
ALTER TABLE a CHANGE n m VARCHAR(10) AFTER z, MODIFY t MEDIUMTEXT NOT NULL, ADD UNIQUE KEY u (y)
ALTER TABLE a DROP PRIMARY KEY, MODIFY id BIGINT
ALTER TABLE a MODIFY y TINYINT NOT NULL
ALTER TABLE a ADD PRIMARY KEY (m(3), id), DROP INDEX u
? ALTER TABLE a RENAME COLUMN x TO y, RENAME COLUMN y TO x
ALTER TABLE a RENAME TO b, COMMENT 'c'
CREATE TABLE c LIKE b
RENAME TABLE b TO d, c TO b, d TO c
CREATE UNIQUE INDEX i ON b (z)
DROP INDEX i ON b
DROP INDEX `PRIMARY` ON b
ALTER TABLE b DROP COLUMN m, ADD INDEX (z), ENGINE=InnoDB
CREATE TABLE e (a ENUM('x','it''s','ä') CHARACTER SET utf8mb4, b SET('p','q ') CHARSET latin1)
ALTER TABLE e ADD c ENUM('1') COLLATE latin2_bin
ALTER TABLE e MODIFY a ENUM('it''s','x') CHARACTER SET latin1 NOT NULL
ALTER TABLE e CONVERT TO CHARACTER SET utf8mb4
ALTER TABLE e ADD f CHAR(5), ADD g VARCHAR(5) CHARACTER SET ascii
ALTER TABLE e DEFAULT CHARACTER SET cp1251
ALTER TABLE e ADD h CHAR(3), ADD i ENUM('z')
CREATE TABLE f (a INT, b INT, UNIQUE (b), UNIQUE KEY k (a, b)) DEFAULT CHARSET=latin1 ENGINE=InnoDB
ALTER TABLE f MODIFY b INT NOT NULL
CREATE TABLE g (a CHAR(10) NOT NULL, b BLOB NOT NULL, PRIMARY KEY (b(4), a(10)))
CREATE TABLE h (a SERIAL, b BOOL, c YEAR, d BIT(3), e FLOAT, f DOUBLE PRECISION, g BINARY(4), h VARBINARY(9), i DATE)
CREATE TABLE j (a TIMESTAMP NULL, b TIME(2), c LONGTEXT, d TINYBLOB, e REAL, f NUMERIC, g MEDIUMINT ZEROFILL)
CREATE TABLE k (a VARCHAR(10) BINARY, b VARCHAR(5) CHARACTER SET binary, c TEXT CHARACTER SET latin1 COLLATE latin1_bin)
? CREATE TABLE l (a INT, b INT GENERATED ALWAYS AS (a + 1) VIRTUAL, c INT CHECK (c > 0), KEY (a)) PARTITION BY HASH (a)
? CREATE TABLE m (a JSON, b POINT, c GEOMETRYCOLLECTION, d INT DEFAULT '7' COMMENT 'x, y INT)')
? CREATE TABLE n (a INT, b INT INVISIBLE, c INT DEFAULT (1 + 1))
? ALTER TABLE n ALTER COLUMN c SET INVISIBLE
? ALTER TABLE n MODIFY b INT
? CREATE TABLE o (u UUID, i INET6, j INET4 NOT NULL PRIMARY KEY)
? CREATE TABLE p (v VECTOR(3) NOT NULL, x INT)
? CREATE TABLE q (a VARCHAR(9) COLLATE uca1400_ai_ci)
? CREATE TABLE r (a INT) WITH SYSTEM VERSIONING
? CREATE TABLE s (a INT PRIMARY KEY, b VARCHAR(9) NOT NULL UNIQUE) ENGINE=InnoDB WITH SYSTEM VERSIONING
? CREATE TABLE t (a INT NOT NULL UNIQUE, b INT) WITH SYSTEM VERSIONING COMMENT 'c'
? ALTER TABLE r ADD b INT
? CREATE OR REPLACE TABLE a (z INT)
? SET STATEMENT lock_wait_timeout = 5 FOR CREATE OR REPLACE TABLE b (z INT NOT NULL, y VARCHAR(3) CHARSET latin1)
? SET STATEMENT lock_wait_timeout = 5, sort_buffer_size = 65536 FOR CREATE UNIQUE INDEX i ON b (z)
""".strip().splitlines()  # fmt: skip


def facts(server: Server) -> tuple[ServerVersion, SessionFacts]:
    major, minor, *_ = (int(n) for n in str(server.version).split("-")[0].split("."))
    version = ServerVersion(server.mariadb, major * 10_000 + minor * 100)
    return version, SessionFacts(mariadb=server.mariadb, client=45, connection=45)


def shown(connection: Connection, names: list[Name]) -> tuple[dict[Name, Definition], int]:
    found = definitions(connection, names)
    known: dict[Name, Definition] = {
        s.table: s.definition for s in found if not isinstance(s.definition, BinlogError)
    }
    return known, found[0].database_collation


def compare(derived: Definition, server: Definition) -> None:
    assert difference(derived, server) == ""
    columns = zip(defined_columns(derived), defined_columns(server), strict=True)
    entries = zip(derived["columns"], server["columns"], strict=True)
    for (own, other), (entry, there) in zip(columns, entries, strict=True):
        if own.type not in CHARACTER_TYPES or other.type not in CHARACTER_TYPES:
            assert (own.type, own.meta, own.declared) == (other.type, other.meta, other.declared), (
                own
            )
        assert own.unsigned == other.unsigned, own
        if not entry.get("nullable_unknown"):
            assert own.nullable == other.nullable, own
        if entry["charset"] is not None:
            assert entry["charset"] == there["charset"], own
        if entry["collation"]:
            assert entry["collation"] == there["collation"], own
        if entry["bytes"] is not None:
            assert entry["bytes"] == there["bytes"], own
    assert derived.get("kind", "table") == server.get("kind", "table")
    assert derived.get("row_end") == server.get("row_end")
    if derived["charset"] is not None:
        name, collation = derived["charset"]
        assert name is None or name == server["charset"][0]
        assert collation is None or collation == server["charset"][1]


def test_each_derived_definition_is_the_servers(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    server = any_server
    database = new_database(server)
    version, session = facts(server)
    names = [(database, letter) for letter in "abcdefghijklmnopqrst"]
    unknown: list[str] = []
    with account(server, "columns") as endpoint, closing(connect(endpoint)) as connection:
        known, collation = shown(connection, names)
        for line in SCRIPT:
            text = line.removeprefix("? ")
            try:
                server.execute("SET NAMES utf8mb4", text, database=database)
            except MySQLError:
                assert line.startswith("? "), text
                continue
            statement = LoggedStatement(text, database, session)
            found = derived_definitions(
                statement,
                parse_statement(statement),
                known.get,
                derivation.Server(version, lambda _: 0),
            )
            known, _ = shown(connection, names)
            if not found:
                unknown.append(text)
            for name, derived in found.items():
                compare(derived, known[name])
                compare(with_database_collation(derived, collation), known[name])
    assert [text for text in unknown if not UNCLEAR.search(text)] == []
