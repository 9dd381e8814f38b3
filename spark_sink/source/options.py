"""The options of the source. This module checks every key and every value before the source opens a connection.

Spark passes options as text and accepts any key, so a misspelled `maxBytesPerTriger` would have no effect. This module
refuses unknown keys. Its error names the most similar known key.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dispatcher.binlog.decode.changes.metadata_names import Metadata
from dispatcher.binlog.decode.changes.ops import Op
from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.position import Position
from dispatcher.model.sizes import nearest_size, size_in_bytes
from dispatcher.model.subscription import TablePattern, literal
from spark_sink.source.http.declaration import DeclareOptions
from spark_sink.source.http.endpoint import DaemonEndpoint
from spark_sink.source.places import LATEST, Place, parse_moment, parse_place
from spark_sink.source.raw_entries import SLICES_MAX
from spark_sink.source.snapshot_options import KEYS as SNAPSHOT_KEYS
from spark_sink.source.snapshot_options import SnapshotSettings, parse_snapshot

ColumnPattern = tuple[str, str, str]
"""Patterns of a database, of a table in it, and of a column."""

KEYS = {
    "url": "address of the daemon, like http://host:8085, or those of a leader and its standbys, with commas",
    "consumer": "name of a consumer in the daemon's settings",
    "databases": "of a stream, in place of consumer: names or patterns, like shop, team_*; the source declares a"
    " consumer of them, or with table or tables of these, for the query's checkpoint",
    "source": "with databases: a name of the daemon's sources; not needed if the token may use only one",
    "consumerPrefix": "with databases: the beginning of the consumer's name, default spark-",
    "token": "bearer token for the consumer",
    "tokenFile": "file that holds the token; on the driver and on every executor",
    "caFile": "PEM file of the authority that signed the daemon's certificate",
    "table": "database.table: only its rows, with before and after in its own types",
    "tables": "names or patterns, like shop.*, billing.invoices: only their rows, and statements that touch them",
    "columns": "names or patterns: with table like id, ship_*, else like shop.orders.id; others are not decoded",
    "select": "names of the stream's columns, like seq, op, after; others are not made; default all",
    "flat": "after: with table, the columns of after at top level, and for a deletion those of before",
    "flatPrefix": "with flat=after: a text like __, put before the names of the stream's own columns",
    "ops": "kinds of changes, some of insert, update, delete, ddl; rows of other kinds are not decoded; default all",
    "schemaChanges": "fail (default) or project: with table, what becomes of columns that it did not have at the start",
    "metadata": "further columns, some of " + ", ".join(Metadata),
    "raw": "true: one row per table, layout and slice, not decoded; slices: one row per slice, not read",
    "invalidDates": "null (default), error or text: what a date like 0000-00-00 becomes; text makes every date text",
    "startingOffsets": "stored (default), earliest, latest, snapshot (the rows that exist, then changes), a position as"
    " JSON, a GTID set, a time, or a file and offset; a checkpoint wins over it",
    "startingTimestamp": "in place of startingOffsets: the first transaction committed at this time (ISO 8601, or"
    " milliseconds since 1970) or later",
    "endingOffsets": "of a batch: latest (default), or as startingOffsets",
    "endingTimestamp": "of a batch, in place of endingOffsets: the last transaction before the first one committed at"
    " this time or later",
    "failOnDataLoss": "true (default): stop if the server has purged changes that were not read; false: continue",
    "maxBytesPerTrigger": "bytes in a batch, like 16MiB; default half of the queue's limit",
    "maxTransactionsPerTrigger": "transactions in a batch; default no limit",
    "minBytesPerTrigger": "bytes that a batch waits for, like 4MiB, at most maxTriggerDelay; default 0",
    "maxTriggerDelay": "like 15m (default): after this time a batch no longer waits for minBytesPerTrigger",
    "maxPartitions": "slices that a batch is read in, default 4, at most 254; more if they would be too large",
    "maxBytesPerPartition": "bytes of a slice, like 16MiB, default 64MiB; large transactions are cut, too",
    "retryTimeoutSeconds": "how long to wait for a daemon that does not answer, default 600",
    "userAgent": "how the daemon's status page shows the reader, at most 200 ASCII characters; default binlog-source",
    **SNAPSHOT_KEYS,
}
_SPELLED = {key.lower(): key for key in KEYS}
SIZE_MAX = 1 << 62
COUNT_MAX = (1 << 31) - 1

_EXCLUDING = (
    ("consumer", "databases"),
    ("token", "tokenFile"),
    ("table", "raw"),
    ("table", "tables"),
    ("tables", "raw"),
    ("columns", "raw"),
    ("select", "raw"),
    ("metadata", "raw"),
    ("ops", "raw"),
    ("startingOffsets", "startingTimestamp"),
    ("endingOffsets", "endingTimestamp"),
)

MAX_PARTITIONS = 4
MAX_PARTITION_BYTES = 64 << 20
PARTITIONS_MAX = SLICES_MAX - 1  # slices are numbered in the order of the mirror's log
RETRY_TIMEOUT_S = 600.0
MAX_TRIGGER_DELAY_S = 900.0
_DURATION = re.compile(r"(\d{1,12})\s*(ms|s|m|min|h|d|)\Z", re.ASCII | re.IGNORECASE)
_SECONDS = {"": 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_OF_A_QUERY = (
    "; Spark does not pass on what CREATE TABLE was given:"
    " SELECT ... FROM the_table WITH (url '...', consumer '...')"
)


_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """`declares`: the consumer that the source declares, None if `consumer` names an existing consumer; `start`: where
    the stream or batch begins, None for the stored position; `end`: the end of a batch, None for the newest position;
    `max_bytes`: the most bytes of a batch, None for half of the queue's limit; `table`: (database, table) or None;
    `tables`: the selected tables, None for all; `select`: the stream's columns besides `metadata`, None for all; `ops`:
    the kinds of changes, None for all; `unread`: True if the raw rows are slices; `snapshot`: the server from which the
    rows of `startingOffsets=snapshot` are read, None without this option."""

    address: DaemonEndpoint
    consumer: str
    declares: DeclareOptions | None = None
    table: tuple[str, str] | None = None
    tables: tuple[TablePattern, ...] | None = None
    columns: tuple[ColumnPattern, ...] | None = None
    select: tuple[str, ...] | None = None
    ops: frozenset[Op] | None = None
    flat: bool = False
    flat_prefix: str = ""
    project: bool = False
    metadata: tuple[Metadata, ...] = ()
    raw: bool = False
    unread: bool = False
    start: Position | Place | None = None
    end: Position | Place | None = None
    max_bytes: int | None = None
    max_transactions: int | None = None
    min_bytes: int = 0
    max_trigger_delay_s: float = MAX_TRIGGER_DELAY_S
    max_partitions: int = MAX_PARTITIONS
    max_partition_bytes: int = MAX_PARTITION_BYTES
    invalid_dates: InvalidDates = InvalidDates.NULL
    fail_on_data_loss: bool = True
    snapshot: SnapshotSettings | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Returns the checked options. Raises `UserError` with all findings at once."""
        findings: list[str] = []
        values: dict[str, str] = {}
        remedy = "correct the options; docs/spark.md describes them"
        for key, value in _of_a_table(given).items():
            if spelled := _SPELLED.get(key.lower()):
                values[spelled] = value
            else:
                near = difflib.get_close_matches(key.lower(), _SPELLED, n=1)
                hint = f", did you mean {_SPELLED[near[0]]!r}?" if near else ""
                if not near:
                    remedy = f"the options are {', '.join(KEYS)}"
                findings.append(f"unknown option {key!r}{hint}")
        needed = ("url",) if values.get("databases") else ("url", "consumer")
        findings += [f"option {key!r} is missing" for key in needed if not values.get(key)]
        for first, second in _EXCLUDING:
            if first in values and second in values and values[second].lower() != "false":
                findings.append(f"options {first!r} and {second!r} exclude each other")
        options = _ValueParser(values, findings).options()
        if findings or options is None:
            raise UserError(
                ErrorKind.SETTINGS,
                'source "binlog": ' + "; ".join(findings),
                remedy=remedy + ("" if given else _OF_A_QUERY),
            )
        return options


