"""Settings of the mirror. If several sources contain a setting, the mirror uses the value of the first of them: the
command line, the environment (`SPARK_SINK_*`), the YAML files, the defaults.

The rules for the files are those of the daemon's settings: `${NAME}` stands for an environment variable, unknown and
duplicate keys are errors, and one message reports all errors with file and line. No token or password can be given on
the command line, because every user of the machine can read the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from dispatcher.binlog.table_map.column_types import (
    MASK_SECRET_MIN,
    InvalidDates,
    Mask,
    MaskForm,
)
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.names import folded_name
from dispatcher.yaml_settings.section import SettingsSection, parse_listen
from dispatcher.yaml_settings.source import read_sources
from dispatcher.yaml_settings.validation import raise_findings, read_section
from dispatcher.yaml_settings.values import ByteSize, SecretFile, WholeNumber
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import (
    Deletes,
    InvalidValue,
    MetadataColumn,
    OnDifference,
    PurgedChanges,
    TablePolicy,
    UnfollowedChange,
    UnknownTables,
)
from spark_sink.source.http.endpoint import DaemonEndpoint

ENVIRONMENT = "SPARK_SINK_"
_SNAPSHOTS_MAX = 10_000  # the list of this many names has 7 MB
_WINDOW = re.compile(r"([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d\Z")
_INTERVAL = re.compile(r"\d+(\.\d+)?\s*(ms|milliseconds?|s|seconds?|minutes?|hours?)\Z")


def _consumers(value: Any) -> Any:
    """Converts a list of consumers' names to a dictionary in which each consumer has empty settings."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if isinstance(value, list):
        if len(set(map(str, value))) != len(value):
            raise ValueError("a consumer is named twice; one query reads one consumer")
        return {str(name): {} for name in value}
    if isinstance(value, dict):
        return {name: {} if section is None else section for name, section in value.items()}
    return value


def _null_as_text(value: Any) -> Any:
    """YAML parses an unquoted `null` as None, not as a text."""
    return "null" if value is None else value


def _pattern(value: str) -> str:
    if value != "*" and value.count(".") != 1:
        raise ValueError(f"write it like database.table or database.*, not {value!r}")
    return value


Pattern = Annotated[str, BeforeValidator(_pattern)]


