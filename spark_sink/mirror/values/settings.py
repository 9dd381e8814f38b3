"""Settings of the mirror: command line, then environment (`SPARK_SINK_*`), then YAML files, then defaults.

The files are read as the daemon's are: `${NAME}` stands for an environment variable, unknown and duplicate keys are
errors, and all errors are reported together with file and line. A token or a password is never taken from the command
line, which every user of the machine can read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import UserError
from dispatcher.settings.load import raise_findings, read_section
from dispatcher.settings.model import parse_listen
from dispatcher.settings.section import SettingsSection
from dispatcher.settings.source import read_sources
from dispatcher.settings.values import ByteSize, SecretFile, WholeNumber
from spark_sink.mirror.values.catalog_names import CatalogTemplate
from spark_sink.source.endpoint import DaemonEndpoint

ENVIRONMENT = "SPARK_SINK_"
_INTERVAL = re.compile(r"\d+(\.\d+)?\s*(ms|milliseconds?|s|seconds?|minutes?|hours?)\Z")


def _consumers(value: Any) -> Any:
    """A list of names stands for consumers without settings of their own."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if isinstance(value, list):
        if len(set(map(str, value))) != len(value):
            raise ValueError("a consumer is named twice; one query reads one consumer")
        return {str(name): {} for name in value}
    if isinstance(value, dict):
        return {name: {} if section is None else section for name, section in value.items()}
    return value


def _pattern(value: str) -> str:
    if value != "*" and value.count(".") != 1:
        raise ValueError(f"write it like database.table or database.*, not {value!r}")
    return value


Pattern = Annotated[str, BeforeValidator(_pattern)]


class MirroredConsumer(SettingsSection):
    """A consumer to mirror. `include`, `exclude`: patterns like `shop.*`; a table that is excluded is not mirrored."""

    include: tuple[Pattern, ...] = ("*",)
    exclude: tuple[Pattern, ...] = ()

    def excludes(self, name: tuple[str, str]) -> bool:
        label = ".".join(name)
        included = any(fnmatchcase(label, pattern) for pattern in self.include)
        return not included or any(fnmatchcase(label, pattern) for pattern in self.exclude)


class TableSettings(SettingsSection):
    """Policies for the tables that a pattern names; None leaves the choice to the next pattern that fits."""

    unknown_tables: Literal["copy", "partial", "stop"] | None = None
    on_gap: Literal["copy", "partial"] | None = None
    on_alter: Literal["recopy", "stop", "new_column"] | None = None
    deletes: Literal["hard", "soft"] | None = None
    metadata_columns: tuple[Literal["_seq", "_gtid", "_committed_at", "_deleted"], ...] | None = (
        None
    )
    seconds_between_steps: float | None = Field(None, ge=0, le=86_400)
    history: bool | None = None
    change_data_feed: bool | None = None
    omit_columns: tuple[Annotated[str, Field(min_length=1)], ...] | None = None


class CopySettings(SettingsSection):
    """The server that existing rows are copied from, and how fast.

    `mysql`: user@host:port of the server that the consumer reads, or, with MySQL's GTIDs, of a replica of it.
    `parallel`: ranges of a table that are read at a time, each of about `max_bytes_in_chunk` by the server's estimate.
    `max_rows_per_second`, of one table, `pause_above_threads_running` and `pause_above_replica_lag_seconds`: 0 for no
    limit. `wait_seconds`: how long a copy waits until the server has executed the position at which the log stands.
    `lock_keyless_tables`: copy tables without a key, each of which is locked for reading for the instant in which its
    snapshot is made.
    """

    mysql: str = Field(min_length=1)
    password: SecretStr | None = None
    password_file: SecretFile | None = Field(None, repr=False)
    tls: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca_file: Path | None = None
    parallel: WholeNumber = Field(2, ge=1, le=64)
    max_rows_per_second: WholeNumber = Field(0, ge=0)
    pause_above_threads_running: WholeNumber = Field(0, ge=0)
    pause_above_replica_lag_seconds: WholeNumber = Field(0, ge=0)
    max_bytes_in_chunk: ByteSize = Field(32 * 2**20, ge=2**10)
    wait_seconds: WholeNumber = Field(600, ge=1)
    lock_keyless_tables: bool = False

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


class SparkSettings(SettingsSection):
    """The Spark that the job starts itself. `conf` wins over everything that the job sets."""

    master: str = "local[*,4]"
    driver_memory: Annotated[str, Field(pattern=r"^\d+[kmgt]$")] = "2g"
    conf: dict[str, str] = Field(default={})

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

    url: str
    consumers: Annotated[dict[str, MirroredConsumer], BeforeValidator(_consumers)] = Field(
        min_length=1
    )
    target: str = Field(min_length=1)
    catalog: str | None = None
    stages: Literal["log", "apply", "both"] = "both"
    token: SecretStr | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    available_now: bool = False
    trigger_interval: str = "0 seconds"
    fail_on_data_loss: bool = True
    max_bytes_per_trigger: ByteSize | None = Field(None, ge=1)
    max_partitions: WholeNumber = Field(4, ge=1, le=254)
    max_bytes_per_partition: ByteSize = Field(64 * 2**20, ge=1)
    retry_timeout_seconds: WholeNumber = Field(600, ge=1)
    parallel_tables: WholeNumber = Field(2, ge=1, le=64)
    max_bytes_per_step: ByteSize = Field(256 * 2**20, ge=2**20)
    # In YAML null is not a text.
    invalid_dates: Annotated[
        InvalidDates, BeforeValidator(lambda value: "null" if value is None else value)
    ] = InvalidDates.NULL
    log_days: WholeNumber = Field(7, ge=0, le=36_500)
    tables: dict[Pattern, TableSettings] = Field(default_factory=dict)
    copy_from: CopySettings | None = Field(None, alias="copy")
    spark: SparkSettings = SparkSettings()
    metrics: str | None = None
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_format: Literal["console", "json"] = "console"

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

    def policy(self, name: tuple[str, str]) -> TableSettings:
        """Returns the policies of a table: of each the first that a fitting pattern sets, in the order of the file."""
        label = ".".join(name)
        chosen: dict[str, Any] = {}
        for pattern, section in self.tables.items():
            if fnmatchcase(label, pattern):
                chosen = section.model_dump(exclude_none=True) | chosen
        return TableSettings(**chosen)

    def omitted_columns(self, name: tuple[str, str]) -> tuple[str, ...]:
        """Returns the names of the columns that the mirrored table leaves out."""
        return self.policy(name).omit_columns or ()

    def excludes(self, consumer: str, name: tuple[str, str]) -> bool:
        """True if the consumer does not mirror a table of this name. One that the settings do not have mirrors all that
        it has."""
        section = self.consumers.get(consumer)
        return section is not None and section.excludes(name)

    def source_options(self, consumer: str) -> dict[str, str]:
        """Returns the options of the source "binlog" for one consumer."""
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
        }


def load_mirror_settings(
    paths: Sequence[Path],
    overrides: Mapping[str, tuple[str, Any]] | None = None,
    environment: Mapping[str, str] | None = None,
) -> MirrorSettings:
    """Read and validate the settings. Raises `SettingsError` with all errors.

    `paths`: YAML files, or folders of them; later ones override earlier ones. `overrides`: dotted key to (command line
    option, value). `environment` defaults to that of the process.
    """
    given = os.environ if environment is None else environment
    tree = read_sources(paths, overrides or {}, given, prefix=ENVIRONMENT)
    settings = read_section(tree, (), MirrorSettings, tree.values)
    raise_findings(tree)
    assert settings is not None  # otherwise there are findings
    return settings
