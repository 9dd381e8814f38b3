"""Delivered bytes as the Arrow batches that Spark gets."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.table_map.column_types import Type
from dispatcher.model.position import Position
from spark_sink.source import rows, schemas
from spark_sink.source.http.client import SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.slices import Slice
from tests.support.rows_encoder import Delivered, Spec, integer, rows_body, table_map

END = SliceCut(Position("s", "", "binlog.000001", 4, 1, 1))
SLICE = Slice(1, 0, END, END)


def options_of(**options: str) -> SourceOptions:
    return SourceOptions.parse({"url": "http://h:1", "consumer": "c"} | options)


def read(log: Delivered, **options: str) -> list[dict[str, Any]]:
    parsed = options_of(**options)
    schema = schemas.stream_schema(parsed, None)
    batches = list(rows.read_slice(parsed, schema, SLICE, log.bytes()))
    assert len({batch.schema for batch in batches}) <= 1
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("form", ["json", "raw"])
def test_a_statement_s_row_has_what_it_touches(form: str) -> None:
    log = Delivered()
    log.ddl("RENAME TABLE a TO b", "shop")
    log.ddl("ALTER TABLE other.t ADD c INT", "shop")
    renamed, altered = read(log, raw="true") if form == "raw" else read(log)
    both = [{"database": "shop", "table": "a"}, {"database": "shop", "table": "b"}]
    assert (renamed["database"], renamed["table"], renamed["tables"]) == ("shop", None, both)
    assert (altered["database"], altered["table"]) == ("other", "t")
    statement = altered if form == "raw" else json.loads(altered["after"])
    assert statement["default_database"] == "shop"
    assert statement["query"] == "ALTER TABLE other.t ADD c INT"


def test_metadata_of_json_rows_and_statements() -> None:
    log = Delivered()
    log.ddl("CREATE TABLE t (id INT)")
    columns = [Spec("id", Type.LONG), Spec("n", Type.LONG)]
    update = rows_body(31, [[integer(1, 4), integer(1, 4)], [integer(2, 4), integer(1, 4)]])
    log.transaction((29, b"\0UPDATE t SET id = 2"), (19, table_map(columns)), (31, update))
    given = "Server_Id, query, key, changed, transaction_end, transaction_rows"
    statement, row = read(log, metadata=given)
    names = list(map(str, Metadata))
    assert list(row)[-len(names) :] == names
    assert [row[name] for name in names] == [0, "UPDATE t SET id = 2", '{"id":1}', ["id"], 1, True]
    query = "CREATE TABLE t (id INT)"
    assert [statement[name] for name in names] == [0, query, None, None, 1, True]
    assert list(read(log, metadata="changed")[0])[-2:] == ["tables", "changed"]


_COLLECTED = """
import gc
from dispatcher.model.position import Position
from spark_sink.source.http.client import SliceCut
from spark_sink.source.options import SourceOptions
from spark_sink.source.schemas import stream_schema
from spark_sink.source.slice_reader import slice_batches
from spark_sink.source.slices import Slice
from tests.support.rows_encoder import Delivered

log = Delivered()
log.ddl("RENAME TABLE a TO b")
options = SourceOptions.parse({"url": "http://127.0.0.1:1", "consumer": "shop"})
end = SliceCut(Position("s", "", "binlog.000001", 4, 1, 1))
part = Slice(1, 0, end, end)

def read_slice():
    schema = stream_schema(options, None)
    batches = slice_batches(options, schema, part, lambda *given: (part, log.bytes()))
    assert sum(batch.num_rows for batch in batches) == 1
    found = len(gc.get_objects()) + gc.get_freeze_count()
    gc.collect()  # as Spark's worker does after each task
    return found, len(gc.get_objects()), gc.get_freeze_count()

first, second = read_slice(), read_slice()
for found, walked, frozen in (first, second):
    assert found > 50_000, found
    assert walked < 5_000, walked
assert second[2] <= first[2], (first, second)  # nothing was loaded meanwhile
"""


def test_the_collector_does_not_walk_what_a_worker_has_loaded() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


_FIRST_SLICE = """
import sys, threading, time
from spark_sink.source.schemas import RAW_SCHEMA
from spark_sink.source.options import SourceOptions
from spark_sink.source.slice_reader import slice_batches
from spark_sink.source.slices import Slice

def read(options, part):
    deadline = time.monotonic() + 60
    while "spark_sink.source.rows" not in sys.modules:
        assert time.monotonic() < deadline, "the decoder is not imported"
        threading.Event().wait(0.01)
    if part.number:
        raise OSError("the daemon is away")
    return part, memoryview(b"")

options = SourceOptions.parse({"url": "http://127.0.0.1:1", "consumer": "shop", "raw": "true"})
assert "numba" not in sys.modules
parts = [Slice(1, number, None, None) for number in range(2)]
assert list(slice_batches(options, RAW_SCHEMA, parts[0], read)) == []
try:
    slice_batches(options, RAW_SCHEMA, parts[1], read)
except OSError as error:
    print(error)
"""


def test_a_new_process_imports_the_decoder_while_it_waits_for_the_daemon() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FIRST_SLICE], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("the daemon is away\n", "")
