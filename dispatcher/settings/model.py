"""What settings may be said, with units, defaults and limits. Units stand in the names.

Every model is frozen and knows all of its keys; `load` turns the complaints into lines of files.
Messages here never repeat a value that may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet
from dispatcher.settings.values import (
    ByteSize,
    NameList,
    ReadableFile,
    SecretFile,
    WholeNumber,
    parse_moment,
    parse_whole_number,
    split_host_port,
)

TOKEN_LENGTH_MIN = 16
NO_SOURCE = "the source is missing: say mysql: user@host:port, or files: {path: FOLDER}"
NO_CREDENTIAL = "the password is missing: say password_file or password"
CONSUMER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?\Z|[0-9A-Fa-f:]+\Z")
_MARIADB_GTID = re.compile(r"\d+-\d+-\d+(?:\s*,\s*\d+-\d+-\d+)*\Z")


class SettingsSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ConnectionLimitSettings(SettingsSection):
    """Limits of a connection, on which consumers that share one must agree."""

    max_bytes_to_merge: ByteSize = Field(2**20, ge=0)
    max_bytes_in_all_queues: ByteSize = Field(0, ge=0)  # 0: each consumer's own limit only
    failover_wait_seconds: WholeNumber = Field(60, ge=0, le=86_400)
    max_bytes_in_binlog_dispatcher_buffer: ByteSize = Field(2**20, ge=1)
    max_flush_milliseconds_in_binlog_dispatcher: WholeNumber = Field(1000, ge=1, le=3_600_000)
    heartbeat_milliseconds: WholeNumber = Field(1000, ge=100, le=3_600_000)


class ConsumerLimitSettings(SettingsSection):
    """Limits of a consumer."""

    # What the consumer has not acknowledged, in memory; a transaction that is larger goes to disk.
    max_bytes_in_binlog_queue: ByteSize = Field(64 * 2**20, ge=1)
    # How long the others on its connection wait, in all, while this consumer's queue is full.
    max_milliseconds_to_wait_in_binlog_queue: WholeNumber = Field(10_000, ge=0, le=3_600_000)
    on_queue_full: Literal["detach", "wait"] = "detach"  # wait: without limit
    on_purged: Literal["fail", "latest"] = "fail"  # latest: go on at the end of the log
    # Of a log that does not name columns: take a table's columns as they are now where it cannot be
    # proven that they were the same then.
    assume_current_schema: bool = False


class LimitSettings(ConnectionLimitSettings, ConsumerLimitSettings):
    """What `defaults` may say and each consumer may say otherwise."""

    # False: a connection of its own, never shared.
    use_binlog_client: bool = True
    # Readers are told of transactions without data for them no more often than this.
    max_seconds_between_markers: WholeNumber = Field(60, ge=0, le=86_400)


PER_CONNECTION = (
    ("max_bytes_to_merge",),
    ("max_bytes_in_all_queues",),
    ("failover_wait_seconds",),
    ("max_bytes_in_binlog_dispatcher_buffer",),
    ("max_flush_milliseconds_in_binlog_dispatcher",),
    ("heartbeat_milliseconds",),
    ("tls",),
    ("files", "follow"),
)


class HostPort(SettingsSection):
    host: str
    port: int

    @property
    def loopback(self) -> bool:
        return _is_loopback(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class MysqlSettings(SettingsSection):
    """`user@host:port`, or `user@host1:port,host2:port` where one stands in for another; a port left out is 3306."""

    user: str
    addresses: tuple[HostPort, ...]  # in the order in which they are tried

    @classmethod
    def parse(cls, value: Any) -> MysqlSettings:
        if not isinstance(value, str):
            raise ValueError("expected text like repl@db1:3306")
        user, at, hosts = value.rpartition("@")
        # Whatever is wrong with the text, it may hold a password and is not repeated.
        if not at or not user:
            raise ValueError("expected user@host:port")
        if ":" in user:
            raise ValueError("a password does not belong here; use password_file or password")
        if "@" in user and "," in user:
            raise ValueError("the user is the same on all hosts: user@host1:port,host2:port")
        addresses = []
        for text in hosts.split(","):
            host, port = split_host_port(text.strip(), 3306)
            if port == 0:
                raise ValueError("port 0 is none")
            addresses.append(HostPort(host=host, port=port))
        for n, address in enumerate(addresses):
            if address in addresses[:n]:
                raise ValueError(f"names {address} twice")
        return cls(user=user, addresses=tuple(addresses))


class FilesSettings(SettingsSection):
    """A folder of binlog files. `prefix`: what stands before the number; None: the folder holds one log only."""

    path: Path
    prefix: str | None = Field(None, min_length=1)
    follow: bool = True  # False: what is there is all

    @field_validator("prefix")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and ("/" in value or re.search(r"\.\d+\Z", value)):
            raise ValueError(
                "expected what stands before the number, such as binlog; the folder is path"
            )
        return value


class MysqlTlsSettings(SettingsSection):
    """`mode` as in MySQL's --ssl-mode; `ca` verifies the server, `cert` and `key` tell who we are. Without TLS the
    password goes out encrypted with `server_public_key`, or with a key that the server sends."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: ReadableFile | None = None
    cert: ReadableFile | None = None
    key: ReadableFile | None = None
    server_public_key: ReadableFile | None = None
    allow_public_key_retrieval: bool = False

    @model_validator(mode="after")
    def _fits(self) -> MysqlTlsSettings:
        if self.mode not in ("disabled", "preferred"):
            if self.server_public_key is not None:
                raise ValueError("server_public_key is of use with mode disabled or preferred only")
            if self.allow_public_key_retrieval:
                what = "allow_public_key_retrieval is of use with mode disabled or preferred only"
                raise ValueError(what)
        if self.server_public_key is not None and self.allow_public_key_retrieval:
            raise ValueError("server_public_key is the key; leave allow_public_key_retrieval out")
        if self.ca is not None and not self.mode.startswith("verify"):
            raise ValueError("ca is of use with mode verify_ca or verify_identity only")
        if self.cert is not None and self.mode in ("disabled", "preferred"):
            raise ValueError("cert is of use with mode required or a stricter one only")
        if self.key is not None and self.cert is None:
            raise ValueError("key needs cert beside it")
        return self


