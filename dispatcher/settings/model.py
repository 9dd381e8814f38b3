"""What settings may be said, with units, defaults and limits. Units stand in the names.

Every model is frozen and knows all of its keys; `load` turns the complaints into lines of files.
Messages here never repeat a value that may hold a secret.
"""

from __future__ import annotations

import ipaddress
import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

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

TOKEN_LENGTH_MIN = 16
NO_SOURCE = "the source is missing: say mysql: user@host:port, or files: {path: FOLDER}"
NO_CREDENTIAL = "the password is missing: say password_file or password"
CONSUMER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?B|B)\Z", re.IGNORECASE)
_UNITS = {"B": 1} | {
    f"{letter}{infix}B".upper(): base**power
    for power, letter in enumerate("KMGT", 1)
    for infix, base in (("", 1000), ("i", 1024))
}
_MARIADB_GTID = re.compile(r"\d+-\d+-\d+(?:\s*,\s*\d+-\d+-\d+)*\Z")
_HOST_PORT = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\]]*))(?::(?P<port>\d{1,5}))?\Z")


def parse_bytes(value: Any) -> int:
    """64MiB, "1 MB", 4096: bytes. KB is 1000, KiB 1024; a bare K would leave open which."""
    if isinstance(value, str) and (match := _SIZE.match(value.strip())):
        # Decimal, because a float has no room for all the digits of a large size.
        return int(Decimal(match[1]) * _UNITS[match[2].upper()])
    return parse_whole_number(value, "a number of bytes like 4096, 64MiB or 1 MB")


def parse_whole_number(value: Any, expected: str = "a whole number") -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value.strip()):
        return int(value)
    # YAML's true is not 1 here.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"expected {expected}, not {value!r}")


def split_host_port(text: str, default_port: int) -> tuple[str, int]:
    match = _HOST_PORT.match(text)
    host = match and (match["v6"] or match["host"])
    port = int(match["port"] or default_port) if match else -1
    if not host or not 0 <= port <= 65535:
        raise ValueError("expected host:port, with IPv6 addresses like [::1]:3306")
    return host.lower(), port


def _read_secret(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected the name of a file")
    try:
        return Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"the file {value} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file {value} is not UTF-8 text") from None


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror}") from None
    return path


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for n, name in enumerate(names):
        if not name:
            raise ValueError("holds an empty name")
        if name in names[:n]:
            raise ValueError(f"names {name!r} twice")
    return names


