"""Columns that a mirrored table leaves out: of its rows, of its copies, and never of its key."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.binlog.table_map.column_types import InvalidDates, Type
from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.assembly import apply_options
from spark_sink.mirror.copy.server import without_columns
from spark_sink.mirror.rules.omitted import kept_columns
from spark_sink.mirror.rules.plan import RowRun
from spark_sink.mirror.schema.signature import Signature, difference
from spark_sink.mirror.tables.steps import RowLayout
from spark_sink.mirror.values.policies import TablePolicy
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.source.table_rows.source_table import SourceTable
from tests.mirror_rules.test_plan import entry
from tests.support.rows_encoder import Spec, table_map

SPECS = [Spec("total", Type.LONG), Spec("id", Type.LONG), Spec("Text", Type.LONG)]
BODY = table_map(SPECS, key=(1,))


def layout(*omitted: str) -> RowLayout:
    run = RowRun((replace(entry(1, "orders"), table_map=BODY),))
    return RowLayout.of(run, InvalidDates.NULL, TablePolicy(omitted=omitted))


def test_rows_have_the_other_columns_and_the_key() -> None:
    found = layout("TEXT", "total", "unknown")
    assert found.key == ("id",)
    assert found.columns.names == [field.name for field in found.row] == ["id"]
    assert [column.name for column in found.table_map.columns] == ["id"]


def test_a_table_that_has_the_column_differs_from_its_rows() -> None:
    """So a new setting leads to a copy, as a change of columns does."""
    before = Signature.of_table_map(layout().table_map, InvalidDates.NULL)
    now = layout("text").table_map
    assert difference(before, now, InvalidDates.NULL) == "the log has no column 'Text'"


def test_a_copy_has_the_other_columns_and_the_key() -> None:
    whole = layout().table_map
    source = SourceTable(
        "shop", "orders", whole.columns, ("", "utf8mb4", ""), (1,), "PRIMARY", "InnoDB", 1, 1, False
    )
    found = without_columns(source, ["Total", "text"])
    assert [column.name for column in found.columns] == ["id"]
    assert (found.charsets, found.key, found.key_name) == (("utf8mb4",), (0,), "PRIMARY")
    assert found.order == ("total", "id", "Text")
    assert without_columns(source, ()) is source


@pytest.mark.parametrize(
    ("omitted", "key", "what"),
    [
        (["ID"], (1,), "table shop.orders cannot leave out id, which is a part of its key"),
        (["id", "total", "text"], (), "table shop.orders cannot leave out all its columns"),
    ],
)
def test_columns_that_cannot_be_left_out(
    omitted: list[str], key: tuple[int, ...], what: str
) -> None:
    with pytest.raises(BinlogError) as caught:
        kept_columns(layout().table_map.columns, key, omitted, "shop.orders")
    assert (caught.value.kind, caught.value.what) == (ErrorKind.UNSUPPORTED_CHANGE, what)
    assert "omit_columns" in caught.value.remedy


def test_the_settings_name_them_by_pattern() -> None:
    settings = MirrorSettings.model_validate(
        {
            "url": "http://127.0.0.1:1",
            "consumers": ["shop"],
            "target": "/t",
            "tables": {"shop.o*": {"omit_columns": ["total"]}, "*.*": {"omit_columns": ["x"]}},
        }
    )
    policy = apply_options(settings).policy
    assert (policy(("shop", "orders")).omitted, policy(("shop", "a")).omitted) == (
        ("total",),
        ("x",),
    )
    assert settings.table_policy(("shop", "orders")).omitted == ("total",)
