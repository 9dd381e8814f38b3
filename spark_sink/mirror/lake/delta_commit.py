"""Creates Delta tables, and makes commits to them, through Delta's private interfaces.

Delta's public interfaces run Spark jobs for each commit of files, and record no version when they change a schema.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from pyspark.errors import AnalysisException

from spark_sink.mirror.lake.data_file import add_action, new_name
from spark_sink.mirror.lake.delta_line import delta_operation, line_of
from spark_sink.mirror.lake.delta_log import delta_version, recorded_version, transaction_on
from spark_sink.mirror.lake.file_system import FileSystem

if TYPE_CHECKING:
    from delta.tables import DeltaTableBuilder
    from pyspark.sql import DataFrame, SparkSession


# Delta's exceptions for another writer's commit have a common class in Java, but none in Python.
_OTHER_WRITER = (
    ConcurrentAppendException, ConcurrentDeleteDeleteException, ConcurrentDeleteReadException,
    ConcurrentTransactionException, ConcurrentWriteException, DeltaConcurrentModificationException,
    MetadataChangedException, ProtocolChangedException,
)  # fmt: skip
_FILES_MAX = 2**31 - 2  # the largest number for Spark's `limit`, which reads one more
_CREATING_S = 5.0  # how long another process may need for the first commit in its new folder
_POLL_S = 0.5
_NO_COMMIT = "DELTA_TABLE_NOT_FOUND"
_UNFINISHED = (_NO_COMMIT, "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION")


def create_table(
    spark: SparkSession,
    path: str,
    builder: DeltaTableBuilder,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Create a Delta table at `path` with `builder`, a result of `createIfNotExists`. Other processes may create it at
    the same time.

    Delta raises an error while the folder `_delta_log` exists without a commit. This function then waits for the first
    commit of another process. If there is no commit after `_CREATING_S`, that process was killed: this function deletes
    `_delta_log` and creates the table. Tests replace `sleep` (seconds).
    """
    files, commits = FileSystem(spark), f"{path}/_delta_log"
    for _ in range(round(_CREATING_S / _POLL_S)):
        try:
            builder.execute()
            return
        except _OTHER_WRITER:
            pass  # another process was first
        except AnalysisException as error:
            if error.getCondition() not in _UNFINISHED or not files.exists(commits):
                raise
        sleep(_POLL_S)
    try:
        builder.execute()
    except AnalysisException as error:
        if error.getCondition() != _NO_COMMIT or delta_version(spark, path) >= 0:
            raise
        files.delete(commits)
        builder.execute()


def write_checkpoint(spark: SparkSession, path: str) -> int:
    """Write a checkpoint of the Delta table at `path`, and delete commits that the table no longer retains. Returns the
    version of the checkpoint."""
    jvm: Any = spark._jvm  # noqa: SLF001
    transaction = transaction_on(spark, path)
    snapshot: Any = transaction.snapshot()
    transaction.deltaLog().checkpointAndCleanUpDeltaLog(snapshot, jvm.scala.Option.empty())
    return int(snapshot.version())


