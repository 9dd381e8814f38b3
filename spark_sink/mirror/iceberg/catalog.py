"""Publishes the mirrored tables in an Iceberg catalog (REST, Hive metastore, Glue, SQL), through pyiceberg.

An Iceberg table of the mirror consists of metadata only: its data files are those of the newest version of the Delta
table in the mirror's folder. `refresh` makes one Iceberg snapshot that removes and adds data files so that both tables
have the same files. The snapshot depends only on the two tables, not on what an earlier call did. So if a call is
killed, the next call continues from the snapshot that the catalog has then, and neither repeats nor leaves out a file.
A snapshot's summary says which version of the Delta table it shows.

The metadata files are in TARGET/_binlog/iceberg, not in the folder of the Delta table. In that folder, Delta's VACUUM
would delete them, and Iceberg's removal of orphan files would delete files of the Delta table.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.iceberg.data_files import data_file, iceberg_location
from spark_sink.mirror.iceberg.replace_files import ReplaceFiles
from spark_sink.mirror.iceberg.rest import TimedRestCatalog
from spark_sink.mirror.iceberg.schema import iceberg_name, iceberg_schema, same_fields
from spark_sink.mirror.lake.delta_commit import DeltaTransaction
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.values.faults import in_one_line
from spark_sink.mirror.values.names import own_path
from spark_sink.mirror.values.policies import IcebergOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("spark_sink.mirror")

PATH_PROPERTY = "binlog.path"  # the folder of the Delta table
# In the summary of a snapshot: the version of the Delta table, and the id that Delta gave to the table.
VERSION, DELTA_ID = "binlog.delta-version", "binlog.delta-id"
TIDY_EVERY_S = 3600.0
# A younger metadata file may be part of a commit that another job is making, so it is not deleted.
_UNFINISHED_S = 3600.0
_PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    # Delta truncates the bounds of times, so in the snapshots, the bounds of times are a little wider than the values.
    # With this mode, readers use bounds only to skip files, and do not treat them as the smallest and largest value.
    "write.metadata.metrics.default": "counts",
    # If a commit conflicts with that of another job, pyiceberg would by default repeat it. It would add files again
    # that the other job has added, so rows would be twice in the table.
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
    mirror, with its file system. Only one thread at a time may call the methods."""

    moves_wait = (
        False  # a folder may move during a call of the catalog; the next `refresh` then finds it
    )

    def __init__(
        self,
        spark: SparkSession,
        options: IcebergOptions,
        target: str,
        reading: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
    ) -> None:
        """`reading`: returns a context manager for the path of a Delta table; while a thread is in this context, the
        table's folder does not move.

        Raises `BinlogError` SETTINGS if pyiceberg finds no catalog with these properties. If the catalog does not
        answer now, the first later call that reaches the catalog opens it.
        """
        self._spark = spark.newSession()
        self._files = FileSystem(spark)
        self._folder = own_path(target, "iceberg")  # with one folder per table
        self._options, self._reading = options, reading
        self._keep = timedelta(hours=options.snapshot_hours)
        self._tidied: dict[str, float] = {}
        # By name: the folder of the Delta table, and the state that the catalog's table shows.
        self._shown: dict[str, tuple[str, int, str]] = {}
        self._opened: Catalog | None = None
        try:
            self.open()
        except (ValueError, NotInstalledError) as error:
            raise BinlogError(
                ErrorKind.SETTINGS,
                f"the Iceberg catalog cannot be opened: {self._masked(error)}",
                where="iceberg.catalog",
                remedy="set type and uri as pyiceberg's documentation describes them; for type: hive, glue or sql"
                " install pyiceberg[hive], pyiceberg[glue] or pyiceberg[sql-postgres]",
            ) from None
        except Exception as error:  # noqa: BLE001 - a catalog that does not answer never ends the mirror
            log.warning("the Iceberg catalog does not answer: %s", self._masked(error))

    def open(self) -> None:
        """Open the catalog, unless it is open. Raises the error of the catalog."""
        if self._opened is not None:
            return
        properties = dict(self._options.catalog)
        if properties.get("type") == "rest":
            del properties["type"]
            properties["py-catalog-impl"] = (
                f"{TimedRestCatalog.__module__}.{TimedRestCatalog.__name__}"
            )
        self._opened = load_catalog(self._options.name, **properties)

    @property
    def _catalog(self) -> Catalog:
        self.open()
        assert self._opened is not None
        return self._opened

    def _masked(self, error: Exception) -> str:
        """Returns an error's text without the values of the catalog's properties, which may be secret."""
        text = in_one_line(error)
        for name, value in self._options.catalog.items():
            if value and name != "type":
                text = text.replace(value, f"<{name}>")
        return text

    def location(self, name: str) -> str | None:
        """Returns the folder of the Delta table that the catalog's table shows; None if the catalog has no table with
        the name; "" if the table is not one of a mirror."""
        try:
            table = self._table(name)
        except (NoSuchIcebergTableError, NoSuchPropertyException):  # a table of another format
            return ""
        return None if table is None else table.properties.get(PATH_PROPERTY, "")

    def register(self, name: str, path: str) -> None:
        """Create an Iceberg table that shows the Delta table at `path`, and its namespace if the catalog lacks it. The
        table appears together with its rows. Raises the errors of `refresh`."""
        state = self._delta(path)
        namespace = name.rpartition(".")[0]
        if not self._catalog.namespace_exists(namespace):
            self._catalog.create_namespace_if_not_exists(namespace)
        transaction = self._catalog.create_table_transaction(
            name,
            iceberg_schema(state.fields),
            location=f"{iceberg_location(self._folder)}/{self._folder_name(name, state)}",
            properties={**_PROPERTIES, PATH_PROPERTY: path},
        )
        _publish(transaction, {}, state, path)
        self._shown[name] = path, state.version, state.delta_id

    def _folder_name(self, name: str, state: _DeltaState) -> str:
        """Returns the name of the folder for a table's metadata files. A repeated attempt gets the same name, so that
        `_tidy` finds the files of the attempts that failed."""
        of = (self._options.name, self._options.catalog.get("uri", ""), name, state.delta_id)
        return hashlib.blake2b("\n".join(of).encode(), digest_size=16).hexdigest()

    def refresh(self, name: str, path: str) -> None:
        """Make the catalog's table show the newest version of the Delta table at `path`.

        Raises `BinlogError` UNSUPPORTED_TYPE if Iceberg's readers could not read the files, and UNSUPPORTED_CHANGE if
        the catalog's table is not that of this Delta table.
        """
        now = time.monotonic()
        tidy = now >= self._tidied.get(name, now - TIDY_EVERY_S) + TIDY_EVERY_S
        with self._reading(path):
            newest = DeltaTransaction(self._spark, path)
            shown = path, newest.version, newest.table_id
        if self._shown.get(name) == shown and not tidy:
            return
        # The Delta table is read last: if another job publishes a version after this line, the commit below fails.
        # Otherwise this job could publish an older version than that job has published.
        table = self._catalog.load_table(name)
        if table.properties.get(PATH_PROPERTY) != path:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"{name} in the Iceberg catalog is another table now",
                where=path,
                remedy=f"drop or rename {name} in the catalog; the mirror registers its own table within a minute",
            )
        state = self._delta(path)
        if not _shows(table, state):
            _publish(table.transaction(), _by_location(_live_files(table)), state, path)
        self._shown[name] = path, state.version, state.delta_id
        if tidy:
            self._tidied[name] = now
            self._tidy(self._catalog.load_table(name))

    def difference(self, name: str, path: str) -> str:
        """Compare the current snapshot with the version of the Delta table at `path` that the snapshot shows: data
        files, numbers of rows, columns. Returns "" if both are equal, otherwise a text that describes the
        difference."""
        if (table := self._table(name)) is None:
            return f"{name} is not in the Iceberg catalog"
        snapshot = table.current_snapshot()
        summary = None if snapshot is None else snapshot.summary
        shown = {} if summary is None else summary.additional_properties
        if VERSION not in shown:
            return f"the newest snapshot of {name} in the Iceberg catalog is not the mirror's"
        version = shown[VERSION]
        if shown.get(DELTA_ID) != DeltaTransaction(self._spark, path).table_id:
            return f"{name} in the Iceberg catalog shows the table before its last copy"
        frame = self._spark.read.format("delta").option("versionAsOf", version).load(path)
        live = _live_files(table)
        wanted = sorted(map(iceberg_location, frame.inputFiles()))
        of = f"of {name} in the Iceberg catalog, which shows version {version} of the Delta table"
        if (found := sorted(file.file_path for file in live)) != wanted:
            more, less = len(set(found) - set(wanted)), len(set(wanted) - set(found))
            return (
                f"the snapshot {of}, lists {len(found)} files instead of {len(wanted)}: {more} that this version lacks,"
                f" and not {less} of its files"
            )
        rows = sum(file.record_count for file in live)
        if (count := frame.count()) != rows:
            return f"the snapshot {of}, has {rows} rows, and this version has {count}"
        names = [field.name for field in table.schema().fields]
        if names != [iceberg_name(column) for column in frame.columns]:
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
        """Returns the newest version of the Delta table. Raises `BinlogError` if there is no Delta table, or if
        Iceberg's readers could not read it."""
        with self._reading(path):
            transaction = DeltaTransaction(self._spark, path)
            metadata, files = transaction.metadata(), transaction.all_files()
        if transaction.version < 0:
            raise BinlogError(
                ErrorKind.TARGET_FILES,
                "there is no Delta table",
                where=path,
                remedy="the mirror tries again within a minute",
            )
        if metadata["partitionColumns"]:
            raise BinlogError(
                ErrorKind.UNSUPPORTED_TYPE,
                "the Delta table has partitions, and the mirror publishes only tables without partitions",
                where=path,
            )
        return _DeltaState(transaction.version, transaction.table_id, metadata["fields"], files)

    def _table(self, name: str) -> Table | None:
        try:
            return self._catalog.load_table(name)
        except (NoSuchTableError, NoSuchNamespaceError):
            return None
        except FileNotFoundError as error:
            raise BinlogError(
                ErrorKind.TARGET_FILES,
                f"the metadata of {name} in the Iceberg catalog is lost: {error}",
                remedy=f"drop {name} in the catalog; the mirror registers it again within a minute",
            ) from error

    def _own_folder(self, table: Table) -> str:
        """Returns the folder of the table's metadata files; "" if the mirror has not made it."""
        above, _, name = table.location().rpartition("/")
        return f"{self._folder}/{name}" if above == iceberg_location(self._folder) and name else ""

    def _tidy(self, table: Table) -> None:
        """Expire the snapshots that were replaced more than `snapshot_hours` ago. Then delete the metadata files that
        no other snapshot needs, because pyiceberg itself deletes no files when it expires snapshots."""
        now = datetime.now(UTC)
        if not (expired := _replaced_before(table, now - self._keep)):
            return
        table.maintenance.expire_snapshots().by_ids(expired).commit()
        table = table.refresh()
        if not (folder := self._own_folder(table)):
            return
        names = {location.rpartition("/")[2] for location in _metadata_files(table)}
        before_ms = int((now.timestamp() - _UNFINISHED_S) * 1000)
        for name in self._files.names_before(f"{folder}/metadata", before_ms):
            if name not in names:
                self._files.delete(f"{folder}/metadata/{name}")