def _of_a_table(given: Mapping[str, str]) -> Mapping[str, str]:
    """Returns the options of `CREATE TABLE ... USING binlog OPTIONS (...)`.

    For such a table, Spark passes the options with a prefix, together with table properties such as the owner. Options
    of any other read are returned unchanged.
    """
    if given.get("provider", "").lower() != "binlog":
        return given
    prefix = "option."
    return {key[len(prefix) :]: value for key, value in given.items() if key.startswith(prefix)}


class _ValueParser:
    """Parses the values of the options and collects the errors (findings)."""

    def __init__(self, values: Mapping[str, str], findings: list[str]) -> None:
        self._values, self._findings = values, findings

    def options(self) -> SourceOptions | None:
        """Returns None if the address is invalid. The parsers of all other options run even then, so that all findings
        are collected."""
        address, consumer = self._address(), self._values.get("consumer", "")
        table, tables = self._table(), self._tables()
        columns, project, metadata = self._columns(table), self._project(), self._metadata()
        start = self._place("startingOffsets", ("stored", "earliest", "latest", "snapshot"))
        snapshot = self._snapshot()
        end = self._place("endingOffsets", ("latest",))
        raw = self._choice("raw", "false", ("true", "false", "slices"))
        max_bytes, min_bytes = self._batch_sizes()
        max_transactions = None
        if "maxTransactionsPerTrigger" in self._values:
            max_transactions = self._count("maxTransactionsPerTrigger", 1, COUNT_MAX)
        max_trigger_delay_s = self._delay()
        max_partitions = self._count("maxPartitions", MAX_PARTITIONS, PARTITIONS_MAX)
        max_partition_bytes = self._size("maxBytesPerPartition") or MAX_PARTITION_BYTES
        invalid_dates = self._invalid_dates()
        fail_on_data_loss = self._flag("failOnDataLoss", "true")
        declares = self._declares(table, tables, start)
        if address is None:
            return None
        return SourceOptions(
            address,
            consumer,
            declares=declares,
            table=table,
            tables=tables,
            columns=columns,
            select=self._select(),
            ops=self._ops(table),
            flat=self._flat(table),
            flat_prefix=self._flat_prefix(),
            project=project,
            metadata=metadata,
            raw=raw != "false",
            unread=raw == "slices",
            start=start,
            end=end,
            max_bytes=max_bytes,
            max_transactions=max_transactions,
            min_bytes=min_bytes,
            max_trigger_delay_s=max_trigger_delay_s,
            max_partitions=max_partitions,
            max_partition_bytes=max_partition_bytes,
            invalid_dates=invalid_dates,
            fail_on_data_loss=fail_on_data_loss,
            snapshot=snapshot,
        )

    def _address(self) -> DaemonEndpoint | None:
        get = self._values.get
        try:
            return DaemonEndpoint(
                get("url", ""),
                token=get("token", ""),
                token_file=get("tokenFile", ""),
                ca_file=get("caFile", ""),
                retry_timeout_s=float(self._count("retryTimeoutSeconds", int(RETRY_TIMEOUT_S))),
                user_agent=self._user_agent(),
            )
        except UserError as error:
            if get("url"):
                self._findings.append(f"option 'url': {error.what}; {error.remedy}")
            return None

    def _user_agent(self) -> str:
        text = self._values.get("userAgent", "binlog-source")
        if not re.fullmatch(r"[!-~](?:[ -~]{0,198}[!-~])?", text):
            self._findings.append(
                f"option 'userAgent' must be 1 to 200 printable ASCII characters, not {text!r}"
            )
            return ""
        return text

    def _declares(
        self,
        table: tuple[str, str] | None,
        tables: tuple[TablePattern, ...] | None,
        start: Position | Place | None,
    ) -> DeclareOptions | None:
        """Returns the declaration of the options. `start`: where the consumer begins; a position is an error, because a
        position belongs to another consumer."""
        get = self._values.get
        prefix = get("consumerPrefix", "spark-")
        if get("databases") is None:
            self._findings += [
                f"option {key!r} needs 'databases'"
                for key in ("source", "consumerPrefix")
                if key in self._values
            ]
            return None
        names = tuple(filter(None, map(str.strip, get("databases", "").split(","))))
        if not names:
            self._findings.append("option 'databases' is empty: name the databases to read")
        if isinstance(start, Position):
            self._findings.append(
                "option 'startingOffsets' cannot be a position with 'databases': name earliest, latest, a GTID set, a"
                " time or a file and offset"
            )
        if not _PREFIX.match(prefix):
            self._findings.append(
                "option 'consumerPrefix' must be at most 40 letters, digits, '_', '.' and '-', beginning with a letter"
                f" or digit, not {prefix!r}"
            )
        if table is not None:
            tables = ((literal(table[0]), literal(table[1])),)
        texts = None if tables is None else tuple(".".join(pattern) for pattern in tables)
        place = start.to if isinstance(start, Place) else LATEST.to
        return DeclareOptions(prefix, get("source"), names, texts, place)

    def _table(self) -> tuple[str, str] | None:
        text = self._values.get("table")
        if text is None:
            return None
        database, _, table = text.partition(".")
        if not database or not table:
            self._findings.append(f"option 'table' must be database.table, not {text!r}")
        return database, table

    def _tables(self) -> tuple[TablePattern, ...] | None:
        text = self._values.get("tables")
        if text is None:
            return None
        patterns = []
        for part in filter(None, map(str.strip, text.split(","))):
            database, _, table = part.partition(".")
            if not database or not table:
                hint = f", did you mean {database + '.*'!r}?" if database else ""
                self._findings.append(
                    f"option 'tables' must be a list like shop.*, billing.invoices, not {part!r}{hint}"
                )
            patterns.append((database, table))
        if not patterns:
            self._findings.append(
                "option 'tables' is empty: leave it out for all tables of the consumer"
            )
        return tuple(patterns)

    def _columns(self, table: tuple[str, str] | None) -> tuple[ColumnPattern, ...] | None:
        text = self._values.get("columns")
        if text is None:
            return None
        patterns: list[ColumnPattern] = []
        for part in filter(None, map(str.strip, text.split(","))):
            database, _, rest = part.partition(".")
            of_table, _, column = rest.rpartition(".")
            if table is not None:
                prefix = ".".join((*table, ""))
                patterns.append((literal(table[0]), literal(table[1]), part.removeprefix(prefix)))
            elif database and of_table and column:
                patterns.append((database, of_table, column))
            else:
                self._findings.append(
                    "option 'columns' without 'table' must be a list like shop.orders.id, billing.*.total, not"
                    f" {part!r}, did you mean {'*.' * (2 - part.count('.')) + part!r}?"
                )
        if not patterns and text.strip(" ,") == "":
            self._findings.append("option 'columns' is empty: leave it out for all columns")
        return tuple(patterns)

    def _select(self) -> tuple[str, ...] | None:
        text = self._values.get("select")
        if text is None:
            return None
        names = tuple(filter(None, (part.strip().lower() for part in text.split(","))))
        if not names:
            self._findings.append("option 'select' is empty: leave it out for all columns")
        return names

    def _ops(self, table: tuple[str, str] | None) -> frozenset[Op] | None:
        text = self._values.get("ops")
        if text is None:
            return None
        names = list(filter(None, (part.strip().lower() for part in text.split(","))))
        self._check_names("ops", names, list(map(str, Op)))
        if not names:
            self._findings.append("option 'ops' is empty: leave it out for all kinds of changes")
        if table is not None and set(names) == {Op.DDL}:
            self._findings.append(
                "option 'ops' selects statements alone, of which a stream with 'table' has none:"
                " use the option tables"
            )
        return frozenset(op for op in Op if op in names)

    def _flat(self, table: tuple[str, str] | None) -> bool:
        flat = self._choice("flat", "false", ("after", "false")) == "after"
        if flat and table is None:
            self._findings.append(
                "option 'flat' needs 'table': without it, rows of several tables have no columns in common"
            )
        return flat

    def _flat_prefix(self) -> str:
        prefix = self._values.get("flatPrefix", "")
        if "flatPrefix" in self._values and self._values.get("flat", "").lower() != "after":
            self._findings.append("option 'flatPrefix' needs flat=after")
        if not re.fullmatch(r"\w*", prefix):
            self._findings.append(
                f"option 'flatPrefix' must consist of letters, digits and _, like __, not {prefix!r}"
            )
        return prefix

    def _project(self) -> bool:
        if "schemaChanges" in self._values and "table" not in self._values:
            self._findings.append(
                "option 'schemaChanges' needs 'table': as JSON each row has the columns of its time"
            )
        return self._choice("schemaChanges", "fail", ("project", "fail")) == "project"

    def _metadata(self) -> tuple[Metadata, ...]:
        names = [part.strip().lower() for part in self._values.get("metadata", "").split(",")]
        self._check_names("metadata", list(filter(None, names)), list(map(str, Metadata)))
        return tuple(name for name in Metadata if name in names)

    def _check_names(self, key: str, names: Sequence[str], known: Sequence[str]) -> None:
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f", did you mean {near[0]!r}?" if near else ""
                self._findings.append(
                    f"option {key!r} must be a list of {', '.join(known)}, not {name!r}{hint}"
                )

    def _place(self, key: str, words: tuple[str, ...]) -> Position | Place | None:
        """Returns the place that the option `key` names, or that a second option names by a time. Returns None for the
        values `stored` and `snapshot`, and if neither option is given."""
        text, time_key = self._values.get(key), key.replace("Offsets", "Timestamp")
        try:
            if time_key in self._values:
                key = time_key
                return parse_moment(self._values[time_key])
            return (
                None
                if text is None or text.strip() in {"stored", "snapshot"}.intersection(words)
                else parse_place(text, words)
            )
        except ValueError as error:
            self._findings.append(f"option {key!r} {error}")
            return None

    def _snapshot(self) -> SnapshotSettings | None:
        if self._values.get("startingOffsets", "").strip() == "snapshot":
            return parse_snapshot(self._values, self._findings)
        if given := [key for key in SNAPSHOT_KEYS if key in self._values]:
            self._findings.append(f"option {given[0]!r} needs startingOffsets=snapshot")
        return None

    def _invalid_dates(self) -> InvalidDates:
        text = self._values.get("invalidDates", InvalidDates.NULL).lower()
        try:
            return InvalidDates(text)
        except ValueError:
            self._findings.append(
                f"option 'invalidDates' must be null, error or text, not {text!r}"
            )
            return InvalidDates.NULL

    def _flag(self, key: str, default: str = "false") -> bool:
        return self._choice(key, default, ("true", "false")) == "true"

    def _choice(self, key: str, default: str, known: Sequence[str]) -> str:
        text = self._values.get(key, default).lower()
        if text not in known:
            named = f"{', '.join(known[:-1])} or {known[-1]}"
            self._findings.append(f"option {key!r} must be {named}, not {text!r}")
        return text

    def _count(self, key: str, default: int, most: int = 1_000_000) -> int:
        text = self._values.get(key, str(default))
        if not (text.isdecimal() and 1 <= int(text) <= most):
            self._findings.append(f"option {key!r} must be a number from 1 to {most}, not {text!r}")
            return default
        return int(text)

    def _batch_sizes(self) -> tuple[int | None, int]:
        """Returns (the most bytes of a batch, None for the default; the number of bytes for which a batch waits)."""
        most, least = self._size("maxBytesPerTrigger"), self._size("minBytesPerTrigger") or 0
        if most is not None and least > most:
            self._findings.append(
                f"option 'minBytesPerTrigger' ({least} bytes) must not exceed 'maxBytesPerTrigger' ({most} bytes)"
            )
        return most, least

    def _delay(self) -> float:
        """Returns `maxTriggerDelay` in seconds. As in the Kafka source, a number without a unit is in milliseconds."""
        text = self._values.get("maxTriggerDelay")
        if text is None:
            return MAX_TRIGGER_DELAY_S
        if "minBytesPerTrigger" not in self._values:
            self._findings.append("option 'maxTriggerDelay' needs 'minBytesPerTrigger'")
        match = _DURATION.match(text.strip())
        if match is None:
            self._findings.append(
                f"option 'maxTriggerDelay' must be a time like 500ms, 30s, 15m or 1h, not {text!r}"
            )
            return MAX_TRIGGER_DELAY_S
        return int(match[1]) * _SECONDS[match[2].lower()]

    def _size(self, key: str) -> int | None:
        text = self._values.get(key)
        if text is None:
            return None
        text = text.strip()
        size = int(text) if text.isdecimal() and len(text) < 20 else size_in_bytes(text)
        if size is None or not 1 <= size <= SIZE_MAX:
            near = nearest_size(text)
            self._findings.append(f"option {key!r} must be a size like 16MiB, not {text!r}{near}")
            return None
        return size