class MirroredConsumer(SettingsSection):
    """A consumer to mirror. `include`, `exclude`: patterns like `shop.*`; an excluded table is not mirrored."""

    include: tuple[Pattern, ...] = Field(
        default=("*",), description="Patterns of the consumer's tables that are mirrored"
    )
    exclude: tuple[Pattern, ...] = Field(
        default=(),
        description="Patterns of tables that are not mirrored although `include` matches them",
    )

    def with_server_names(self, lower_case_table_names: int) -> MirroredConsumer:
        """Returns the settings with each pattern in the form that a server with this value compares."""

        def folded(patterns: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(folded_name(text, lower_case_table_names) for text in patterns)

        names = {"include": folded(self.include), "exclude": folded(self.exclude)}
        return self.model_copy(update=names)

    def excludes(self, name: tuple[str, str]) -> bool:
        label = ".".join(name)
        included = any(fnmatchcase(label, pattern) for pattern in self.include)
        return not included or any(fnmatchcase(label, pattern) for pattern in self.exclude)


NamingKey = Literal["mask", "omit_columns"]
NAMING_KEYS: tuple[NamingKey, ...] = ("mask", "omit_columns")
"""The keys of a table's settings that name columns of the server's table."""


class TableSettings(SettingsSection):
    """Policies for the tables that match a pattern. If a policy is None, the next matching pattern decides."""

    unknown_tables: Literal["copy", "partial", "stop"] | None = Field(
        default=None,
        description=(
            "What to do if rows of a table arrive and the log has no CREATE TABLE for it; the default is `copy` if "
            "`copy.mysql` is set, else `stop`"
        ),
    )
    on_gap: Literal["copy", "partial"] | None = Field(
        default=None,
        description=(
            "What to do with tables if the server has purged changes; the default is `copy` if `copy.mysql` is set, "
            "else `partial`"
        ),
    )
    on_alter: Literal["recopy", "stop", "new_column"] | None = Field(
        default=None,
        description=(
            "What to do if an ALTER changes existing rows in a way that the log does not show; the default is "
            "`recopy` ([schema-changes.md](schema-changes.md))"
        ),
    )
    on_difference: Literal["report", "repair", "stop"] | None = Field(
        default=None,
        description=(
            "What to do if the rows of a table differ from the server's rows: `report`, the default; `repair` rewrites "
            "them; `stop` stops the table ([proof.md](proof.md#when-a-table-differs))"
        ),
    )
    deletes: Literal["hard", "soft"] | None = Field(
        default=None,
        description=(
            "What to do if the server deletes a row: `hard`, the default, deletes the row; `soft` keeps it and sets "
            "its column `_deleted`"
        ),
    )
    metadata_columns: tuple[Literal["_seq", "_gtid", "_committed_at", "_deleted"], ...] | None = (
        Field(
            default=None,
            description="Additional columns that describe the transaction that wrote a row last",
        )
    )
    seconds_between_steps: float | None = Field(
        default=None,
        ge=0,
        le=86_400,
        description="Shortest time between two steps that apply rows",
    )
    history: bool | None = Field(
        default=None,
        description=(
            "Keep each version of a row in a table of its own, `TABLE__history` "
            "([history.md](history.md#history-tables))"
        ),
    )
    change_data_feed: bool | None = Field(
        default=None,
        description="Give the Delta table a change data feed ([history.md](history.md#change-data-feed))",
    )
    omit_columns: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        description=(
            "Names of columns that the mirrored table does not have, such as generated columns that the server leaves "
            "out of the log ([types.md](types.md#generated-columns))"
        ),
    )
    mask: dict[str, Annotated[MaskForm, BeforeValidator(_null_as_text)]] | None = Field(
        default=None,
        description=(
            "Columns whose values are masked, each with a form: `sha256`, `null`, `last4` or `keyed` (a hash with "
            "`mask_secret`); columns of a key only `keyed` ([masks.md](masks.md))"
        ),
    )
    on_invalid: (
        Annotated[
            Literal["stop", "null", "quarantine"],
            BeforeValidator(_null_as_text),
        ]
        | None
    ) = Field(
        default=None,
        description=(
            "If a value is invalid for its column's type: stop the table, write NULL in its place, or also write its "
            "bytes to the quarantine ([types.md](types.md#invalid-values))"
        ),
    )
    all_versions: bool | None = Field(
        default=None,
        description=(
            "For system-versioned tables of MariaDB: mirror all versions of a row instead of the current rows "
            "([schema-changes.md](schema-changes.md#system-versioned-tables))"
        ),
    )


class CopySettings(SettingsSection):
    """The server from which existing rows are copied, and limits of the copy."""

    mysql: str = Field(
        min_length=1,
        description=(
            "The server from which rows are copied: the server that the consumer reads or, with GTIDs, a replica of it"
        ),
    )
    password: SecretStr | None = Field(default=None, description="The account's password")
    password_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the password"
    )
    tls: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = Field(
        default="preferred", description="Use of TLS, with the values of MySQL's `--ssl-mode`"
    )
    ca_file: Path | None = Field(
        default=None, description="The authority that signed the server's certificate"
    )
    parallel: WholeNumber = Field(
        default=2,
        ge=1,
        le=64,
        description="Number of ranges of a table that are read at the same time",
    )
    max_rows_per_second: WholeNumber = Field(
        default=0,
        ge=0,
        description="Largest number of rows of one table that are read per second; 0: no limit",
    )
    pause_above_threads_running: WholeNumber = Field(
        default=0,
        ge=0,
        description="Pause while the server runs more statements than this; 0: never",
    )
    pause_above_replica_lag_seconds: WholeNumber = Field(
        default=0, ge=0, description="Pause while the replica lags by more than this; 0: never"
    )
    max_bytes_in_chunk: ByteSize = Field(
        default=32 * 2**20,
        ge=2**10,
        description="Size of a range of the key, by the server's estimate of a row",
    )
    wait_seconds: WholeNumber = Field(
        default=600,
        ge=1,
        description="How long to wait for the server to execute everything that the mirror's log holds",
    )
    lock_keyless_tables: bool = Field(
        default=False,
        description=(
            "Also copy tables without a key; the mirror locks such a table while it begins a snapshot "
            "([copy.md](copy.md))"
        ),
    )

    @model_validator(mode="after")
    def _one_secret(self) -> CopySettings:
        if (self.password is None) == (self.password_file is None):
            raise ValueError("set either password_file or password")
        return self

    @property
    def secret(self) -> str:
        secret = self.password if self.password is not None else self.password_file
        assert secret is not None
        return secret.get_secret_value()


