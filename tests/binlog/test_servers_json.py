"""With a real server: JSON decoded from the server's log, also after partial updates, equals the JSON that SELECT
returns."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from dispatcher.binlog.decode.jsonb import json_partial, jsonb, jsonb_tree
from dispatcher.binlog.decode.jsonb.jsonb_tree import Raw
from dispatcher.binlog.event.types import EventType
from tests.servers import Server
from tests.support.server_log import fresh_log, read_log

# Values that cannot be written as JSON text. Each is stored alone, in an array and in an object.
EXPRESSIONS = (
    *(f"CAST({n} AS JSON)" for n in (0, -1, 32767, 32768, -32769, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**64 - 1)),
    *(f"CAST({n} AS UNSIGNED)" for n in (0, 7, 65535, 65536, 2**32 - 1, 2**32, 2**63, 2**64 - 1)),
    *(f"CAST('{n}' AS DECIMAL(65,30))" for n in ("0", "-0.5", "9" * 35 + "." + "9" * 30, "-1e-30")),
    "CAST(1 AS DECIMAL(1,0))", "CAST(-0.10 AS DECIMAL(3,2))", "CAST(12345678901234567890 AS DECIMAL(20,0))",
    "0.1", "1.50",
    "0e0", "-0e0", "0.1e0", "1e0", "1e15", "1e14", "1e-15", "1e-14", "123456789012345678e0", "5e-324", "1.7e308",
    "CAST(1e38 AS FLOAT)", "CAST(0.1 AS FLOAT)",
    "DATE'2024-02-29'", "DATE'0001-01-01'", "DATE'9999-12-31'", "CAST('0000-00-00' AS DATE)",
    "CAST('2024-00-00' AS DATE)",
    "TIME'-838:59:59'", "TIME'838:59:59.000000'", "TIME'00:00:00.000001'", "CAST('-00:00:00.5' AS TIME(1))",
    "TIMESTAMP'2024-02-29 10:11:12'", "TIMESTAMP'9999-12-31 23:59:59.999999'", "CAST('0000-00-00' AS DATETIME)",
    "FROM_UNIXTIME(1513216440.1113)", "CAST(2024 AS YEAR)", "b'101'", "0xFF00", "X''", "CAST('text' AS BINARY(8))",
    "CAST(REPEAT(X'00FF', 500) AS BINARY)",
    "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)", "TRUE", "FALSE", "NULL",
    "CAST(NULL AS JSON)", "JSON_ARRAY()", "JSON_OBJECT()", "UUID_TO_BIN('6ccd780c-baba-1026-9564-5b8c656024db')",
)  # fmt: skip
TEXTS = ("REPEAT('ж', 200)", "_latin1 0xE9", "''")
# Values that have these types in JSON only if they come from a column.
COLUMNS = {
    "bits": ("BIT(13)", "b'1010101010101'"), "tiny": ("TINYBLOB", "X'00FF'"), "medium": ("MEDIUMBLOB", "X'01'"),
    "blob_": ("BLOB", "REPEAT('b', 100)"), "long_": ("LONGBLOB", "''"), "fixed": ("BINARY(4)", "X'20'"),
    "varied": ("VARBINARY(9)", "X'00'"), "year_": ("YEAR", "2155"), "enum_": ("ENUM('a','ж')", "'ж'"),
    "set_": ("SET('a','b')", "'a,b'"), "stamp": ("TIMESTAMP(6)", "'2024-02-29 10:11:12.000001'"),
    "time_": ("TIME(3)", "'-12:34:56.789'"), "day": ("DATE", "'2024-02-29'"), "float_": ("FLOAT", "0.1"),
    "point_": ("POINT", "ST_GeomFromText('POINT(1 2)')"),
    "text_": ("TEXT CHARACTER SET latin1", "'é'"), "flag": ("BOOL", "TRUE"), "price": ("DECIMAL(30,10)", "-1.5"),
}  # fmt: skip


def documents(seed: int, count: int) -> list[Any]:
    rng = random.Random(seed)
    letters = 'ab"\\/\b\f\n\r\t\x01\x1f\x7fé€😀\u2028'
    keys = ["a", "b", "long key", "é", "", '"q"', "a.b", "$", "key\n"]

    def scalar() -> Any:
        size = rng.choice((8, 15, 16, 31, 32, 63, 64))
        return rng.choice((
            None, True, False, rng.getrandbits(size), -rng.getrandbits(min(size, 63)), rng.uniform(-1000, 1000),
            rng.uniform(0, 1) * 10.0 ** rng.randrange(-300, 300), float(rng.getrandbits(40)),
            "".join(rng.choices(letters, k=rng.randrange(20))), "x" * rng.choice((127, 128, 200)),
        ))  # fmt: skip

    def value(depth: int) -> Any:
        kind = rng.randrange(4) if depth else 0
        if kind < 2:
            return scalar()
        if kind == 2:
            return [value(depth - 1) for _ in range(rng.randrange(6))]
        return {rng.choice(keys): value(depth - 1) for _ in range(rng.randrange(6))}

    return [value(rng.randrange(5)) for _ in range(count)]


def as_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def deep(depth: int, *, objects: bool) -> Any:
    value: Any = {} if objects else []
    for _ in range(depth - 1):
        value = {"k": value} if objects else [value]
    return value


LARGE: list[Any] = [
    deep(100, objects=False),
    deep(100, objects=True),
    list(range(-40_000, 40_000)),
    {f"k{n}": n * 1_000_003 for n in range(5_000)},
    {"k" * 65_535: ["v" * 70_000, {"small": [1, 2, 70_000]}]},
    ["x" * 65_519],
    ["x" * 65_529],
]


@dataclass(frozen=True)
class Image:
    """A row (id INT, doc JSON) of the log. It contains the document, or, if `partial`, the changes of the document."""

    id: int
    doc: bytes | None
    partial: bool = False


def images(log: bytes) -> Iterator[tuple[Image | None, Image | None]]:
    """Yields (before, after) of each row of the log."""
    at = 4
    while at < len(log):
        size, kind = int.from_bytes(log[at + 9 : at + 13], "little"), log[at + 4]
        if kind in (EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.PARTIAL_UPDATE_ROWS):
            body = log[at + 19 : at + size - 4]
            start = 8 + int.from_bytes(body[8:10], "little")
            assert body[start] == 2
            here = start + (2 if kind == EventType.WRITE_ROWS else 3)
            while here < len(body):
                before = None
                if kind != EventType.WRITE_ROWS:
                    before, here = image(body, here, options=False)
                after, here = image(body, here, options=kind == EventType.PARTIAL_UPDATE_ROWS)
                yield before, after
        at += size


def image(body: bytes, at: int, *, options: bool) -> tuple[Image, int]:
    partial = False
    if options:
        at += 1
        if body[at - 1] & 1:
            partial = bool(body[at] & 1)
            at += 1
    nulls, row = body[at], int.from_bytes(body[at + 1 : at + 5], "little")
    at += 5
    if nulls & 2:
        return Image(row, None), at
    size = int.from_bytes(body[at : at + 4], "little")
    return Image(row, body[at + 4 : at + 4 + size], partial), at + 4 + size


def printed(values: list[bytes | None]) -> list[str | None]:
    data = np.frombuffer(b"".join(value or b"" for value in values), dtype=np.uint8)
    offsets = np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int64)
    found = jsonb.json_strings(data, offsets, np.array([value is not None for value in values]))
    texts: list[str | None] = found.to_pylist()
    return texts


def made_again(value: Raw) -> Raw:
    """Returns the value, decoded to its parts and encoded again."""
    if not (value.is_object or value.is_array):
        return value
    keys, values = jsonb_tree.parts(value)
    return jsonb_tree.container_of(keys, [made_again(one) for one in values])


def select(server: Server, table: str) -> dict[int, str | None]:
    return dict(server.execute(f"SELECT id, doc FROM {table} ORDER BY id"))


def test_documents_of_all_kinds(mysql97: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(mysql97)
    table = f"{database}.t"
    log = fresh_log(mysql97)
    names = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    values = ", ".join(value for _, value in COLUMNS.values())
    everything = ", ".join(f"'{name}', {name}" for name in COLUMNS)
    shapes = ("JSON_ARRAY({0})", "JSON_OBJECT('k', {0}, 'kk', JSON_ARRAY(1, {0}))")
    rows = [shape.format(one) for one in EXPRESSIONS + TEXTS for shape in shapes]
    rows += [f"CAST({one} AS JSON)" for one in EXPRESSIONS]
    with closing(mysql97.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, doc JSON)")
        cursor.execute(f"INSERT INTO {table} (doc) VALUES {', '.join(f'({row})' for row in rows)}")
        cursor.execute(f"CREATE TEMPORARY TABLE {database}.c ({names})")
        cursor.execute(f"INSERT INTO {database}.c VALUES ({values})")
        cursor.execute(
            f"INSERT INTO {table} (doc) SELECT JSON_OBJECT({everything}) FROM {database}.c"
        )
        texts = [(as_text(value),) for value in documents(1, 300) + LARGE]
        cursor.executemany(f"INSERT INTO {table} (doc) VALUES (%s)", texts)
    wanted = select(mysql97, table)
    found = {after.id: after.doc for _, after in images(read_log(mysql97, log)) if after}
    assert dict(zip(found, printed(list(found.values())), strict=True)) == wanted
    assert len(wanted) == len(rows) + 1 + len(texts)
    # Each document, decoded to a tree and encoded again, has the bytes that the server stored.
    for doc in found.values():
        if doc is not None:
            assert jsonb_tree.encoded(made_again(jsonb_tree.document(doc))) == doc


def places(value: Any, path: str = "$") -> Iterator[str]:
    """Yields paths in a document: paths of its values, and paths at which a value could be added."""
    if isinstance(value, dict):
        for key, inner in value.items():
            leg = f"{path}.{json.dumps(key, ensure_ascii=False)}"
            yield leg
            yield from places(inner, leg)
        yield f"{path}.new"
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield f"{path}[{at}]"
            yield from places(inner, f"{path}[{at}]")
        yield f"{path}[{len(value) + 1}]"
        yield from (f"{path}[last]", f"{path}[last-1]")
    else:
        yield f"{path}[1]"


def test_partial_updates(mysql97: Server, new_database: Callable[[Server], str]) -> None:
    database = new_database(mysql97)
    table = f"{database}.t"
    rng = random.Random(2)
    before = [value for value in documents(3, 300) if isinstance(value, (list, dict)) and value]
    # The server logs a partial change only if it is shorter than the value, so each value gets a long text.
    before = [
        {"pad": "p" * 3000, "v": value} if rng.randrange(2) else [value, "p" * 3000]
        for value in before
    ]
    before += [{"pad": ["p" * 70_000], "v": value} for value in before[:5]]
    news = [as_text(value) for value in documents(4, 100)]
    with closing(mysql97.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET binlog_row_value_options = PARTIAL_JSON")
        cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY AUTO_INCREMENT, doc JSON)")
        texts = [(as_text(value),) for value in before]
        cursor.executemany(f"INSERT INTO {table} (doc) VALUES (%s)", texts)
        log = fresh_log(mysql97)
        cursor.execute("BEGIN")
        for row, value in enumerate(before, 1):
            paths = list(places(value))
            for _ in range(3):
                cursor.execute(
                    f"UPDATE {table} SET doc = {change(rng, paths, news)} WHERE id = {row}"
                )
        cursor.execute("COMMIT")
    stored: dict[int, bytes] = {}
    partial = 0
    for old, new in images(read_log(mysql97, log)):
        assert old is not None
        assert new is not None
        assert old.doc is not None
        assert new.doc is not None
        if old.id in stored:  # a change in place leaves holes in the bytes
            assert printed([old.doc]) == printed([stored[old.id]])
        stored[new.id] = json_partial.apply_diffs(old.doc, new.doc) if new.partial else new.doc
        partial += new.partial
    wanted = select(mysql97, table)
    assert {row: wanted[row] for row in stored} == dict(
        zip(stored, printed(list(stored.values())), strict=True)
    )
    assert partial > 200


def change(rng: random.Random, paths: list[str], news: list[str]) -> str:
    """Returns an SQL expression that changes `doc` in up to three places."""
    expression = "doc"
    for _ in range(rng.choice((1, 1, 3))):
        path = quoted(rng.choice(paths))
        function = rng.choice(("JSON_SET", "JSON_REPLACE", "JSON_REMOVE"))
        more = "" if function == "JSON_REMOVE" else f", CAST({quoted(rng.choice(news))} AS JSON)"
        expression = f"{function}({expression}, {path}{more})"
    return expression


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