def _replaced_before(table: Table, moment: datetime) -> list[int]:
    """Returns the ids of the snapshots that a newer snapshot had already replaced at a moment."""
    existing = {snapshot.snapshot_id for snapshot in table.snapshots()}
    milliseconds = moment.timestamp() * 1000
    replaced = (
        entry.snapshot_id
        for entry, newer in pairwise(table.metadata.snapshot_log)
        if newer.timestamp_ms < milliseconds
    )
    current = table.metadata.current_snapshot_id
    return [number for number in dict.fromkeys(replaced) if number in existing - {current}]


def _metadata_files(table: Table) -> Iterator[str]:
    """Yields the locations of the metadata files that a table needs."""
    yield table.metadata_location
    for entry in table.metadata.metadata_log:
        yield entry.metadata_file
    for snapshot in table.snapshots():
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path


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
    snapshot = ReplaceFiles(transaction, state.summary, removes=bool(removed))
    for file in wanted:
        if file.file_path not in live:
            snapshot.append_data_file(file)
    for file in removed:
        snapshot.delete_data_file(file)
    snapshot.commit()
    # If a commit fails, pyiceberg would delete the manifests that are listed here. But a commit that the catalog has
    # reported as failed may have succeeded, if its answer was lost and the request was repeated. So none are listed;
    # `_tidy` deletes the files that nothing needs.
    transaction._snapshot_producers = []  # noqa: SLF001
    transaction.commit_transaction()


def _use_schema(transaction: Transaction, state: _DeltaState) -> Schema:
    """Make the schema of `state` the current one. A table's first schema has other ids than that of `state`, because
    catalogs number the fields of a new table themselves."""
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


def _live_files(table: Table) -> list[DataFile]:
    """Returns the data files of the current snapshot."""
    if (snapshot := table.current_snapshot()) is None:
        return []
    manifests = snapshot.manifests(table.io)
    return [e.data_file for manifest in manifests for e in manifest.fetch_manifest_entry(table.io)]


def _by_location(files: Sequence[DataFile]) -> dict[str, DataFile]:
    return {file.file_path: file for file in files}