def commit_schema(
    spark: SparkSession,
    path: str,
    app_id: str,
    version: int,
    fields: Sequence[Mapping[str, Any]],
) -> None:
    """Replace the schema of the Delta table at `path` in one commit that records `version` for `app_id`.

    `fields`: as `schema_fields` returns them; a new field has no metadata. The table must already have the features
    that the change needs (`table_features`). SQL statements are not used, because they would make one commit per
    column, and record no version.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    delta: Any = jvm.org.apache.spark.sql.delta
    transaction = transaction_on(spark, path)
    metadata: Any = transaction.metadata()
    text = json.dumps({"type": "struct", "fields": list(fields)})
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(text)
    # Readers need to know which types a column had when its files were written.
    schema = delta.TypeWideningMetadata.addTypeWideningMetadata(
        transaction, schema, metadata.schema()
    )
    changed = metadata.copy(
        metadata.id(),
        metadata.name(),
        metadata.description(),
        metadata.format(),
        schema.json(),
        metadata.partitionColumns(),
        metadata.configuration(),
        metadata.createdTime(),
    )
    transaction.updateMetadata(changed, False)
    actions: Any = jvm.java.util.ArrayList()
    actions.add(delta.actions.SetTransaction(app_id, version, _now(jvm)))
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
    update = delta_operation(jvm, "UpdateSchema")(metadata.schema(), schema)
    transaction.commit(sequence, update)


def append_once(frame: DataFrame, path: str, app_id: str, version: int) -> bool:
    """Append a frame to the Delta table at `path` in one commit that records `version`, > 0, for `app_id`.

    Returns False, and appends nothing, if the recorded version is not `version` - 1; a table that records no version
    counts as version 0. Raises Delta's ConcurrentTransactionException, and appends nothing, if another transaction
    records a version during this call. The frame has the table's columns in the table's order. This function reads the
    recorded version from the checksum file of the newest commit. Delta's own writer would compute the table's whole
    state with Spark jobs to find this version.
    """
    spark = frame.sparkSession
    jvm: Any = spark._jvm  # noqa: SLF001
    java_frame: Any = frame._jdf  # noqa: SLF001
    transaction = transaction_on(spark, path)
    if max(0, recorded_version(transaction, app_id)) != version - 1:
        return False
    transaction.readTxn().addOne(app_id)
    files: Any = transaction.writeFiles(java_frame)
    recorded = jvm.org.apache.spark.sql.delta.actions.SetTransaction(app_id, version, _now(jvm))
    transaction.commit(files.appended(recorded), line_of(jvm).write_operation(jvm))
    return True


class DeltaTransaction:
    """A transaction on the Delta table at `path`. It reads the version `version` of the table, and makes one commit,
    without a Spark job.

    The caller writes the data files. A job, or a commit by Delta's own writer, would take a second.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._transaction = transaction_on(spark, path)
        self.version = int(self._transaction.readVersion())

    def metadata(self) -> dict[str, Any]:
        """Returns the table's `metaData` action, with its `schemaString` parsed as `fields`."""
        metadata: dict[str, Any] = json.loads(self._transaction.metadata().json())["metaData"]
        return metadata | {"fields": json.loads(metadata["schemaString"])["fields"]}

    @property
    def table_id(self) -> str:
        """The id that Delta gave to the table when it was created."""
        return str(self._transaction.metadata().id())

    def recorded(self, app_id: str) -> int:
        """Returns the version that is recorded for `app_id`; -1 if there is none."""
        return recorded_version(self._transaction, app_id)

    def files(self, files_max: int) -> list[dict[str, Any]] | None:
        """Returns the table's files as `add` actions; None if there are more than `files_max`. `stats` of each action
        is JSON or None. Runs a Spark job if the newest commit did not record the files, for instance because it changed
        the schema."""
        snapshot: Any = self._transaction.snapshot()
        checksum: Any = snapshot.checksumOpt()
        if checksum.isDefined() and int(checksum.get().numFiles()) > files_max:
            return None
        all_files: Any = checksum.get().allFiles() if checksum.isDefined() else checksum
        if all_files.isDefined():
            mapper: Any = self._jvm.org.apache.spark.sql.delta.util.JsonUtils.mapper()
            actions = json.loads(mapper.writeValueAsString(all_files.get()))
            return [add | {"stats": _as_text(add.get("stats"))} for add in actions]
        files: Any = snapshot.allFiles().limit(files_max + 1).toJSON().collectAsList()
        return [json.loads(text) for text in files] if files.size() <= files_max else None

    def all_files(self) -> list[dict[str, Any]]:
        """Returns the table's files as `files` does, however many there are."""
        files = self.files(_FILES_MAX)
        assert files is not None
        return files

    def commit(
        self,
        added: Sequence[Mapping[str, Any]],
        removed: Sequence[Mapping[str, Any]] = (),
        recorded: tuple[str, int] | None = None,
        *,
        replaced: Sequence[str] = (),
        user_metadata: str = "",
    ) -> None:
        """Commit `add` and `remove` actions, and a version for an application id.

        `replaced`: the columns by which new rows replace old ones; `user_metadata`: any text. Both are recorded only
        for Delta's history of the table.

        Raises Delta's exceptions, and changes nothing, if another transaction has removed one of the files, or recorded
        a version for this id, since this transaction began.
        """
        delta: Any = self._jvm.org.apache.spark.sql.delta
        actions: Any = self._jvm.java.util.ArrayList()
        if recorded is not None:
            app_id, version = recorded
            self._transaction.readTxn().addOne(app_id)
            actions.add(delta.actions.SetTransaction(app_id, version, _now(self._jvm)))
        texts = [{"remove": action} for action in removed] + [{"add": action} for action in added]
        for text in texts:
            actions.add(delta.actions.Action.fromJson(json.dumps(text)))
        sequence = self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
        write = line_of(self._jvm).write_operation(self._jvm, replaced, user_metadata)
        self._transaction.commit(sequence, write)


def _as_text(stats: Any) -> str | None:
    return stats if stats is None or isinstance(stats, str) else json.dumps(stats)


def append_file(spark: SparkSession, path: str, data: bytes, rows: int) -> None:
    """Append a Parquet file to the Delta table at `path` in one commit.

    `data`: the file's content, with the table's columns; `rows`: how many rows it has. The table has no partitions and
    no column mapping.
    """
    transaction = DeltaTransaction(spark, path)
    transaction.commit([write_file(spark, path, data, json.dumps({"numRecords": rows}))])


def write_file(spark: SparkSession, path: str, data: bytes, stats: str) -> dict[str, Any]:
    """Write a Parquet file into the folder of the Delta table at `path`. Returns its `add` action. The file becomes a
    part of the table when this action is committed."""
    name = new_name()
    FileSystem(spark).write(f"{path}/{name}", data)
    return add_action(name, len(data), stats)


def _now(jvm: Any) -> Any:
    return jvm.scala.Option.apply(int(time.time() * 1000))
