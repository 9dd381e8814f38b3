"""With real servers: the rows that a copy reads equal the rows in the log, for every type and extreme value."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.delivered import TableChanges, TableSlice
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.answers import fetch
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint
from spark_sink.source.table_rows import session
from spark_sink.source.table_rows.session import RowReader, open_session
from spark_sink.source.table_rows.source_table import SourceTable, read_source_table
from spark_sink.source.table_rows.text_rows import TextDecoder
from tests.binlog.test_servers_decode import COLUMNS, definitions_of, fill
from tests.binlog.test_servers_values import SAMPLES, _label, bytes_of, charsets_of
from tests.servers import Server
from tests.spark.mirror.copy.conftest import PASSWORD, READER, add_reader
from tests.support.server_log import fresh_log

NewDatabase = Callable[[Server], str]
ZONES = ("+00:00", "+05:45", "-11:00")


@contextmanager
def reading(server: Server) -> Iterator[Connection]:
    """A session of an account that has only the privileges that a copy needs."""
    add_reader(server)
    endpoint = Endpoint(server.host, server.port, READER, PASSWORD)
    with closing(open_session(endpoint)) as connection:
        yield connection


def copied(
    server: Server,
    database: str,
    table: str,
    invalid_dates: InvalidDates = InvalidDates.NULL,
    *,
    all_versions: bool = False,
) -> pa.Table:
    """Returns the rows that a copy reads, in the order of the first column."""
    with reading(server) as connection:
        source = read_source_table(connection, database, table, all_versions=all_versions)
        decoder = TextDecoder(source.columns, source.label, invalid_dates)
        batches = list(
            RowReader(connection, "server").batches(_statement(source, decoder), decoder)
        )
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, decoder.schema).combine_chunks()


def _statement(source: SourceTable, decoder: TextDecoder) -> str:
    return f"SELECT {decoder.select_list} FROM {source.from_clause} ORDER BY 1"


def logged(
    server: Server,
    log: str,
    database: str,
    table: str,
    invalid_dates: InvalidDates = InvalidDates.NULL,
) -> pa.Table:
    """Returns the inserted rows in the log, in the log's order."""
    definitions: dict[str, Any] = {}
    for (name,) in server.execute(f"SHOW TABLES FROM {database}"):
        definitions |= definitions_of(server, database, str(name))
    parts = [
        pa.Table.from_batches([pa.RecordBatch.from_struct_array(part.batch.column("after"))])
        for part in delivered.changes(
            bytes_of(server, log), definitions, invalid_dates=invalid_dates
        )
        if isinstance(part, TableChanges) and part.table_map.table == table
    ]
    return pa.concat_tables(parts).combine_chunks()


def assert_same(found: pa.Table, wanted: pa.Table) -> None:
    assert found.schema == wanted.schema
    for name in wanted.column_names:
        # Compare values by their bits: NaN does not occur, and -0.0 differs from 0.0.
        assert bits_of(found.column(name)) == bits_of(wanted.column(name)), name


