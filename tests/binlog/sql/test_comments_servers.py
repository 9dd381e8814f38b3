"""Comments that a server executes depending on its kind and version: the parser agrees with the four servers."""

from __future__ import annotations

from contextlib import closing

import pymysql

from dispatcher.binlog.event.header import parse_format_description
from dispatcher.binlog.sql.comments import ServerVersion, executed_text
from tests.servers import Server
from tests.support.server_log import read_log

# Versions near those of the four servers, versions near MariaDB's gap, and texts that are no version.
VERSIONS = [
    *("", "0", "5000", "00000", "32302", "40005", "50000", "50005", "50624", "50625", "50699", "50700", "50701"),
    *("80034", "90704", "90705", "99998", "99999", "100000", "100001", "101118", "101119", "101199", "110809"),
    *("110810", "120000", "999999", "050000", "080034", "090704", "1000001", "5000000", "0500001"),
]  # fmt: skip
FORMS = [
    "SELECT 1 /*{0} + 10 */ AS c",
    "SELECT 1 /*{0}+ 10 */ AS c",
    "SELECT 1 /*{0}\n+ 10 */ AS c",
    "SELECT 1 /*{0} + 10 /* + 100 */ */ AS c",
    "SELECT 1 /*{0} + 10 /* + 100 */ + 1000 */ + 10000 AS c",
    "SELECT 1 /*{0} + 10 /* /* + 100 */ + 1000 */ + 10000 AS c",
    "SELECT 1 /*{0} + 10 /*!99999 + 100 */ + 1000 */ + 10000 AS c",
    "SELECT 1 /*{0} + 10 /*!40000 + 100 */ + 1000 */ + 10000 AS c",
    "SELECT 1 /*{0} + 10 /*M! + 100 */ + 1000 */ + 10000 AS c",
    "SELECT 1 /*{0} + LENGTH('*/ 1') */ AS c",
    "SELECT 1 /*{0} + LENGTH('/* 1') */ + 10 AS c",
    "SELECT 1 /*{0} + 10 # */ \n */ AS c",
    "SELECT 1 /*{0} + 10 -- */ \n */ AS c",
    "SELECT '/*{0} + 10 */' AS c",
    "SELECT 1 AS `/*{0} + 10 */`",
    "SELECT 1 /* /*{0} + 10 */ AS c",
    "SELECT 1 # /*{0} + 10 \n + 100 AS c",
    "SELECT 1 -- /*{0} + 10 \n + 100 AS c",
    "SELECT 1 /*/*{0} + 10 */ AS c",
    "SELECT 1 /*{0} + 10 */ /*{0} + 100 */ AS c",
    "SELECT /*{0} 10 + */ 1 AS c",
    "SELECT 1 /*{0} + 10",
]  # fmt: skip
CASES = [
    form.format(mark + version) for form in FORMS for mark in ("!", "M!") for version in VERSIONS
]


def version_of(server: Server) -> ServerVersion:
    log = read_log(server, server.binlog_position()[0])
    size = int.from_bytes(log[13:17], "little")
    return ServerVersion.of(parse_format_description(log[4 : 4 + size]))


def answer(cursor: pymysql.cursors.Cursor, query: str) -> object:
    """Returns the value and the column names of a query's result, or the number of its error."""
    try:
        cursor.execute(query)
    except pymysql.MySQLError as error:
        return error.args[0]
    return cursor.fetchall(), [column[0] for column in cursor.description or ()]


def test_a_statement_means_what_its_resolved_text_means(any_server: Server) -> None:
    version = version_of(any_server)
    wrong = []
    accepted = 0
    with closing(any_server.connect()) as connection, connection.cursor() as cursor:
        for query in CASES:
            if isinstance(seen := answer(cursor, query), int):
                continue  # the server refuses this statement, so no log contains it
            accepted += 1
            resolved = executed_text(query, 0, version)
            if seen != (found := answer(cursor, resolved)):
                wrong.append((query, seen, resolved, found))
    assert wrong == []
    assert accepted > 800
