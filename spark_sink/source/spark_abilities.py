"""Finds out what the installed Spark can do. The module tests for names and signatures, not for a version, because
managed platforms backport features to older versions.

All code that depends on the differences between supported versions of PySpark is in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        SupportsTriggerAvailableNow,
    )

    ADMISSION_CONTROL = True
except ImportError:
    # Substitutes: a Spark without these classes passes no limit, so the source makes a limit itself.
    class ReadLimit: ...  # type: ignore[no-redef]

    class ReadAllAvailable(ReadLimit): ...  # type: ignore[no-redef]

    @dataclass(frozen=True)
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        max_bytes: int

    class SupportsTriggerAvailableNow: ...  # type: ignore[no-redef]

    ADMISSION_CONTROL = False
"""True if Spark passes the end of the last batch and a limit for the next batch to a Python source, prepares the source
for Trigger.AvailableNow, and asks it for its newest position. Apache Spark does so since 4.2."""

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "ADMISSION_CONTROL",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "SupportsTriggerAvailableNow",
    "expected_schema",
    "expected_type",
]


def expected_schema(schema: StructType) -> pa.Schema:
    """Returns the Arrow schema that Spark expects for a schema, with timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415 - loads pyarrow

    return in_utc(to_arrow_schema)(schema)


def expected_type(kind: DataType) -> pa.DataType:
    """Returns the Arrow type that Spark expects for a type, with timestamps in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type  # noqa: PLC0415 - loads pyarrow

    return in_utc(to_arrow_type)(kind)


def in_utc(convert: Callable[..., Any]) -> Callable[[Any], Any]:
    """Returns Spark's function that converts to Arrow, set to UTC for timestamps. Before Apache Spark 4.2, the
    conversion uses UTC by default; since 4.2, the time zone is an argument."""
    named = {"timezone": "UTC"} if "timezone" in signature(convert).parameters else {}
    return lambda converted: convert(converted, **named)
