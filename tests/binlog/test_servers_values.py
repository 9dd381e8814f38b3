"""With real servers: character sets, geometry, vectors, JSON, compressed columns, old formats, row images."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dispatcher.binlog.charset import transcode
from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.binlog.test_servers_decode import definitions_of
from tests.servers import Server
from tests.support.charset_tables import UNICODE, of_server
from tests.support.server_log import delivered_log, fresh_log

NewDatabase = Callable[[Server], str]


def rows_of(
    server: Server, log: str, database: str, table: str = "t", **options: Any
) -> list[dict[str, Any]]:
    definitions: dict[str, dict[str, Any]] = {}
    if server.kind == "mysql56":
        for (name,) in server.execute(f"SHOW TABLES FROM {database}"):
            definitions |= definitions_of(server, database, str(name))
    found = []
    for part in delivered.changes(bytes_of(server, log), definitions, **options):
        if isinstance(part, TableChanges) and part.table_map.table == table:
            part.batch.validate(full=True)
            found += part.batch.to_pylist()
    return found


_read: dict[tuple[str, int, str, int], bytes] = {}


def bytes_of(server: Server, log: str) -> bytes:
    """Returns the log's bytes. Reads the log again only if it has grown, because the tool that reads it is slower than
    most tests here."""
    place = (server.host, server.port, log, server.binlog_position()[1])
    if place not in _read:
        _read.clear()
        _read[place] = delivered_log(server, log)
    return _read[place]


def charsets_of(server: Server) -> list[str]:
    return [str(row[0]) for row in server.execute("SHOW CHARACTER SET")]


def test_every_character_of_every_set(any_server: Server) -> None:
    """The decoder converts each character to the same text as the server."""
    charsets = [name for name in charsets_of(any_server) if name not in UNICODE]
    for charset, table in of_server(any_server, charsets).items():
        offsets = np.cumsum([0, *map(len, table)]).astype(np.int64)
        data = np.frombuffer(b"".join(table), dtype=np.uint8)
        row, out_offsets, out = transcode.to_utf8(charset, data, offsets)
        assert row == -1, (charset, list(table)[row])
        raw = out.tobytes()
        for i, (code, char) in enumerate(table.items()):
            assert raw[out_offsets[i] : out_offsets[i + 1]].decode() == char, (charset, code)


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_a_collation_with_its_own_conversion(
    kind: str, request: pytest.FixtureRequest, new_database: NewDatabase
) -> None:
    server: Server = request.getfixturevalue(kind)
    database, log = new_database(server), fresh_log(server)
    values = ", ".join(f"({byte}, _binary 0x{byte:02x})" for byte in range(256))
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a VARCHAR(1) COLLATE latin2_czech_cs)",
        f"INSERT INTO {database}.t VALUES {values}",
    )
    selected = dict(server.execute(f"SELECT id, a FROM {database}.t"))
    selected[0x7F] = "\x7f"  # MariaDB shows this character as a question mark
    read = {row["after"]["id"]: row["after"]["a"] for row in rows_of(server, log, database, "t")}
    assert read == selected
    assert [read[byte] for byte in range(0x80, 0xA0)] == ["?"] * 32


# Conversion tables with the same name differ in the dashes, the yen sign and the dagger.
SAMPLES = (
    "plain", "", "Ünïcödé", "Ελλάδα", "Жизнь", "日本語ｱ\uff5e\u301c", "中文", "한국어", "שלום", "ไทย", "¥\\~", "€", "†",
    "😀 x",
)  # fmt: skip


def test_columns_and_labels_of_every_character_set(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    charsets = [name for name in charsets_of(server) if name != "binary"]
    columns = ", ".join(
        f"v_{cs} VARCHAR(20) CHARACTER SET {cs}, c_{cs} CHAR(20) CHARACTER SET {cs}, t_{cs} TEXT CHARACTER SET {cs}"
        for cs in charsets
    )
    names = ", ".join(f"v_{cs}, c_{cs}, t_{cs}" for cs in charsets)
    values = ", ".join(
        f"({i}, {', '.join([f'{sample!r}'.replace(chr(92) * 2, chr(92) * 4)] * 3 * len(charsets))})"
        for i, sample in enumerate(SAMPLES)
    )
    labels = ", ".join(
        f"e_{cs} ENUM('a','{_label(cs)}') CHARACTER SET {cs}, s_{cs} SET('x','{_label(cs)}') CHARACTER SET {cs}"
        for cs in charsets
    )
    # MySQL 5.6 writes a comma of one byte between the members of a SET, even in character sets with wider characters.
    broken = ("ucs2", "utf16", "utf16le", "utf32") if server.kind == "mysql56" else ()
    given = ", ".join("2, 2" if charset in broken else "2, 3" for charset in charsets)
    server.execute(
        "SET sql_mode = ''",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO {database}.t (id, {names}) VALUES {values}",
        f"CREATE TABLE {database}.l (id INT PRIMARY KEY, {labels})",
        f"INSERT INTO {database}.l VALUES (1, {given})",
    )
    for table in ("t", "l"):
        wanted = server.execute(f"SELECT * FROM {database}.{table} ORDER BY id")
        rows = rows_of(server, log, database, table)
        for row, expected in zip(rows, wanted, strict=True):
            assert tuple(row["after"].values()) == expected


def _label(charset: str) -> str:
    """Returns a label that contains a non-ASCII character of the character set."""
    found = {
        "ascii": "b", "swe7": "å", "tis620": "ไทย", "hebrew": "שלום", "greek": "Ελλάδα", "armscii8": "Ա",
        "geostd8": "ა", "gbk": "中文", "gb2312": "中文", "big5": "中文", "euckr": "한국", "sjis": "日本",
        "cp932": "日本", "ujis": "日本", "eucjpms": "日本",
    }  # fmt: skip
    if charset in found:
        return found[charset]
    return "Ж" if charset.startswith(("cp1251", "cp866", "koi8", "gb18030", "u")) else "é"


GEOMETRIES = (
    "POINT(1 2)",
    "LINESTRING(0 0, 1 1, 2 0)",
    "POLYGON((0 0, 4 0, 4 4, 0 0))",
    "MULTIPOINT(1 1, 2 2)",
    "MULTILINESTRING((0 0, 1 1), (2 2, 3 3))",
    "MULTIPOLYGON(((0 0, 4 0, 4 4, 0 0)))",
    "GEOMETRYCOLLECTION(POINT(1 1), LINESTRING(0 0, 1 1))",
)


def test_geometries(any_server: Server, new_database: NewDatabase) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    make = "GeomFromText" if server.kind == "mysql56" else "ST_GeomFromText"
    literals = [f"{make}('{text}', {srid})" for text in GEOMETRIES for srid in (0, 4326)]
    values = ", ".join(f"({i}, {literal})" for i, literal in enumerate([*literals, "NULL"]))
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, g GEOMETRY, p POINT)",
        f"INSERT INTO {database}.t (id, g) VALUES {values}",
        f"UPDATE {database}.t SET p = {make}('POINT(5 6)') WHERE id = 0",
    )
    wanted = server.execute(f"SELECT HEX(g) FROM {database}.t ORDER BY id")
    found = rows_of(server, log, database)
    assert [
        row["after"]["g"]
        and struct.pack("<I", row["after"]["g"]["srid"]) + row["after"]["g"]["wkb"]
        for row in found[:-1]
    ] == [row[0] and bytes.fromhex(row[0]) for row in wanted]
    assert {row["after"]["g"]["srid"] for row in found[:-2]} == {0, 4326}
    assert found[-1]["after"]["p"] == {"srid": 0, "wkb": b"\1\1\0\0\0" + struct.pack("<dd", 5, 6)}


def test_vectors_of_mysql(mysql97: Server, new_database: NewDatabase) -> None:
    database = new_database(mysql97)
    log = fresh_log(mysql97)
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VECTOR(3), c VARCHAR(9) CHARACTER SET latin1, w VECTOR)",
        f"INSERT INTO {database}.t VALUES (1, STRING_TO_VECTOR('[1,-2.5,3e-10]'), 'é', STRING_TO_VECTOR('[7]')),"
        " (2, NULL, 'x', NULL)",
    )
    one, two = (row["after"] for row in rows_of(mysql97, log, database))
    (raw,) = mysql97.execute(f"SELECT HEX(v) FROM {database}.t WHERE id = 1")
    assert one == {
        "id": 1,
        "v": list(struct.unpack("<3f", bytes.fromhex(raw[0]))),
        "c": "é",
        "w": [7.0],
    }
    assert two == {"id": 2, "v": None, "c": "x", "w": None}
    (table_map,) = (
        TableMap.parse(part.table_map)
        for part in delivered.split_by_table(bytes_of(mysql97, log))
        if isinstance(part, delivered.TableSlice)
    )
    assert [column.dimensions for column in table_map.columns] == [0, 3, 0, 2048]


@pytest.mark.parametrize("kind", ["mariadb1011", "mariadb118"])
def test_columns_that_only_mariadb_has(
    kind: str, new_database: NewDatabase, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    log = fresh_log(server)
    columns = {
        "a": "VARCHAR(300) COMPRESSED",
        "b": "BLOB COMPRESSED",
        "c": "VARCHAR(50) COMPRESSED CHARACTER SET latin1",
        "d": "TEXT COMPRESSED CHARACTER SET utf16",
        "e": "LONGBLOB COMPRESSED",
        "f": "VARBINARY(255) COMPRESSED",
        "u": "UUID",
        "n": "INET6",
    }
    more = ", ".join(f"{name} {definition}" for name, definition in columns.items())
    values = (
        "(1, REPEAT('ж',300), REPEAT('b',60000), REPEAT('é',50), REPEAT('xж',5000), REPEAT('c',300000),"
        " REPEAT('q',254), '123e4567-e89b-12d3-a456-426655440000', '::1')",
        "(2, 'short', 'ab', 'é', 'ж', '', 'x', 'ffffffff-ffff-ffff-ffff-ffffffffff00', '2001:db8::ff00:42:8329')",
        "(3, '', '', '', '', NULL, NULL, NULL, NULL)",
    )
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, {more})",
        f"INSERT INTO {database}.t VALUES {', '.join(values)}",
        "SET GLOBAL column_compression_zlib_wrap = ON",
        "SET SESSION column_compression_zlib_wrap = ON",
        f"INSERT INTO {database}.t (id, a, b) VALUES (4, REPEAT('w',300), REPEAT('v',9000))",
        "SET GLOBAL column_compression_zlib_wrap = OFF",
    )
    wanted = server.execute(
        f"SELECT id, a, b, c, d, e, f, UNHEX(REPLACE(u, '-', '')), INET6_ATON(n) FROM {database}.t"
    )
    found = [tuple(row["after"].values()) for row in rows_of(server, log, database)]
    assert found == list(wanted)


def test_the_definition_gives_the_same_types(any_server: Server, new_database: NewDatabase) -> None:
    """The types from the table's definition, which a reader uses before the first row, equal the types from the log."""
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    columns = {
        "g": "GEOMETRY",
        "p": "POLYGON",
        "k": "TEXT CHARACTER SET gbk",
        "u": "CHAR(9) CHARACTER SET utf16",
    }
    if server.kind != "mysql56":
        columns |= {"j": "JSON"}
    if server.kind in ("mysql97", "mariadb118"):
        columns |= {"v": "VECTOR(3)"}
    if server.mariadb:
        columns |= {
            "c": "VARCHAR(99) COMPRESSED",
            "b": "MEDIUMBLOB COMPRESSED",
            "t": "TEXT COMPRESSED",
        }
    more = ", ".join(f"{name} {definition}" for name, definition in columns.items())
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, {more})",
        f"INSERT INTO {database}.t (id) VALUES (1)",
    )
    definitions = definitions_of(server, database, "t")
    parts = delivered.changes(bytes_of(server, log), definitions)
    (part,) = (part for part in parts if isinstance(part, TableChanges))
    defined = defined_columns(definitions[f"{database}.t"])
    assert arrow_types.change_schema(defined) == part.batch.schema
    if server.kind == "mysql97":
        assert [c.dimensions for c in defined] == [c.dimensions for c in part.table_map.columns]
        assert [c.geometry for c in defined] == [c.geometry for c in part.table_map.columns]


