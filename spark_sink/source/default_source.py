"""Lets Spark find the source "binlog": the wheel contains this file as the module `pyspark_binlog_dispatcher`.

Spark imports each top-level module `pyspark_*` of the driver's Python when a session first uses a format that Spark
does not have itself. Spark asks each of these modules for a class `DefaultSource`
(`pyspark.sql.worker.lookup_data_sources`), even if the session does not read from a daemon. If one module fails, Spark
ignores all of them. So this module imports the source only when Spark asks for the class, and has no such class if the
source does not work with the installed pyspark.
"""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from spark_sink.source.data_source import BinlogDataSource  # noqa: PLC0415
    except ImportError as error:
        what = (
            f'the source "binlog" is not available: {error}; pip install "binlog-dispatcher[spark]"'
        )
        warnings.warn(what, RuntimeWarning, stacklevel=2)
        raise AttributeError(what) from error
    return BinlogDataSource