def bits_of(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_float32(column.type) or pa.types.is_float64(column.type):
        form = "<f" if pa.types.is_float32(column.type) else "<d"
        return [None if v is None else struct.pack(form, v) for v in column.to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


@pytest.mark.rotate(4)
@pytest.mark.parametrize("zone", ZONES)
def test_every_type_in_three_time_zones(
    zone: str, any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    fill(server, f"{database}.t")
    before = server.execute("SELECT @@GLOBAL.time_zone")[0][0]
    server.execute(f"SET GLOBAL time_zone = '{zone}'")
    try:
        found = copied(server, database, "t")
        texts = copied(server, database, "t", InvalidDates.TEXT)
    finally:
        server.execute(f"SET GLOBAL time_zone = '{before}'")
    assert found.num_rows and set(found.column_names) >= set(COLUMNS)
    assert_same(found, logged(server, log, database, "t"))
    assert_same(texts, logged(server, log, database, "t", InvalidDates.TEXT))
    with pytest.raises(BinlogError, match="an invalid date") as caught:
        copied(server, database, "t", InvalidDates.ERROR)
    assert caught.value.kind is ErrorKind.INVALID_VALUE


def test_columns_are_those_of_the_log(any_server: Server, new_database: NewDatabase) -> None:
    server, database = any_server, new_database(any_server)
    if server.kind == "mysql56":
        pytest.skip("its log does not describe columns")
    log = fresh_log(server)
    fill(server, f"{database}.t")
    with reading(server) as connection:
        source = read_source_table(connection, database, "t")
    (part,) = (
        p for p in delivered.split_by_table(bytes_of(server, log)) if isinstance(p, TableSlice)
    )
    table_map = TableMap.parse(part.table_map)
    assert source.columns == table_map.columns
    assert source.key == table_map.key
    assert (source.key_name, source.engine, source.all_versions) == ("PRIMARY", "InnoDB", False)


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
    server.execute(
        "SET sql_mode = ''",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO {database}.t (id, {names}) VALUES {values}",
        f"CREATE TABLE {database}.l (id INT PRIMARY KEY, {labels})",
        f"INSERT INTO {database}.l VALUES (1, {', '.join('2, 3' for _ in charsets)}),"
        f" (2, {', '.join('0, 0' for _ in charsets)}), (3, {', '.join('NULL, NULL' for _ in charsets)})",
    )
    for table in ("t", "l"):
        assert_same(copied(server, database, table), logged(server, log, database, table))


def test_bytes_and_labels_that_the_server_would_convert(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    values = ", ".join(
        f"({byte}, _binary 0x{byte:02x}, _binary 0x{byte:02x}, _binary 0x{byte:02x})"
        for byte in range(256)
    )
    # MySQL 5.6 logs no definitions. The definition that this test adds has no collations, unlike the daemon's
    # definition.
    label = "a" if server.kind == "mysql56" else "é"
    collation = "latin1_bin" if server.kind == "mysql56" else "latin2_czech_cs"
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a VARCHAR(1) COLLATE {collation},"
        " b VARCHAR(1) CHARACTER SET latin1, c BINARY(3))",
        f"INSERT INTO {database}.t VALUES {values}",
        f"CREATE TABLE {database}.b (id INT PRIMARY KEY, e ENUM('{label}','x') CHARACTER SET binary,"
        f" s SET('{label}','x') CHARACTER SET binary)",
        f"INSERT INTO {database}.b VALUES (1, 1, 3), (2, 2, 0)",
    )
    for table in ("t", "b"):
        assert_same(copied(server, database, table), logged(server, log, database, table))


def test_labels_beyond_the_schemas_characters(mysql97: Server, new_database: NewDatabase) -> None:
    """information_schema shows a question mark instead of an emoji."""
    database, log = new_database(mysql97), fresh_log(mysql97)
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, e ENUM('😀','?') CHARACTER SET utf8mb4,"
        " s SET('😀','b') CHARACTER SET utf16)",
        f"INSERT INTO {database}.t VALUES (1, 1, 3), (2, 2, 2)",
    )
    assert_same(copied(mysql97, database, "t"), logged(mysql97, log, database, "t"))


def test_geometries_and_json(any_server: Server, new_database: NewDatabase) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    make = "GeomFromText" if server.kind == "mysql56" else "ST_GeomFromText"
    document = "JSON" if server.kind != "mysql56" else "LONGTEXT CHARACTER SET utf8mb4"
    empty = "" if server.kind == "mysql97" else f"INSERT IGNORE INTO {database}.t (id) VALUES (9)"
    statements = [
        "SET sql_mode = ''",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, g GEOMETRY NOT NULL, p POINT, j {document})",
        f"INSERT INTO {database}.t VALUES (1, {make}('LINESTRING(0 0, 1 1, 2 0)', 4326), NULL,"
        ' \'{"b": [1, 2.50, "é😀"], "a": null}\'),'
        f" (2, {make}('POINT(1 2)', 0), {make}('POINT(5 6)', 0), NULL)",
    ]
    server.execute(*statements, *([empty] if empty else []))
    assert_same(copied(server, database, "t"), logged(server, log, database, "t"))


def test_vectors_of_mysql(mysql97: Server, new_database: NewDatabase) -> None:
    database, log = new_database(mysql97), fresh_log(mysql97)
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VECTOR(3))",
        f"INSERT INTO {database}.t VALUES (1, STRING_TO_VECTOR('[1,-2.5,3e-10]')), (2, NULL)",
    )
    assert_same(copied(mysql97, database, "t"), logged(mysql97, log, database, "t"))


