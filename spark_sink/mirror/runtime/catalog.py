"""Registers the mirrored tables in a catalog, and updates the entries of the catalog. The catalog is a catalog of Spark
(Hive metastore, Glue, Unity Catalog) or an Iceberg catalog.

Each readable table is an external table of the catalog at the table's path: it is registered when it is complete or
partial, gets its new name after a RENAME, and is removed after a DROP. Each history is registered, too, under its own
name, which does not change. `registered` of a table's record is the table's name in the catalog. This module first
changes the catalog, then posts an event (`post`), and the rules of the table's consumer update the record. So after a
crash this module makes the same change again, with the same result.

The path of a table follows from its name. So after a swap of two tables, or after a copy has replaced a table, another
Delta table is at the path. A catalog of Spark needs no change then, because readers get the columns from the Delta
table. An Iceberg catalog contains a copy of the table's metadata, which this module updates in intervals (`refresh`).

If the catalog cannot be reached, or refuses a table, the mirror still applies the table's rows. The failure is in the
program's log and in the table's record, and the registration is repeated after `AGAIN_S`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import is_not
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.file_system import FileSystem
from spark_sink.mirror.rules import remedies
from spark_sink.mirror.rules.events import Registered
from spark_sink.mirror.rules.table_record import TableRecord
from spark_sink.mirror.runtime.busy_folders import BusyFolders
from spark_sink.mirror.values.catalog_names import (
    SESSION_CATALOG,
    CatalogTemplate,
    schema_name,
    sql_name,
)
from spark_sink.mirror.values.faults import fault_of, in_one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_sink.mirror.iceberg.catalog import IcebergCatalog
    from spark_sink.mirror.values.policies import ApplyOptions, IcebergOptions

log = logging.getLogger("spark_sink.mirror")

AGAIN_S = 60.0  # time until the next attempt after a failure
CLOSE_S = 30.0  # how long the end of the job waits for a running round
_MISSING = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")
# For each consumer: the records of its tables and histories, as the consumer's rules have returned them.
Snapshots = Mapping[str, tuple[TableRecord, ...]]
Post = Callable[[str, Registered], None]  # passes an event to the rules of a consumer
_GONE = "DELTA_PATH_DOES_NOT_EXIST"
_GONE_PATH = re.compile(
    r"\[DELTA_PATH_DOES_NOT_EXIST\] (.+) doesn't exist, or is not a Delta table"
)


def wanted_name(record: TableRecord, template: CatalogTemplate) -> str:
    """Returns the name that a table should have in the catalog; "" for none.

    A table gets a name when its rows can be read for the first time. It keeps the name while it is stopped or copied
    again.
    """
    visible = record.is_live or (record.registered and not record.is_dropped)
    return template.name(record.shown_name) if visible and record.folder else ""


def same_location(one: str, other: str) -> bool:
    """True if two locations are the same folder. A path without a scheme equals the same path with any scheme."""
    first, second = (_location(text) for text in (one, other))
    if "" in (first[0], second[0]):
        return first[1] == second[1]
    return first == second


def below(location: str, folder: str) -> bool:
    """True if a location lies in a folder."""
    (scheme, path), (other, above) = _location(location), _location(folder)
    return (scheme == other or "" in (scheme, other)) and path.startswith(f"{above}/")


def _location(text: str) -> tuple[str, str]:
    """Returns the scheme with the host, and the path."""
    scheme, colon, rest = text.partition(":/")
    if not colon:
        return "", text.rstrip("/")
    # file:/x and file:///x are one location. Only the host comes from `urlsplit`: a folder's name may contain `?`.
    host = urlsplit(text).netloc if rest.startswith("/") else ""
    path = rest[1 + len(host) :] if rest.startswith("/") else f"/{rest}"
    return f"{scheme}://{host}", path.rstrip("/")


class SparkCatalog:
    """The tables in the catalogs of a Spark session. The parts of a table's name are separated by dots."""

    moves_wait = True

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark.newSession()

    def open(self) -> None:
        """Do nothing: Spark opens a catalog itself."""

    def location(self, name: str) -> str | None:
        """Returns the path of the table that the catalog has under the name, even if the path does not exist; None if
        the catalog has no such table; "" if the table has no path, or is not a Delta table."""
        try:
            rows = self._spark.sql(f"DESCRIBE TABLE EXTENDED {sql_name(name)}").collect()
        except AnalysisException as error:
            if error.getCondition() in _MISSING:
                return None
            if error.getCondition() == _GONE and (match := _GONE_PATH.search(str(error))):
                return match[1]
            raise
        facts = {row["col_name"]: row["data_type"] for row in rows}
        if str(facts.get("Provider", "")).lower() != "delta":
            return ""
        return str(facts.get("Location") or "")

    def register(self, name: str, path: str) -> None:
        """Create an external table for the Delta table at `path`, and the schema of the name if the catalog lacks it.

        If there is no Delta table at `path`, Spark creates an empty one, so the table's folder must not move during
        this call.
        """
        schema = sql_name(schema_name(name))
        if not self._spark.catalog.databaseExists(schema):
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        literal = path.replace("\\", "\\\\").replace("'", "\\'")
        self._spark.sql(f"CREATE TABLE {sql_name(name)} USING delta LOCATION '{literal}'")

    def refresh(self, name: str, path: str) -> None:
        """Do nothing: Spark reads the columns and files from the Delta table."""

    def drop(self, name: str) -> None:
        """Remove an external table from the catalog. Its files stay."""
        self._spark.sql(f"DROP TABLE IF EXISTS {sql_name(name)}")


