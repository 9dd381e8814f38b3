"""Spark's and Delta's private JVM interfaces, all in one place: nothing else of the package touches `_jvm`.

Public APIs have no counterpart: PySpark has none for file systems, and Delta none for recorded versions, for a
table's version or for the size of its files without a Spark job.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.commit_actions import commit_actions
from spark_sink.mirror.damage import naming_damage
from spark_sink.mirror.data_file import add_action, new_name

if TYPE_CHECKING:
    from delta.tables import DeltaTableBuilder
    from pyspark.sql import DataFrame, SparkSession


def txn_version(spark: SparkSession, path: str, app_id: str) -> int:
    """Returns the version that the newest commit of `app_id` in the Delta table at `path` recorded; -1 if none
    did."""
    return _recorded_version(_transaction(spark, path), app_id)


def delta_version(spark: SparkSession, path: str) -> int:
    """Returns the newest version of the Delta table at `path`; -1 if there is no table."""
    return int(_transaction(spark, path).readVersion())


def create_table(spark: SparkSession, path: str, builder: DeltaTableBuilder) -> None:
    """Run a builder that creates a Delta table at `path` if there is none.

    A creation that was killed before its first commit leaves the folder of the commits, without one. Delta takes that
    for a table, and then cannot find it, so the folder is deleted.
    """
    try:
        builder.execute()
    except AnalysisException as error:
        if error.getCondition() != "DELTA_TABLE_NOT_FOUND" or delta_version(spark, path) >= 0:
            raise
        FileSystem(spark).delete(f"{path}/_delta_log")
        builder.execute()


def recorded_versions(spark: SparkSession, path: str, app_id: str) -> tuple[int, int]:
    """Returns what `delta_version` and `txn_version` return, of one moment."""
    transaction = _transaction(spark, path)
    return int(transaction.readVersion()), _recorded_version(transaction, app_id)


def newest_commit(spark: SparkSession, path: str) -> dict[str, Any]:
    """Returns the `commitInfo` of the newest commit of the Delta table at `path`; {} if it has none. A table's history
    reads the same with a Spark job."""
    version = delta_version(spark, path)
    text = FileSystem(spark).read(f"{path}/_delta_log/{version:020d}.json") or ""
    infos = (action["commitInfo"] for action in commit_actions(text) if "commitInfo" in action)
    return next(infos, {})


def has_commit(files: FileSystem, path: str, version: int) -> bool:
    """True if the Delta table at `path` has the commit with this number. It looks at one file; `delta_version` lists
    the folder of the commits, and takes ten times as long."""
    return files.exists(f"{path}/_delta_log/{version:020d}.json")


def table_size(spark: SparkSession, path: str) -> tuple[int, int]:
    """Returns (bytes, files) of the Delta table at `path`, as its last commit recorded them; (-1, -1) if it did not,
    (0, 0) if there is no table."""
    transaction = _transaction(spark, path)
    if int(transaction.readVersion()) < 0:
        return 0, 0
    checksum: Any = transaction.snapshot().checksumOpt()
    if not checksum.isDefined():
        return -1, -1
    return int(checksum.get().tableSizeBytes()), int(checksum.get().numFiles())


def checkpoint_version(spark: SparkSession, path: str) -> int:
    """Returns the version of which the Delta table at `path` has its newest checkpoint; -1 if it has none."""
    return int(_transaction(spark, path).snapshot().checkpointProvider().version())


def write_checkpoint(spark: SparkSession, path: str) -> int:
    """Write a checkpoint of the Delta table at `path`, and delete commits that the table no longer retains. Returns its
    version."""
    jvm: Any = spark._jvm  # noqa: SLF001
    transaction = _transaction(spark, path)
    snapshot: Any = transaction.snapshot()
    transaction.deltaLog().checkpointAndCleanUpDeltaLog(snapshot, jvm.scala.Option.empty())
    return int(snapshot.version())


def forget_table(spark: SparkSession, path: str) -> None:
    """Make Delta read the table at `path` anew: another folder may have been renamed to this path."""
    jvm: Any = spark._jvm  # noqa: SLF001
    java_session: Any = spark._jsparkSession  # noqa: SLF001
    log: Any = jvm.org.apache.spark.sql.delta.DeltaLog
    log.invalidateCache(java_session, jvm.org.apache.hadoop.fs.Path(path))


def table_properties(spark: SparkSession, path: str) -> dict[str, str]:
    """Returns the properties of the Delta table at `path`."""
    properties: Any = _transaction(spark, path).metadata().configuration()
    jvm: Any = spark._jvm  # noqa: SLF001
    return dict(jvm.scala.jdk.javaapi.CollectionConverters.asJava(properties))


def schema_fields(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    """Returns the fields of the Delta table at `path` in Spark's JSON form, with the metadata that Delta keeps in
    them and hides from readers: a column's name in the files, and the types that it had."""
    fields = json.loads(_transaction(spark, path).metadata().schemaString())["fields"]
    assert isinstance(fields, list)
    return fields