class ProveSettings(SettingsSection):
    """How the mirrored tables are compared with the server that `copy.mysql` names."""

    rows_per_second: WholeNumber = Field(
        default=1_000,
        ge=0,
        description="Largest number of rows that are read from the server per second, on average; 0: compare nothing",
    )
    share_of_time: float = Field(
        default=0.02,
        gt=0,
        le=1,
        description="Largest part of the time in which a thread of the job reads and compares rows",
    )
    every_seconds: WholeNumber = Field(
        default=86_400,
        ge=1,
        description="Time between the beginnings of two comparisons of a table that has not changed otherwise",
    )
    window: str | None = Field(
        default=None,
        description="Compare tables only at this time of day, such as `22:00-06:00` (UTC); by default at any time",
    )

    @field_validator("window")
    @classmethod
    def _times(cls, value: str | None) -> str | None:
        if value is not None and not _WINDOW.match(value):
            raise ValueError("write it like 22:00-06:00, in UTC")
        return value

    @property
    def window_s(self) -> tuple[float, float] | None:
        """Begin and end of `window`, in seconds since midnight."""
        if self.window is None:
            return None
        begin, end = (
            3600.0 * int(hour) + 60.0 * int(minute)
            for hour, minute in (each.split(":") for each in self.window.split("-"))
        )
        return begin, end


class IcebergSettings(SettingsSection):
    """The Iceberg catalog in which the mirrored tables are published."""

    name: str = Field(
        default="default",
        min_length=1,
        description=(
            "The catalog's name for pyiceberg. A catalog of `type: sql` stores tables under this name, so its readers "
            "have to use this name, too"
        ),
    )
    catalog: dict[str, SecretStr] = Field(
        min_length=1,
        description=(
            "Properties of the catalog, such as `type: rest` and `uri`, as pyiceberg names them "
            "([targets.md](targets.md#apache-iceberg))"
        ),
    )
    interval_seconds: WholeNumber = Field(
        default=60,
        ge=1,
        le=86_400,
        description="Shortest time between two snapshots of an Iceberg table",
    )
    # Delta's VACUUM deletes the files of older snapshots after seven days.
    snapshot_hours: WholeNumber = Field(
        default=24,
        ge=1,
        le=144,
        description="How long a snapshot of an Iceberg table can still be read after a newer one has replaced it",
    )

    @property
    def snapshots_max(self) -> int:
        """How many snapshots of a table can be readable at a time."""
        return self.snapshot_hours * 3600 // self.interval_seconds


