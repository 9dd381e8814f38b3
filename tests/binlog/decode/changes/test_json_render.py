"""If Python's JSON parser reads the JSON text of changes, the result is the rows from which the text was made."""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.decode import delivered
from dispatcher.binlog.decode.changes.json_render import json_text
from dispatcher.binlog.decode.delivered import TableChanges
from dispatcher.binlog.table_map.column_types import Type
from tests.support.rows_encoder import (
    BINARY,
    UTF8MB4,
    Delivered,
    Spec,
    encode_cell,
    rows_body,
    table_map,
)

SPECS = (
    Spec("id", Type.LONGLONG, unsigned=True),
    Spec('na"me\n', Type.VARCHAR, (400).to_bytes(2, "little"), charset=UTF8MB4),
    Spec("price", Type.NEWDECIMAL, bytes((38, 20))),
    Spec("whole", Type.NEWDECIMAL, bytes((38, 0))),
    Spec("wide", Type.NEWDECIMAL, bytes((65, 30))),
    Spec("f", Type.FLOAT, b"\4"),
    Spec("d", Type.DOUBLE, b"\x08"),
    Spec("bytes", Type.BLOB, b"\2", charset=BINARY),
    Spec("day", Type.DATE),
    Spec("at", Type.DATETIME2, b"\6"),
    Spec("instant", Type.TIMESTAMP2, b"\6"),
)
_EXACT = Context(prec=100)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda n: Decimal(n).scaleb(-scale, _EXACT))