def test_generated_and_invisible_columns(mysql97: Server, new_database: NewDatabase) -> None:
    """The log does not contain the hidden columns that the server makes for an index on an expression or an array."""
    database = new_database(mysql97)
    log = fresh_log(mysql97)
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, j JSON, v INT AS (id + 1) VIRTUAL, s INT AS (id + 2) STORED,"
        " i INT INVISIBLE DEFAULT 5, KEY ((CAST(j->'$.a' AS UNSIGNED ARRAY))), KEY ((id * 2)))",
        f"INSERT INTO {database}.t (id, j) VALUES (1, '{{\"a\": [1, 2]}}')",
    )
    (row,) = rows_of(mysql97, log, database)
    assert row["after"] == {"id": 1, "j": '{"a": [1, 2]}', "v": 2, "s": 3, "i": 5}


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [("mysql97", None), ("mariadb1011", None), ("mariadb118", ["s", "v", "h"])],
)
def test_generated_columns_that_a_server_leaves_out_are_said_to_be_absent(
    kind: str,
    left_out: list[str] | None,
    new_database: NewDatabase,
    request: pytest.FixtureRequest,
) -> None:
    """MariaDB 11.8.9 logs generated columns only if the row has no before image."""
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    log = fresh_log(server)
    server.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a + 1) STORED, v INT AS (a + 2) VIRTUAL,"
        " h INT AS (a + 3) STORED INVISIBLE, i INT INVISIBLE DEFAULT 5, KEY (v), UNIQUE KEY (s))",
        "INSERT INTO t (id, a) VALUES (1, 10)",
        "UPDATE t SET a = 20",
        "REPLACE INTO t (id, a) VALUES (1, 30)",
        "DELETE FROM t",
        database=database,
    )
    insert, update, *replace, delete = rows_of(server, log, database)
    images = ("before_absent", "after_absent")
    assert [insert[name] for name in images] == [None, None]
    assert insert["after"] == {"id": 1, "a": 10, "s": 11, "v": 12, "h": 13, "i": 5}
    assert [update[name] for name in images] == [left_out, left_out]
    assert [row[name] for row in replace for name in images if row[name[:-7]]] == [left_out] * 2
    assert [delete[name] for name in images] == [left_out, None]
    computed = {"s": 21, "v": 22, "h": 23} if left_out is None else dict.fromkeys(left_out)
    assert update["after"] == {"id": 1, "a": 20, **computed, "i": 5}


