"""The settings, with their defaults and limits, as frozen pydantic models. The names of most keys contain the unit of
the value.

Unknown keys are errors. The module `load` turns validation errors into messages with file and line; messages never
repeat a value that may contain a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from dispatcher.model.errors import BinlogError
from dispatcher.model.gtid import GtidSet
from dispatcher.model.nearest import nearest
from dispatcher.model.subscription import (
    SYSTEM_DATABASES,
    NamePatterns,
    Subscription,
    TablePattern,
    is_pattern,
)
from dispatcher.settings.api import ApiSettings
from dispatcher.settings.front import FrontSettings
from dispatcher.settings.mqtt import ConsumerMqttSettings, MqttSettings
from dispatcher.settings.webhook import WebhookSettings
from dispatcher.yaml_settings.section import HostPort, SettingsSection, secret_of
from dispatcher.yaml_settings.server import MysqlSettings, MysqlTlsSettings
from dispatcher.yaml_settings.values import (
    ByteSize,
    NameList,
    SecretFile,
    WholeNumber,
    parse_timestamp,
    parse_whole_number,
)

NO_SOURCE = "the source is missing: set mysql to user@host:port, or files to {path: FOLDER}"
NO_CREDENTIAL = "the password is missing: set password_file or password"
CONSUMER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")

_SAME = "Consumers that share a connection must have equal values."
_DATABASE_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_MARIADB_GTID = re.compile(r"\d+-\d+-\d+(?:\s*,\s*\d+-\d+-\d+)*\Z")


class ConnectionLimitSettings(SettingsSection):
    """Limits of a connection. Consumers that share a connection must have equal values."""

    max_bytes_to_merge: ByteSize = Field(
        default=2**20,
        ge=0,
        description=f"Two dispatchers are merged if at most this many bytes of the log lie between them. {_SAME}",
    )
    max_bytes_in_all_queues: ByteSize = Field(
        default=0,
        ge=0,
        description=f"Limit of the memory of all queues of the connection together; 0: no common limit. {_SAME}",
    )
    failover_wait_seconds: WholeNumber = Field(
        default=60,
        ge=0,
        le=86_400,
        description=f"How long the daemon waits for another host of `mysql` to reach the consumers' positions. {_SAME}",
    )
    max_bytes_in_binlog_dispatcher_buffer: ByteSize = Field(
        default=4 * 2**20,
        ge=1,
        description=(
            f"Size of the receive buffer; the daemon moves at most this many bytes to the queues at a time. {_SAME}"
        ),
    )
    max_flush_milliseconds_in_binlog_dispatcher: WholeNumber = Field(
        default=1000,
        ge=1,
        le=3_600_000,
        description=(
            f"Longest time that received events wait in the receive buffer while the server continues to send. {_SAME}"
        ),
    )
    heartbeat_milliseconds: WholeNumber = Field(
        default=1000,
        ge=100,
        le=3_600_000,
        description=(
            "How often an idle server sends a heartbeat. The connection is lost after three of these intervals "
            f"without a byte. {_SAME}"
        ),
    )
    ignore_statements_in: NameList = Field(
        default=(),
        description=(
            "Names or patterns of databases. A change of data that the server logged as a statement, on a table of "
            "these databases, stops only the consumers that read the database. List a database only if no trigger, "
            "view, MERGE table or stored function that such statements use changes other databases "
            f"([sources.md](sources.md#statements-in-the-log)). {_SAME}"
        ),
    )


class ConsumerLimitSettings(SettingsSection):
    """Limits of one consumer, independent of its connection."""

    max_bytes_in_binlog_queue: ByteSize = Field(
        default=64 * 2**20,
        ge=1,
        description="Limit of the unacknowledged bytes in memory; a single transaction that is larger goes to disk",
    )
    max_milliseconds_to_wait_in_binlog_queue: WholeNumber = Field(
        default=10_000,
        ge=0,
        le=3_600_000,
        description=(
            "Wait budget: how long in total the other consumers of the connection wait while this consumer's queue is "
            "full. A used budget grows again by 5 % of the elapsed time"
        ),
    )
    on_queue_full: Literal["detach", "wait"] = Field(
        default="detach",
        description=(
            "When the budget of `max_milliseconds_to_wait_in_binlog_queue` is used up, the other consumers continue "
            "without this one (`detach`) or wait without a limit (`wait`)"
        ),
    )
    on_purged: Literal["fail", "latest"] = Field(
        default="fail",
        description=(
            "What happens if the server has purged transactions that the consumer needs: with `fail` the consumer"
            " stops; with `latest` it continues at the end of the log, in a new epoch"
        ),
    )
    assume_current_schema: bool = Field(
        default=False,
        description=(
            "What happens if the log does not contain the names of a table's columns, and the table may have changed"
            " after the event: with true the daemon uses the table's current columns; with false the consumer stops"
            " ([metadata.md](metadata.md))"
        ),
    )


class MarkerSettings(SettingsSection):
    """How often a reader gets a position that reports progress without data."""

    max_seconds_between_markers: WholeNumber = Field(
        default=60,
        ge=0,
        le=86_400,
        description=(
            "Shortest time between two markers; a marker moves a reader past transactions that hold no data for its "
            "consumer"
        ),
    )


class LimitSettings(ConnectionLimitSettings, ConsumerLimitSettings, MarkerSettings):
    """The keys of `defaults`. A consumer may override each of them."""

    instead: ClassVar[Mapping[str, str]] = {
        "hosts": "list several hosts in mysql: user@host1:port,host2:port",
        **{key: f"set the {key} in mysql: user@host:port" for key in ("host", "port", "user")},
        "failover_wait": "did you mean 'failover_wait_seconds'?",
        "max_bytes_in_spill": "set it in state, where it applies to all consumers",
        "max_bytes_in_prepared": "set it in state, where it applies to each connection",
    }

    use_binlog_client: bool = Field(
        default=True,
        description=(
            "true: the consumer shares a connection with other consumers; false: it has a connection of its own"
        ),
    )
    mqtt: ConsumerMqttSettings = ConsumerMqttSettings()


# The keys that must be equal for consumers that share a connection.
PER_CONNECTION = (
    *((key,) for key in ConnectionLimitSettings.model_fields),
    ("tls",),
    ("files", "follow"),
)


class FilesSettings(SettingsSection):
    """A folder of binlog files. `prefix` chooses the log; without a prefix the folder may contain only one log."""

    path: Path = Field(
        description="A folder of binlog files, read instead of a server ([files.md](files.md))"
    )
    prefix: str | None = Field(
        default=None,
        min_length=1,
        description="The part of the file names before the number; needed if the folder contains several logs",
    )
    follow: bool = Field(default=True, description="false: stop at the end of the newest file")

    @field_validator("prefix")
    @classmethod
    def _is_a_name(cls, value: str | None) -> str | None:
        if value is not None and ("/" in value or re.search(r"\.\d+\Z", value)):
            raise ValueError(
                "expected the file names before the number, such as binlog; the folder goes into path"
            )
        return value


class StartSettings(SettingsSection):
    """Where a consumer without a stored position begins. `at` decides which of the other fields apply."""

    at: Literal["earliest", "latest", "gtid", "file", "timestamp"] = "latest"
    gtid: str = ""  # executed GTID set, canonical; MariaDB: domain-server-sequence per domain
    file: str = ""
    offset: int = 4
    timestamp_us: int = 0  # microseconds since 1970 UTC

    @classmethod
    def parse(cls, value: Any) -> StartSettings:
        if value in ("earliest", "latest"):
            return cls(at=value)
        keys = set(value) if isinstance(value, dict) else set()
        if keys == {"gtid"} and isinstance(value["gtid"], str):
            return cls(at="gtid", gtid=_canonical_gtid(value["gtid"]))
        if keys == {"file", "offset"} and isinstance(value["file"], str) and value["file"]:
            offset = parse_whole_number(value["offset"])
            if offset < 4:
                raise ValueError(
                    "offset must be at least 4, where the first event of a binlog file begins"
                )
            return cls(at="file", file=value["file"], offset=offset)
        if keys == {"timestamp"}:
            return cls(at="timestamp", timestamp_us=parse_timestamp(value["timestamp"]))
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
    """A source: a server with its login, or a folder of binlog files."""

    mysql: Annotated[MysqlSettings | None, BeforeValidator(MysqlSettings.parse)] = Field(
        default=None,
        description=(
            "The server; for failover several hosts, `user@host1:port,host2:port`, which the daemon tries in this "
            "order. The default port is 3306. Set either `mysql` or `files` ([sources.md](sources.md))"
        ),
    )
    files: FilesSettings | None = None
    password: SecretStr | None = Field(
        default=None,
        description="The account's password; better `password_file`, or `${NAME}` for an environment variable",
    )
    password_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the password"
    )
    tls: MysqlTlsSettings = MysqlTlsSettings()

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if self.files is not None:
            for key in ("mysql", "password", "password_file", "tls"):
                if key in self.model_fields_set:
                    why = "" if key == "mysql" else f" ({key} belongs to mysql)"
                    raise ValueError(f"set either files or mysql, not both{why}")
        elif self.mysql is None:
            raise ValueError(NO_SOURCE)
        elif (self.password is None) == (self.password_file is None):
            both = "set either password_file or password, not both"
            raise ValueError(NO_CREDENTIAL if self.password is None else both)
        return self

    @property
    def secret(self) -> str:
        """The password, from `password` or from the file `password_file`."""
        return secret_of(self.password, self.password_file)

    @property
    def connection_key(self) -> tuple[str | None, ...]:
        """The identity of the source: consumers with equal keys share a connection to the server, or read the folder
        together."""
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


class TablePatternSettings(SettingsSection):
    """Databases and tables, as names or shell-style patterns."""

    databases: NameList = Field(
        min_length=1,
        description="Names or shell-style patterns of databases ([operating.md](operating.md#databases-and-tables))",
    )
    tables: NameList | None = Field(
        default=None,
        min_length=1,
        description="Names or patterns of tables, as `database.table`; the default is all tables of the databases",
    )
    exclude_tables: NameList = Field(
        default=(), description="Names or patterns of tables that are left out"
    )

    @model_validator(mode="after")
    def _has_tables_of_its_databases(self) -> Self:
        excluded = Subscription(["*", *SYSTEM_DATABASES], self.excluded_patterns)
        for key, texts in (("tables", self.tables or ()), ("exclude_tables", self.exclude_tables)):
            for text in texts:
                database, table = self._split(text)
                if not table:
                    in_database = f"{self.databases[0]}.{text}"
                    raise ValueError(
                        f"{key}: {text!r} has no database; write database.table, such as {in_database}"
                    )
                if not self._may_read(database):
                    raise ValueError(
                        f"{key}: the database of {text!r} is not in databases"
                        f"{nearest(database, self.databases)}; correct {key}, or add {database} to databases"
                    )
                literal = not is_pattern(database) and not is_pattern(table)
                if key == "tables" and literal and excluded.has_table(database, table):
                    raise ValueError(
                        f"tables: exclude_tables excludes {text!r}; remove one of them"
                    )
        return self

    def _may_read(self, database: str) -> bool:
        """True if the consumer reads this database. If `database` is a pattern: True if the consumer may read a
        database that the pattern matches."""
        if not is_pattern(database):
            return Subscription(self.databases).has_database(database)
        pattern = NamePatterns([database])
        return any(is_pattern(name) or pattern.match(name) for name in self.databases)

    def _split(self, text: str) -> TablePattern:
        """The patterns of database and table. A name may contain a dot if it is one of `databases`."""
        for name in sorted(self.databases, key=len, reverse=True):
            if text.startswith(f"{name}."):
                return name, text[len(name) + 1 :]
        database, _, table = text.partition(".")
        return database, table

    @property
    def table_patterns(self) -> tuple[TablePattern, ...] | None:
        return None if self.tables is None else tuple(map(self._split, self.tables))

    @property
    def excluded_patterns(self) -> tuple[TablePattern, ...]:
        return tuple(map(self._split, self.exclude_tables))


class SubscriptionSettings(ConsumerLimitSettings, TablePatternSettings):
    """The databases and tables that a consumer reads, and where it begins."""

    start: Annotated[StartSettings, BeforeValidator(StartSettings.parse)] = Field(
        default=StartSettings(),
        description=(
            "Where the consumer begins if it has no stored position: `latest`, `earliest`, `{gtid: SET}`, `{file: "
            "binlog.000042, offset: 4}`, `{timestamp: 2026-11-21T12:00:00Z}`"
        ),
    )


class ConsumerSettings(LimitSettings, SubscriptionSettings, ConnectionSettings):
    """One consumer: its subscription, its source and its limits."""


class DeclaredConsumer(ConsumerSettings):
    """A consumer that a token has declared over the API. No settings file contains one: `declared` makes it from a
    declaration and the limits of its source."""

    declared_by: str  # the name of the token; "" if the settings had no tokens
    excluded_by_source: tuple[TablePattern, ...] = ()


class SourceSettings(
    ConsumerLimitSettings, MarkerSettings, TablePatternSettings, ConnectionSettings
):
    """A source for which tokens may declare consumers over the API, and the limits of these consumers.

    `databases`, `tables`, `exclude_tables`: what a declared consumer may read.
    """

    names: NameList = Field(
        min_length=1,
        description=(
            "Names or patterns, such as `spark-*`, of the consumers that may be declared; no consumer of the "
            "settings may have such a name"
        ),
    )
    max_consumers: WholeNumber = Field(
        default=100,
        ge=1,
        le=10_000,
        description="Largest number of declared consumers of this source",
    )
    max_consumers_per_token: WholeNumber = Field(
        default=20,
        ge=1,
        le=10_000,
        description="Largest number of consumers of this source that tokens with the same `name` may declare",
    )
    max_days_unread: WholeNumber = Field(
        default=14,
        ge=0,
        le=3650,
        description="The daemon removes a declared consumer that no reader has called for so many days; 0: never",
    )


class StateDatabase(SettingsSection):
    """`user@host:port/database`. The default port is 3306."""

    user: str
    address: HostPort
    database: str

    @classmethod
    def parse(cls, value: Any) -> StateDatabase:
        """Raises ValueError; the text may contain a password, so no message repeats it."""
        server, slash, database = value.rpartition("/") if isinstance(value, str) else ("", "", "")
        if not slash or not database:
            raise ValueError("expected user@host:port/database")
        # A server may write a name with capitals into its log in lower case, and statements would have to quote other
        # names.
        if not _DATABASE_NAME.match(database):
            rule = "at most 64 lower-case letters, digits and '_', beginning with a letter"
            raise ValueError(f"invalid name of a database for the state; use {rule}")
        mysql = MysqlSettings.parse(server)
        if len(mysql.addresses) > 1:
            raise ValueError(
                "name one address: two daemons that write to different servers would both lead; after a failover the"
                " address must lead to the server that is writable"
            )
        return cls(user=mysql.user, address=mysql.addresses[0], database=database)

    def __str__(self) -> str:
        return f"{self.user}@{self.address}/{self.database}"


class StateSettings(SettingsSection):
    """The state store: a file, or a database that several daemons share. If a limit is reached, a consumer that needs
    more space stops. A limit may be 0."""

    path: Path = Field(
        default=Path("/var/lib/binlog-dispatcher/state.db"),
        description="The SQLite file with the positions, on a local disk; one daemon per file",
    )
    mysql: Annotated[StateDatabase | None, BeforeValidator(StateDatabase.parse)] = Field(
        default=None,
        description=(
            "Instead of `path`: a database on MySQL (5.7 or newer) or MariaDB (10.5 or newer) that contains only the "
            "state. Several daemons may share it: one leads, the others stand by. No consumer reads a database of this"
            " name, on any server"
        ),
    )
    password: SecretStr | None = Field(
        default=None,
        description="The password of the account in `mysql`; better `password_file`, or `${NAME}`",
    )
    password_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the password"
    )
    tls: MysqlTlsSettings = MysqlTlsSettings()
    lease: WholeNumber = Field(
        default=4,
        ge=1,
        le=3600,
        description=(
            "With `mysql`: the time after which another daemon takes over if the leader does not renew its lease; the"
            " leader renews its lease three times in this time"
        ),
    )
    spill_path: Path | None = Field(
        default=None,
        description="The folder for transactions larger than their queues; the default is `path` followed by `.spill`",
    )
    max_bytes_in_spill: ByteSize = Field(
        default=10 * 2**30,
        ge=0,
        description=(
            "Limit of the size of all files in `spill_path`, which contain transactions larger than their queues"
        ),
    )
    max_bytes_in_prepared: ByteSize = Field(
        default=256 * 2**20,
        ge=0,
        description="Limit of the size of the rows of prepared XA transactions, for each connection",
    )

    @model_validator(mode="after")
    def _has_one_store(self) -> StateSettings:
        given = self.model_fields_set
        if self.mysql is None:
            for key in ("password", "password_file", "tls", "lease"):
                if key in given:
                    raise ValueError(
                        f"{key} belongs to mysql: set mysql to user@host:port/database, or remove {key}"
                    )
        elif "path" in given:
            raise ValueError("set either path or mysql, not both")
        elif (self.password is None) == (self.password_file is None):
            both = "set either password_file or password, not both"
            raise ValueError(NO_CREDENTIAL if self.password is None else both)
        return self

    @property
    def secret(self) -> str:
        """The password of the account in `mysql`."""
        return secret_of(self.password, self.password_file)

    @property
    def label(self) -> str:
        """The store's name in messages: the path, or `user@host:port/database`."""
        return str(self.path if self.mysql is None else self.mysql)

    @property
    def spill_folder(self) -> Path:
        return self.spill_path or Path(f"{self.path}.spill")


