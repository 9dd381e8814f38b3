"""How statements change a table's columns: names, places, keys, policies. Values: test_conversions_servers,
test_fills."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates
from spark_sink.mirror.schema.columns import ColumnSignature, spark_type_text
from spark_sink.mirror.schema.session_facts import PAD_CHAR_TO_FULL_LENGTH
from spark_sink.mirror.schema.signature import (
    Recopy,
    SchemaChange,
    Signature,
    change_of,
    new_columns,
)
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from spark_sink.source.schemas import spark_schema
from tests.support.statements import UTF8, as_logged

ASCII = "rlike(`b`, '[^\\\\x00-\\\\x7F]')"
TEXTS = ("varchar", "char", "text", "tinytext", "enum", "set", "longtext")


def signature(*, key: tuple[str, ...] = ("id",), **columns: str) -> Signature:
    found = []
    for name, text in columns.items():
        kind, _, _ = text.partition(" not null")
        charset = "utf8mb4" if kind.startswith(TEXTS) else ""
        not_null = text != kind or name in key
        found.append(
            ColumnSignature.of_definition(name, kind, charset, not not_null, InvalidDates.NULL)
        )
    return Signature(tuple(found), key)


def altered(
    old: Signature, clauses: str, sql_mode: int = STRICT_TRANS_TABLES
) -> SchemaChange | Recopy:
    (effect,) = effects_of(as_logged(f"ALTER TABLE t {clauses}", "db", sql_mode, **UTF8))
    assert isinstance(effect, AlterTable)
    return change_of(old, effect, InvalidDates.NULL, ())


def followed(old: Signature, clauses: str, sql_mode: int = STRICT_TRANS_TABLES) -> SchemaChange:
    change = altered(old, clauses, sql_mode)
    assert isinstance(change, SchemaChange), change
    return change


TABLE = signature(id="int", a="int", b="varchar(20)", c="datetime")


@pytest.mark.parametrize(
    ("clauses", "summary"),
    [
        ("ADD d INT, DROP c", "d added, c dropped"),
        ("RENAME COLUMN a TO e", "a renamed to e"),
        ("MODIFY a BIGINT", "a bigint (was int)"),
        ("MODIFY a INT AFTER b", ""),
    ],
)
def test_a_change_is_told_in_a_line(clauses: str, summary: str) -> None:
    assert followed(TABLE, clauses).summary == summary


@pytest.mark.parametrize(
    ("clauses", "names"),
    [
        ("ADD x INT", "id a b c x"),
        ("ADD x INT FIRST, ADD y INT AFTER A, ADD z INT", "x id a y b c z"),
        ("ADD x INT AFTER a, ADD y INT AFTER x", "id a x y b c"),
        ("ADD x INT AFTER a, ADD y INT AFTER a", "id a y x b c"),
        ("DROP b, DROP A", "id c"),
        ("CHANGE a n INT, ADD x INT AFTER n", "id n x b c"),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "id b a c"),
        ("MODIFY c DATETIME FIRST, MODIFY id INT AFTER b", "c a b id"),
        ("CHANGE b z VARCHAR(20) AFTER id", "id z a c"),
        ("DROP a, ADD a BIGINT FIRST", "a id b c"),
        ("DROP COLUMN IF EXISTS x, MODIFY IF EXISTS y INT, RENAME COLUMN IF EXISTS z TO w", "id a b c"),
        ("ADD IF NOT EXISTS a BIGINT, ADD COLUMN IF NOT EXISTS (B INT, x INT)", "id a b c x"),
        ("RENAME COLUMN a TO A", "id A b c"),
    ],
)  # fmt: skip
def test_names_and_places(clauses: str, names: str) -> None:
    change = followed(TABLE, clauses)
    assert [column.name for column in change.signature.columns] == names.split()
    assert [column.name for column in change.columns] == names.split()


def test_a_column_afterwards_is_traced_to_one_before() -> None:
    change = followed(TABLE, "DROP a, ADD a BIGINT, RENAME COLUMN b TO c, RENAME COLUMN c TO b")
    assert [(column.name, column.source) for column in change.columns] == [
        ("id", "id"), ("c", "b"), ("b", "c"), ("a", None),
    ]  # fmt: skip
    assert change.dropped == ("a",)


@pytest.mark.parametrize(
    ("clauses", "key"),
    [
        ("ADD x INT", ["id"]),
        ("RENAME COLUMN id TO k", ["k"]),
        ("CHANGE id k BIGINT", ["k"]),
        ("DROP PRIMARY KEY", []),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (b(5), A)", ["b", "a"]),
        ("DROP INDEX `PRIMARY`, ADD CONSTRAINT p PRIMARY KEY USING BTREE (a)", ["a"]),
        ("DROP id", []),
    ],
)
def test_the_key(clauses: str, key: list[str]) -> None:
    assert list(followed(TABLE, clauses).signature.key) == key


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        ("MODIFY a VARCHAR(20)", "column a: int becomes varchar(20): the values change their form"),
        ("CHANGE c x TIMESTAMP NULL", "column c, now x: datetime becomes timestamp: the values"),
        ("MODIFY a INT AS (id)", "column a: int becomes int: a generated column"),
        ("MODIFY a FLOAT(7,2)", "column a: int becomes float(7,2): the values are rounded"),
        ("ADD id INT", "the mirrored table has a column id already"),
        ("DROP x", "the mirrored table has no column x"),
        ("MODIFY x INT", "the mirrored table has no column x"),
        ("ADD x INT AFTER y", "the mirrored table has no column y"),
        ("ADD x INT, TRUNCATE PARTITION p", "TRUNCATE PARTITION"),
        ("CONVERT TO CHARACTER SET binary", "CONVERT TO CHARACTER SET binary"),
    ],
)
def test_what_needs_another_copy(clauses: str, reason: str) -> None:
    change = altered(TABLE, clauses)
    assert isinstance(change, Recopy)
    assert change.reason.startswith(reason)


@pytest.mark.parametrize(
    ("clauses", "strict", "lenient"),
    [
        ("MODIFY a INT NOT NULL", [], ["`a` IS NULL"]),
        ("MODIFY a TINYINT", [], ["`a` < -128 OR `a` > 127"]),
        ("MODIFY a INT UNSIGNED", [], ["`a` < 0 OR `a` > 4294967295"]),
        ("MODIFY b VARCHAR(5)", ["char_length(`b`) > 5"], [ASCII, "char_length(`b`) > 5"]),
        ("MODIFY b CHAR(20)", ["right(`b`, 1) = ' '"], [ASCII, "right(`b`, 1) = ' '"]),
        ("MODIFY b VARCHAR(20) CHARACTER SET utf8mb4", [], []),
        ("MODIFY b VARCHAR(20)", [], [ASCII]),
        ("CONVERT TO CHARACTER SET latin1", [], [ASCII]),
        ("MODIFY id INT AUTO_INCREMENT", ["`id` = 0 OR `id` IS NULL"], ["`id` = 0 OR `id` IS NULL"]),
        ("ADD PRIMARY KEY (a)", [], ["`a` IS NULL"]),
    ],
)  # fmt: skip
def test_what_a_strict_server_guarantees(
    clauses: str, strict: list[str], lenient: list[str]
) -> None:
    for sql_mode, expected in ((STRICT_TRANS_TABLES, strict), (0, lenient)):
        change = followed(TABLE, clauses, sql_mode)
        assert [unless.predicate for unless in change.unless] == expected


def test_char_is_padded_under_pad_char_to_full_length() -> None:
    old = signature(id="int", a="char(5)")
    mode = STRICT_TRANS_TABLES | PAD_CHAR_TO_FULL_LENGTH
    assert isinstance(altered(old, "MODIFY a VARCHAR(5)"), SchemaChange)
    assert isinstance(altered(old, "MODIFY a VARCHAR(5)", mode), Recopy)


def test_a_timestamp_that_may_become_not_null_needs_another_copy() -> None:
    """With explicit_defaults_for_timestamp=OFF it becomes NOT NULL, and the log does not contain this variable."""
    for column, clauses, follows in (
        ("timestamp", "MODIFY a TIMESTAMP(3)", False),
        ("timestamp", "MODIFY a TIMESTAMP(3) NULL", True),
        ("timestamp not null", "MODIFY a TIMESTAMP(3)", True),
    ):
        change = altered(signature(id="int", a=column), clauses)
        assert isinstance(change, SchemaChange) is follows, (column, clauses)


def test_new_columns_keep_what_does_not_follow() -> None:
    new = signature(id="int", a="varchar(5)", b="varchar(99)", d="int")
    change = new_columns(TABLE, new, 7)
    assert change.signature == new
    assert [(column.name, column.source) for column in change.columns] == [
        ("id", "id"), ("a", None), ("b", "b"), ("d", None),
    ]  # fmt: skip
    assert change.kept == (("a", "a__7"), ("c", "c__7"))
    assert change.dropped == ()


def test_arrow_types_have_sparks_names() -> None:
    point = pa.struct([pa.field("srid", pa.int64()), pa.field("wkb", pa.binary())])
    kinds = [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
        pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.decimal128(20, 0), point, pa.list_(pa.float32()),
    ]  # fmt: skip
    for kind in kinds:
        (field,) = spark_schema(pa.schema([("c", kind)]))
        assert spark_type_text(kind) == field.dataType.simpleString()


names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)


@given(st.lists(names, min_size=1, unique_by=str.lower), st.data())
def test_a_signature_survives_json(columns: list[str], data: st.DataObject) -> None:
    kinds = ["int unsigned", "varchar(20)", "enum('a','b''c\\\\')", "decimal(40,2)", "point"]
    built = []
    for name in columns:
        kind = data.draw(st.sampled_from(kinds))
        charset = "latin1" if kind.startswith(TEXTS) else ""
        built.append(
            ColumnSignature.of_definition(
                name, kind, charset, data.draw(st.booleans()), InvalidDates.NULL
            )
        )
    found = Signature(tuple(built), tuple(columns[:1]))
    for each in (found, found.in_order([*columns, "omitted"])):
        assert Signature.from_json(each.to_json()) == each
    assert found.find(columns[0]) == built[0]


def test_null_in_a_timestamp_may_become_the_present_time() -> None:
    old = signature(id="int", ts="timestamp", a="int")
    for clauses in ("MODIFY ts TIMESTAMP NOT NULL", "ADD PRIMARY KEY (ts)"):
        change = followed(old, clauses)
        assert [item.predicate for item in change.unless] == ["`ts` IS NULL"]
    assert followed(old, "MODIFY a INT NOT NULL").unless == ()