@pytest.mark.parametrize("kind", ["mariadb1011", "mariadb118"])
def test_columns_that_only_mariadb_has(
    kind: str, new_database: NewDatabase, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    database, log = new_database(server), fresh_log(server)
    vector = ", w VECTOR(2) NOT NULL" if kind == "mariadb118" else ""
    value = ", VEC_FromText('[1,2]')" if vector else ""
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a VARCHAR(300) COMPRESSED, b BLOB COMPRESSED,"
        " c VARCHAR(50) COMPRESSED CHARACTER SET latin1, d TEXT COMPRESSED CHARACTER SET utf16, u UUID, n INET6,"
        f" f INET4, y YEAR(2){vector})",
        f"INSERT INTO {database}.t VALUES (1, REPEAT('ж',300), REPEAT('b',60000), 'é', REPEAT('xж',5000),"
        f" '123e4567-e89b-12d3-a456-426655440000', '::ffff:1.2.3.4', '10.1.2.3', 99{value}),"
        f" (2, '', '', NULL, NULL, NULL, '2001:db8::ff00:42:8329', NULL, 7{value})",
    )
    # The log does not distinguish UUID and INET from BINARY; the daemon adds the types that it has looked up.
    found, wanted = copied(server, database, "t"), logged(server, log, database, "t")
    declared = {"u": 16, "n": 16, "f": 4}
    assert {name: str(found.schema.field(name).type) for name in declared} == dict.fromkeys(
        declared, "string"
    )
    plain = server.execute(f"SELECT u, n, f FROM {database}.t ORDER BY id")
    assert list(zip(*(found.column(n).to_pylist() for n in declared), strict=True)) == list(plain)
    assert_same(found.drop_columns(list(declared)), wanted.drop_columns(list(declared)))


@pytest.mark.parametrize("kind", ["mariadb1011", "mariadb118"])
def test_rows_of_a_versioned_table(
    kind: str, new_database: NewDatabase, request: pytest.FixtureRequest
) -> None:
    server: Server = request.getfixturevalue(kind)
    database = new_database(server)
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING",
        f"INSERT INTO {database}.t VALUES (1, 1), (2, 2)",
        f"UPDATE {database}.t SET a = 3 WHERE id = 1",
    )
    for all_versions, expected in ((False, [(1, 3), (2, 2)]), (True, [(1, 1), (1, 3), (2, 2)])):
        found = copied(server, database, "t", all_versions=all_versions)
        assert found.column_names == ["id", "a", "row_start", "row_end"]
        pairs = zip(found["id"].to_pylist(), found["a"].to_pylist(), strict=True)
        assert sorted(pairs) == expected


def test_old_temporal_formats(mariadb1011: Server, new_database: NewDatabase) -> None:
    server, database = mariadb1011, new_database(mariadb1011)
    log = fresh_log(server)
    server.execute("SET GLOBAL mysql56_temporal_format = OFF")
    try:
        server.execute(f"CREATE TABLE {database}.t (id INT, a TIMESTAMP NULL, b DATETIME, c TIME)")
    finally:
        server.execute("SET GLOBAL mysql56_temporal_format = ON")
    server.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        f"INSERT INTO {database}.t VALUES (1, '2024-02-29 10:11:12', '9999-12-31 23:59:59', '-10:11:12'),"
        " (2, 0, '2024-02-00 01:02:03', '-838:59:59')",
    )
    assert_same(copied(server, database, "t"), logged(server, log, database, "t"))


def test_floating_point_numbers_bit_by_bit(any_server: Server, new_database: NewDatabase) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    draw = np.random.default_rng(20)
    raw = draw.integers(0, 1 << 63, 3000, dtype=np.int64) << 1 | draw.integers(0, 2, 3000)
    doubles = [d for d in raw.view(np.float64).tolist() if abs(d) < 1e308]
    doubles += [5e-324, -0.0, 0.1 + 0.2, 1e22, 123456789012345680.0]
    singles = [
        float(f)
        for f in (raw >> 7).astype(np.uint64).view(np.uint32)[::2].view(np.float32)
        if np.isfinite(f) and abs(float(f)) < 3e38
    ]
    rows = [(i, d, singles[i % len(singles)]) for i, d in enumerate(doubles)]
    # With (M,D), the server rounds the values that it stores, and shows only D digits.
    server.execute(
        "SET sql_mode = ''",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, d DOUBLE, f FLOAT, m DOUBLE(40,20), n FLOAT(9,4))",
        *(
            f"INSERT INTO {database}.t VALUES "
            + ", ".join(f"({i}, {d!r}, {f!r}, {d!r}, {f!r})" for i, d, f in rows[at : at + 500])
            for at in range(0, len(rows), 500)
        ),
    )
    assert_same(copied(server, database, "t"), logged(server, log, database, "t"))


