"""With real servers: every cell decoded from the server's log equals the cell that SELECT returns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from pymysql.converters import encoders

from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow import arrow_types
from dispatcher.binlog.decode.arrow.arrow_types import arrow_type
from dispatcher.binlog.decode.delivered import Ddl, TableChanges, TableSlice
from dispatcher.binlog.table_map.column_definition import defined_columns
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.table_schema import table_columns
from tests.servers import Server
from tests.support.server_log import delivered_log, fresh_log


def many(n: int) -> str:
    return ",".join(f"'v{i}'" for i in range(n))


# (column definition, SQL literals of the values to store). The test also stores NULL in every column.
COLUMNS: dict[str, tuple[str, list[str]]] = {
    "ti": ("TINYINT", ["-128", "127", "0"]),
    "tu": ("TINYINT UNSIGNED", ["255", "0"]),
    "flag": ("BOOL", ["TRUE", "FALSE"]),
    "si": ("SMALLINT", ["-32768", "32767"]),
    "su": ("SMALLINT UNSIGNED", ["65535"]),
    "y": ("YEAR", ["1901", "2155", "0", "2024"]),
    "mi": ("MEDIUMINT", ["-8388608", "8388607", "-1"]),
    "mu": ("MEDIUMINT UNSIGNED", ["16777215"]),
    "ii": ("INT", ["-2147483648", "2147483647"]),
    "iu": ("INT UNSIGNED ZEROFILL", ["4294967295", "7"]),
    "bi": ("BIGINT", ["-9223372036854775808", "9223372036854775807"]),
    "bu": ("BIGINT UNSIGNED", ["18446744073709551615", "0"]),
    "d5": ("DECIMAL(5,2)", ["-999.99", "999.99", "0", "-0.01"]),
    "d18": ("DECIMAL(18,9)", ["123456789.987654321", "-999999999.999999999"]),
    "d38": ("DECIMAL(38,10)", ["9999999999999999999999999999.9999999999", "-1"]),
    "d30": ("DECIMAL(30,30)", ["0.000000000000000000000000000001", "-0.999999999999999999999999999999"]),
    "d65": ("DECIMAL(65,30)", ["-99999999999999999999999999999999999.999999999999999999999999999999", "0"]),
    "d10": ("DECIMAL(10) UNSIGNED", ["9999999999"]),
    "f": ("FLOAT", ["3.4028234e38", "-1.17549435e-38", "0.1", "123.456"]),
    "fd": ("DOUBLE", ["1.7976931348623157e308", "2.2250738585072014e-308", "-0.1"]),
    "c": ("CHAR(10) CHARACTER SET utf8mb4", ["''", "'a b'", "'trailing  '", "'😀ж'"]),
    "cl": ("CHAR(255) CHARACTER SET utf8mb4", ["REPEAT('😀',255)", "'x'"]),
    "ca": ("CHAR(5) CHARACTER SET ascii", ["'ascii'"]),
    "v": ("VARCHAR(10) CHARACTER SET utf8mb4", ["'trailing  '", "''", "'äöüß€😀'"]),
    "vl": ("VARCHAR(500) CHARACTER SET utf8", ["REPEAT('€',500)", "''"]),
    "vi": ("VARCHAR(64) CHARACTER SET latin1", ["'é€ÿ'", "'plain'", "0x818D8F909D"]),
    "te": ("TEXT CHARACTER SET utf8mb4", ["REPEAT('lang',3000)", "''", "'zeile\\n\\\\'"]),
    "tt": ("TINYTEXT CHARACTER SET utf8mb4", ["'x'"]),
    "mt": ("MEDIUMTEXT CHARACTER SET utf8mb4", ["REPEAT('m',70000)"]),
    "lt": ("LONGTEXT CHARACTER SET latin1", ["REPEAT('ü',1000)"]),
    "bn": ("BINARY(8)", ["0x0102", "0x0102000000000000", "''", "0x00000000000000FF"]),
    "bl": ("BINARY(255)", ["0x20", "REPEAT(0xFF,255)"]),
    "vb": ("VARBINARY(300)", ["0x010000", "''", "REPEAT(0x00,300)"]),
    "b": ("BLOB", ["0x00FF10", "''", "REPEAT(0xAB,60000)"]),
    "tb": ("TINYBLOB", ["0x00"]),
    "mb": ("MEDIUMBLOB", ["REPEAT(0xCD,70000)"]),
    "lb": ("LONGBLOB", ["0x01"]),
    "da": ("DATE", ["'0001-01-01'", "'9999-12-31'", "'2024-02-29'", "'0000-00-00'", "'2024-00-00'", "'1969-12-31'"]),
    "dt": ("DATETIME", ["'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'0000-00-00'", "'2024-05-00 10:00:00'"]),
    "dt1": ("DATETIME(1)", ["'2024-02-29 12:00:00.9'"]),
    "dt3": ("DATETIME(3)", ["'1969-12-31 23:59:59.999'", "'0001-01-01 00:00:00.001'"]),
    "dt6": ("DATETIME(6)", ["'2024-02-29 12:34:56.789012'", "'9999-12-31 23:59:59.999999'"]),
    "ts": ("TIMESTAMP NULL", ["'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'0000-00-00'"]),
    "ts2": ("TIMESTAMP(2) NULL", ["'2024-02-29 12:34:56.78'"]),
    "ts6": ("TIMESTAMP(6) NULL", ["'2024-02-29 12:34:56.789012'", "'2038-01-19 03:14:07.999999'"]),
    "tm": ("TIME", ["'-838:59:59'", "'838:59:59'", "'00:00:00'", "'-00:00:01'"]),
    "tm2": ("TIME(2)", ["'-12:34:56.78'", "'-00:00:00.01'"]),
    "tm6": ("TIME(6)", ["'12:34:56.789012'", "'-00:00:00.000001'", "'-01:00:00.500000'"]),
    "e": ("ENUM('eins','zw''ei','ж','co,mma') CHARACTER SET utf8mb4", ["'eins'", "'zw''ei'", "'ж'", "'co,mma'", "0"]),
    "el": ("ENUM('é','x') CHARACTER SET latin1", ["'é'"]),
    "eb": (f"ENUM({many(300)})", ["'v0'", "'v299'"]),
    "s": ("SET('a','b','ж') CHARACTER SET utf8mb4", ["''", "'a'", "'b,ж'", "'a,b,ж'"]),
    "s64": (f"SET({many(64)})", ["'v0,v63'", "0xFFFFFFFFFFFFFFFF", "''"]),
    "b1": ("BIT(1)", ["b'1'", "b'0'"]),
    "b13": ("BIT(13)", ["b'1010101010101'"]),
    "b64": ("BIT(64)", ["0xFEDCBA9876543210"]),
}  # fmt: skip
ROWS = max(len(values) for _, values in COLUMNS.values()) + 1


def literal(name: str, row: int) -> str:
    values = COLUMNS[name][1]
    return values[row] if row < len(values) else "NULL"


def select(server: Server, table: str) -> list[dict[str, Any]]:
    """Returns the table's rows from SELECT, each value converted to the value that the decoder should return."""
    # The server shows a FLOAT column with 6 digits, but a FLOAT in an expression with all digits.
    names = ", ".join(f"{name} + 0e0" if name == "f" else name for name in COLUMNS)
    rows = server.execute(
        "SET time_zone = '+00:00'", f"SELECT id, {names} FROM {table} ORDER BY id"
    )
    return [
        {name: shown(name, value) for name, value in zip(("id", *COLUMNS), row, strict=True)}
        for row in rows
    ]


