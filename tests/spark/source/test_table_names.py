"""Options that name tables in another case than the log: the server's `lower_case_table_names` decides."""

from __future__ import annotations

import pytest

from dispatcher.binlog.table_map.column_types import Type
from spark_sink.source import schemas
from spark_sink.source.options import SourceOptions
from spark_sink.source.rows import read_slice
from spark_sink.source.slices import Slice
from tests.spark.source.test_partial_changes import END
from tests.spark.source.test_projection import definition
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map


def read(value: int, *tables: str, **given: str) -> list[tuple[str, str]]:
    """Returns the table and the operation of each row of a stream. The log has one row and a TRUNCATE of each table,
    and is that of a server with this `lower_case_table_names`."""
    log = Delivered(lower_case_table_names=value)
    for table in tables:
        mapped = (19, table_map([Spec("id", Type.LONG)], table=table))
        log.transaction(mapped, (30, rows_body(30, [[integer(1, 4)]])))
        log.ddl(f"TRUNCATE TABLE {table}", "Shop")
    options = SourceOptions.parse({"url": "http://daemon:8085", "consumer": "shop"} | given)
    schema = schemas.stream_schema(options, definition(id="int") if options.table else None)
    batches = read_slice(options, schema, Slice(1, 0, END, END), log.bytes())
    return [(row["table"], row["op"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize(
    "given", [{"tables": "Shop.Orders"}, {"tables": "SHOP.b, sHOP.oRD*"}, {"table": "Shop.Orders"}]
)
@pytest.mark.parametrize(("value", "logged"), [(1, "orders"), (2, "ORDers")])
def test_a_server_that_folds_names_has_one_table(
    given: dict[str, str], value: int, logged: str
) -> None:
    statement = [] if "table" in given else [("orders", "ddl")]
    assert read(value, "other", logged, **given) == [("orders", "insert"), *statement]


@pytest.mark.parametrize("key", ["table", "tables"])
def test_a_server_that_does_not_has_two(key: str) -> None:
    found = read(0, "orders", "Orders", **{key: "shop.Orders"})
    assert [row for row in found if row[1] == "insert"] == [("Orders", "insert")]
    assert ("orders", "ddl") not in found


@pytest.mark.parametrize(("value", "after"), [(1, "{}"), (0, '{"id":1}')])
def test_columns_are_chosen_by_the_names_of_the_server(value: int, after: str) -> None:
    log = Delivered(lower_case_table_names=value)
    mapped = (19, table_map([Spec("id", Type.LONG)], table="orders"))
    log.transaction(mapped, (30, rows_body(30, [[integer(1, 4)]])))
    given = {"url": "http://daemon:8085", "consumer": "shop", "columns": "Shop.Orders.none"}
    options = SourceOptions.parse(given)
    schema = schemas.stream_schema(options, None)
    (batch,) = read_slice(options, schema, Slice(1, 0, END, END), log.bytes())
    assert batch.to_pylist()[0]["after"] == after
