"""The differences between the lines of Delta Lake in the private interfaces that the mirror calls.

A line is all versions with the same first two numbers, such as 4.4. The mirror starts only with a line that its tests
have used (docs/spark-versions.md), because a private interface may change its meaning and keep its name. All other
private calls of `delta_log` and `delta_commit` are the same in these lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dispatcher.model.errors import BinlogError, ErrorKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST_FIELDS = 4  # fields of the operation `Write` in all lines: mode, partition columns, predicate, user metadata


@dataclass(frozen=True, slots=True)
class DeltaLine:
    """A line of Delta. `write_fields`: how many fields its operation `Write` has; `replace_using`: True if the last
    field names the columns by which new rows replace old ones."""

    name: str
    write_fields: int
    replace_using: bool = False

    def write_operation(
        self, jvm: Any, replaced: Sequence[str] = (), user_metadata: str = ""
    ) -> Any:
        """Returns the operation that a commit records: an append or, if `replaced` is not empty, Delta's
        `replaceUsing`. A line without `replaceUsing` has an overwrite whose predicate names the columns instead. The
        table's history shows the operation; no reader depends on it."""
        option: Any = jvm.scala.Option
        mode: Any = jvm.org.apache.spark.sql.SaveMode
        columns = ", ".join(replaced)
        fields = [mode.Overwrite if replaced else mode.Append, option.empty(), option.empty()]
        fields.append(option.apply(user_metadata or None))
        fields += [option.empty()] * (self.write_fields - _FIRST_FIELDS)
        if self.replace_using:
            fields[-1] = option.apply(columns or None)
        elif replaced:
            fields[2] = option.apply(f"{columns} of a new row")
        return delta_operation(jvm, "Write")(*fields)


LINES = {
    line.name: line
    for line in (
        DeltaLine("4.0", 4),
        DeltaLine("4.3", 9, replace_using=True),
        DeltaLine("4.4", 9, replace_using=True),
    )
}


def delta_operation(jvm: Any, name: str) -> Any:
    return getattr(jvm, f"org.apache.spark.sql.delta.DeltaOperations${name}")


def delta_line(spark: SparkSession) -> DeltaLine:
    """Returns the line of the session's Delta Lake.

    Raises `BinlogError` SETTINGS if the session has no Delta Lake, or a line that the mirror's tests have not used.
    """
    return line_of(spark._jvm)  # noqa: SLF001


def line_of(jvm: Any) -> DeltaLine:
    try:
        version = str(jvm.io.delta.package.VERSION())
    except TypeError:  # py4j returns a package if no class has this name
        raise BinlogError(
            ErrorKind.SETTINGS,
            "this Spark has no Delta Lake, which the mirror needs",
            remedy='give spark-submit the option --jars "$(python -m spark_sink.jars)", or set spark.jars',
        ) from None
    name = re.match(r"\d+\.\d+", version)
    if name is None or name[0] not in LINES:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"the mirror calls private interfaces of Delta Lake, and was never tried with version {version}",
            remedy=f"use one of Delta Lake {', '.join(LINES)}",
        )
    return LINES[name[0]]