def widens(spark: SparkSession, before: str, after: str) -> bool:
    """True if Delta can change a column's type by metadata alone. Types are in Spark's JSON form."""
    jvm: Any = spark._jvm  # noqa: SLF001
    kinds = [jvm.org.apache.spark.sql.types.DataType.fromJson(text) for text in (before, after)]
    atomic: Any = jvm.java.lang.Class.forName("org.apache.spark.sql.types.AtomicType")
    if not all(atomic.isInstance(kind) for kind in kinds):
        return False
    return bool(jvm.org.apache.spark.sql.delta.TypeWidening.isTypeChangeSupported(*kinds))


def commit_schema(
    spark: SparkSession,
    path: str,
    app_id: str,
    version: int,
    fields: Sequence[Mapping[str, Any]],
    properties: Mapping[str, str],
) -> None:
    """Replace the schema of the Delta table at `path` in one commit that records `version` for `app_id`.

    `fields`: as `schema_fields` returns them; a new field has no metadata. Column mapping by name and, for changed
    types, type widening must be enabled. `properties` are set, too. Delta's SQL has one commit per column instead,
    without a version.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    delta: Any = jvm.org.apache.spark.sql.delta
    transaction = _transaction(spark, path)
    metadata: Any = transaction.metadata()
    text = json.dumps({"type": "struct", "fields": list(fields)})
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(text)
    # Readers need to know which types a column had when its files were written.
    schema = delta.TypeWideningMetadata.addTypeWideningMetadata(
        transaction, schema, metadata.schema()
    )
    configuration: Any = metadata.configuration()
    for name, value in properties.items():
        configuration = configuration.updated(name, value)
    changed = metadata.copy(
        metadata.id(),
        metadata.name(),
        metadata.description(),
        metadata.format(),
        schema.json(),
        metadata.partitionColumns(),
        configuration,
        metadata.createdTime(),
    )
    transaction.updateMetadata(changed, False)
    actions: Any = jvm.java.util.ArrayList()
    actions.add(delta.actions.SetTransaction(app_id, version, _now(jvm)))
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
    operation = _operation(jvm, "UpdateSchema")(metadata.schema(), schema)
    transaction.commit(sequence, operation)


def _transaction(spark: SparkSession, path: str) -> Any:
    # A transaction begins with the newest snapshot, which a public `DeltaTable` would read with a Spark job.
    jvm: Any = spark._jvm  # noqa: SLF001
    java_session: Any = spark._jsparkSession  # noqa: SLF001
    with naming_damage(partial(FileSystem, spark), path):
        log: Any = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session, path)
        return log.startTransaction()


def table_files(spark: SparkSession, path: str) -> tuple[int, DataFrame]:
    """Returns the newest version of the Delta table at `path`, and its files as Delta's `add` actions: `path`,
    `partitionValues`, `stats` (JSON) and others."""
    from pyspark.sql import DataFrame  # noqa: PLC0415

    snapshot: Any = _transaction(spark, path).snapshot()
    return int(snapshot.version()), DataFrame(snapshot.allFiles().toDF(), spark)


def append_once(frame: DataFrame, path: str, app_id: str, version: int) -> bool:
    """Append a frame to the Delta table at `path` in one commit that records `version`, > 0, for `app_id`.

    Returns False, and appends nothing, unless `version` - 1 is recorded, or nothing if that is 0. Raises Delta's
    ConcurrentTransactionException, and appends nothing, if another transaction records one meanwhile. The frame has the
    table's columns in the table's order. Delta's own writer computes the table's whole state with Spark jobs to learn
    the recorded version, which is in the checksum file of the newest commit.
    """
    spark = frame.sparkSession
    jvm: Any = spark._jvm  # noqa: SLF001
    java_frame: Any = frame._jdf  # noqa: SLF001
    transaction = _transaction(spark, path)
    if max(0, _recorded_version(transaction, app_id)) != version - 1:
        return False
    transaction.readTxn().addOne(app_id)
    files: Any = transaction.writeFiles(java_frame)
    recorded = jvm.org.apache.spark.sql.delta.actions.SetTransaction(app_id, version, _now(jvm))
    transaction.commit(files.appended(recorded), _write_operation(jvm))
    return True


class DeltaTransaction:
    """A transaction on the Delta table at `path`: what the table is at `version`, and one commit, without a Spark job.

    The caller writes the files itself. A job, or a commit by Delta's own writer, costs a second.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._jvm: Any = spark._jvm  # noqa: SLF001
        self._transaction = _transaction(spark, path)
        self.version = int(self._transaction.readVersion())

    def metadata(self) -> dict[str, Any]:
        """Returns the table's `metaData` action, with its `schemaString` parsed as `fields`."""
        metadata: dict[str, Any] = json.loads(self._transaction.metadata().json())["metaData"]
        return metadata | {"fields": json.loads(metadata["schemaString"])["fields"]}

    def recorded(self, app_id: str) -> int:
        """Returns what `txn_version` returns."""
        return _recorded_version(self._transaction, app_id)

    def files(self, files_max: int) -> list[dict[str, Any]] | None:
        """Returns the table's files as `add` actions, of which `stats` is JSON or None; None if there are more than
        `files_max`. Runs a Spark job if the newest commit did not record them, as one that changed the schema."""
        snapshot: Any = self._transaction.snapshot()
        checksum: Any = snapshot.checksumOpt()
        if checksum.isDefined() and int(checksum.get().numFiles()) > files_max:
            return None
        known: Any = checksum.get().allFiles() if checksum.isDefined() else checksum
        if known.isDefined():
            mapper: Any = self._jvm.org.apache.spark.sql.delta.util.JsonUtils.mapper()
            found = json.loads(mapper.writeValueAsString(known.get()))
            return [add | {"stats": _as_text(add.get("stats"))} for add in found]
        files: Any = snapshot.allFiles().limit(files_max + 1).toJSON().collectAsList()
        return [json.loads(text) for text in files] if files.size() <= files_max else None

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

        `replaced`: the columns by which rows replace others, `user_metadata`: any text, for the table's history.

        Raises Delta's exceptions, and changes nothing, if another transaction has removed one of the files, or recorded
        a version for this id, meanwhile.
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
        self._transaction.commit(sequence, _write_operation(self._jvm, replaced, user_metadata))