class StartSettings(SettingsSection):
    """Where a consumer begins that has no stored position: one of the five forms of `at`."""

    at: Literal["earliest", "latest", "gtid", "file", "timestamp"] = "latest"
    gtid: str = ""  # executed set, canonical; MariaDB: domain-server-sequence per domain
    file: str = ""
    offset: int = 4
    timestamp_us: int = 0  # microseconds since 1970 UTC

    @classmethod
    def parse(cls, value: Any) -> StartSettings:
        if value == "earliest":
            return cls(at="earliest")
        if value == "latest":
            return cls(at="latest")
        keys = set(value) if isinstance(value, dict) else set()
        if keys == {"gtid"} and isinstance(value["gtid"], str):
            return cls(at="gtid", gtid=_canonical_gtid(value["gtid"]))
        if keys == {"file", "offset"} and isinstance(value["file"], str) and value["file"]:
            offset = parse_whole_number(value["offset"])
            if offset < 4:
                raise ValueError("offset: a binlog's first event is at 4")
            return cls(at="file", file=value["file"], offset=offset)
        if keys == {"timestamp"}:
            return cls(at="timestamp", timestamp_us=parse_moment(value["timestamp"]))
        raise ValueError(
            "expected earliest, latest, {timestamp: 2026-11-21T12:00:00Z}, {gtid: SET}"
            " or {file: binlog.000001, offset: 4}"
        )


def _canonical_gtid(text: str) -> str:
    if _MARIADB_GTID.match(text.strip()):
        return re.sub(r"\s", "", text)
    try:
        return str(GtidSet.parse(text))
    except BinlogError as error:
        raise ValueError(f"{error.what}; {error.remedy}") from None


class ConnectionSettings(ConnectionLimitSettings):
    """A server, or a folder of its files, and how to reach it."""

    mysql: Annotated[MysqlSettings | None, BeforeValidator(MysqlSettings.parse)] = None
    files: FilesSettings | None = None
    password: SecretStr | None = None
    password_file: SecretFile | None = Field(None, repr=False)
    tls: MysqlTlsSettings = MysqlTlsSettings()

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.files is not None:
            for key in ("mysql", "password", "password_file", "tls"):
                if key in self.model_fields_set:
                    goes = "" if key == "mysql" else f" ({key} goes with mysql)"
                    raise ValueError(f"say either files or mysql, not both{goes}")
        elif self.mysql is None:
            raise ValueError(NO_SOURCE)
        elif (self.password is None) == (self.password_file is None):
            both = "say either password_file or password, not both"
            raise ValueError(NO_CREDENTIAL if self.password is None else both)
        return self

    @property
    def secret(self) -> str:
        """The password, wherever it came from."""
        secret = self.password if self.password is not None else self.password_file
        assert secret is not None
        return secret.get_secret_value()

    @property
    def connection_key(self) -> tuple[str | None, ...]:
        """Equal for consumers that read through one connection, or the same files."""
        if self.files is not None:
            return "files", str(self.files.path), self.files.prefix
        assert self.mysql is not None
        return self.mysql.user, self.secret, *map(str, self.mysql.addresses)

    @property
    def label(self) -> str:
        """`user@host:port`, `user@host1:port,host2:port`, or `files:/folder`."""
        if self.files is not None:
            return f"files:{self.files.path / (self.files.prefix or '')}"
        assert self.mysql is not None
        return f"{self.mysql.user}@{','.join(map(str, self.mysql.addresses))}"


