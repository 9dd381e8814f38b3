"""Settings of the mirror job: command line, then environment (`SPARK_SINK_*`), then defaults.

The token is never taken from the command line, which every user of the machine can read. It comes from a file or, if
none is set, from the environment variable `SPARK_SINK_TOKEN`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    CliImplicitFlag,
    NoDecode,
    SettingsConfigDict,
    SettingsError,
)

from dispatcher.binlog.table_map.column_types import InvalidDates
from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.source.client import DaemonEndpoint
from spark_sink.source.options import parse_size

_INTERVAL = re.compile(r"\d+(\.\d+)?\s*(ms|milliseconds?|s|seconds?|minutes?|hours?)\Z")


class JobSettings(BaseSettings):
    """Mirror consumers of binlog-dispatcher into Delta tables at TARGET/database/table."""

    model_config = SettingsConfigDict(
        env_prefix="SPARK_SINK_",
        extra="forbid",
        cli_prog_name="python -m spark_sink",
        cli_kebab_case=True,
        cli_exit_on_error=False,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_enforce_required=False,
    )

    url: str = Field(description="address of the daemon, like http://host:8085")
    consumer: Annotated[list[str], NoDecode] = Field(
        min_length=1,
        description="consumer to mirror; repeat it, or separate by commas, for several",
    )
    target: str = Field(description="folder of the Delta tables; any path that Spark can write")
    checkpoint: str = Field(
        description="folder of the checkpoints, one per consumer; keep it with the target"
    )
    available_now: CliImplicitFlag[bool] = Field(
        False, description="mirror up to the server's tip at the start, then end"
    )
    trigger_interval: str = Field("0 seconds", description="shortest time between two batches")
    token_file: Path | None = Field(None, description="file that holds the bearer token")
    ca_file: Path | None = Field(
        None, description="PEM file of the authority that signed the daemon's certificate"
    )
    max_bytes_per_trigger: str | None = Field(None, description="bytes in a batch, like 16MiB")
    max_partitions: int = Field(4, ge=1, description="slices that a batch is read in at most")
    retry_timeout_seconds: int = Field(
        600, ge=1, description="how long to wait for a daemon that does not answer"
    )
    parallel_tables: int = Field(
        2, ge=1, le=64, description="tables merged at a time, per consumer"
    )
    invalid_dates: InvalidDates = Field(
        InvalidDates.NULL,
        description="what a date like 0000-00-00 becomes: null, error, or text (for every date)",
    )
    shuffle_partitions: int = Field(2, ge=1, description="spark.sql.shuffle.partitions of the job")
    master: str = Field("local[*,4]", description="Spark master; spark-submit's wins")
    conf: Annotated[list[str], NoDecode] = Field(
        default_factory=list,
        description="further Spark setting as key=value; repeat it for several",
    )
    log_level: str = Field("INFO", description="DEBUG, INFO, WARNING or ERROR")

    @field_validator("consumer", "conf", mode="before")
    @classmethod
    def _separate(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value

    @field_validator("consumer")
    @classmethod
    def _distinct(cls, value: list[str]) -> list[str]:
        names = [name.strip() for name in value]
        if not all(names):
            raise ValueError("a name is empty")
        if len(set(names)) != len(names):
            raise ValueError("a consumer is named twice; one query reads one consumer")
        return names

    @field_validator("url")
    @classmethod
    def _address(cls, value: str) -> str:
        try:
            DaemonEndpoint(value)
        except UserError as error:
            raise ValueError(f"{error.what}; {error.remedy}") from None
        return value

    @field_validator("conf")
    @classmethod
    def _pairs(cls, value: list[str]) -> list[str]:
        if wrong := [pair for pair in value if "=" not in pair]:
            raise ValueError(f"write it like spark.x=1, not {wrong[0]!r}")
        return value

    @field_validator("trigger_interval")
    @classmethod
    def _interval(cls, value: str) -> str:
        if not _INTERVAL.match(value):
            raise ValueError("write it like '500 ms', '2 seconds' or '1 minute'")
        return value

    @field_validator("max_bytes_per_trigger")
    @classmethod
    def _size(cls, value: str | None) -> str | None:
        if value is not None and parse_size(value) is None:
            raise ValueError("write it like 16MiB")
        return value

    @field_validator("log_level")
    @classmethod
    def _level(cls, value: str) -> str:
        if value.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ValueError("must be DEBUG, INFO, WARNING or ERROR")
        return value.upper()

    def conf_values(self) -> dict[str, str]:
        """Returns `conf` as setting to value."""
        pairs = (pair.partition("=") for pair in self.conf)
        return {key.strip(): value.strip() for key, _, value in pairs}

    def source_options(self, consumer: str) -> dict[str, str]:
        """Returns the options of the source "binlog" for one consumer."""
        optional: dict[str, Any] = {
            "token": None if self.token_file else os.environ.get("SPARK_SINK_TOKEN"),
            "tokenFile": self.token_file,
            "caFile": self.ca_file,
            "maxBytesPerTrigger": self.max_bytes_per_trigger,
        }
        options = {key: str(value) for key, value in optional.items() if value is not None}
        return options | {
            "url": self.url,
            "consumer": consumer,
            "raw": "true",
            "maxPartitions": str(self.max_partitions),
            "retryTimeoutSeconds": str(self.retry_timeout_seconds),
        }


def load_settings(arguments: Sequence[str]) -> JobSettings:
    """Returns the settings from the command line and the environment. Raises `UserError` with all findings at once.

    `--help` prints the help and ends the process.
    """
    try:
        return JobSettings(_cli_parse_args=list(arguments))  # type: ignore[call-arg]
    except ValidationError as error:
        findings = [
            f"{_option(finding['loc'])}{_reason(finding['msg'])}" for finding in error.errors()
        ]
    except SettingsError as error:
        findings = [str(error).removeprefix("error parsing CLI: ")]
    raise UserError(
        ErrorKind.SETTINGS,
        "; ".join(findings),
        remedy=f"see {Path(sys.executable).name} -m spark_sink --help",
    )


def _option(location: Sequence[Any]) -> str:
    return f"--{str(location[0]).replace('_', '-')}: " if location else ""


def _reason(message: str) -> str:
    text = message.removeprefix("Value error, ")
    return "is missing" if text == "Field required" else text
