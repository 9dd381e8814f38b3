"""Names of tables in a catalog."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.mirror.values.catalog_names import (
    CatalogTemplate,
    catalog_identifier,
    schema_name,
    sql_name,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", "orders"),
        ("Orders", "orders"),
        ("order-lines", "order_x002d_lines"),
        ("a.b", "a_x002e_b"),
        ("größe", "gr_x00f6__x00df_e"),
        ("😀", "_x1f600_"),
        ("a_x002d_b", "a_x005f_x002d_b"),
        ("_x002d-", "_x005f_x002d_x002d_"),
        ("user_xref", "user_xref"),
    ],
)
def test_names_that_a_catalog_cannot_hold_are_escaped(name: str, expected: str) -> None:
    assert catalog_identifier(name) == expected


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_two_names_are_one_only_if_they_differ_in_case(one: str, other: str) -> None:
    assert re.fullmatch(r"[a-z0-9_]+", catalog_identifier(one))
    assert (catalog_identifier(one) == catalog_identifier(other)) == (one.lower() == other.lower())


def test_a_template_names_tables() -> None:
    plain = CatalogTemplate.parse("{database}.{table}")
    assert plain.name(("shop", "orders")) == "shop.orders"
    assert plain.catalog == "spark_catalog"
    lake = CatalogTemplate.parse("Lake.Raw_1.{database}_{table}")
    assert lake.name(("shop", "a.b")) == "Lake.raw_1.shop_a_x002e_b"
    assert lake.catalog == "Lake"
    assert schema_name("Lake.raw.t") == "Lake.raw"
    assert sql_name("Lake.raw.t") == "`Lake`.`raw`.`t`"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{table}", "two or three names"),
        ("a.b.c.{table}", "two or three names"),
        ("raw.orders", "the last name has to contain {table}"),
        ("{database}.{consumer}_{table}", "not '{consumer}_{table}'"),
        ("a-b.{table}", "not 'a-b'"),
        ("{database}.raw.{table}", "the catalog is one that Spark's settings name"),
        ("x{table}.{table}", "only the last name"),
    ],
)
def test_what_is_no_template_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        CatalogTemplate.parse(text)