class Catalog(Protocol):
    """The methods of a catalog that `CatalogEntries` calls. `SparkCatalog` and `IcebergCatalog` have these methods.
    `moves_wait`: True if no folder may move during a call of the catalog."""

    @property
    def moves_wait(self) -> bool: ...
    def open(self) -> None: ...
    def location(self, name: str) -> str | None: ...
    def register(self, name: str, path: str) -> None: ...
    def refresh(self, name: str, path: str) -> None: ...
    def drop(self, name: str) -> None: ...


def published_difference(
    spark: SparkSession, options: ApplyOptions
) -> Callable[[TableRecord], str]:
    """Returns a function that compares a table's Iceberg table with its Delta table, and returns "" if they are equal.
    If the options have no Iceberg catalog, the function returns "" for each table. Raises the `BinlogError` of
    `iceberg_catalog`."""
    if options.iceberg is None:
        return lambda _: ""
    folder = FileSystem(spark).qualified(options.target).rstrip("/")
    catalog = iceberg_catalog(spark, options.iceberg, folder)

    def difference(record: TableRecord) -> str:
        if not record.folder:  # a table that has never had rows
            return ""
        if not record.registered:
            return record.refused or "it is not in the Iceberg catalog yet"
        try:
            return catalog.difference(record.registered, f"{folder}/{record.folder}")
        except Exception as error:  # noqa: BLE001 - the other tables are compared, too
            return f"{record.registered} cannot be read: {in_one_line(error)}"

    return difference


def catalog_entries(
    spark: SparkSession, options: ApplyOptions, busy: BusyFolders, post: Post
) -> CatalogEntries:
    """Returns the `CatalogEntries` of a mirror whose options have a template of names. `busy`: the folders that other
    threads of the job use.

    Raises the `BinlogError` of `require_catalog` or of `IcebergCatalog`, or SETTINGS if pyiceberg is not installed.
    """
    assert options.catalog is not None
    folder = FileSystem(spark).qualified(options.target).rstrip("/")
    if options.iceberg is not None:
        catalog = iceberg_catalog(
            spark, options.iceberg, folder, lambda path: busy.sharing(path[len(folder) + 1 :])
        )
        return CatalogEntries(catalog, options.catalog, folder, post, options.iceberg.interval_s)
    require_catalog(spark, options.catalog)
    return CatalogEntries(SparkCatalog(spark), options.catalog, folder, post)


def iceberg_catalog(
    spark: SparkSession,
    options: IcebergOptions,
    folder: str,
    reading: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> IcebergCatalog:
    """Returns the Iceberg catalog of a mirror. `folder`: the target, with its file system; `reading`: returns a context
    manager for the path of a Delta table; while a thread is in this context, the table's folder does not move. Raises
    the `BinlogError` of `IcebergCatalog`, or SETTINGS if pyiceberg is not installed."""
    try:
        from spark_sink.mirror.iceberg import catalog  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"the Python package {error.name} is not installed",
            where="iceberg",
            remedy="pip install 'binlog-dispatcher[iceberg]'",
        ) from error
    return catalog.IcebergCatalog(spark, options, folder, reading)


