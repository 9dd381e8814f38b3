"""Statements that make a server write each kind of event that a statement can cause.

There is one list per server. Its statements run in order on one connection, in the given database. A list leaves out
what its server does not have, such as tags before MySQL 8.3 or sequences on MySQL. So the test fails if any statement
fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pymysql

from tests.servers import Server

_TABLES = (
    "CREATE TABLE {db}.orders (id INT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(40), price"
    " DECIMAL(10,2), state ENUM('new','paid','sent'), tags SET('a','b'), at DATETIME(3), data BLOB, n DOUBLE)",
    "CREATE TABLE {db}.items (id INT PRIMARY KEY, order_id INT, note TEXT)",
    "CREATE TABLE {db}.old (id INT PRIMARY KEY, note VARCHAR(20)) ENGINE=MyISAM",
    "CREATE TABLE {db}.counted (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, n DOUBLE, s VARCHAR(40))",
)
_ROWS = (
    "INSERT INTO {db}.orders (customer, price, state, tags, at, data, n) VALUES"
    " ('Ann', 12.50, 'new', 'a', '2026-01-02 03:04:05.678', 0x00FF10, 0.1),"
    " ('Bäcker & \"Söhne\"', -0.01, 'paid', 'a,b', NULL, NULL, -1e300), (NULL, NULL, NULL, '', NULL, '', 0)",
    "INSERT INTO {db}.items VALUES (1, 1, 'it''s\\na \\\\ line'), (2, 1, NULL), (3, 2, REPEAT('x', 9000))",
    "BEGIN",
    "UPDATE {db}.orders SET price = price + 1, state = 'sent' WHERE id < 3",
    "SAVEPOINT s1",
    "DELETE FROM {db}.items WHERE id = 2",
    "ROLLBACK TO SAVEPOINT s1",
    "SAVEPOINT s2",
    "DELETE FROM {db}.items WHERE id = 3",
    "COMMIT",
    "UPDATE {db}.orders o, {db}.items i SET o.n = 5, i.note = 'both' WHERE o.id = i.order_id",
    "INSERT INTO {db}.old VALUES (1, 'not transactional')",
    "/* a comment */ ALTER TABLE {db}.items ADD COLUMN more INT",
    "INSERT INTO {db}.items VALUES (9, 9, '', 9)",
    "TRUNCATE TABLE {db}.items",
)
_XA = (
    "XA START 'one', 'branch', 7",
    "INSERT INTO {db}.items (id) VALUES (20)",
    "XA END 'one', 'branch', 7",
    "XA PREPARE 'one', 'branch', 7",
    "XA COMMIT 'one', 'branch', 7",
    "XA START 'two'",
    "INSERT INTO {db}.items (id) VALUES (21)",
    "XA END 'two'",
    "XA PREPARE 'two'",
    "XA ROLLBACK 'two'",
)
_STATEMENTS = (
    "SET SESSION binlog_format = STATEMENT",
    "INSERT INTO {db}.counted (n) VALUES (1)",
    "INSERT INTO {db}.counted (n) VALUES (RAND())",
    "SET @text = 'it''s', @number = -5, @real = 1.5e0, @exact = 1.25, @none = NULL",
    "INSERT INTO {db}.counted (n, s) VALUES (@number, @text), (@real, @exact), (0, @none)",
    "LOAD DATA INFILE '{file}' INTO TABLE {db}.items FIELDS TERMINATED BY ',' (id, order_id)",
    "SET SESSION binlog_format = ROW",
)
_MIXED_ENGINES = (
    "BEGIN",
    "INSERT INTO {db}.old VALUES (5, 'stays')",
    "INSERT INTO {db}.orders (customer) VALUES ('goes')",
    "ROLLBACK",
)
_CREATE_SELECT = ("CREATE TABLE {db}.copied SELECT * FROM {db}.orders",)
_QUERY_TEXT = (
    "SET SESSION binlog_rows_query_log_events = ON",
    "INSERT INTO {db}.orders (customer) VALUES ('with its text')",
    "SET SESSION binlog_rows_query_log_events = OFF",
)
_IMAGES = (
    "SET SESSION binlog_row_image = MINIMAL",
    "UPDATE {db}.orders SET customer = 'minimal' WHERE id = 1",
    "SET SESSION binlog_row_image = FULL",
)
_MYSQL97 = (
    "SET SESSION binlog_transaction_compression = ON",
    "INSERT INTO {db}.orders (customer) SELECT CONCAT('compressed ', id) FROM {db}.orders",
    "BEGIN",
    "UPDATE {db}.orders SET n = id",
    "DELETE FROM {db}.orders WHERE id > 2",
    "COMMIT",
    "SET SESSION binlog_transaction_compression = OFF",
    "SET gtid_next = 'AUTOMATIC:night'",
    "INSERT INTO {db}.orders (customer) VALUES ('tagged')",
    "SET gtid_next = 'AUTOMATIC'",
    "CREATE TABLE {db}.docs (id INT PRIMARY KEY, doc JSON, place POINT SRID 4326, v VECTOR(2))",
    'INSERT INTO {db}.docs VALUES (1, \'{{"a": [1, 2.5, null, "x"], "b": {{}}}}\','
    " ST_SRID(POINT(1, 2), 4326), TO_VECTOR('[1,2]'))",
    "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    "UPDATE {db}.docs SET doc = JSON_SET(doc, '$.a[0]', 7)",
    "SET SESSION binlog_row_value_options = ''",
)
_MARIADB = (
    "SET SESSION binlog_annotate_row_events = ON",
    "INSERT INTO {db}.orders (customer) VALUES ('annotated')",
    "CREATE SEQUENCE {db}.numbers START WITH 100 CACHE 5",
    "SELECT NEXTVAL({db}.numbers)",
    "CREATE TABLE {db}.typed (id UUID PRIMARY KEY, ip INET6, doc JSON, c BLOB COMPRESSED)",
    "INSERT INTO {db}.typed VALUES ('123e4567-e89b-12d3-a456-426655440000', '::1', '[1]', REPEAT('c', 500))",
    "SET GLOBAL log_bin_compress = ON, GLOBAL log_bin_compress_min_len = 10",
    "INSERT INTO {db}.orders (customer) SELECT CONCAT('compressed ', id) FROM {db}.orders",
    "UPDATE {db}.orders SET n = id, customer = REPEAT('z', 40)",
    "CREATE TABLE {db}.late (id INT PRIMARY KEY, note VARCHAR(200) DEFAULT"
    " 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')",
    "DELETE FROM {db}.orders WHERE id > 2",
    "SET GLOBAL log_bin_compress = OFF, GLOBAL log_bin_compress_min_len = 256",
)
_LAST = ("DROP TABLE {db}.old", "FLUSH BINARY LOGS")


def statements(kind: str) -> Iterator[str]:
    """Yields the statements for a server of this kind. `{db}` stands for the database, `{file}` for a file with two
    lines of two numbers."""
    yield from _TABLES
    yield from _ROWS
    yield from _XA
    yield from _IMAGES
    yield from _STATEMENTS
    if kind != "mysql56":  # 5.6 refuses both with GTIDs
        yield from _MIXED_ENGINES
        yield from _CREATE_SELECT
    if kind.startswith("mysql"):
        yield from _QUERY_TEXT
    if kind == "mysql97":
        yield from _MYSQL97
    if kind.startswith("mariadb"):
        yield from _MARIADB
    yield from _LAST


def run(server: Server, database: str) -> str:
    """Begin a log file, execute all statements, and begin another file. Returns the name of the file with the
    statements."""
    with TemporaryDirectory() as folder, closing(server.connect(database)) as connection:
        lines = Path(folder) / "lines"
        lines.write_text("40,1\n41,2\n")
        Path(folder).chmod(0o755)
        with connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00'")
            cursor.execute("FLUSH BINARY LOGS")
            name = server.binlog_position()[0]
            for statement in statements(server.kind):
                try:
                    cursor.execute(statement.format(db=database, file=lines))
                except pymysql.Error as error:
                    raise AssertionError(f"{server.kind}: {statement}: {error}") from error
                with suppress(pymysql.Error):
                    cursor.fetchall()
    return name
