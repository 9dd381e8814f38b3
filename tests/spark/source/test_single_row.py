"""One row as an Arrow batch."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.source.single_row import single_row

SCHEMA = pa.schema(
    {
        "n": pa.int64(),
        "yes": pa.bool_(),
        "text": pa.string(),
        "data": pa.binary(),
        "at": pa.timestamp("us", "UTC"),
    }
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-(1 << 63), (1 << 63) - 1),
        "yes": st.booleans(),
        "text": st.text(st.characters(exclude_categories=["Cs"])),
        "data": st.binary(),
        "at": st.datetimes(timezones=st.just(UTC)) | st.integers(0, 1 << 60),
    },
)


@given(VALUES)
def test_a_row_is_as_arrow_itself_makes_it(row: dict[str, Any]) -> None:
    made = single_row(SCHEMA, row)
    made.validate(full=True)
    assert made.equals(pa.RecordBatch.from_pylist([row], schema=SCHEMA))


@pytest.mark.parametrize(
    "row", [{"text": 1}, {"n": "1"}, {"yes": datetime(2026, 1, 1, tzinfo=UTC)}, {"data": "text"}]
)
def test_a_value_of_another_type_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="is no"):
        single_row(SCHEMA, row)


def test_a_task_of_the_raw_source_does_not_load_pandas() -> None:
    code = (
        "import sys; import spark_sink.source.data_source; from spark_sink.source import rows;"
        "from dispatcher.model.position import Position;"
        "from spark_sink.source.http.client import SliceCut;"
        "from spark_sink.source.slices import Slice;"
        "from spark_sink.source.schemas import RAW_SCHEMA;"
        "from spark_sink.source.options import SourceOptions;"
        "o = SourceOptions.parse({'url': 'http://h:1', 'consumer': 'c', 'raw': 'true'});"
        "p = Position('s', '', 'b.000001', 4, 1, 1); c = SliceCut(p);"
        "(batch,) = rows.read_slice(o, RAW_SCHEMA, Slice(1, 0, c, c, batch_end=p), b'');"
        "assert batch.num_rows == 1 and 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