def require_catalog(spark: SparkSession, template: CatalogTemplate) -> None:
    """Raises `BinlogError` SETTINGS if Spark does not have the catalog of the template, or has it only in memory."""
    name = template.catalog
    conf = spark.conf
    if name != SESSION_CATALOG and conf.get(f"spark.sql.catalog.{name}", None) is None:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"Spark knows no catalog {name}",
            where="catalog",
            remedy=f"set spark.sql.catalog.{name} to its class in spark.conf, or write {{database}}.{{table}} for"
            " the Hive metastore",
        )
    kind = conf.get("spark.sql.catalogImplementation", "in-memory")
    if name == SESSION_CATALOG and kind == "in-memory" and not _replaced(spark):
        raise BinlogError(
            ErrorKind.SETTINGS,
            "Spark's own catalog is in memory: its tables would be forgotten when the job ends",
            where="catalog",
            remedy="set spark.sql.catalogImplementation to hive and spark.hadoop.hive.metastore.uris to your"
            " metastore in spark.conf, or begin the template with a catalog of spark.sql.catalog.NAME",
        )


def _replaced(spark: SparkSession) -> bool:
    """True if the settings of Spark replace `spark_catalog` by a catalog other than Delta's. Delta's catalog delegates
    to Spark's own catalog."""
    chosen = spark.conf.get(f"spark.sql.catalog.{SESSION_CATALOG}", "") or ""
    return not chosen.endswith("DeltaCatalog")


class _CatalogNames:
    """The ids of tables, by name in the catalog, during one round. `wanted`: the tables that should have the name
    according to their records; `held`: the tables that are registered under the name."""

    def __init__(self, records: Iterable[TableRecord], wants: Callable[[TableRecord], str]) -> None:
        self.wanted: dict[str, set[str]] = {}
        self.held: dict[str, set[str]] = {}
        self.labels: dict[str, str] = {}
        for record in records:
            if name := wants(record):
                self.wanted.setdefault(name, set()).add(record.table_id)
            if record.registered:
                self.held.setdefault(record.registered, set()).add(record.table_id)
            self.labels[record.table_id] = record.label

    def needed_by_another(self, name: str, table_id: str) -> bool:
        return bool(self.wanted.get(name, set()) - {table_id})

    def holder(self, name: str, table_id: str) -> str:
        """Returns the label of another table that is registered under the name and has to be; "" if there is none."""
        others = (self.wanted.get(name, set()) & self.held.get(name, set())) - {table_id}
        return self.labels[min(others)] if others else ""

    def registered(self, name: str, table_id: str) -> None:
        self.held.setdefault(name, set()).add(table_id)


def _relevant(record: TableRecord) -> TableRecord:
    """Returns a record without the values that this module has changed, and without serial and time, which change
    whenever the record is stored."""
    return replace(record, registered="", refused="", serial=0, at=None)


