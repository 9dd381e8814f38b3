"""How the columns of a table differ between the server and the mirror."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from spark_sink.mirror.verify.column_differences import column_differences

TYPES: dict[str, DataType] = {
    "int": IntegerType(),
    "bigint": LongType(),
    "string": StringType(),
    "boolean": BooleanType(),
    "decimal": DecimalType(10, 2),
    "double": DoubleType(),
}


def columns(text: str) -> StructType:
    """Returns the columns of a text like `id int, a string`."""
    found = StructType()
    for column in text.split(", "):
        name, kind = column.split()
        found.add(name, TYPES[kind])
    return found


SERVER = "id int, a string, d decimal"


@pytest.mark.parametrize(
    ("mirror", "differences"),
    [
        (SERVER, ""),
        ("ID int, A string, d decimal", ""),
        ("id int, a string, d decimal, _seq bigint, a__4294967300 int, _deleted boolean", ""),
        ("id int, a string, d decimal, b int", "the server has no column 'b'"),
        ("id int, a string, d decimal, a__2 int", "the server has no column 'a__2'"),
        ("id int, d decimal", "column 'a' is missing in the mirror"),
        (
            "id bigint, a string, d decimal",
            "column 'id' is bigint in the mirror, and has to be int",
        ),
        (
            "id int, d decimal, a string",
            "the mirror has the columns in the order id, d, a, the server id, a, d",
        ),
        (
            "id int, b string, d double",
            "column 'a' is missing in the mirror; the server has no column 'b'; column 'd' is double in the"
            " mirror, and has to be decimal(10,2)",
        ),
    ],
)
def test_columns_are_compared_by_name_type_and_order(mirror: str, differences: str) -> None:
    assert column_differences(columns(SERVER), columns(mirror)) == differences


def test_a_column_of_the_server_with_a_metadata_columns_name_counts() -> None:
    server, mirror = columns("id int, _seq int"), columns("id int")
    assert column_differences(server, mirror) == "column '_seq' is missing in the mirror"
