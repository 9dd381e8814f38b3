"""The mirrored tables in an Iceberg catalog (REST, Hive metastore, Glue, SQL), by pyiceberg.

An Iceberg table here is metadata only: its data files are those of the newest version of the Delta table in the
mirror's folder. `refresh` makes one Iceberg snapshot that removes and adds data files so that both tables have the same
files. The result depends only on the two tables, not on what an earlier call did, so a killed job repeats nothing and
leaves out nothing: the next call continues from whatever snapshot the catalog has. A snapshot's summary tells which
version of the Delta table it shows.

The metadata files are in TARGET/_binlog/iceberg, not in the folder of the Delta table: there Delta's VACUUM would
delete them, and Iceberg's own removal of orphan files would delete files of the Delta table.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.iceberg.data_files import data_file, iceberg_location
from spark_sink.mirror.iceberg.schema import iceberg_schema, same_fields
from spark_sink.mirror.lake.delta_commit import DeltaTransaction
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.values.names import own_path
from spark_sink.mirror.values.policies import IcebergOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH_PROPERTY = "binlog.path"  # the folder of the Delta table
# In the summary of a snapshot: the version of the Delta table, and the id that Delta gave to the table.
VERSION, DELTA_ID = "binlog.delta-version", "binlog.delta-id"
TIDY_EVERY_S = 3600.0
# A metadata file may be part of a commit that another job is making.
_UNFINISHED_S = 3600.0
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Manifests of single files are joined, otherwise each snapshot would add one.
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    # pyiceberg would repeat a commit that conflicts with that of another job, and add files that the other job has
    # added, so rows would be twice in the table.
    "commit.retry.num-retries": "0",
}


@dataclass(frozen=True, slots=True)
class _DeltaState:
    """The newest version of a Delta table. `fields`: in Spark's JSON form; `files`: `add` actions."""

    version: int
    delta_id: str
    fields: list[dict[str, Any]]
    files: list[dict[str, Any]]

    @property
    def summary(self) -> dict[str, str]:
        return {VERSION: str(self.version), DELTA_ID: self.delta_id}

    @property
    def columns(self) -> dict[str, int]:
        """The ids of the top-level columns, by their names in the files."""
        ids = "delta.columnMapping.id", "delta.columnMapping.physicalName"
        metadata = [field["metadata"] for field in self.fields]
        return {item[ids[1]]: item[ids[0]] for item in metadata}


class IcebergCatalog:
    """The tables in one Iceberg catalog. The parts of a table's name are separated by dots. `target`: the folder of the
    mirror, with its file system."""

    def __init__(self, spark: SparkSession, options: IcebergOptions, target: str) -> None:
        """Raises `BinlogError` SETTINGS for properties with which pyiceberg finds no catalog."""
        self._spark = spark.newSession()
        self._files = FileSystem(spark)
        self._folder = own_path(target, "iceberg")  # each table has its own folder below
        self._keep = timedelta(hours=options.snapshot_hours)
        self._tidied: dict[str, float] = {}
        # By name: the folder of the Delta table, and the state that the catalog's table shows.
        self._shown: dict[str, tuple[str, int, str]] = {}
        try:
            self._catalog = load_catalog(options.name, **options.catalog)
        except Exception as error:
            raise BinlogError(
                ErrorKind.SETTINGS,
                f"the Iceberg catalog cannot be opened: {error}",
                where="iceberg.catalog",
                remedy="set type and uri as pyiceberg's documentation describes them; for type: hive, glue or sql"
                " install pyiceberg[hive], pyiceberg[glue] or pyiceberg[sql-postgres]",
            ) from error

    def location(self, name: str) -> str | None:
        """Returns the folder of the Delta table that the catalog's table shows; None if the catalog has no table with
        the name; "" if the table is not one of a mirror."""
        table = self._table(name)
        return None if table is None else table.properties.get(PATH_PROPERTY, "")

    def register(self, name: str, path: str) -> None:
        """Create an Iceberg table that shows the Delta table at `path`, and its namespace if the catalog lacks it. The
        table appears together with its rows. Raises the errors of `refresh`."""
        state = self._delta(path)
        self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        transaction = self._catalog.create_table_transaction(
            name,
            iceberg_schema(state.fields),
            location=f"{iceberg_location(self._folder)}/{uuid.uuid4().hex}",
            properties={**_PROPERTIES, PATH_PROPERTY: path},
        )
        _publish(transaction, {}, state, path)
        self._shown[name] = path, state.version, state.delta_id

    def refresh(self, name: str, path: str) -> None:
        """Make the catalog's table show the newest version of the Delta table at `path`.

        Raises `BinlogError` UNSUPPORTED_TYPE or UNSUPPORTED_CHANGE if Iceberg's readers could not read the files.
        """
        newest = DeltaTransaction(self._spark, path)
        now = time.monotonic()
        tidy = now >= self._tidied.get(name, now - TIDY_EVERY_S) + TIDY_EVERY_S
        if self._shown.get(name) == (path, newest.version, newest.table_id) and not tidy:
            return
        # The Delta table is read last: if another job publishes a version after this line, the commit below fails.
        # Otherwise this job could publish an older version than that job has published.
        table = self._catalog.load_table(name)
        state = self._delta(path)
        if not _shows(table, state):
            _publish(table.transaction(), _live_files(table), state, path)
        self._shown[name] = path, state.version, state.delta_id
        if tidy:
            self._tidied[name] = now
            self._tidy(self._catalog.load_table(name))

    def difference(self, name: str, path: str) -> str:
        """Compare the current snapshot with the version of the Delta table at `path` that it shows: data files, numbers
        of rows, columns. Returns "" if they are equal, otherwise a text that describes the difference."""
        if (table := self._table(name)) is None:
            return f"{name} is not in the Iceberg catalog"
        snapshot = table.current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        if summary is None or VERSION not in summary.additional_properties:
            return f"the newest snapshot of {name} in the Iceberg catalog is not the mirror's"
        version = summary.additional_properties[VERSION]
        frame = self._spark.read.format("delta").option("versionAsOf", version).load(path)
        live = _live_files(table)
        wanted = {iceberg_location(unquote(file)) for file in frame.inputFiles()}
        found, rows = set(live), sum(file.record_count for file in live.values())
        of = f"of {name} in the Iceberg catalog, which shows version {version} of the Delta table"
        if found != wanted:
            more, less = len(found - wanted), len(wanted - found)
            return f"the snapshot {of}, has {more} files that this version lacks, and lacks {less} of its files"
        if (count := frame.count()) != rows:
            return f"the snapshot {of}, has {rows} rows, and this version has {count}"
        names = [field.name for field in table.schema().fields]
        if names != frame.columns:
            return f"the columns {of}, are {names}, and those of this version are {frame.columns}"
        return ""

    def drop(self, name: str) -> None:
        """Remove a table from the catalog, and delete its metadata files. Its data files stay."""
        self._shown.pop(name, None)
        if (table := self._table(name)) is None:
            return
        self._catalog.drop_table(name)
        if folder := self._own_folder(table):
            self._files.delete(folder)

    def _delta(self, path: str) -> _DeltaState:
        transaction = DeltaTransaction(self._spark, path)
        fields, files = transaction.metadata()["fields"], transaction.all_files()
        return _DeltaState(transaction.version, transaction.table_id, fields, files)

    def _table(self, name: str) -> Table | None:
        try:
            return self._catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _own_folder(self, table: Table) -> str:
        """Returns the folder of the table's metadata files; "" if the mirror has not made it."""
        above, _, name = table.location().rpartition("/")
        return f"{self._folder}/{name}" if above == iceberg_location(self._folder) and name else ""

    def _tidy(self, table: Table) -> None:
        """Expire snapshots that are older than `snapshot_hours`, and delete the metadata files that no other snapshot
        needs. pyiceberg expires snapshots without deleting files."""
        old = datetime.now(UTC) - self._keep
        if any(datetime.fromtimestamp(s.timestamp_ms / 1000, UTC) < old for s in table.snapshots()):
            table.maintenance.expire_snapshots().older_than(old).commit()
            table = table.refresh()
        if not (folder := self._own_folder(table)):
            return
        used = {
            table.metadata_location,
            *(log.metadata_file for log in table.metadata.metadata_log),
        }
        for snapshot in table.snapshots():
            used.add(snapshot.manifest_list)
            used.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
        names = {location.rpartition("/")[2] for location in used}
        before_ms = int((time.time() - _UNFINISHED_S) * 1000)
        for name in self._files.names_before(f"{folder}/metadata", before_ms):
            if name not in names:
                self._files.delete(f"{folder}/metadata/{name}")