class LogSettings(SettingsSection):
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="The daemon writes lines of this level and of more severe levels",
    )
    format: Literal["console", "json"] = Field(
        default="console",
        description="`console` for people; `json` for programs, with one object per line",
    )


class Settings(SettingsSection):
    consumers: dict[str, ConsumerSettings]
    sources: dict[str, SourceSettings] = Field(default_factory=dict)
    api: ApiSettings = ApiSettings()
    front: FrontSettings | None = None  # None: no replication client is served
    state: StateSettings = StateSettings()
    log: LogSettings = LogSettings()
    mqtt: MqttSettings | None = None  # None: the daemon publishes nothing
    webhook: WebhookSettings | None = None  # None: the daemon sends no events
    warnings: tuple[str, ...] = ()  # each text says what is risky and what to do

    def secrets(self) -> tuple[str, ...]:
        """All passwords and tokens; the log redacts them."""
        connections = (*self.consumers.values(), *self.sources.values())
        passwords = (each.secret for each in connections if each.mysql is not None)
        tokens = (token.secret for token in self.api.tokens)
        broker = self.mqtt.secret if self.mqtt is not None else None
        receiver = self.webhook.secret_text if self.webhook is not None else None
        store = self.state.secret if self.state.mysql is not None else None
        others = (secret for secret in (broker, receiver, store) if secret)
        return tuple(dict.fromkeys((*passwords, *tokens, *others)))