_ROWS = st.tuples(
    st.integers(0, 2**64 - 1),
    st.text(max_size=10),
    decimals(38, 20),
    st.one_of(st.just(Decimal(0)), decimals(38, 0)),
    decimals(65, 30),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(allow_nan=False, allow_infinity=False),
    st.binary(max_size=10),
    st.dates(),
    st.datetimes(),
    st.datetimes(dt.datetime(1970, 1, 2), dt.datetime(2038, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001
).flatmap(lambda row: st.tuples(*(st.sampled_from((value, value, value, None)) for value in row)))


def rendered(rows: Sequence[Sequence[Any]], kind: int = 30) -> pa.RecordBatch:
    images = [
        [encode_cell(spec, value) for spec, value in zip(SPECS, row, strict=True)] for row in rows
    ]
    log = Delivered()
    log.transaction((19, table_map(SPECS)), (kind, rows_body(kind, images)))
    (part,) = delivered.changes(log.bytes())
    assert isinstance(part, TableChanges)
    batch = json_text(part.batch)
    batch.validate(full=True)
    # A view into a larger batch must render its own rows.
    tail = json_text(part.batch.slice(1))
    assert tail.column("after").to_pylist() == batch.column("after").to_pylist()[1:]
    return batch


def expected(row: Sequence[Any]) -> dict[str, Any]:
    number, name, price, whole, wide, f, d, raw, day, at, instant = row
    text = "{:%H:%M:%S.%f}".format
    return {
        "id": number,
        'na"me\n': name,
        "price": None if price is None else f"{price:f}",
        "whole": None if whole is None else int(whole),
        "wide": None if wide is None else f"{wide:f}",
        "f": f,
        "d": d,
        "bytes": None if raw is None else base64.b64encode(raw).decode(),
        "day": None if day is None else day.isoformat(),
        "at": None if at is None else f"{at.date().isoformat()}T{text(at)}",
        "instant": None if instant is None else f"{instant.date().isoformat()}T{text(instant)}Z",
    }


@given(st.lists(_ROWS, min_size=1, max_size=5))
def test_json_is_the_same_rows(rows: list[Sequence[Any]]) -> None:
    found = [json.loads(text) for text in rendered(rows).column("after").to_pylist()]
    for got, row in zip(found, rows, strict=True):
        wanted = expected(row)
        if got["f"] is not None:  # the text has the fewest digits that identify a float32
            assert pa.scalar(float(got.pop("f")), pa.float32()).as_py() == wanted.pop("f")
        assert got == wanted


def test_missing_images_stay_null_and_columns_keep_their_order() -> None:
    row = (1, None, None, None, None, None, None, None, None, None, None)
    inserted = rendered([row])
    assert inserted.column("before").to_pylist() == [None]
    assert inserted.column("after").type == pa.string()
    assert list(json.loads(inserted.column("after")[0].as_py())) == [spec.name for spec in SPECS]
    deleted = rendered([row, row], 32)
    assert deleted.column("after").to_pylist() == [None, None]
    assert json.loads(deleted.column("before")[1].as_py())["id"] == 1
    assert deleted.schema.names == inserted.schema.names
    assert deleted.schema.field("seq") == inserted.schema.field("seq")


def change_batch(
    rows: list[Any], kind: pa.DataType, absent: list[Any] | None = None
) -> pa.RecordBatch:
    """Returns a batch with only the columns that rendering reads. `absent`: the missing columns of both images."""
    columns = {"op": pa.array(["update"] * len(rows))}
    if absent is not None:
        names = pa.array(absent, pa.list_(pa.string()))
        columns |= {"before_absent": names, "after_absent": names}
    images = pa.array(rows, kind)
    return pa.RecordBatch.from_pydict(columns | {"before": images, "after": images})


def images(batch: pa.RecordBatch) -> list[Any]:
    texts = batch.column("after").to_pylist()
    assert texts == batch.column("before").to_pylist()
    return [None if text is None else json.loads(text) for text in texts]


_POINT = b"\1\1\0\0\0" + bytes(16)
_NEW_TYPES = pa.struct(
    [
        pa.field("id", pa.int32()),
        pa.field("place", pa.struct([("srid", pa.int64()), ("wkb", pa.binary())])),
        pa.field("vector", pa.list_(pa.field("element", pa.float32()))),
        pa.field("doc", pa.string()),
    ]
)


def test_geometries_vectors_and_json() -> None:
    text = '{"a": 1.0, "b\\n": "\\"é\\""}'
    rows: list[Any] = [
        {"id": 1, "place": {"srid": 4326, "wkb": _POINT}, "vector": [1.5, -2, 0.1], "doc": text},
        {"id": 2, "place": None, "vector": None, "doc": None},
        None,
        {"id": 3, "place": {"srid": 0, "wkb": b""}, "vector": [], "doc": "null"},
    ]
    wanted: list[Any] = [
        None if row is None else row | {"place": row["place"] and dict(row["place"])}
        for row in rows
    ]
    wanted[0]["place"]["wkb"] = base64.b64encode(_POINT).decode()
    wanted[3]["place"]["wkb"] = ""
    batch = change_batch(rows, _NEW_TYPES)
    assert images(json_text(batch)) == wanted
    assert images(json_text(batch.slice(1))) == wanted[1:]
    assert images(json_text(batch.slice(3, 1))) == wanted[3:]
    first = json_text(batch).column("after")[0].as_py()
    assert '"vector":[1.5,-2,0.1],"doc":"{\\"a\\": 1.0,' in first


def test_missing_columns_have_no_key() -> None:
    rows = [{"id": 1, "place": None, "vector": [1.0], "doc": "{,"}] * 5 + [None]
    absent = [["doc"], None, ["id", "vector"], [], ["id", "place", "vector", "doc"], None]
    wanted = [
        row and {key: value for key, value in row.items() if key not in (names or ())}
        for row, names in zip(rows, absent, strict=True)
    ]
    batch = change_batch(rows, _NEW_TYPES, absent)
    rendered = json_text(batch)
    assert images(rendered) == wanted
    assert wanted[4] == {}
    assert rendered.schema.names == batch.schema.names
    assert images(json_text(batch.slice(2, 3))) == wanted[2:5]
    assert images(json_text(batch.slice(0, 0))) == []


def test_control_characters() -> None:
    text = "".join(map(chr, range(0x80))) + "\u2028é😀"
    batch = change_batch([{"s": text}, {"s": "plain"}], pa.struct([("s", pa.string())]))
    assert images(json_text(batch)) == [{"s": text}, {"s": "plain"}]


def test_zero_and_small_decimals_have_all_their_digits() -> None:
    values = (None, None, Decimal("1E-20"), Decimal(-1), Decimal("-1E-30"), *[None] * 6)
    (text,) = rendered([values]).column("after").to_pylist()
    assert '"price":"0.00000000000000000001"' in text
    assert '"whole":-1,' in text
    assert '"wide":"-0.000000000000000000000000000001"' in text
