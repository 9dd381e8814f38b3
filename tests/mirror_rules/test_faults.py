"""What an exception of a step means, and the one line that reports it."""

from __future__ import annotations

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.values.faults import fault_of, in_one_line, is_conflict

JAVA = (
    "An error occurred while calling o7.execute.\n"
    ": org.apache.spark.SparkException: Job aborted\n\tat org.apache.spark.Foo.bar(Foo.scala:7)\n"
)


def test_the_line_of_a_java_exception_is_said() -> None:
    said = in_one_line(RuntimeError(JAVA))
    assert said == "RuntimeError: org.apache.spark.SparkException: Job aborted"


@pytest.mark.parametrize(("text", "said"), [("", "ValueError: "), ("\n a\nb", "ValueError: a")])
def test_the_first_line_of_others_is_said(text: str, said: str) -> None:
    assert in_one_line(ValueError(text)) == said


def test_a_long_line_is_cut() -> None:
    assert len(in_one_line(ValueError("x" * 10_000))) == 500


def test_a_fault_of_an_executor_is_found_in_its_trace() -> None:
    fault = BinlogError(ErrorKind.ROW_IMAGE, "rows lack a column", where="seq 7")
    text = f"Traceback ...\ndispatcher.model.errors.BinlogError: {fault}\n more"
    found = fault_of(RuntimeError(text))
    assert found is not None
    assert (found.kind, found.what) == (ErrorKind.ROW_IMAGE, "rows lack a column (seq 7)")
    assert found.remedy == fault.remedy
    assert fault_of(RuntimeError(JAVA)) is None
    assert fault_of(fault) is fault


def test_of_chained_faults_the_last_one_is_meant() -> None:
    first = BinlogError(ErrorKind.POSITION_UNKNOWN, "it belongs to epoch 1")
    last = BinlogError(ErrorKind.POSITION_PURGED, "the server has purged changes")
    raised = "dispatcher.model.errors.BinlogError: "
    text = f"{raised}{first}\n\nDuring handling of the above exception\n{raised}{last}\n"
    found = fault_of(RuntimeError(text))
    assert found is not None
    assert found.kind is ErrorKind.POSITION_PURGED


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        ("io.delta.exceptions.ConcurrentAppendException: [DELTA_CONCURRENT_APPEND]", True),
        ("org.apache.spark.SparkException: Job aborted", False),
    ],
)
def test_conflicts_of_writers(text: str, conflict: bool) -> None:
    assert is_conflict(RuntimeError(text)) is conflict
