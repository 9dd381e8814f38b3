"""Masked values: their texts, their types, and that nothing of an unmasked value is left."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.arrow.masks import masked
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.table_map.column_rules import ColumnRules
from dispatcher.binlog.table_map.column_types import Mask, MaskForm, Type
from dispatcher.model.errors import BinlogError, ErrorKind
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map

SECRET = b"a secret of the mirror"
SHA256, KEYED = Mask(MaskForm.SHA256), Mask(MaskForm.KEYED, SECRET)
VALUES: list[tuple[pa.DataType, Any, str]] = [
    (pa.string(), "ä@b", "ä@b"),
    (pa.string(), "", ""),
    (pa.binary(), b"\xff\0", "ff00"),
    (pa.int64(), -5, "-5"),
    (pa.decimal128(20, 0), Decimal(2**64 - 1), str(2**64 - 1)),
    (pa.decimal128(12, 2), Decimal("-0.50"), "-0.50"),
    (pa.float64(), 1.5, "1.5"),
    (pa.float64(), -0.0, "0"),
    (pa.date32(), date(2024, 1, 31), "2024-01-31"),
    (
        pa.timestamp("us"),
        datetime.fromisoformat("2024-01-31 01:02:03"),
        "2024-01-31 01:02:03.000000",
    ),
    (pa.timestamp("us", "UTC"), datetime(2024, 1, 31, tzinfo=UTC), "2024-01-31 00:00:00.000000Z"),
]


@pytest.mark.parametrize(("kind", "value", "text"), VALUES)
def test_the_text_of_a_value_is_masked(kind: pa.DataType, value: Any, text: str) -> None:
    values = pa.array([value, None, value], kind)
    digest = hashlib.sha256(text.encode()).hexdigest()
    keyed = hmac.new(SECRET, text.encode(), "sha256").hexdigest()
    last = "****" + (text[-4:] if len(text) > 4 else "")
    assert masked(values, SHA256).to_pylist() == [digest, None, digest]
    assert masked(values, KEYED).to_pylist() == [keyed, None, keyed]
    assert masked(values, Mask(MaskForm.LAST4)).to_pylist() == [last, None, last]
    nulls = masked(values, Mask(MaskForm.NULL))
    assert (nulls.type, nulls.null_count) == (kind, 3)


def test_no_text_shows_the_secret() -> None:
    assert SECRET.decode() not in f"{KEYED} {KEYED!r}"
    assert str(KEYED) != str(Mask(MaskForm.KEYED, b"another"))


COLUMNS = [
    Spec("id", Type.LONG),
    Spec("n", Type.LONG),
    Spec("j", Type.JSON, b"\4"),
    Spec("g", Type.GEOMETRY, b"\4"),
]


def decoded(rules: ColumnRules) -> TableChanges:
    log = Delivered()
    row = [integer(7, 4), integer(8, 4), b"\2\0\0\0\4\1", None]
    log.transaction((19, table_map(COLUMNS)), (30, rows_body(30, [row])))
    (only,) = delivered.changes(log.bytes(), ruled=rules.table_map)
    assert isinstance(only, TableChanges)
    only.batch.validate(full=True)
    return only


def test_the_decoder_masks_by_the_name_of_the_column() -> None:
    rules = ColumnRules(
        masks=(("N", SHA256), ("j", Mask(MaskForm.LAST4)), ("g", Mask(MaskForm.NULL)))
    )
    (row,) = decoded(rules).batch.column("after").to_pylist()
    assert row == {"id": 7, "n": hashlib.sha256(b"8").hexdigest(), "j": "****", "g": None}


def test_an_invalid_value_of_a_masked_column_shows_no_bytes() -> None:
    column = Spec("e", Type.ENUM, b"\xf7\1", charset=45, labels=("a",))
    log = Delivered()
    log.transaction((19, table_map([column])), (30, rows_body(30, [[b"\2"]])))
    rules = ColumnRules(nulls_invalid=True, masks=(("e", SHA256),))
    (only,) = delivered.changes(log.bytes(), ruled=rules.table_map)
    assert isinstance(only, TableChanges)
    assert [cell.data for cell in only.invalid] == [b""]
    assert only.batch.column("after").to_pylist() == [{"e": None}]


def test_a_geometry_can_only_become_null() -> None:
    with pytest.raises(BinlogError) as caught:
        decoded(ColumnRules(masks=(("g", SHA256),)))
    assert caught.value.kind is ErrorKind.UNSUPPORTED_TYPE
    assert "column 'g': GEOMETRY with the mask sha256; only null is possible" in caught.value.what