class SparkSettings(SettingsSection):
    """The Spark that the job starts itself. `conf` overrides every setting of the job."""

    master: str = Field(
        default="local[*,4]", description="The master of the Spark that the command starts itself"
    )
    driver_memory: Annotated[str, Field(pattern=r"^\d+[kmgt]$")] = Field(
        default="2g", description="Memory of the driver's JVM"
    )
    conf: dict[str, str] = Field(
        default={},
        description="Settings of Spark; they override all settings of Spark that the job makes",
    )

    @field_validator("conf", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        if wrong := [pair for pair in value if "=" not in str(pair)]:
            raise ValueError(f"write it like spark.x=1, not {wrong[0]!r}")
        return {
            key.strip(): text.strip() for key, _, text in (pair.partition("=") for pair in value)
        }


class MirrorSettings(SettingsSection):
    """All settings of the job."""

    url: str = Field(
        description="Address of the daemon's API; with several daemons all addresses, separated by commas"
    )
    consumers: Annotated[dict[str, MirroredConsumer], BeforeValidator(_consumers)] = Field(
        min_length=1
    )
    target: str = Field(
        min_length=1,
        description="The folder of the mirror, any path that Spark can write; tables are at `TARGET/database/table`",
    )
    catalog: str | None = Field(
        default=None,
        description=(
            "Name of each table in one of Spark's catalogs, such as `main.{database}.{table}`; by default the "
            "tables are in no catalog ([targets.md](targets.md#names-in-a-catalog))"
        ),
    )
    iceberg: IcebergSettings | None = Field(
        default=None,
        description=(
            "Also publish the tables in an Iceberg catalog, under the names of `catalog` "
            "([targets.md](targets.md#apache-iceberg))"
        ),
    )
    stages: Literal["log", "apply", "both"] = Field(
        default="both", description="`log` reads from the daemon, `apply` writes the tables"
    )
    token: SecretStr | None = Field(default=None, description="A bearer token of the daemon")
    token_file: Path | None = Field(
        default=None,
        description="A file that contains the token; read again for each request, on the executors too",
    )
    ca_file: Path | None = Field(
        default=None, description="The authority that signed the daemon's certificate"
    )
    available_now: bool = Field(
        default=False,
        description=(
            "Mirror all changes up to the position at which the server's log ends when the job starts, then end"
        ),
    )
    trigger_interval: str = Field(
        default="0 seconds",
        description=(
            "Shortest time between two appends to the log, such as `2 seconds`. While the tables are several appends "
            "behind, the job also pauses after each append for as long as it took, at most 1 s"
        ),
    )
    fail_on_data_loss: bool = Field(
        default=True,
        description="Stop if the server has purged changes; false: skip them and continue, see `on_gap`",
    )
    max_bytes_per_trigger: ByteSize | None = Field(
        default=None,
        ge=1,
        description="Largest size of an append to the log; the default is half of the limit of the consumer's queue",
    )
    max_partitions: WholeNumber = Field(
        default=4,
        ge=1,
        le=254,
        description="Number of slices in which the data of an append is read",
    )
    max_bytes_per_partition: ByteSize = Field(
        default=64 * 2**20,
        ge=1,
        description="Largest size of a slice; a larger transaction is cut into several slices",
    )
    retry_timeout_seconds: WholeNumber = Field(
        default=600, ge=1, description="How long to wait for a daemon that does not answer"
    )
    parallel_tables: WholeNumber = Field(
        default=2,
        ge=1,
        le=64,
        description="Number of tables to which changes are applied at the same time",
    )
    max_bytes_per_step: ByteSize = Field(
        default=256 * 2**20,
        ge=2**20,
        description="Largest size of the part of the log that one step applies to a table",
    )
    max_bytes_waiting: ByteSize = Field(
        default=256 * 2**20,
        ge=2**20,
        description="Memory of each consumer for changes that wait for a step of their table; each table has a"
        " share of it, and its further changes wait in the log",
    )
    invalid_dates: Annotated[InvalidDates, BeforeValidator(_null_as_text)] = Field(
        default=InvalidDates.NULL,
        description="What a date like 0000-00-00 becomes ([types.md](types.md#invalid-dates))",
    )
    log_days: WholeNumber = Field(
        default=7,
        ge=0,
        le=36_500,
        description="The mirror deletes days of its log that are older than this and that all tables have applied",
    )
    delta_log_hours: WholeNumber = Field(
        default=24,
        ge=1,
        le=87_600,
        description="The commits of a table's Delta log are kept for so long, but at most the newest 20,000: time"
        " travel, and streams that read the table, can go back to them ([spark.md](spark.md#commits-of-a-table))",
    )
    mask_secret: SecretStr | None = Field(
        default=None,
        description="The secret of the mask `keyed`, at least 16 characters",
    )
    mask_secret_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the secret of the mask `keyed`"
    )
    tables: dict[Pattern, TableSettings] = Field(default_factory=dict)
    copy_from: CopySettings | None = Field(None, alias="copy")
    prove: ProveSettings = ProveSettings()
    spark: SparkSettings = SparkSettings()
    metrics: str | None = Field(
        default=None,
        description="Serve Prometheus metrics at this address, such as `127.0.0.1:9464`",
    )
    page: bool | None = Field(
        default=None,
        description=(
            "Serve [a page](mirror-page.md) without a login beside the metrics; by default only if the address of"
            " `metrics` is a loopback address"
        ),
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="Lines of this level and of more severe ones are written"
    )
    log_format: Literal["console", "json"] = Field(
        default="console",
        description="`console` writes text, `json` one object a line ([log.md](log.md#the-mirror))",
    )

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            DaemonEndpoint(value)
        except UserError as error:
            raise ValueError(f"{error.what}; {error.remedy}") from None
        return value

    @field_validator("catalog")
    @classmethod
    def _template(cls, value: str | None) -> str | None:
        if value is not None:
            CatalogTemplate.parse(value)
        return value

    @field_validator("trigger_interval")
    @classmethod
    def _interval(cls, value: str) -> str:
        if not _INTERVAL.match(value):
            raise ValueError("write it like '500 ms', '2 seconds' or '1 minute'")
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _upper(cls, value: Any) -> Any:
        return value.upper() if isinstance(value, str) else value

    @field_validator("metrics")
    @classmethod
    def _listen(cls, value: str | None) -> str | None:
        if value is not None:
            parse_listen(value)
        return value

    @model_validator(mode="after")
    def _iceberg_names(self) -> MirrorSettings:
        if self.iceberg is None:
            return self
        if self.catalog is None:
            raise ValueError(
                "iceberg needs the names of the tables: set catalog to {database}.{table}"
            )
        if len(CatalogTemplate.parse(self.catalog).parts) != 2:
            raise ValueError(
                "with iceberg, catalog has two names, such as {database}.{table}; iceberg.catalog names the catalog"
            )
        if self.iceberg.snapshots_max > _SNAPSHOTS_MAX:
            raise ValueError(
                f"iceberg would keep {self.iceberg.snapshots_max} snapshots of a table, and each new one copies their"
                f" list; for at most {_SNAPSHOTS_MAX}, raise interval_seconds or lower snapshot_hours"
            )
        return self

    @model_validator(mode="after")
    def _secret_of_masks(self) -> MirrorSettings:
        if self.mask_secret is not None and self.mask_secret_file is not None:
            raise ValueError("set either mask_secret_file or mask_secret")
        forms = (form for table in self.tables.values() for form in (table.mask or {}).values())
        if MaskForm.KEYED in forms and len(self._mask_secret) < MASK_SECRET_MIN:
            raise ValueError(
                f"the mask keyed needs a secret of at least {MASK_SECRET_MIN} characters: set mask_secret_file"
            )
        return self

    @property
    def _mask_secret(self) -> bytes:
        secret = self.mask_secret or self.mask_secret_file
        return b"" if secret is None else secret.get_secret_value().encode()

    def names_in_upper_case(self) -> list[str]:
        """Returns the patterns of tables that mean different tables depending on the server's
        `lower_case_table_names`."""
        patterns = [*self.tables]
        for consumer in self.consumers.values():
            patterns += [*consumer.include, *consumer.exclude]
        return [text for text in patterns if folded_name(text, 1) != text]

    def with_server_names(self, values: Mapping[str, int]) -> MirrorSettings:
        """Returns the settings with each pattern in the form that the server compares. `values`: the
        `lower_case_table_names` of each consumer's server.

        Raises `UserError` if the servers' values give the keys of `tables` different meanings.
        """
        consumers = {
            name: section.with_server_names(values[name])
            for name, section in self.consumers.items()
        }
        folding = {value > 0 for value in values.values()}
        if len(folding) > 1 and any(folded_name(text, 1) != text for text in self.tables):
            raise UserError(
                ErrorKind.SETTINGS,
                "tables has names in upper case, and lower_case_table_names is 0 on the server of one consumer only",
                remedy="mirror the consumers of these servers with two jobs, each with its own settings",
            )
        tables: dict[str, TableSettings] = {}
        for text, section in self.tables.items():
            name = folded_name(text, int(True in folding))
            chosen = section.model_dump(exclude_none=True)
            if name in tables:
                chosen |= tables[name].model_dump(exclude_none=True)
            tables[name] = TableSettings(**chosen)
        return self.model_copy(update={"consumers": consumers, "tables": tables})

    def policy(self, name: tuple[str, str]) -> TableSettings:
        """Returns the policies of a table: for each policy, the value of the first matching pattern that sets it, in
        the order of the file."""
        label = ".".join(name)
        chosen: dict[str, Any] = {}
        for pattern, section in self.tables.items():
            if fnmatchcase(label, pattern):
                chosen = section.model_dump(exclude_none=True) | chosen
        return TableSettings(**chosen)

    def naming_pattern(self, name: TableName, key: NamingKey) -> str | None:
        """Returns the pattern of `tables` whose value of `key` a table has; None if no pattern sets it."""
        label = ".".join(name)
        return next(
            (
                p
                for p, s in self.tables.items()
                if getattr(s, key) is not None and fnmatchcase(label, p)
            ),
            None,
        )

    def own_columns(self, name: TableName) -> tuple[tuple[NamingKey, str], ...]:
        """Returns the columns that the settings name for this table alone, not for a pattern, each with its key."""
        label = ".".join(name)
        return tuple(
            (key, column)
            for key in NAMING_KEYS
            if self.naming_pattern(name, key) == label
            for column in getattr(self.tables[label], key)
        )

    def interval_s(self, name: tuple[str, str]) -> float:
        """Returns the shortest time between two steps of a table."""
        return self.policy(name).seconds_between_steps or 0.0

    def table_policy(self, name: TableName) -> TablePolicy:
        """Returns the policy of a table, with the default of each value that the settings do not have."""
        chosen = self.policy(name)
        unknown = UnknownTables.STOP if self.copy_from is None else UnknownTables.COPY
        return TablePolicy(
            unknown=UnknownTables(chosen.unknown_tables or unknown),
            purged=PurgedChanges(chosen.on_gap or PurgedChanges.COPY),
            unfollowed=UnfollowedChange(chosen.on_alter or UnfollowedChange.RECOPY),
            deletes=Deletes(chosen.deletes or Deletes.HARD),
            metadata=tuple(map(MetadataColumn, chosen.metadata_columns or ())),
            interval_s=chosen.seconds_between_steps or 0.0,
            history=chosen.history or False,
            feed=chosen.change_data_feed or False,
            omitted=chosen.omit_columns or (),
            all_versions=chosen.all_versions or False,
            on_difference=OnDifference(chosen.on_difference or OnDifference.REPORT),
            invalid=InvalidValue(chosen.on_invalid or InvalidValue.STOP),
            masks=tuple(
                (column, Mask(form, self._mask_secret if form is MaskForm.KEYED else b""))
                for column, form in (chosen.mask or {}).items()
            ),
        )

    def excludes(self, consumer: str, name: tuple[str, str]) -> bool:
        """True if the consumer does not mirror a table with this name. If a consumer is not in the settings, all its
        tables are mirrored."""
        section = self.consumers.get(consumer)
        return section is not None and section.excludes(name)

    def source_options(self, consumer: str) -> dict[str, str]:
        """Returns the options with which the Spark source "binlog" reads one consumer."""
        token = None if self.token_file or self.token is None else self.token.get_secret_value()
        optional: dict[str, Any] = {
            "token": token,
            "tokenFile": self.token_file,
            "caFile": self.ca_file,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
        }
        options = {key: str(value) for key, value in optional.items() if value is not None}
        return options | {
            "url": self.url,
            "consumer": consumer,
            "raw": "slices",
            "failOnDataLoss": str(self.fail_on_data_loss).lower(),
            "maxPartitions": str(self.max_partitions),
            "maxBytesPerPartition": str(self.max_bytes_per_partition),
            "retryTimeoutSeconds": str(self.retry_timeout_seconds),
            "userAgent": self._user_agent(),
        }

    @property
    def serves_page(self) -> bool:
        if self.metrics is None:
            return False
        return parse_listen(self.metrics).loopback if self.page is None else self.page

    def _user_agent(self) -> str:
        """Returns the text by which the daemon shows this reader. It contains the port of the job's page, to which the
        daemon's status page links."""
        port = parse_listen(self.metrics).port if self.metrics and self.serves_page else 0
        return f"binlog-mirror (page :{port})" if port else "binlog-mirror"