class SubscriptionSettings(ConsumerLimitSettings):
    """What a consumer reads, wherever it comes from."""

    databases: NameList = Field(min_length=1)
    tables: NameList | None = Field(None, min_length=1)  # "database.table"; None: all
    start: Annotated[StartSettings, BeforeValidator(StartSettings.parse)] = StartSettings()

    @model_validator(mode="after")
    def _has_tables_of_its_databases(self) -> Self:
        for table in self.tables or ():
            if not any(table.startswith(f"{name}.") for name in self.databases):
                raise ValueError(f"tables: {table!r} is not database.table of one of the databases")
        return self


class ConsumerSettings(LimitSettings, SubscriptionSettings, ConnectionSettings):
    """A declared reader."""


class Listen(SettingsSection):
    """Port 0 takes any free one."""

    host: str = "127.0.0.1"
    port: int = 8085

    @classmethod
    def parse(cls, value: Any) -> Listen:
        if not isinstance(value, str):
            raise ValueError("expected text like 127.0.0.1:8085")
        host, port = split_host_port(value, 8085)
        return cls(host=host, port=port)

    @property
    def loopback(self) -> bool:
        return _is_loopback(self.host)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _host_name(value: str) -> str:
    if not _HOST_NAME.match(value):
        raise ValueError("expected a host name or address without a port, such as db.example.com")
    return value.lower()


def _scope(value: Any) -> Any:
    names = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not names and value != "all":
        raise ValueError("expected all or a list of consumers")
    return value


ScopeName = Literal["read", "acknowledge", "administer", "metrics"]
OpenName = Literal["metrics", "docs", "readyz"]


class TokenSettings(SettingsSection):
    """`scopes`: None = read and acknowledge, and metrics if it is for all consumers."""

    token: SecretStr | None = None
    token_file: SecretFile | None = Field(None, repr=False)
    consumers: Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_scope)]
    scopes: tuple[ScopeName, ...] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> TokenSettings:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("say either token_file or token")
        if len(self.secret) < TOKEN_LENGTH_MIN:
            raise ValueError(f"a token has at least {TOKEN_LENGTH_MIN} characters")
        return self

    @property
    def secret(self) -> str:
        secret = self.token if self.token is not None else self.token_file
        assert secret is not None
        return secret.get_secret_value()


class ApiTlsSettings(SettingsSection):
    cert: ReadableFile
    key: ReadableFile


class ApiLimitSettings(SettingsSection):
    """What one client of the API can take from the daemon."""

    # Beyond it the connection that has waited longest without a request is closed.
    max_connections: WholeNumber = Field(default=4096, ge=16, le=1_000_000)
    max_polls_per_consumer: WholeNumber = Field(default=64, ge=1, le=100_000)  # open at a time
    # Answers of `binlog` that are not sent yet. Spark asks for one per partition that it reads.
    max_answers_per_consumer: WholeNumber = Field(default=64, ge=1, le=100_000)
    max_bytes_in_request: ByteSize = Field(default=2**20, ge=2**12, le=2**30)  # of a request's body
    # How long a request's headers, and then its body, may take to arrive.
    header_timeout_seconds: WholeNumber = Field(default=10, ge=1, le=3600)
    body_timeout_seconds: WholeNumber = Field(default=30, ge=1, le=3600)
    # How long a reader may take for the next 1 MiB of an answer before its connection is closed.
    write_timeout_seconds: WholeNumber = Field(default=60, ge=1, le=3600)


class ApiSettings(ApiLimitSettings):
    """`hosts`: names beside the listen address under which people reach the API; `open`: what needs no token."""

    listen: Annotated[Listen, BeforeValidator(Listen.parse)] = Listen()
    hosts: tuple[Annotated[str, AfterValidator(_host_name)], ...] = ()
    tokens: tuple[TokenSettings, ...] = ()
    open: tuple[OpenName, ...] = ()
    tls: ApiTlsSettings | None = None


class StateSettings(SettingsSection):
    """Two limits for all consumers together; 0: what would go there stops its consumer."""

    path: Path = Path("/var/lib/binlog-dispatcher/state.db")
    # Files beside `path`, for transactions that are larger than their consumer's queue.
    max_bytes_in_spill: ByteSize = Field(default=10 * 2**30, ge=0)
    # Rows of XA transactions that are prepared and not committed yet.
    max_bytes_in_prepared: ByteSize = Field(default=256 * 2**20, ge=0)


class LogSettings(SettingsSection):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class Settings(SettingsSection):
    consumers: dict[str, ConsumerSettings]
    api: ApiSettings = ApiSettings()
    state: StateSettings = StateSettings()
    log: LogSettings = LogSettings()
    warnings: tuple[str, ...] = ()  # what is not an error; a line each, with its remedy

    def secrets(self) -> tuple[str, ...]:
        """Every secret in it, for the log to leave out."""
        servers = (consumer for consumer in self.consumers.values() if consumer.mysql is not None)
        passwords = (consumer.secret for consumer in servers)
        return tuple(dict.fromkeys((*passwords, *(token.secret for token in self.api.tokens))))
