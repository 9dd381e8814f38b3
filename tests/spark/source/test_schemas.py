"""The schemas of JSON and typed streams, and what the driver loads for them."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from dispatcher.binlog.decode.arrow.arrow_types import ENVELOPE, NAMES
from dispatcher.binlog.decode.changes.metadata_names import Metadata
from spark_sink.source.options import SourceOptions
from spark_sink.source.schemas import RAW_SCHEMA, spark_schema, stream_schema

GIVEN = {"url": "http://h:1", "consumer": "c"}
TABLES = pa.list_(pa.struct([("database", pa.string()), ("table", pa.string())]))


def options_of(**options: str) -> SourceOptions:
    return SourceOptions.parse(GIVEN | options)


def test_a_json_stream_has_the_columns_of_decoded_changes_with_texts_as_images() -> None:
    made = to_arrow_schema(stream_schema(options_of(), None), timezone="UTC")
    images = [pa.field(name, pa.string()) for name in ("before", "after")]
    assert made == pa.schema([*ENVELOPE, *images, pa.field("tables", TABLES)])


def test_metadata_are_appended_in_one_order_whatever_that_of_the_option() -> None:
    names = ("transaction_end", "key", "changed", "server_id", "query", "transaction_rows")
    assert set(names) == {name.value for name in Metadata}
    made = to_arrow_schema(
        stream_schema(options_of(metadata=",".join(names)), None), timezone="UTC"
    )
    kinds = (pa.bool_(), pa.string(), NAMES, pa.int64(), pa.string(), pa.int64())
    of_name = dict(zip(names, kinds, strict=True))
    assert list(made)[-len(names) :] == [pa.field(name.value, of_name[name]) for name in Metadata]


def test_the_schema_of_a_typed_stream_is_that_of_its_arrow_batches() -> None:
    columns = [
        {"name": "id", "mysql_type": "int", "nullable": False, "charset": None},
        {"name": "at", "mysql_type": "datetime(3)", "nullable": True, "charset": None},
        {"name": "name", "mysql_type": "varchar(20)", "nullable": True, "charset": "utf8mb4"},
    ]
    definition = {"database": "shop", "table": "t", "columns": columns, "key": ["id"]}
    made = stream_schema(options_of(table="shop.t", columns="at,name", metadata="key"), definition)
    image = pa.struct([("at", pa.timestamp("us")), ("name", pa.string())])
    fields = [pa.field(name, image) for name in ("before", "after")]
    key = pa.field("key", pa.struct([("id", pa.int32())]))
    assert to_arrow_schema(made, timezone="UTC") == pa.schema([*ENVELOPE, *fields, key])
    assert spark_schema(pa.schema([*ENVELOPE, *fields, key])) == made


def test_a_raw_stream_needs_no_definition() -> None:
    assert stream_schema(options_of(raw="true"), None) is RAW_SCHEMA


def test_the_driver_learns_a_schema_without_numba_and_that_of_json_without_pyarrow() -> None:
    code = (
        "import sys; import spark_sink.source.data_source;"
        "from spark_sink.source.schemas import stream_schema;"
        "from spark_sink.source.options import SourceOptions;"
        f"given = {GIVEN!r};"
        "stream_schema(SourceOptions.parse(given), None);"
        "assert not {'numba', 'pyarrow', 'numpy'} & set(sys.modules);"
        "column = {'name': 'id', 'mysql_type': 'enum(\\'a\\')', 'nullable': True, 'charset': 'latin1'};"
        "table = {'database': 's', 'table': 't', 'columns': [column], 'key': []};"
        "stream_schema(SourceOptions.parse(given | {'table': 's.t'}), table);"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