def copy_section(settings: MirrorSettings) -> CopySettings:
    """Returns the settings of copies. Raises `UserError` if the settings name no server to copy from."""
    if settings.copy_from is None:
        raise UserError(
            ErrorKind.SETTINGS,
            "the settings name no server to read tables from",
            remedy="add the section copy with mysql and password_file, and pass the file with --config",
        )
    return settings.copy_from


def require_proofs(settings: MirrorSettings) -> None:
    """Raises `UserError` if a job with these settings compares no tables with the server."""
    copy_section(settings)
    if not settings.prove.rows_per_second:
        raise UserError(
            ErrorKind.SETTINGS,
            "the settings let the job compare nothing with the server: prove.rows_per_second is 0",
            remedy="set it to the largest number of rows per second that may be read from the server, such as 1000",
        )


def load_mirror_settings(
    paths: Sequence[Path],
    overrides: Mapping[str, tuple[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> MirrorSettings:
    """Read and validate the settings. Raises one `SettingsError` that lists all errors.

    `paths`: YAML files, or folders of YAML files; a file overrides the files before it. `overrides`: maps a dotted key
    to (command line option, value). `environment` defaults to the environment of the process.
    """
    given = os.environ if environment is None else environment
    tree = read_sources(paths, overrides or {}, given, prefix=ENVIRONMENT)
    settings = read_section(tree, (), MirrorSettings, tree.values)
    raise_findings(tree)
    assert settings is not None  # without settings, `findings` is not empty
    return settings
