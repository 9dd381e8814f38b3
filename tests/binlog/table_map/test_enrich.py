"""Enriched TABLE_MAPs are equal to the TABLE_MAPs that servers write with full metadata."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from pymysql.converters import encoders

from dispatcher.binlog.table_map.enrich import Lacks, enriched_body, lacks
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.binlog.table_map.table_kind import TableKind
from dispatcher.binlog.table_map.wire import Field, RawTableMap, encode_field
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.table_schema import table_definition
from tests.servers import Server
from tests.support.rows_encoder import Spec, table_map
from tests.support.server_log import read_log

INT, VARCHAR, ENUM, STRING = 3, 15, 247, 254
TIMESTAMP_OLD, TIME_OLD = 7, 11
COLUMNS = [
    Spec("id", INT, unsigned=True, nullable=False),
    Spec("name", VARCHAR, b"\x28\x00", charset=45),
    Spec("e", ENUM, b"\xf7\x01", charset=45, labels=("a", "ж")),
]


def entry(name: str, mysql_type: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "mysql_type": mysql_type, "nullable": True, "charset": None, **more}


def definition(**changes: dict[str, Any]) -> dict[str, Any]:
    columns = {
        "id": entry("id", "int unsigned", nullable=False),
        "name": entry("name", "varchar(10)", charset="utf8mb4", collation=45, bytes=40),
        "e": entry("e", "enum('a','ж')", charset="utf8mb4", collation=45, labels=["61", "d0b6"]),
    }
    for name, change in changes.items():
        columns[name] = columns[name] | change
    return {
        "database": "shop", "table": "orders", "columns": list(columns.values()), "key": ["id"],
        "primary": [["id", 0]],
    }  # fmt: skip


def test_only_missing_fields_are_supplied() -> None:
    short, full = table_map(COLUMNS, full=False), table_map(COLUMNS)
    completed = TableMap.parse(enriched_body(short, definition()))
    wanted = TableMap.parse(full)
    assert (completed.columns, completed.key) == (wanted.columns, wanted.key)
    assert lacks(short, mariadb=False) is Lacks.COLUMNS
    assert lacks(full, mariadb=False) is Lacks.NOTHING
    assert (
        RawTableMap.of(enriched_body(full, definition())).fields.items()
        >= RawTableMap.of(full).fields.items()
    )


@pytest.mark.parametrize(
    "change",
    [
        {"id": {"mysql_type": "bigint"}},
        {"name": {"mysql_type": "varchar(11)", "bytes": 44}},
        {"name": {"mysql_type": "char(10)"}},
        {"name": {"nullable": False}},
        {"e": {"mysql_type": "set('a','ж')"}},
        {"e": {"mysql_type": "enum(" + ",".join(f"'{n}'" for n in range(300)) + ")"}},
    ],
)
def test_a_definition_that_contradicts_the_event_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BinlogError) as caught:
        enriched_body(table_map(COLUMNS, full=False), definition(**change))
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    assert "shop.orders" in caught.value.what


def test_another_number_of_columns_is_refused() -> None:
    with pytest.raises(BinlogError, match="3 columns, the event has 2"):
        enriched_body(table_map(COLUMNS[:2], full=False), definition())


def test_columns_that_mariadb_does_not_distinguish_get_their_types() -> None:
    specs = [Spec("u", STRING, b"\xfe\x10", charset=63), Spec("b", STRING, b"\xfe\x10", charset=63)]
    body = table_map(specs, key=())
    assert lacks(body, mariadb=True) is Lacks.COLUMNS
    assert lacks(body, mariadb=False) is Lacks.NOTHING
    known: dict[str, Any] = {
        "database": "shop", "table": "orders", "columns": [entry("u", "uuid"), entry("b", "binary(16)", bytes=16)],
        "primary": [],
    }  # fmt: skip
    completed = enriched_body(body, known, mariadb=True)
    assert RawTableMap.of(completed).fields[Field.COLUMN_TYPES] == b"\x04uuid\x00"
    assert lacks(completed, mariadb=True) is Lacks.NOTHING
    known["columns"][0] = entry("u", "binary(16)", bytes=16)
    assert enriched_body(body, known, mariadb=True) == body


def test_old_temporals_of_mariadb_need_a_definition_without_fractions() -> None:
    body = table_map([Spec("t", TIME_OLD), Spec("s", TIMESTAMP_OLD)], key=())
    assert lacks(body, mariadb=True) is Lacks.COLUMNS
    known: dict[str, Any] = {
        "database": "shop", "table": "orders", "primary": [],
        "columns": [entry("t", "time /* mariadb-5.3 */"), entry("s", "timestamp /* mariadb-5.3 */")],
    }  # fmt: skip
    completed = enriched_body(body, known, mariadb=True)
    assert lacks(completed, mariadb=True) is Lacks.NOTHING
    assert [column.name for column in TableMap.parse(completed).columns] == ["t", "s"]
    known["columns"][0] = entry("t", "time(3) /* mariadb-5.3 */")
    with pytest.raises(BinlogError, match=r"time\(3\) in MariaDB's old form") as refused:
        TableMap.parse(enriched_body(body, known, mariadb=True))
    assert refused.value.kind is ErrorKind.UNSUPPORTED_TYPE


def test_text_of_the_same_size_is_not_an_address() -> None:
    body = table_map([Spec("c", STRING, b"\xfe\x04", charset=8)], key=())
    assert lacks(body, mariadb=True) is Lacks.NOTHING


def test_every_cut_is_a_typed_error() -> None:
    body = table_map(COLUMNS)
    raw_map = RawTableMap.of(body)
    whole = {raw_map.end}
    at = raw_map.end
    for value in raw_map.fields.values():
        at += 2 + len(value)
        whole.add(at)
    for size in range(len(body)):
        if size in whole:
            continue
        with pytest.raises(BinlogError) as caught:
            RawTableMap.of(body[:size])
        assert caught.value.kind in (ErrorKind.MALFORMED_EVENT, ErrorKind.UNSUPPORTED_TYPE)


# -- against servers ------------------------------------------------------------------------------------------

NUMBERS = (
    "id INT NOT NULL, a TINYINT UNSIGNED, b SMALLINT, c MEDIUMINT UNSIGNED, d BIGINT, e DECIMAL(30,4) UNSIGNED,"
    " f FLOAT, g DOUBLE UNSIGNED, h YEAR, i BIT(13), j DATE, k TIME(3), l DATETIME(6), m TIMESTAMP(2) NULL,"
    " n INT UNSIGNED ZEROFILL, o BOOL"
)
OTHERS = (
    "a INT, b VARCHAR(300) CHARACTER SET utf8mb4 NOT NULL, c TEXT CHARACTER SET latin1, d BLOB, e BINARY(9),"
    " f VARBINARY(300), g LONGTEXT, h CHAR(255) CHARACTER SET utf8mb4, p POINT, q GEOMETRY, `wéird ``n,ame` TINYTEXT"
)


def tables(server: Server) -> dict[str, str]:
    listed = [str(row[0]) for row in server.execute("SHOW CHARACTER SET")]
    charsets = [name for name in listed if name != "binary"]
    labels = r"""'a', 'it''s', 'x\\y"z', 'w'"""
    found = {
        "numbers": f"{NUMBERS}, PRIMARY KEY (id)",
        "others": f"{OTHERS}, PRIMARY KEY (b(10), a)",
        "texts": ", ".join(f"v_{n} VARCHAR(5) CHARACTER SET {n}, c_{n} CHAR(3) CHARACTER SET {n}" for n in charsets),
        "labels": ", ".join(
            f"e_{n} ENUM({labels}) CHARACTER SET {n}, s_{n} SET('q', 'ß') CHARACTER SET {n}"
            for n in charsets
            if n in ("latin1", "utf8mb4", "utf16", "ucs2", "gb18030", "cp850")
        ),
        "unique_key": "a INT, b INT NOT NULL, c INT NOT NULL, UNIQUE (a), UNIQUE (b, c)",
    }  # fmt: skip
    if server.mariadb:
        found["compressed"] = (
            "a TEXT COMPRESSED, b VARCHAR(300) COMPRESSED, c BLOB COMPRESSED, j JSON"
        )
        found["versioned"] = "a INT PRIMARY KEY) WITH SYSTEM VERSIONING -- "
    else:
        found["hidden"] = (
            "a INT INVISIBLE, v VECTOR(7), j JSON, g INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED,"
            " w VECTOR(2), KEY f ((a * 2))"
        )
    return found


def table_maps(server: Server, database: str, names: list[str], metadata: str) -> dict[str, bytes]:
    """Returns for each table the body of the TABLE_MAP that the server writes with the setting `metadata`."""
    server.execute(f"SET GLOBAL binlog_row_metadata = {metadata}", "FLUSH BINARY LOGS")
    file = server.binlog_position()[0]
    rows = []
    for name in names:
        rows += [f"DELETE FROM {name}", f"INSERT INTO {name} () VALUES ()"]
    server.execute("SET sql_mode = ''", *rows, database=database)
    log, at, found = read_log(server, file), 4, []
    while at < len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        if log[at + 4] == 19:
            found.append(log[at + 19 : at + size - 4])
        at += size
    named = {TableMap.parse(body).table: body for body in found}
    return {name: named[name] for name in names}


@pytest.mark.parametrize("kind", ["mysql97", "mariadb1011", "mariadb118"])
def test_the_result_is_what_a_server_with_full_metadata_writes(
    kind: str, request: pytest.FixtureRequest, new_database: Callable[[Server], str]
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    made = tables(server)
    for name, columns in made.items():
        server.execute("SET sql_mode = ''", f"CREATE TABLE {name} ({columns})", database=database)
    names = list(made)
    try:
        full = table_maps(server, database, names, "FULL")
        for metadata in ("MINIMAL", "NO_LOG") if server.mariadb else ("MINIMAL",):
            short = table_maps(server, database, names, metadata)
            with closing(server.connect(conv=encoders)) as connection:
                for name in names:
                    known = table_definition(connection, database, name, mariadb=server.mariadb)
                    assert len(short[name]) < len(full[name])
                    completed = enriched_body(short[name], known, mariadb=server.mariadb)
                    # Both bodies are equal except for the table's id, and the field that only the daemon writes.
                    expected = full[name]
                    if name == "versioned":
                        expected += encode_field(Field.TABLE_KIND, bytes((TableKind.VERSIONED, 2)))
                    assert completed[8:] == expected[8:], f"{name}, {metadata}"
                    assert enriched_body(full[name], known, mariadb=server.mariadb) == expected
    finally:
        server.execute("SET GLOBAL binlog_row_metadata = FULL")


def test_a_label_that_the_schema_cannot_show_is_refused(
    mysql97: Server, new_database: Callable[[Server], str]
) -> None:
    database = new_database(mysql97)
    mysql97.execute("CREATE TABLE t (e ENUM('🐬', 'b') CHARACTER SET utf8mb4)", database=database)
    with closing(mysql97.connect(conv=encoders)) as connection:
        known = table_definition(connection, database, "t", mariadb=False)
    short = table_maps(mysql97, database, ["t"], "MINIMAL")["t"]
    full = table_maps(mysql97, database, ["t"], "FULL")["t"]
    with pytest.raises(BinlogError) as caught:
        enriched_body(short, known)
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    assert f"table {database}.t, column 'e'" in caught.value.what
    assert enriched_body(full, known) == full  # the full body has all metadata already


@pytest.mark.parametrize("kind", ["mysql97", "mariadb118"])
def test_the_servers_own_tools_skip_our_field(
    kind: str, request: pytest.FixtureRequest, new_database: Callable[[Server], str], tmp_path: Any
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    server.execute("CREATE TABLE t (a BINARY(16), n INT)", "FLUSH BINARY LOGS", database=database)
    file = server.binlog_position()[0]
    server.execute("INSERT INTO t VALUES ('x', 7)", database=database)
    log = read_log(server, file)
    out, at = bytearray(log[:4]), 4
    while at < len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        event = log[at : at + size]
        if event[4] == 19:
            event = with_body(event, event[19:-4] + bytes((Field.COLUMN_TYPES, 6, 4)) + b"uuid\0")
        out += event
        at += size
    path = tmp_path / file
    path.write_bytes(out)
    shown = server.mysqlbinlog("-v", "--print-table-metadata", path).stdout
    assert "### INSERT INTO" in shown, shown
    assert "###   @2=7" in shown
    assert "# Columns(" in shown


def with_body(event: bytes, body: bytes) -> bytes:
    size = 19 + len(body) + 4
    raw = event[:9] + size.to_bytes(4, "little") + event[13:19] + body
    return raw + zlib.crc32(raw).to_bytes(4, "little")
