"""The Spark data source "binlog": its schema, and the reader that the options select.

Importing this module loads pyspark's type classes only; numpy, numba and pyarrow are loaded where bytes are decoded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.model.subscription import is_pattern
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.declared import DeclaredStreamReader
from spark_sink.source.readers.reader_without_limits import ReaderWithoutLimits
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.schemas import stream_schema
from spark_sink.source.selection.column_choice import unknown_column
from spark_sink.source.spark_abilities import ADMISSION_CONTROL

log = logging.getLogger("spark_sink.source")

NAMES_CHECKED_MAX = 20  # each name costs a query on the server


class BinlogDataSource(DataSource):
    """The data source of `spark.readStream.format("binlog")`. `spark_sink.source.options.KEYS` lists its options."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._parsed = SourceOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "binlog"

    def schema(self) -> StructType | str:
        if self._parsed.raw:
            return stream_schema(self._parsed, None)
        _warn_of_unknown(self._parsed)
        return stream_schema(self._parsed, _definition(self._parsed))

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._parsed.declares is not None:
            raise UserError(
                ErrorKind.SETTINGS,
                'source "binlog": a batch has no checkpoint, to which a declared consumer could belong',
                remedy="set the option consumer instead of databases; POST /v1/consumers declares a consumer",
            )
        if self._parsed.snapshot is not None:
            raise UserError(
                ErrorKind.SETTINGS,
                'source "binlog": startingOffsets=snapshot is for a stream',
                remedy="use spark.readStream, with Trigger.AvailableNow for a stream that ends",
            )
        from spark_sink.source.readers.batch import BinlogBatchReader  # noqa: PLC0415 - a stream does not need it

        return BinlogBatchReader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if self._parsed.end is not None:
            raise UserError(
                ErrorKind.SETTINGS,
                'source "binlog": a stream has no end, so the options endingOffsets and endingTimestamp are not for it',
                remedy="use spark.read for a batch, or Trigger.AvailableNow for a stream up to the newest change",
            )
        if not ADMISSION_CONTROL:
            _require_admission_control_for(self._parsed)
            return ReaderWithoutLimits(self._parsed, schema)
        if self._parsed.declares is not None:
            return DeclaredStreamReader(self._parsed, schema)
        if self._parsed.snapshot is not None:
            from spark_sink.source.readers.snapshot_reader import SnapshotStreamReader  # noqa: PLC0415 - few streams need it

            return SnapshotStreamReader(self._parsed, schema)
        return BinlogStreamReader(self._parsed, schema)


def _require_admission_control_for(options: SourceOptions) -> None:
    """Raise `UserError` for stream options that need admission control if the installed Spark has no admission
    control."""
    what = 'source "binlog": this Spark does not tell a source where the last batch has ended, '
    if options.declares is not None:
        raise UserError(
            ErrorKind.SETTINGS,
            f"{what}so the source cannot find the consumer that it has declared",
            remedy="set the option consumer instead of databases, or use Spark 4.2 or newer;"
            " POST /v1/consumers declares a consumer",
        )
    if options.snapshot is not None:
        raise UserError(
            ErrorKind.SETTINGS,
            f"{what}which startingOffsets=snapshot needs",
            remedy="use Spark 4.2 or newer, or read the rows with Spark's JDBC source",
        )


def _definition(options: SourceOptions) -> dict[str, Any] | None:
    if options.table is None:
        return None
    client = ConsumerClient(options.address, options.consumer)
    try:
        return _columns_of(client, options, ".".join(options.table))
    finally:
        client.close()


def _columns_of(client: ConsumerClient, options: SourceOptions, name: str) -> dict[str, Any]:
    """Returns columns and key of a table, which the daemon describes for a consumer. If this Spark source declares the
    consumer itself, asks the daemon without a consumer, because the consumer does not exist before the query runs."""
    if options.declares is None:
        return client.table(name)
    return client.table_of_source(name, options.declares.source)


def _warn_of_unknown(options: SourceOptions) -> None:
    """Log the names of `tables` and `columns` that the server does not have now, or that the consumer does not read.

    An unknown name is no error: the log may hold changes of a dropped table, or the table may be created later.
    """
    patterns = [] if options.table else options.columns or ()
    named = [("tables", database, table, "*") for database, table in options.tables or ()]
    named += [("columns", *pattern) for pattern in patterns]
    exact = [each for each in named if not is_pattern(each[1]) and not is_pattern(each[2])]
    client = ConsumerClient(options.address, options.consumer)
    try:
        for key, database, table, column in exact[:NAMES_CHECKED_MAX]:
            try:
                columns = _columns_of(client, options, f"{database}.{table}")["columns"]
            except BinlogError as error:
                if error.kind is not ErrorKind.UNKNOWN_TABLE:
                    raise
                log.warning("option %s: %s.%s: %s", key, database, table, error.what)
                continue
            if finding := unknown_column(column, [each["name"] for each in columns]):
                log.warning("option %s: %s.%s: %s", key, database, table, finding)
    finally:
        client.close()