@dataclass
class CatalogEntries:
    """The entries of one application in the catalog. A separate thread calls the catalog, in rounds.

    `target`: the mirror's folder, with its file system; `refresh_s`: once this time has passed since the last round
    that called `refresh`, the next round calls `refresh` for all tables, also for tables whose entry is correct;
    `failing`: by table id, why the table does not have the wanted entry, or why the entry could not be refreshed. The
    key "" has the reason why a whole round failed.

    The caller begins no round while a folder is being moved, and moves no folder while a round runs (`is_running`), see
    `catalog_turns`. The caller can end a round early (`pause`), so that no move waits long for the catalog.
    """

    catalog: Catalog
    template: CatalogTemplate
    target: str
    post: Post
    refresh_s: float = float("inf")
    failing: dict[str, str] = field(default_factory=dict)
    _verified: dict[str, str] = field(default_factory=dict)  # names in the catalog, by table id
    # The last event that was posted for each table. Until the rules have handled it, its values are newer than the
    # record.
    _posted: dict[str, Registered] = field(default_factory=dict)
    _seen: Snapshots = field(default_factory=dict)  # the snapshots of the last call of `forward`
    _records: dict[str, TableRecord] = field(default_factory=dict)  # their records, by table id
    _changed: bool = True  # True if a record has changed since the last round began
    _began: bool = False  # True if a round has begun
    # By table id: the record for which the last call of `register` or `refresh` succeeded.
    _synchronized: dict[str, TableRecord] = field(default_factory=dict)
    # By table id: a record, and the name that it should have in the catalog.
    _wanted: dict[str, tuple[TableRecord, str]] = field(default_factory=dict)
    _retry_at: float = float("inf")
    _refresh_at: float = float("inf")
    _touched: bool = False  # True if a table may have changed since the beginning of the last round with a refresh
    _round: threading.Thread | None = None
    _paused: bool = False

    def close(self) -> None:
        """Make the running round end after its current table, and wait for this end up to CLOSE_S: the catalog may not
        answer."""
        self._paused = True
        if self._round is not None:
            self._round.join(CLOSE_S)

    @property
    def moves_wait(self) -> bool:
        """True if no folder may move while a round runs."""
        return self.catalog.moves_wait

    @property
    def is_running(self) -> bool:
        """True while a round runs."""
        return self._round is not None and self._round.is_alive()

    def pause(self) -> None:
        """Make the running round end after its current table. The next call of `forward` begins a new round."""
        self._paused = True

    def touch(self) -> None:
        """Note that a mirrored table may have changed."""
        self._touched = True

    def forward(self, snapshots: Snapshots, *, at_rest: bool = False) -> bool:
        """Begin a round if records have changed, if the last round failed or was paused, or if a refresh is due.
        `at_rest`: True if the caller waits only for the catalog; a refresh is then due as soon as a table may have
        changed. Returns True if no round is needed now, and the records contain the results of all rounds."""
        self._look_at(snapshots)
        if self.is_running:
            return False
        now = time.monotonic()
        refreshes = self.refresh_s < float("inf")
        refresh = refreshes and (now >= self._refresh_at or (at_rest and self._touched))
        settled = not (self._changed or self._paused) and now < self._retry_at
        if settled and not refresh:
            return self._is_handled(snapshots)
        if refresh or not self._began or self._paused:
            refresh, self._touched = refreshes, False
            self._refresh_at = now + self.refresh_s
        self._changed, self._began, self._paused = False, True, False
        # The process can end while a catalog does not answer.
        self._round = threading.Thread(
            target=self._guarded, args=(dict(snapshots), refresh), name="catalog", daemon=True
        )
        self._round.start()
        return False

    def _look_at(self, snapshots: Snapshots) -> None:
        """Look for records that have changed since the last call. The rules return the same tuple until a record
        changes, and replace only the records that change."""
        before, self._seen = self._seen, dict(snapshots)
        self._changed |= before.keys() != snapshots.keys()
        for consumer, records in snapshots.items():
            old = before.get(consumer, ())
            if old is records:
                continue
            for record in (*compress(records, map(is_not, records, old)), *records[len(old) :]):
                known = self._records.get(record.table_id)
                self._records[record.table_id] = record
                is_same = known is not None and _relevant(known) == _relevant(record)
                self._changed |= not is_same

    def _is_handled(self, snapshots: Snapshots) -> bool:
        """True if the rules have handled all events that were posted. No round may be running."""
        for posted in list(self._posted.values()):
            record = self._records[posted.table_id]
            if (record.registered, record.refused) == (posted.name, posted.refused):
                del self._posted[posted.table_id]
            elif record.consumer in snapshots:
                return False
        return True

    def _guarded(self, snapshots: Snapshots, refresh: bool) -> None:
        try:
            self.catalog.open()
            self.failing.pop("", None)
            self.synchronize(snapshots, refresh=refresh)
        except Exception as error:
            self._retry_at = time.monotonic() + AGAIN_S
            text = f"the tables could not be registered in the catalog: {in_one_line(error)}"
            if self.failing.get("") != text:
                log.warning("%s; tried again each %.0f s", text, AGAIN_S)
                log.debug("the whole error", exc_info=error)
            self.failing[""] = text

    def _newest(self, record: TableRecord) -> TableRecord:
        """Returns the record with the values of the last event that was posted for the record's table."""
        if (posted := self._posted.get(record.table_id)) is None:
            return record
        return replace(record, registered=posted.name, refused=posted.refused)

    def synchronize(self, snapshots: Snapshots, *, refresh: bool = False) -> None:
        """Change the catalog's entries so that they agree with the records. `refresh`: True to call the catalog's
        `refresh` also for entries that agree already. A failure at one table does not affect other tables."""
        self._retry_at = float("inf")
        records = [self._newest(record) for of in snapshots.values() for record in of]
        names = _CatalogNames(records, self._wants)
        for record in records:
            if self._paused:
                return
            want, has = self._wants(record), record.registered
            settled = want == has == self._verified.get(record.table_id, "")
            # The folder may be moving. When the move has ended, the record changes, so a later round handles it.
            if record.move is not None:
                continue
            try:
                if not settled or record.refused:
                    self._synchronize_table(record, want, names)
                elif want and (refresh or self._differs(record)):
                    # The table may be in another folder, or its folder may contain a copy of it.
                    self.catalog.refresh(want, self._path(record))
                self._synchronized[record.table_id] = record
            except Exception as error:  # noqa: BLE001 - the catalog never ends the mirror
                self._failed(record, want or has, error)

    def _differs(self, record: TableRecord) -> bool:
        """True if the record differs from the record for which the last call of the catalog succeeded."""
        synchronized = self._synchronized.get(record.table_id)
        if synchronized is record:
            return False
        return synchronized is None or _relevant(synchronized) != _relevant(record)

    def _wants(self, record: TableRecord) -> str:
        """Returns the name that a table should have in the catalog; "" for none."""
        known = self._wanted.get(record.table_id)
        if known is None or known[0] is not record:
            known = self._wanted[record.table_id] = record, wanted_name(record, self.template)
        return known[1]

    def _synchronize_table(self, record: TableRecord, want: str, names: _CatalogNames) -> None:
        has = record.registered
        if has and has != want and not names.needed_by_another(has, record.table_id):
            self._drop(has)
        if want:
            self._register(record, want, names)
        self._verified[record.table_id] = want
        self._post_if_changed(record, want)
        self.failing.pop(record.table_id, None)
        if want != has:
            done = f"registered as {want}" if want else f"{has} is no longer in the catalog"
            log.info("%s: %s: %s", record.consumer, record.label, done)

    def _post_if_changed(self, record: TableRecord, name: str, refused: str = "") -> None:
        """Post to the rules how a table is registered, if that has changed."""
        if (name, refused) != (record.registered, record.refused):
            posted = self._posted[record.table_id] = Registered(record.table_id, name, refused)
            self.post(record.consumer, posted)

    def _drop(self, name: str) -> None:
        location = self.catalog.location(name)
        if location is None:
            return
        if below(location, self.target):
            self.catalog.drop(name)
        else:
            log.warning(
                "%s stays in the catalog: it is not the mirror's, but at %s", name, location
            )

    def _register(self, record: TableRecord, name: str, names: _CatalogNames) -> None:
        if holder := names.holder(name, record.table_id):
            raise BinlogError(
                ErrorKind.UNSUPPORTED_CHANGE,
                f"{holder} has the same name in the catalog",
                where=f"table {record.label}",
                remedy="leave one of the two out with exclude, rename it at the server, or choose other names with"
                " the setting catalog",
            )
        path = self._path(record)
        location = self.catalog.location(name)
        if location is not None and not same_location(location, path):
            if not below(location, self.target):
                raise _taken(record, name, location)
            self.catalog.drop(name)  # the entry of a table that had this name before
            location = None
        if location is None:
            self.catalog.register(name, path)
        else:
            self.catalog.refresh(name, path)
        names.registered(name, record.table_id)

    def _path(self, record: TableRecord) -> str:
        return f"{self.target}/{record.folder}"

    def _failed(self, record: TableRecord, name: str, error: Exception) -> None:
        fault = fault_of(error)
        why = str(fault) if fault is not None else in_one_line(error)
        if fault is not None and fault.kind is ErrorKind.UNSUPPORTED_TYPE and not record.history:
            why = f"{why}; {remedies.of_files_for_iceberg(record.label)}"
        text = f"not registered as {name}: {why}"
        if self.failing.get(record.table_id) != text:
            log.warning("%s: %s: %s", record.consumer, record.label, text)
            log.debug("the whole error", exc_info=error)
        self.failing[record.table_id] = text
        self._retry_at = time.monotonic() + AGAIN_S
        self._post_if_changed(record, record.registered, text)


def _taken(record: TableRecord, name: str, location: str) -> BinlogError:
    obstacle = (
        f"another table at {location}" if location else "a view, or a table that is not Delta"
    )
    return BinlogError(
        ErrorKind.UNSUPPORTED_CHANGE,
        f"{name} is {obstacle}",
        where=f"table {record.label}",
        remedy=f"drop or rename {name} in the catalog, or choose other names with the setting catalog",
    )