def executor_ids(spark: SparkSession) -> list[str]:
    """Returns the ids of the executors that have registered. Not for a local master, whose driver is the executor."""
    ids: Any = spark.sparkContext._jsc.sc().getExecutorIds()  # noqa: SLF001
    return [str(ids.apply(index)) for index in range(ids.size())]


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
    """Write a Parquet file into the folder of the Delta table at `path`. Returns its `add` action; until that is
    committed the file is no part of the table."""
    name = new_name()
    FileSystem(spark).write(f"{path}/{name}", data)
    return add_action(name, len(data), stats)


def _write_operation(jvm: Any, replaced: Sequence[str] = (), user_metadata: str = "") -> Any:
    """An append, or, with columns by which rows replace others, the operation of Delta's `replaceUsing`."""
    option: Any = jvm.scala.Option
    mode: Any = jvm.org.apache.spark.sql.SaveMode
    using = option.apply(", ".join(replaced) if replaced else None)
    kind = mode.Overwrite if replaced else mode.Append
    metadata = option.apply(user_metadata or None)
    return _operation(jvm, "Write")(
        kind, option.empty(), option.empty(), metadata, *[option.empty()] * 4, using
    )


def _operation(jvm: Any, name: str) -> Any:
    return getattr(jvm, f"org.apache.spark.sql.delta.DeltaOperations${name}")


