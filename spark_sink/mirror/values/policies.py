"""The policies for a table: the points at which users can choose what the mirror does. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dispatcher.binlog.table_map.column_rules import ColumnRules
from dispatcher.binlog.table_map.column_types import InvalidDates, Mask
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.names import TableName


class UnknownTables(StrEnum):
    """What the mirror does when it finds rows of a table in the log, but no CREATE TABLE of this table."""

    COPY = "copy"
    PARTIAL = "partial"
    STOP = "stop"


class PurgedChanges(StrEnum):
    """What the mirror does with a table if the server purged changes of the table before the consumer had read them."""

    COPY = "copy"
    PARTIAL = "partial"


class UnfollowedChange(StrEnum):
    """What the mirror does if an ALTER TABLE changes existing rows in a way that the log does not show."""

    RECOPY = "recopy"
    STOP = "stop"
    NEW_COLUMN = "new_column"


class Deletes(StrEnum):
    """What the mirror does with a row that the server deleted."""

    HARD = "hard"  # the mirror deletes the row
    SOFT = "soft"  # the mirror keeps the row and sets its column `_deleted` to true


class OnDifference(StrEnum):
    """What the mirror does with a table that differs from the server's table, see `rules.proofs`."""

    REPORT = "report"
    REPAIR = "repair"  # the mirror rewrites the rows that differ
    STOP = "stop"  # the mirror applies no further entries to the table


class InvalidValue(StrEnum):
    """What the mirror does with a value that is invalid for its column's type, such as bytes that are no text of the
    column's character set."""

    STOP = "stop"  # the table stops
    NULL = "null"  # the mirrored row has NULL in place of the invalid value
    QUARANTINE = "quarantine"  # as NULL; and the value's bytes are written to the quarantine


class MetadataColumn(StrEnum):
    """A column that the mirror adds to a table. It describes the transaction that wrote the row last."""

    SEQ = "_seq"
    GTID = "_gtid"
    COMMITTED_AT = "_committed_at"
    DELETED = "_deleted"


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """`interval_s`: shortest time between two steps that apply rows of the table; `history`: True if the table has a
    history table; `feed`: True if the table's Delta table has a change data feed; `omitted`: names of columns that the
    mirrored table does not have; `all_versions`: True if the mirrored table has all versions of the rows of a
    system-versioned table, False if it has the current rows; `on_difference`: what happens if the table differs from
    the server's; `invalid`: what happens to an invalid value; `masks`: the masks of columns, by name."""

    unknown: UnknownTables = UnknownTables.STOP
    purged: PurgedChanges = PurgedChanges.COPY
    unfollowed: UnfollowedChange = UnfollowedChange.RECOPY
    deletes: Deletes = Deletes.HARD
    metadata: tuple[MetadataColumn, ...] = ()
    interval_s: float = 0.0
    history: bool = False
    feed: bool = False
    omitted: tuple[str, ...] = ()
    all_versions: bool = False
    on_difference: OnDifference = OnDifference.REPORT
    invalid: InvalidValue = InvalidValue.STOP
    masks: tuple[tuple[str, Mask], ...] = ()

    @property
    def rules(self) -> ColumnRules:
        """How values are changed while they are decoded."""
        return ColumnRules(self.invalid is not InvalidValue.STOP, self.masks)

    @property
    def extra(self) -> tuple[MetadataColumn, ...]:
        """The metadata columns that a table has, including the one that soft deletes need."""
        needed = (MetadataColumn.DELETED,) if self.deletes is Deletes.SOFT else ()
        return tuple(dict.fromkeys((*self.metadata, *needed)))


def is_omitted(name: str, omitted: Collection[str]) -> bool:
    """True if a policy leaves out columns of this name. Case is ignored. `omitted`: the names in the policy."""
    return name.casefold() in {other.casefold() for other in omitted}


def excludes_nothing(_consumer: str, _name: TableName) -> bool:
    return False


def names_no_columns(_: TableName) -> tuple[tuple[str, str], ...]:
    return ()


def default_policy(_: TableName) -> TablePolicy:
    return TablePolicy()


@dataclass(frozen=True, slots=True)
class IcebergOptions:
    """How the mirrored tables are published in an Iceberg catalog.

    `name`, `catalog`: the catalog's name and properties, as pyiceberg has them; `interval_s`: shortest time between two
    rounds that publish the newest rows; `snapshot_hours`: how long readers can read a snapshot after a newer one has
    replaced it.
    """

    name: str
    catalog: Mapping[str, str] = field(repr=False)
    interval_s: float = 60.0
    snapshot_hours: int = 24


DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class ProofOptions:
    """How much proofs may cost.

    `rows_per_second`: how many rows proofs may read from the server per second, on average; `share`: the part of the
    time during which proofs may read and compare rows; `every_s`: time between the beginnings of two rounds of a table;
    `window`: begin and end of the time of day in which ranges are read, in seconds since midnight UTC, None for the
    whole day; `rows_max`: the most rows of a range; `wait_s`: how long a proof waits until the mirror has applied what
    the server had executed.
    """

    rows_per_second: int = 5_000
    share: float = 0.05
    every_s: float = DAY_S
    window: tuple[float, float] | None = None
    rows_max: int = 100_000
    wait_s: float = 120.0

    def pause_s(self, rows: int, busy_s: float) -> float:
        """Returns how many seconds to wait after a range of `rows` rows on which threads have worked for `busy_s`
        seconds."""
        return max(rows / self.rows_per_second, busy_s / self.share - busy_s)

    def opens_in(self, at: float) -> float:
        """Returns the number of seconds until ranges may be read; 0 if they may be read now."""
        if self.window is None:
            return 0.0
        begin, end = self.window
        now = at % DAY_S
        is_open = begin <= now < end if begin < end else now >= begin or now < end
        return 0.0 if is_open else (begin - now) % DAY_S


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """Options of the applier, which applies the log to tables.

    `target`: folder of the mirror; `consumers`: the consumers whose entries the applier applies; `policy`: returns the
    policy of a table, by its name; `excludes`: returns True if a consumer (first argument) does not mirror the table
    with a name (second argument); `own_columns`: returns the columns that the settings name for a table alone, each
    with the key of the settings; `can_copy`: True if the settings name a server from which tables can be copied;
    `parallel`: how many steps of tables run at the same time; `step_bytes_max`: the most payload bytes of one step;
    `held_bytes_max`: memory of each consumer for entries that wait for a step;
    `poll_s`: time between two reads of the log for new entries; `log_days`: the log is kept for at least so many days;
    `delta_log_hours`: the commits of a table's Delta log are kept for so many hours;
    `catalog`: the template of the tables' names in a catalog; `iceberg`: the options of this catalog if it is an
    Iceberg catalog, None if it is a catalog of Spark; `proofs`: how much proofs may cost, None for no proofs.
    """

    target: str
    consumers: Sequence[str]
    policy: Callable[[TableName], TablePolicy] = default_policy
    excludes: Callable[[str, TableName], bool] = excludes_nothing
    own_columns: Callable[[TableName], Sequence[tuple[str, str]]] = names_no_columns
    can_copy: bool = False
    parallel: int = 2
    invalid_dates: InvalidDates = InvalidDates.NULL
    step_bytes_max: int = 256 << 20
    held_bytes_max: int = 256 << 20
    poll_s: float = 0.2
    watermark_s: float = 30.0
    retry_first_s: float = 0.5
    log_days: int = 7
    delta_log_hours: int = 24
    maintenance_s: float = 3600.0
    catalog: CatalogTemplate | None = None
    iceberg: IcebergOptions | None = None
    proofs: ProofOptions | None = None
