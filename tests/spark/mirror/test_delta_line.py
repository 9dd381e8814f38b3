"""Which line of Delta Lake the mirror finds, and what it gives the private interfaces of that line, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.delta_line import LINES, line_of


def jvm_with(version: str) -> Any:
    """Returns a stand-in for a JVM with this version of Delta. An option is a tuple, and so is an operation."""
    jvm = MagicMock()
    jvm.io.delta.package.VERSION.return_value = version
    jvm.scala.Option = SimpleNamespace(
        empty=tuple, apply=lambda value: () if value is None else (value,)
    )
    jvm.org.apache.spark.sql.SaveMode = SimpleNamespace(Append="Append", Overwrite="Overwrite")
    write = "org.apache.spark.sql.delta.DeltaOperations$Write"
    setattr(jvm, write, lambda *fields: fields)
    return jvm


@pytest.mark.parametrize(
    ("version", "name"),
    [("4.0.1", "4.0"), ("4.4.0", "4.4"), ("4.0.0-amzn-1", "4.0"), ("4.3.1-SNAPSHOT", "4.3")],
)
def test_the_line_follows_from_the_version(version: str, name: str) -> None:
    assert line_of(jvm_with(version)).name == name


@pytest.mark.parametrize("version", ["3.3.2", "4.5.0", "40.1", "unknown"])
def test_a_line_that_was_never_tried_is_refused(version: str) -> None:
    with pytest.raises(BinlogError) as caught:
        line_of(jvm_with(version))
    assert caught.value.kind is ErrorKind.SETTINGS
    assert f"was never tried with version {version}" in caught.value.what
    assert str(caught.value.remedy).endswith("4.0, 4.3, 4.4")


def test_a_spark_without_delta_is_refused() -> None:
    jvm = MagicMock()
    jvm.io.delta.package.VERSION.side_effect = TypeError("'JavaPackage' object is not callable")
    with pytest.raises(BinlogError) as caught:
        line_of(jvm)
    assert "has no Delta Lake" in caught.value.what
    assert "python -m spark_sink.jars" in str(caught.value.remedy)


@pytest.mark.parametrize(("name", "fields"), [("4.0", 4), ("4.3", 9), ("4.4", 9)])
def test_an_append_of_each_line(name: str, fields: int) -> None:
    jvm = jvm_with(f"{name}.0")
    none: tuple[()] = ()
    made = LINES[name].write_operation(jvm, (), "text")
    assert made == ("Append", none, none, ("text",), *[none] * (fields - 4))


def test_the_columns_by_which_rows_replace_others() -> None:
    jvm = jvm_with("4.4.0")
    made = LINES["4.4"].write_operation(jvm, ("a", "b"))
    assert (made[0], made[2], made[-1]) == ("Overwrite", (), ("a, b",))
    made = LINES["4.0"].write_operation(jvm, ("a", "b"))
    assert (made[0], made[2]) == ("Overwrite", ("a, b of a new row",))
