"""ALTER TABLE of a table with masked columns (`mask`): values that cannot be computed are copied again, and no
statement removes a mask."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.binlog.sql.lexer import STRICT_TRANS_TABLES
from dispatcher.binlog.table_map.column_types import InvalidDates, Mask, MaskForm, Type
from dispatcher.binlog.table_map.parse import TableMap
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.rules.omitted import kept_table_map
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.rules.states import Creating, Live
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.rules.table_work import DeltaFacts, Save, WorkContext, next_action
from spark_sink.mirror.rules.transitions import Situation, after_effect
from spark_sink.mirror.schema.signature import Recopy, SchemaChange, Signature, change_of
from spark_sink.mirror.schema.statements import AlterTable, effects_of
from spark_sink.mirror.values.policies import TablePolicy
from tests.mirror_rules.test_plan import entry, statement
from tests.mirror_rules.test_signature import signature
from tests.support.rows_encoder import Spec, table_map
from tests.support.statements import UTF8, as_logged

SECRET = b"a secret of the mirror"
MASKS = (
    ("ID", Mask(MaskForm.KEYED, SECRET)),
    ("mail", Mask(MaskForm.SHA256)),
    ("post", Mask(MaskForm.SHA256)),
    ("n", Mask(MaskForm.LAST4)),
    ("gone", Mask(MaskForm.NULL)),
    ("place", Mask(MaskForm.SHA256)),
)
POLICY = TablePolicy(masks=MASKS)


def masked(columns: Signature) -> Signature:
    ruled = [c.with_mask(POLICY.rules.mask(c.name), InvalidDates.NULL) for c in columns.columns]
    return replace(columns, columns=tuple(ruled))


TABLE = masked(signature(id="int", mail="varchar(20)", n="int", b="varchar(9)"))


def altered(clauses: str, policy: TablePolicy = POLICY) -> SchemaChange | Recopy:
    (effect,) = effects_of(as_logged(f"ALTER TABLE t {clauses}", "db", STRICT_TRANS_TABLES, **UTF8))
    assert isinstance(effect, AlterTable)
    return change_of(TABLE, effect, InvalidDates.NULL, (), (), policy.rules)


def test_the_signature_has_the_type_and_the_text_of_the_mask() -> None:
    found = {column.name: (column.spark_type, column.mask) for column in TABLE.columns}
    assert found["mail"] == ("string", "sha256")
    assert found["n"] == ("string", "last4")
    assert found["b"] == ("string", "")
    assert found["id"][1].startswith("keyed:") and SECRET.decode() not in str(found)
    assert Signature.from_json(TABLE.to_json()) == TABLE
    assert '"mask":""' not in TABLE.to_json()


@pytest.mark.parametrize(
    ("clauses", "types"),
    [
        ("MODIFY mail VARCHAR(90)", {"mail": ("string", "sha256")}),
        ("RENAME COLUMN mail TO post", {"post": ("string", "sha256")}),
        ("ADD gone INT DEFAULT 5", {"gone": ("int", "null")}),
        ("DROP mail", {}),
        ("ADD x INT FIRST", {"x": ("int", "")}),
        ("MODIFY n INT AFTER b", {"n": ("string", "last4")}),
    ],
)
def test_a_statement_is_followed_with_the_masks(
    clauses: str, types: dict[str, tuple[str, str]]
) -> None:
    change = altered(clauses)
    assert isinstance(change, SchemaChange), change
    found = {c.name: (c.spark_type, c.mask) for c in change.signature.columns}
    assert found.items() >= types.items()
    filled = {source.name: source.fill for source in change.columns if source.source is None}
    assert filled.get("gone") is None


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        ("MODIFY n BIGINT", "column n: int becomes bigint: its values are masked"),
        ("MODIFY mail INT", "column mail: varchar(20) becomes int"),
        ("MODIFY n INT UNSIGNED", "column n: int becomes int unsigned: its values are masked"),
        ("ADD post VARCHAR(9) DEFAULT 'x'", "ADD COLUMN post: its values are masked"),
        ("RENAME COLUMN b TO post", "the mask of column post has changed"),
        ("ADD place POINT", "column 'place': GEOMETRY with the mask sha256; only null is possible"),
    ],
)
def test_values_that_cannot_be_computed_need_a_copy(clauses: str, reason: str) -> None:
    change = altered(clauses)
    assert isinstance(change, Recopy), change
    assert change.reason.startswith(reason)


def test_a_column_that_loses_its_mask_by_a_new_name_is_a_fault() -> None:
    with pytest.raises(BinlogError, match="the masked column mail is now m, which is not masked"):
        altered("RENAME COLUMN mail TO m")
    with pytest.raises(BinlogError, match="the masked column mail is now m"):
        altered("CHANGE mail m TEXT, ADD mail INT")


def test_another_mask_in_the_settings_needs_a_copy() -> None:
    for policy in (TablePolicy(), TablePolicy(masks=(("id", Mask(MaskForm.KEYED, b"another")),))):
        change = altered("ADD x INT", policy)
        assert isinstance(change, Recopy)
        assert change.reason == "the mask of column id has changed"


def test_a_transition_masks_by_the_policy() -> None:
    columns = signature(id="int", b="int").to_json()
    before = TableRecord("id", "shop", "db", "t", "db/t", Live(), signature=columns, generated=())
    (effect,) = effects_of(as_logged("ALTER TABLE t ADD mail INT", "db", **UTF8))
    policy = TablePolicy(masks=MASKS[1:])
    now = Situation("shop", "server", policy, True, InvalidDates.NULL)
    moved = after_effect(("db", "t"), before, effect, statement(9), now)
    assert moved.change is not None
    assert moved.change.signature.columns[-1].mask == "sha256"


def test_rows_of_a_table_with_another_mask_lead_to_a_copy() -> None:
    specs = [Spec("id", Type.LONG), Spec("n", Type.LONG)]
    run = RowRun((replace(entry(1, "orders"), table_map=table_map(specs, key=(0,))),))
    columns = signature(id="int not null", n="int").to_json()
    before = TableRecord(
        "id", "shop", "shop", "orders", "shop/orders", Live(), signature=columns, from_lsn=0
    )
    now = Situation("shop", "server", POLICY, True, InvalidDates.NULL)
    context = WorkContext(now, lambda _: "", lambda *_: False, str)
    action = next_action(("shop", "orders"), before, DeltaFacts(0, False, "id"), run, context)
    assert isinstance(action, Save) and action.record is not None
    assert isinstance(action.record.state, Creating)
    assert (
        "column 'n' is int in the mirror and int, masked by last4, in the log"
        in action.record.reason
    )


@pytest.mark.parametrize("form", [MaskForm.SHA256, MaskForm.NULL, MaskForm.LAST4])
def test_a_key_can_only_be_masked_by_a_keyed_hash(form: MaskForm) -> None:
    found = TableMap.parse(table_map([Spec("id", Type.LONG), Spec("n", Type.LONG)], key=(0,)))
    with pytest.raises(BinlogError) as caught:
        kept_table_map(found, TablePolicy(masks=(("Id", Mask(form)),)))
    assert caught.value.kind is ErrorKind.UNSUPPORTED_CHANGE
    assert "cannot mask id, which is a part of its key, except with keyed" in caught.value.what
    assert kept_table_map(found, POLICY).columns[0].mask == MASKS[0][1]
    assert kept_table_map(found, TablePolicy(masks=(("N", Mask(form)),))).columns[1].mask == Mask(
        form
    )
