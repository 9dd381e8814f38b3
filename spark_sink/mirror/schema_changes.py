"""Changes the columns of a Delta table: names, new and dropped columns, types; by metadata alone where Delta can.

Each change is one Delta commit that also records the step's version, so a change that was interrupted has not
happened, and one that is repeated is skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_sink.mirror.signature import SchemaChange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def execute(
    spark: SparkSession, path: str, app_id: str, version: int, change: SchemaChange
) -> None:
    """Bring the Delta table at `path` to `change`, in one commit that records `version` for `app_id`.

    Columns of the Delta table that the change does not name stay. Nothing happens if `app_id` has recorded the
    version or a newer one. Also for an empty change: the commit then records the version alone.
    """
    raise NotImplementedError