@pytest.mark.parametrize("kind", ["mariadb1011", "mariadb118"])
def test_old_temporal_formats(
    kind: str, new_database: NewDatabase, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    log = fresh_log(server)
    server.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        server.execute(f"CREATE TABLE {database}.t (a TIMESTAMP NULL, b DATETIME, c TIME)")
    finally:
        server.execute("SET GLOBAL mysql56_temporal_format = ON")
    server.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        f"INSERT INTO {database}.t VALUES ('2024-02-29 10:11:12', '2024-02-29 10:11:12', '-10:11:12'),"
        " ('2038-01-19 03:14:07', '9999-12-31 23:59:59', '838:59:59'), (0, '2024-02-00 01:02:03', '-838:59:59')",
    )
    found = [row["after"] for row in rows_of(server, log, database)]
    assert [row["b"] and row["b"].isoformat() for row in found] == [
        "2024-02-29T10:11:12", "9999-12-31T23:59:59", None
    ]  # fmt: skip
    assert [row["a"] and row["a"].isoformat() for row in found] == [
        "2024-02-29T10:11:12+00:00", "2038-01-19T03:14:07+00:00", None
    ]  # fmt: skip
    assert [row["c"] // 1_000_000 for row in found] == [-36_672, 3_020_399, -3_020_399]
    as_text = rows_of(server, log, database, invalid_dates=InvalidDates.TEXT)
    shown = server.execute(
        "SET time_zone = '+00:00'", f"SELECT CONCAT(a), CONCAT(b) FROM {database}.t"
    )
    assert [(row["after"]["a"], row["after"]["b"]) for row in as_text] == list(shown)


def test_a_timestamp_beyond_2038(mariadb118: Server, new_database: NewDatabase) -> None:
    database = new_database(mariadb118)
    log = fresh_log(mariadb118)
    mariadb118.execute(
        "SET time_zone = '+00:00'",
        f"CREATE TABLE {database}.t (a TIMESTAMP)",
        f"INSERT INTO {database}.t VALUES ('2106-02-07 06:28:15')",
    )
    (row,) = rows_of(mariadb118, log, database)
    assert row["after"]["a"].isoformat() == "2106-02-07T06:28:15+00:00"


def test_invalid_dates_as_text_or_as_error(any_server: Server, new_database: NewDatabase) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    server.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"CREATE TABLE {database}.t (d DATE, t DATETIME, t3 DATETIME(3), t6 DATETIME(6), s TIMESTAMP NULL,"
        " s1 TIMESTAMP(1) NULL, s6 TIMESTAMP(6) NULL)",
        f"INSERT INTO {database}.t VALUES ('2024-02-29', '2024-02-29 23:59:58', '1969-12-31 00:00:00.001',"
        " '9999-12-31 23:59:59.999999', '2024-02-29 00:00:01', '1970-01-01 00:00:01.9',"
        " '2038-01-19 03:14:07.123456'),"
        " (0, 0, 0, 0, 0, 0, 0), ('2023-02-31', '2023-00-00 10:00:00', '0000-01-00 00:00:00.5',"
        " '2023-06-31 01:02:03.000004', NULL, NULL, NULL)",
    )
    columns = ", ".join(f"CONCAT({name})" for name in ("d", "t", "t3", "t6", "s", "s1", "s6"))
    wanted = server.execute("SET time_zone = '+00:00'", f"SELECT {columns} FROM {database}.t")
    found = rows_of(server, log, database, invalid_dates=InvalidDates.TEXT)
    assert [tuple(row["after"].values()) for row in found] == list(wanted)
    assert rows_of(server, log, database)[2]["after"] == dict.fromkeys(found[2]["after"])
    with pytest.raises(BinlogError, match="column 'd': an invalid date") as caught:
        rows_of(server, log, database, invalid_dates=InvalidDates.ERROR)
    assert caught.value.kind is ErrorKind.INVALID_VALUE


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_missing_columns_are_not_null(
    image: str, any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT, b TEXT, c INT)",
        f"INSERT INTO {database}.t VALUES (1, 2, 'x', NULL)",
        f"SET SESSION binlog_row_image = {image}",
        f"INSERT INTO {database}.t (id, a) VALUES (2, NULL)",
        f"UPDATE {database}.t SET a = NULL WHERE id = 1",
        f"UPDATE {database}.t SET b = 'y' WHERE id = 1",
        f"DELETE FROM {database}.t WHERE id = 2",
    )
    full, *rows = rows_of(server, log, database)
    assert (full["before_absent"], full["after_absent"]) == (None, None)
    found = [tuple(row[name] for name in IMAGE) for row in rows]
    none = dict.fromkeys(("id", "a", "b", "c"))
    if image == "MINIMAL":
        others = ["a", "b", "c"]
        assert found == [
            (None, None, none | {"id": 2}, ["b", "c"]),
            (none | {"id": 1}, others, none, ["id", "b", "c"]),
            (none | {"id": 1}, others, none | {"b": "y"}, ["id", "a", "c"]),
            (none | {"id": 2}, others, None, None),
        ]
    else:
        before = none | {"id": 1, "a": 2}
        assert found == [
            (None, None, none | {"id": 2}, ["b"]),
            (before, ["b"], before | {"a": None}, ["b"]),
            (before | {"a": None}, ["b"], before | {"a": None, "b": "y"}, None),
            (none | {"id": 2}, ["b"], None, None),
        ]


