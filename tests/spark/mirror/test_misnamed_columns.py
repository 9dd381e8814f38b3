"""The running mirror warns of columns that the settings name and that a table lacks."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from dispatcher.binlog.table_map.column_types import Mask, MaskForm, Type
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.misnamed_columns import MisnamedColumns
from spark_sink.mirror.schema.columns import ColumnSignature
from spark_sink.mirror.schema.signature import Signature
from spark_sink.mirror.values.policies import TablePolicy
from spark_sink.mirror.values.settings import MirrorSettings
from tests.spark.mirror.conftest import Mirror
from tests.support.rows_encoder import Spec, table_map

RECORD = TableRecord("1", "shop", "shop", "users", "shop/users")
MASKED = (("mask", "emial"), ("mask", "NAME"), ("omit_columns", "totl"))
COLUMNS = tuple(
    ColumnSignature(name, "int", "", True, "int", "") for name in ("id", "email", "name")
)


@pytest.fixture(autouse=True)
def level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "spark_sink.mirror")


def test_each_column_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    columns = [Spec(name, Type.LONG) for name in ("id", "email", "name", "total")]
    watch = MisnamedColumns(lambda _: MASKED)
    for layout in ("a", "a", "b"):
        watch.of_rows(RECORD, layout, table_map(columns, database="shop", table="users"))
    assert caplog.messages == [
        "tables.shop.users.mask: table shop.users has no column emial, so nothing is masked by this name; did you mean"
        " email?",
        "tables.shop.users.omit_columns: table shop.users has no column totl, so nothing is left out by this name; did"
        " you mean total?",
    ]


def test_a_table_is_parsed_once_for_a_layout() -> None:
    watch = MisnamedColumns(lambda _: MASKED)
    watch.of_rows(RECORD, "a", table_map([Spec("id", Type.LONG)]))
    watch.of_rows(RECORD, "a", b"no TABLE_MAP")  # a layout that is known is not looked at


def test_a_signature_tells_what_a_copy_lacks(caplog: pytest.LogCaptureFixture) -> None:
    watch = MisnamedColumns(lambda _: MASKED)
    watch.of_signature(RECORD, "")
    watch.of_signature(RECORD, Signature(COLUMNS).to_json())
    assert [text.partition(":")[0] for text in caplog.messages] == ["tables.shop.users.mask"]
    watch.of_signature(RECORD, Signature(COLUMNS, (), ("id", "email", "name", "total")).to_json())
    assert [text.partition(":")[0] for text in caplog.messages[1:]] == [
        "tables.shop.users.omit_columns"
    ]


def test_only_a_name_of_its_own_must_fit_a_table() -> None:
    tables = {
        "shop.users": {"omit_columns": ["b"]},
        "shop.*": {"mask": {"a": "null"}},
        "shop.orders": {"mask": {"c": "null"}},
        "crm.*": {"omit_columns": ["d"]},
    }
    values = {"url": "http://d", "target": "/t", "consumers": ["shop"], "tables": tables}
    settings = MirrorSettings.model_validate(values)
    assert settings.own_columns(("shop", "users")) == (("omit_columns", "b"),)
    assert settings.own_columns(("shop", "orders")) == ()  # the mask of the first pattern is used
    assert settings.own_columns(("crm", "people")) == ()
    assert settings.naming_pattern(("shop", "orders"), "mask") == "shop.*"


def test_a_job_warns_at_the_first_rows_and_at_its_start(
    mirror: Mirror, caplog: pytest.LogCaptureFixture
) -> None:
    mirror.source.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, mail TEXT)", "INSERT INTO people VALUES (1, 'a')"
    )
    mirror.policy = replace(TablePolicy(), masks=(("mial", Mask(MaskForm.NULL)),))
    own = {"own_columns": lambda _: (("mask", "mial"),)}
    mirror.feed()
    for _ in range(2):
        caplog.clear()
        assert mirror.apply(**own) == 0
        told = [text for text in caplog.messages if "has no column mial" in text]
        assert len(told) == 1
        assert told[0].endswith("did you mean mail?")