def shown(name: str, value: Any) -> Any:
    definition = COLUMNS[name][0] if name in COLUMNS else ""
    if value is None:
        return None
    if definition.startswith(("DATE", "TIMESTAMP")) and not isinstance(value, dt.date):
        return None  # PyMySQL returns an invalid date as text; the decoder gives NULL
    if definition.startswith("TIMESTAMP"):
        return value.replace(tzinfo=dt.UTC)
    if definition.startswith("TIME"):  # TIMESTAMP was handled above
        return value // dt.timedelta(microseconds=1)
    if name == "d65":
        return f"{value:f}"
    return value


def decoded_rows(log: bytes, definitions: delivered.Definitions) -> Iterator[dict[str, Any]]:
    for part in delivered.changes(log, definitions, batch_rows=3):
        if isinstance(part, TableChanges):
            part.batch.validate(full=True)
            wanted = [arrow_type(column) for column in part.table_map.columns]
            assert [field.type for field in part.batch.schema.field("after").type] == wanted
            yield from part.batch.to_pylist()


def definitions_of(server: Server, database: str, table: str) -> dict[str, dict[str, Any]]:
    with closing(server.connect(conv=encoders)) as connection:
        return {f"{database}.{table}": table_columns(connection, database, table)}


def fill(server: Server, table: str) -> None:
    columns = ", ".join(f"{name} {definition}" for name, (definition, _) in COLUMNS.items())
    rows = ", ".join(
        f"({row}, {', '.join(literal(name, row) for name in COLUMNS)})" for row in range(ROWS)
    )
    server.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, {columns})"
        + (" ROW_FORMAT=DYNAMIC" if server.kind != "mysql56" else ""),
        f"INSERT INTO {table} (id, {', '.join(COLUMNS)}) VALUES {rows}",
    )