IMAGE = ("before", "before_absent", "after", "after_absent")


def test_partial_updates_of_json_are_applied(mysql97: Server, new_database: NewDatabase) -> None:
    database = new_database(mysql97)
    log = fresh_log(mysql97)
    document = '{"a": 1, "b": "' + "x" * 40 + '", "c": [1, 2, 3]}'
    updates = [
        "j = JSON_SET(j, '$.a', 2), k = '[3]'",
        "j = JSON_SET(j, '$.c[1]', 'two'), l = JSON_REMOVE(l, '$.q')",
        "j = JSON_REMOVE(j, '$.b'), a = 4",
        "a = 5",
        "k = JSON_REPLACE(k, '$[0]', 3.5), l = NULL",
        "l = '7'",
    ]
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, j JSON, a INT, k JSON, l JSON, z VARCHAR(9))",
        f"INSERT INTO {database}.t VALUES (1, '{document}', 3, '[1, 2]', '{{\"q\": []}}', NULL)",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    )
    wanted = [mysql97.execute(f"SELECT * FROM {database}.t")[0]]
    for update in updates:
        mysql97.execute(
            "SET SESSION binlog_row_value_options = PARTIAL_JSON",
            f"UPDATE {database}.t SET {update}",
        )
        wanted += mysql97.execute(f"SELECT * FROM {database}.t")
    rows = rows_of(mysql97, log, database)
    assert [tuple(row["after"].values()) for row in rows] == wanted
    assert [tuple(row["before"].values()) for row in rows[1:]] == wanted[:-1]
    assert {row["before_absent"] for row in rows} == {row["after_absent"] for row in rows} == {None}


def test_a_change_of_json_without_its_before_image_is_refused(
    mysql97: Server, new_database: NewDatabase
) -> None:
    database = new_database(mysql97)
    log = fresh_log(mysql97)
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, j JSON)",
        f'INSERT INTO {database}.t VALUES (1, \'{{"a": 1, "b": "{"x" * 40}"}}\')',
        "SET SESSION binlog_row_value_options = PARTIAL_JSON, binlog_row_image = MINIMAL",
        f"UPDATE {database}.t SET j = JSON_SET(j, '$.a', 2)",
    )
    with pytest.raises(BinlogError, match="column 'j': a change of JSON without") as caught:
        rows_of(mysql97, log, database)
    assert caught.value.kind is ErrorKind.ROW_IMAGE
    assert "binlog_row_value_options" in caught.value.remedy