ByteSize = Annotated[int, BeforeValidator(parse_bytes)]
WholeNumber = Annotated[int, BeforeValidator(parse_whole_number)]
SecretFile = Annotated[SecretStr, BeforeValidator(_read_secret)]  # its content
ReadableFile = Annotated[Path, AfterValidator(_readable)]
Names = Annotated[tuple[str, ...], AfterValidator(_distinct)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Limits(Section):
    """What `defaults` may say and each consumer may say otherwise."""

    # False: a connection of its own, never shared.
    use_binlog_client: bool = True
    # What the consumer has not acknowledged; a larger single transaction is still admitted.
    max_bytes_in_binlog_queue: ByteSize = Field(64 * 2**20, ge=1)
    # These three belong to the connection, so consumers that share one must agree on them.
    max_bytes_in_binlog_dispatcher_buffer: ByteSize = Field(2**20, ge=1)
    max_flush_milliseconds_in_binlog_dispatcher: WholeNumber = Field(1000, ge=1, le=3_600_000)
    heartbeat_milliseconds: WholeNumber = Field(1000, ge=100, le=3_600_000)
    # Readers are told of transactions without data for them no more often than this.
    max_seconds_between_markers: WholeNumber = Field(60, ge=0, le=86_400)
    # Of a log that does not name columns: take a table's columns as they are now where it cannot be
    # proven that they were the same then.
    assume_current_schema: bool = False


PER_CONNECTION = (
    ("max_bytes_in_binlog_dispatcher_buffer",),
    ("max_flush_milliseconds_in_binlog_dispatcher",),
    ("heartbeat_milliseconds",),
    ("tls",),
    ("files", "follow"),
)


class Mysql(Section):
    """`user@host:port`; the port may be left out, 3306 then."""

    user: str
    host: str
    port: int

    @classmethod
    def parse(cls, value: Any) -> Mysql:
        if not isinstance(value, str):
            raise ValueError("expected text like repl@db1:3306")
        user, at, address = value.rpartition("@")
        # Whatever is wrong with the text, it may hold a password and is not repeated.
        if not at or not user:
            raise ValueError("expected user@host:port")
        if ":" in user:
            raise ValueError("a password does not belong here; use password_file or password")
        host, port = split_host_port(address, 3306)
        if port == 0:
            raise ValueError("port 0 is none")
        return cls(user=user, host=host, port=port)


class Files(Section):
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


class MysqlTls(Section):
    """`mode` as in MySQL's --ssl-mode; `ca` verifies the server, `cert` and `key` tell who we are."""

    mode: Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"] = "preferred"
    ca: ReadableFile | None = None
    cert: ReadableFile | None = None
    key: ReadableFile | None = None

    @model_validator(mode="after")
    def _fits(self) -> MysqlTls:
        if self.ca is not None and not self.mode.startswith("verify"):
            raise ValueError("ca is of use with mode verify_ca or verify_identity only")
        if self.cert is not None and self.mode in ("disabled", "preferred"):
            raise ValueError("cert is of use with mode required or a stricter one only")
        if self.key is not None and self.cert is None:
            raise ValueError("key needs cert beside it")
        return self


class Start(Section):
    """Where a consumer begins that has no stored position: one of the four forms of `at`."""

    at: Literal["earliest", "latest", "gtid", "file"] = "latest"
    gtid: str = ""  # executed set, canonical; MariaDB: domain-server-sequence per domain
    file: str = ""
    offset: int = 4

    @classmethod
    def parse(cls, value: Any) -> Start:
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
        raise ValueError(
            "expected earliest, latest, {gtid: SET} or {file: binlog.000001, offset: 4}"
        )


def _canonical_gtid(text: str) -> str:
    if _MARIADB_GTID.match(text.strip()):
        return re.sub(r"\s", "", text)
    try:
        return str(GtidSet.parse(text))
    except BinlogError as error:
        raise ValueError(f"{error.what}; {error.remedy}") from None


class Consumer(Limits):
    mysql: Annotated[Mysql | None, BeforeValidator(Mysql.parse)] = None
    files: Files | None = None
    password: SecretStr | None = None
    password_file: SecretFile | None = Field(None, repr=False)
    tls: MysqlTls = MysqlTls()
    databases: Names = Field(min_length=1)
    tables: Names | None = Field(None, min_length=1)  # "database.table"; None: all
    start: Annotated[Start, BeforeValidator(Start.parse)] = Start()

    @model_validator(mode="after")
    def _fits(self) -> Consumer:
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
        for table in self.tables or ():
            if not any(table.startswith(f"{name}.") for name in self.databases):
                raise ValueError(f"tables: {table!r} is not database.table of one of the databases")
        return self

    @property
    def secret(self) -> str:
        """The password, wherever it came from."""
        secret = self.password if self.password is not None else self.password_file
        assert secret is not None
        return secret.get_secret_value()

    @property
    def connection_key(self) -> tuple[str | int | None, ...]:
        """Equal for consumers that read through one connection, or the same files."""
        if self.files is not None:
            return "files", str(self.files.path), self.files.prefix
        assert self.mysql is not None
        return self.mysql.user, self.secret, self.mysql.host, self.mysql.port

    @property
    def label(self) -> str:
        """`user@host:port`, or `files:/folder`."""
        if self.files is not None:
            return f"files:{self.files.path / (self.files.prefix or '')}"
        assert self.mysql is not None
        host = f"[{self.mysql.host}]" if ":" in self.mysql.host else self.mysql.host
        return f"{self.mysql.user}@{host}:{self.mysql.port}"


class Listen(Section):
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
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _scope(value: Any) -> Any:
    names = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not names and value != "all":
        raise ValueError("expected all or a list of consumers")
    return value


class Token(Section):
    token: SecretStr | None = None
    token_file: SecretFile | None = Field(None, repr=False)
    consumers: Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_scope)]

    @model_validator(mode="after")
    def _fits(self) -> Token:
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


class ApiTls(Section):
    cert: ReadableFile
    key: ReadableFile


class Api(Section):
    listen: Annotated[Listen, BeforeValidator(Listen.parse)] = Listen()
    tokens: tuple[Token, ...] = ()
    tls: ApiTls | None = None


class State(Section):
    path: Path = Path("/var/lib/binlog-dispatcher/state.db")


class Log(Section):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["console", "json"] = "console"


class Settings(Section):
    consumers: dict[str, Consumer]
    api: Api = Api()
    state: State = State()
    log: Log = Log()

    def secrets(self) -> tuple[str, ...]:
        """Every secret in it, for the log to leave out."""
        servers = (consumer for consumer in self.consumers.values() if consumer.mysql is not None)
        passwords = (consumer.secret for consumer in servers)
        return tuple(dict.fromkeys((*passwords, *(token.secret for token in self.api.tokens))))