def _shows(table: Table, state: _DeltaState) -> bool:
    """True if the current snapshot shows this version of this Delta table."""
    snapshot = table.current_snapshot()
    summary = None if snapshot is None else snapshot.summary
    shown = {} if summary is None else summary.additional_properties
    return all(shown.get(key) == value for key, value in state.summary.items())


def _publish(
    transaction: Transaction, live: Mapping[str, DataFile], state: _DeltaState, path: str
) -> None:
    """Commit one snapshot with the files of `state`. `live`: the files of the current snapshot, by their locations."""
    schema = _use_schema(transaction, state)
    folder, columns = iceberg_location(path), state.columns
    wanted = [data_file(folder, add, schema, columns) for add in state.files]
    locations = {file.file_path for file in wanted}
    removed = [file for location, file in live.items() if location not in locations]
    added = [file for file in wanted if file.file_path not in live]
    update = transaction.update_snapshot(snapshot_properties=state.summary)
    producer = update.overwrite() if removed else update.merge_append()
    for file in added:
        producer.append_data_file(file)
    for file in removed:
        producer.delete_data_file(file)
    producer.commit()
    transaction.commit_transaction()


def _use_schema(transaction: Transaction, state: _DeltaState) -> Schema:
    """Make the schema of `state` the current one. A table's first schema has other ids, because catalogs number the
    fields of a new table themselves."""
    metadata = transaction.table_metadata
    wanted = iceberg_schema(state.fields, 1 + max(schema.schema_id for schema in metadata.schemas))
    if same_fields(metadata.schema(), wanted):
        return metadata.schema()
    for schema in metadata.schemas:
        if same_fields(schema, wanted):
            transaction._apply((_set_schema(schema.schema_id),))  # noqa: SLF001
            return schema
    transaction._apply((AddSchemaUpdate(schema=wanted), _set_schema(-1)))  # noqa: SLF001 - keeps the ids
    return wanted


def _set_schema(schema_id: int) -> SetCurrentSchemaUpdate:
    """Returns the update that makes a schema the current one. `schema_id`: -1 for the schema that was added last."""
    return SetCurrentSchemaUpdate.model_validate({"schema-id": schema_id})


def _live_files(table: Table) -> dict[str, DataFile]:
    """Returns the data files of the current snapshot, by their locations."""
    if (snapshot := table.current_snapshot()) is None:
        return {}
    manifests = snapshot.manifests(table.io)
    entries = (entry for item in manifests for entry in item.fetch_manifest_entry(table.io))
    return {entry.data_file.file_path: entry.data_file for entry in entries}