def test_decimals_and_numbers_with_leading_zeros(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a DECIMAL(65,30) ZEROFILL, b DECIMAL(20,5) ZEROFILL,"
        " c BIGINT ZEROFILL, d DECIMAL(50) ZEROFILL, e DECIMAL(38,30), f DECIMAL(38), g DOUBLE ZEROFILL)",
        f"INSERT INTO {database}.t VALUES (1, 1.5, 1.5, 7, 0, 0.{'9' * 30}, -{'9' * 38}, 1.5),"
        f" (2, 0, 0, 0, 12, -0.{'0' * 29}1, 1, 0), (3, 0.25, 99999, 18446744073709551615, {'9' * 50}, 0, 0, 1e300)",
    )
    assert_same(copied(server, database, "t"), logged(server, log, database, "t"))


def test_rows_larger_than_a_packet_and_than_the_buffer(
    mysql97: Server, new_database: NewDatabase
) -> None:
    database = new_database(mysql97)
    packet = 0xFFFFFF
    sizes = [
        0,
        250,
        251,
        65_535,
        65_536,
        packet - 20,
        packet - 10,
        packet - 4,
        packet,
        2 * packet - 9,
        40 << 20,
    ]
    before = mysql97.execute("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    mysql97.execute("SET GLOBAL max_allowed_packet = 1 << 27")
    try:
        mysql97.execute(
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, b LONGBLOB, c INT)",
            *(
                f"INSERT INTO {database}.t VALUES ({i}, REPEAT('x', {n}), {n})"
                for i, n in enumerate(sizes)
            ),
        )
        found = copied(mysql97, database, "t")
    finally:
        mysql97.execute(f"SET GLOBAL max_allowed_packet = {before}")
    assert found["c"].to_pylist() == sizes
    assert [len(value) for value in found["b"].to_pylist()] == sizes
    assert all(set(value) <= {ord("x")} for value in found["b"].to_pylist())


def test_a_session_reads_and_nothing_else(any_server: Server, new_database: NewDatabase) -> None:
    database = new_database(any_server)
    any_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
    with reading(any_server) as connection, pytest.raises(BinlogError, match=r"READ ONLY|denied"):
        fetch(connection, f"INSERT INTO {database}.t VALUES (1)")


def test_a_table_that_changed_and_a_query_that_fails(
    any_server: Server, new_database: NewDatabase
) -> None:
    server, database = any_server, new_database(any_server)
    server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, a INT)",
        f"INSERT INTO {database}.t VALUES (1, 2), (3, 4)",
    )
    with reading(server) as connection:
        source = read_source_table(connection, database, "t")
        decoder = TextDecoder(source.columns, source.label)
        reader = RowReader(connection, "the server")
        statement = _statement(source, decoder)
        columns = reader.result_columns(f"{statement} LIMIT 0", decoder)
        assert [c.type for c in columns] == [3, 3]
        (batch,) = reader.batches(statement, decoder, columns)
        assert batch.to_pylist() == [{"id": 1, "a": 2}, {"id": 3, "a": 4}]
        server.execute(f"ALTER TABLE {database}.t MODIFY a BIGINT")
        with pytest.raises(BinlogError, match=f"table {database}.t was altered"):
            list(reader.batches(statement, decoder, columns))
    with reading(server) as connection, pytest.raises(BinlogError, match=r"error 1054.*the server"):
        list(RowReader(connection, "the server").batches(f"SELECT x FROM {database}.t", decoder))


def test_small_buffers_give_the_same_rows(
    mysql97: Server, new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = new_database(mysql97)
    rows = ", ".join(f"({i}, REPEAT('x', {i % 40 * 7}), NULL)" for i in range(2000))
    mysql97.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, b VARCHAR(999), c INT)",
        f"INSERT INTO {database}.t VALUES {rows}",
    )
    wanted = copied(mysql97, database, "t")
    monkeypatch.setattr(session, "BUFFER_BYTES", 64)
    assert copied(mysql97, database, "t") == wanted
    monkeypatch.setattr(session, "BATCH_ROWS", 7)
    assert copied(mysql97, database, "t") == wanted
    assert wanted["id"].to_pylist() == list(range(2000))