def _recorded_version(transaction: Any, app_id: str) -> int:
    checksum: Any = transaction.snapshot().checksumOpt()
    known: Any = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not known.isDefined():
        return int(transaction.txnVersion(app_id))  # runs Spark jobs
    recorded: Any = known.get()
    for index in range(recorded.size()):
        if recorded.apply(index).appId() == app_id:
            return int(recorded.apply(index).version())
    return -1


def _now(jvm: Any) -> Any:
    return jvm.scala.Option.apply(int(time.time() * 1000))


_OBJECT_STORES = frozenset(("s3", "s3a", "s3n", "gs", "oss", "obs", "cos", "cosn", "swift"))


class FileSystem:
    """Files and folders of any Hadoop file system, by path."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001
        java_session: Any = spark._jsparkSession  # noqa: SLF001
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._text: Any = jvm.org.apache.commons.io.IOUtils.toString
        self._conf: Any = java_session.sessionState().newHadoopConf()

    def qualified(self, path: str) -> str:
        """Returns a path with its file system, from the root."""
        where = self._path(path)
        return str(where.getFileSystem(self._conf).makeQualified(where).toString())

    def exists(self, path: str) -> bool:
        where = self._path(path)
        return bool(where.getFileSystem(self._conf).exists(where))

    def names(self, path: str) -> list[str]:
        """Returns the names in a folder, sorted; none if there is no such folder."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return []
        return sorted(str(status.getPath().getName()) for status in system.listStatus(where))

    def read(self, path: str) -> str | None:
        """Returns the text of a file, in UTF-8; None if there is no such file."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return None
        stream = system.open(where)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()

    def local(self, path: str) -> str | None:
        """Returns the path by which this process opens a file; None if it is not on a local file system."""
        where = self._path(path)
        if where.getFileSystem(self._conf).getScheme() != "file":
            return None
        return str(where.toUri().getPath())

    def fetch(self, path: str, folder: str) -> str:
        """Returns the path of a local copy of a file, in a local folder."""
        where = self._path(path)
        copy = f"{folder}/{uuid.uuid4()}"
        system = where.getFileSystem(self._conf)
        system.copyToLocalFile(False, where, self._path(f"file://{copy}"), True)
        return copy

    def write(self, path: str, data: bytes) -> None:
        """Write a file that does not exist."""
        if (local := self.local(path)) is not None:
            Path(local).parent.mkdir(parents=True, exist_ok=True)
            with Path(local).open("xb") as file:
                file.write(data)
            return
        where = self._path(path)
        stream = where.getFileSystem(self._conf).create(where, False)
        try:
            stream.write(data)
        finally:
            stream.close()

    def rename(self, old: str, new: str) -> None:
        """Rename a folder; the folder above `new` is made. Raises `BinlogError` if it fails or `new` exists."""
        source, target = self._path(old), self._path(new)
        system = source.getFileSystem(self._conf)
        why = "the new folder exists"
        if not system.exists(target):
            system.mkdirs(target.getParent())
            try:
                if system.rename(source, target):
                    return
                why = "the file system refuses it"
            except Py4JJavaError as error:
                why = str(error.java_exception.getMessage())
        raise BinlogError(
            ErrorKind.INTERNAL,
            f"cannot rename the folder {old} to {new}: {why}",
            remedy="check that both folders can be written, and that nothing else writes into the target",
        )

    def moves_folders(self, path: str) -> bool:
        """True if a folder is renamed at once, with all that is in it; False for object stores, which copy files."""
        where = self._path(path)
        return str(where.getFileSystem(self._conf).getScheme()) not in _OBJECT_STORES

    def files_below(self, path: str) -> list[str]:
        """Returns the files in a folder and those below, by their paths from it; none if there is no such folder."""
        where = self._path(path)
        system = where.getFileSystem(self._conf)
        if not system.exists(where):
            return []
        names, files = [], system.listFiles(where, True)
        root = str(system.makeQualified(where).toString())
        while files.hasNext():
            names.append(str(files.next().getPath().toString())[len(root) + 1 :])
        return names

    def delete(self, path: str) -> None:
        """Delete a file, or a folder with all that is in it; no error if there is none."""
        where = self._path(path)
        where.getFileSystem(self._conf).delete(where, True)