def test_every_type_and_operation(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    server, database = any_server, new_database(any_server)
    table = f"{database}.t"
    log = fresh_log(server)
    fill(server, table)
    inserted = select(server, table)
    sets = ", ".join(f"t.{name} = o.{name}" for name in COLUMNS)
    server.execute(
        "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'",
        f"CREATE TEMPORARY TABLE {database}.o AS SELECT * FROM {table}",
        f"UPDATE {table} t JOIN {database}.o o ON o.id = (t.id + 1) % {ROWS} SET {sets}",
    )
    updated = select(server, table)
    server.execute(f"DELETE FROM {table}")

    definitions = definitions_of(server, database, "t") if server.kind == "mysql56" else {}
    rows = [
        row for row in decoded_rows(delivered_log(server, log), definitions) if row["table"] == "t"
    ]
    by_op = {op: [row for row in rows if row["op"] == op] for op in ("insert", "update", "delete")}
    assert [row["after"] for row in by_op["insert"]] == inserted
    changed = {row["before"]["id"]: row for row in by_op["update"]}
    before = {row["id"]: row for row in inserted}
    after = {row["id"]: row for row in updated}
    assert len(changed) >= ROWS - 1
    for key, row in before.items():
        if key in changed:
            assert changed[key]["before"] == row
            assert changed[key]["after"] == after[key]
        else:
            assert row == after[key]
    assert sorted((row["before"] for row in by_op["delete"]), key=lambda row: row["id"]) == updated
    assert all(row["before"] is None for row in by_op["insert"])
    assert all(row["after"] is None for row in by_op["delete"])


def test_the_definition_alone_gives_the_same_arrow_types(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    fill(server, f"{database}.t")
    definition = definitions_of(server, database, "t")
    (part,) = (
        p for p in delivered.split_by_table(delivered_log(server, log)) if isinstance(p, TableSlice)
    )
    table_map = TableMap.parse(part.table_map).with_columns(definition[f"{database}.t"])
    columns = defined_columns(definition[f"{database}.t"])
    assert arrow_types.change_schema(columns) == arrow_types.change_schema(table_map.columns)
    assert [column.labels for column in columns] == [column.labels for column in table_map.columns]
    assert table_map.key == (0,)
    assert part.rows == ROWS


def test_slices_of_a_servers_log(any_server: Server, new_database: Callable[[Server], str]) -> None:
    server, database = any_server, new_database(any_server)
    log = fresh_log(server)
    server.execute(
        f"USE `{database}`",
        "CREATE TABLE a (id INT PRIMARY KEY, n VARCHAR(20))",
        "CREATE TABLE b (id INT PRIMARY KEY, a_id INT)",
        "INSERT INTO a VALUES (1,'x'), (2,'y')",
        "INSERT INTO b VALUES (1,1), (2,2), (3,2)",
        "BEGIN",
        "UPDATE a, b SET a.n = CONCAT(a.n, '!'), b.a_id = b.a_id + 1 WHERE b.a_id = a.id",
        "SAVEPOINT s",
        "DELETE FROM b WHERE id = 3",
        "COMMIT",
        "ALTER TABLE b ADD COLUMN more INT",
        "INSERT INTO b VALUES (4,1,1)",
        "TRUNCATE TABLE a",
    )
    data = delivered_log(server, log)
    definitions = definitions_of(server, database, "b") | definitions_of(server, database, "a")
    kinds = [
        part.statement.text.split("`")[0].strip().upper()
        if isinstance(part, Ddl)
        else (part.table, part.rows)
        for part in delivered.split_by_table(data)
    ]
    assert kinds == [
        "CREATE TABLE A (ID INT PRIMARY KEY, N VARCHAR(20))",
        "CREATE TABLE B (ID INT PRIMARY KEY, A_ID INT)",
        ("a", 4), ("b", 7), "ALTER TABLE B ADD COLUMN MORE INT", ("b", 1), "TRUNCATE TABLE A",
    ]  # fmt: skip
    if server.kind == "mysql56":  # the known definition of b is the one after the ALTER
        with pytest.raises(BinlogError) as caught:
            list(delivered.changes(data, definitions))
        assert caught.value.kind is ErrorKind.METADATA_MISSING
        return
    wanted = sorted((row for row in decoded_rows(data, {})), key=order_of)
    found = [
        row
        for part in delivered.split_by_table(data, max_payload_bytes=300)
        if isinstance(part, TableSlice)
        for batch in delivered.decode_table(part.payload)
        for row in batch.to_pylist()
    ]
    assert sorted(found, key=order_of) == wanted
    assert len({order_of(row) for row in wanted}) == len(wanted) == 12
    executed = {row["gtid"] for row in wanted}
    assert all("-" in gtid for gtid in executed)
    assert len(executed) == 4


def order_of(row: dict[str, Any]) -> tuple[int, int, int]:
    return row["epoch"], row["seq"], row["ordinal"]


def test_a_server_with_minimal_metadata(
    mysql97: Server, new_database: Callable[[Server], str]
) -> None:
    database = new_database(mysql97)
    before = mysql97.execute("SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    try:
        mysql97.execute("SET GLOBAL binlog_row_metadata = MINIMAL")
        log = fresh_log(mysql97)
        mysql97.execute(
            f"CREATE TABLE {database}.t (id INT UNSIGNED PRIMARY KEY, e ENUM('a','b'), s VARCHAR(9))",
            f"INSERT INTO {database}.t VALUES (4000000000, 'b', 'ж')",
        )
    finally:
        mysql97.execute(f"SET GLOBAL binlog_row_metadata = {before}")
    data = delivered_log(mysql97, log)
    with pytest.raises(BinlogError) as caught:
        list(delivered.changes(data))
    assert caught.value.kind is ErrorKind.METADATA_MISSING
    (row,) = decoded_rows(data, definitions_of(mysql97, database, "t"))
    assert row["after"] == {"id": 4_000_000_000, "e": "b", "s": "ж"}


def test_collations_are_distinguished(any_server: Server) -> None:
    source = (
        "COLLATION_CHARACTER_SET_APPLICABILITY WHERE ID IS NOT NULL"
        if any_server.mariadb
        else "COLLATIONS"
    )
    for collation, charset in any_server.execute(
        f"SELECT ID, CHARACTER_SET_NAME FROM information_schema.{source}"
    ):
        wanted = "utf8mb3" if charset == "utf8" else charset
        assert charset_of(collation) == wanted
