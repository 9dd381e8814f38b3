"""ALTER TABLE of a table some of whose columns the policy leaves out (`omit_columns`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.binlog.sql.generated import GeneratedColumn
from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates, Type
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.states import Live
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import DeltaFacts, Save, WorkContext, next_action
from spark_sink.mirror.rules.transitions import Situation, after_effect
from spark_sink.mirror.schema.recomputed import Generated
from spark_sink.mirror.schema.signature import Recopy, SchemaChange, Signature, change_of
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from spark_sink.mirror.values.policies import TablePolicy
from tests.mirror_rules.test_plan import entry, statement
from tests.mirror_rules.test_signature import signature
from tests.support.rows_encoder import Spec, table_map
from tests.support.statements import UTF8, as_logged

OMITTED = ("LATER", "hidden", "more")
# The server's table has the column `hidden` between `a` and `b`.
TABLE = signature(id="int", a="int", b="varchar(20)").in_order(["id", "a", "hidden", "b"])


def altered(clauses: str, generated: Generated | None = ()) -> SchemaChange | Recopy:
    (effect,) = effects_of(as_logged(f"ALTER TABLE t {clauses}", "db", STRICT_TRANS_TABLES, **UTF8))
    assert isinstance(effect, AlterTable)
    return change_of(TABLE, effect, InvalidDates.NULL, generated, OMITTED)


@pytest.mark.parametrize(
    ("clauses", "columns", "order"),
    [
        ("ADD later BLOB FIRST", "id a b", "later id a hidden b"),
        ("ADD Later BLOB AFTER a, ADD x INT AFTER later", "id a x b", "id a Later x hidden b"),
        ("ADD x INT AFTER hidden", "id a x b", "id a hidden x b"),
        ("ADD x INT FIRST, ADD later INT AS (a) STORED, ADD y INT", "x id a b y", "x id a hidden b later y"),
        ("DROP hidden", "id a b", ""),
        ("DROP a", "id b", "id hidden b"),
        ("MODIFY hidden BLOB FIRST", "id a b", "hidden id a b"),
        ("MODIFY b VARCHAR(20) AFTER hidden", "id a b", "id a hidden b"),
        ("MODIFY a INT AFTER hidden", "id a b", "id hidden a b"),
        ("RENAME COLUMN hidden TO later", "id a b", "id a later b"),
        ("CHANGE hidden more TEXT AFTER b", "id a b", "id a b more"),
        ("RENAME COLUMN a TO later", "id b", "id later hidden b"),
        ("CHANGE a later BLOB, ADD a INT", "id b a", "id later hidden b a"),
        ("DROP hidden, RENAME COLUMN a TO hidden", "id b", "id hidden b"),
        ("ADD IF NOT EXISTS hidden INT FIRST, DROP COLUMN IF EXISTS more", "id a b", "id a hidden b"),
        ("CONVERT TO CHARACTER SET utf8mb4", "id a b", "id a hidden b"),
    ],
)  # fmt: skip
def test_a_statement_is_followed_without_the_omitted_columns(
    clauses: str, columns: str, order: str
) -> None:
    change = altered(clauses)
    assert isinstance(change, SchemaChange), change
    assert [column.name for column in change.signature.columns] == columns.split()
    assert [column.name for column in change.columns] == columns.split()
    assert change.signature.order == tuple(order.split())
    kept = {column.source for column in change.columns}
    assert set(change.dropped) == {column.name for column in TABLE.columns} - kept


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        ("RENAME COLUMN hidden TO x", "the mirrored table has no values of the column hidden, now x"),
        ("CHANGE hidden x INT", "the mirrored table has no values of the column hidden, now x"),
        ("RENAME COLUMN a TO hidden, RENAME COLUMN hidden TO a", "the mirrored table has no values"),
        ("ADD hidden INT", "the mirrored table has a column hidden already"),
        ("DROP later", "the mirrored table has no column later"),
        ("ADD x INT AFTER more", "the mirrored table has no column more"),
        ("RENAME COLUMN id TO later", "omit_columns leaves out the column later, which is now a part"),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (id, hidden)", "omit_columns leaves out the column hidden"),
    ],
)  # fmt: skip
def test_a_statement_that_gives_values_of_an_omitted_column_needs_a_copy(
    clauses: str, reason: str
) -> None:
    change = altered(clauses)
    assert isinstance(change, Recopy)
    assert change.reason.startswith(reason)


@pytest.mark.parametrize(
    ("clauses", "names"),
    [
        ("MODIFY hidden BIGINT", "b is computed again from column hidden"),
        ("CHANGE hidden later BIGINT", "b is computed again from column hidden"),
        ("CHANGE a later BIGINT", "b is computed again from column a"),
        ("RENAME COLUMN hidden TO later", ""),
    ],
)
def test_a_column_that_is_computed_from_an_omitted_one_needs_a_copy(
    clauses: str, names: str
) -> None:
    change = altered(clauses, (GeneratedColumn("b", ("hidden", "a")),))
    assert isinstance(change, Recopy) is bool(names)
    assert not isinstance(change, Recopy) or change.reason.endswith(names)
    assert isinstance(altered(clauses, None), Recopy) is bool(names)
    assert isinstance(altered(clauses, (GeneratedColumn("hidden", ("a",)),)), SchemaChange)


def test_a_transition_leaves_out_the_columns_of_the_policy() -> None:
    columns = signature(id="int").to_json()
    before = TableRecord("id", "shop", "db", "t", "db/t", Live(), signature=columns, generated=())
    (effect,) = effects_of(as_logged("ALTER TABLE t ADD later INT DEFAULT 5 FIRST", "db", **UTF8))
    now = Situation("shop", "server", TablePolicy(omitted=OMITTED), True, InvalidDates.NULL)
    moved = after_effect(("db", "t"), before, effect, statement(9), now)
    assert moved.change is not None
    assert [column.name for column in moved.change.columns] == ["id"]
    assert moved.change.signature.order == ("later", "id")


def test_rows_tell_the_place_of_the_omitted_columns() -> None:
    """The signature of an older version, or of a table without the policy, does not contain it."""
    specs = [Spec("later", Type.LONG), Spec("id", Type.LONG), Spec("a", Type.LONG)]
    run = RowRun((replace(entry(1, "orders"), table_map=table_map(specs, key=(1,))),))
    without = signature(id="int not null", a="int")
    before = TableRecord(
        "id",
        "shop",
        "shop",
        "orders",
        "shop/orders",
        Live(),
        signature=without.to_json(),
        from_lsn=0,
    )
    policy = TablePolicy(omitted=OMITTED)
    now = Situation("shop", "server", policy, True, InvalidDates.NULL)
    context = WorkContext(now, lambda _: "", lambda *_: False, str)
    action = next_action(("shop", "orders"), before, DeltaFacts(0, False, "id"), run, context)
    assert isinstance(action, Save)
    found = Signature.from_json(action.record.signature)
    assert found == without.in_order(["later", "id", "a"])
    after = next_action(("shop", "orders"), action.record, DeltaFacts(0, False, "id"), run, context)
    assert not isinstance(after, Save)
