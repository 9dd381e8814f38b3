"""A stream whose consumer the source declares itself (option `databases`): one consumer for each checkpoint.

A source does not know the checkpoint of its query. But Spark stores the source's offsets in the checkpoint, and passes
them to the source after a restart. So each offset contains the name of the consumer. A restarted query gets the name of
its consumer from its checkpoint, and two queries with two checkpoints have two consumers. The offsets of a query are

    {"consumer": ""}                    a new query, before its first batch
    {"consumer": "spark-4f0c..."}       the name is chosen, and the consumer not declared yet
    {"server": ..., "consumer": ...}    a position of the consumer

The first two batches are empty: the first batch begins at the first form and ends at the second form, the next batch
begins at the second form and ends at the third form. So Spark stores the name in the checkpoint before the source
declares the consumer, and a query that is killed at any moment uses the same consumer at its next start. Spark stores
the first position in the checkpoint before the source reads any change.

Each process declares the consumer before it uses the consumer for the first time. The declaration changes nothing if
the consumer exists. If the query did not run for a long time, the daemon may have removed the consumer. The source then
opens the session at the position in the checkpoint, as it does after the daemon has lost its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.options import SourceOptions
from spark_sink.source.readers.checkpoint_offset import CONSUMER, checkpoint_offset
from spark_sink.source.readers.stream_reader import BinlogStreamReader
from spark_sink.source.spark_abilities import ReadLimit, SupportsTriggerAvailableNow

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class DeclaredPartition(InputPartition):
    """A partition of the consumer's reader. It contains the consumer's name, because the reader that Spark sends to the
    executors does not."""

    consumer: str
    partition: InputPartition


class DeclaredStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Chooses and declares the consumer, as the module's docstring describes. A `BinlogStreamReader` does everything
    else."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._reader: BinlogStreamReader | None = None
        self._consumer = ""
        self._available_now = False

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_options"], state["_schema"])  # type: ignore[misc]

    # -- planning, in one process on the driver --------------------------------------------------------------

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._available_now = True  # the consumer's name is not known yet

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._reader_of("").getDefaultReadLimit()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {CONSUMER: ""}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if not checkpoint_offset(start, CONSUMER)[CONSUMER]:
            assert self._options.declares is not None
            self._consumer = self._consumer or f"{self._options.declares.prefix}{uuid4().hex[:16]}"
            return {CONSUMER: self._consumer}
        reader = self._declared(start[CONSUMER])
        if len(start) == 1:
            return self._with_consumer(reader.initialOffset())
        return self._with_consumer(reader.latestOffset(_position(start), limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._reader is None else self._reader.reportLatestOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        consumer = checkpoint_offset(end, CONSUMER)[CONSUMER]
        if len(checkpoint_offset(start, CONSUMER)) == 1:
            return []  # a batch without a position has no changes
        planned = self._declared(consumer).partitions(_position(start), _position(end))
        return [DeclaredPartition(consumer, partition) for partition in planned]

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing, as `BinlogStreamReader`."""

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    # -- reading, in any number of processes -----------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, DeclaredPartition)
        return self._reader_of(partition.consumer).read(partition.partition)

    # -- the consumer ----------------------------------------------------------------------------------------

    def _reader_of(self, consumer: str) -> BinlogStreamReader:
        # The declaration contains the start that the options name, so the reader does not need this start.
        options = replace(self._options, consumer=consumer, start=None)
        return BinlogStreamReader(options, self._schema)

    def _declared(self, consumer: str) -> BinlogStreamReader:
        """Returns the consumer's reader; the first call in a process declares the consumer."""
        if self._reader is None:
            self._declare(consumer)
            self._consumer = consumer
            self._reader = self._reader_of(consumer)
            if self._available_now:
                self._reader.prepareForTriggerAvailableNow()
        return self._reader

    def _declare(self, consumer: str) -> None:
        assert self._options.declares is not None
        client = ConsumerClient(self._options.address, consumer)
        try:
            client.declare(self._options.declares)
        except BinlogError as error:
            if error.kind is not ErrorKind.CONSUMER_EXISTS:
                raise
            differs = error
        else:
            return
        finally:
            client.close()
        raise BinlogError(
            differs.kind,
            f"the query's consumer reads other tables than its options now name: {differs.what}",
            where=differs.where,
            remedy="give the options as they were, or begin with a new checkpoint",
        )

    def _with_consumer(self, offset: dict[str, Any]) -> dict[str, Any]:
        return {**offset, CONSUMER: self._consumer}


def _position(offset: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in offset.items() if key != CONSUMER}
