"""The settings of MQTT: the broker, and what the daemon publishes to the broker. docs/mqtt.md describes the topics."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from dispatcher.yaml_settings.section import HostPort, SettingsSection, secret_of
from dispatcher.yaml_settings.values import ReadableFile, SecretFile, WholeNumber

_SCHEMES = {"mqtt": (1883, False), "mqtts": (8883, True)}  # default port, TLS
_URL = re.compile(r"(?P<scheme>[a-z]+)://(?P<address>[^/?#]+)/?\Z")
_TOPIC_FORBIDDEN = re.compile(r"[+#\x00-\x1f]")
TOPIC_PREFIX_BYTES_MAX = 1024


class BrokerAddress(HostPort):
    tls: bool

    @classmethod
    def read(cls, value: Any) -> BrokerAddress:
        """Raises ValueError if the value is neither mqtt://host:port nor mqtts://host:port."""
        match = _URL.match(value) if isinstance(value, str) else None
        if match is None or match["scheme"] not in _SCHEMES:
            raise ValueError("expected mqtt://host:port, or mqtts://host:port for TLS")
        if "@" in match["address"]:
            raise ValueError("must not contain a user or password; set user and password_file")
        port, tls = _SCHEMES[match["scheme"]]
        address = HostPort.parse(match["address"], port)
        return cls(host=address.host, port=address.port, tls=tls)

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{super().__str__()}"


class MqttTlsSettings(SettingsSection):
    """`ca` verifies the broker (default: the system's authorities), `cert` and `key` authenticate the daemon. The
    broker's name is always verified."""

    ca: ReadableFile | None = Field(
        default=None,
        description="The authority that signed the broker's certificate; the default is the system's authorities",
    )
    cert: ReadableFile | None = Field(default=None, description="The daemon's certificate")
    key: ReadableFile | None = Field(default=None, description="The private key of `cert`")

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("set both cert and key, or neither")
        return self


class ConsumerMqttSettings(SettingsSection):
    """What the daemon publishes about one consumer, in addition to its status and its events."""

    commits: bool = Field(
        default=False,
        description="Publish a message for each batch of transactions ([mqtt.md](mqtt.md))",
    )


def _version(value: Any) -> Any:
    return str(value) if value == 5 and not isinstance(value, bool) else value


def _host_name() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()) or "daemon"


class MqttSettings(SettingsSection):
    """The broker. `name`: the daemon's name in topics and in the client's identifier."""

    url: Annotated[BrokerAddress, BeforeValidator(BrokerAddress.read)] = Field(
        description="The address of the broker; `mqtts://host:port` for TLS"
    )
    tls: MqttTlsSettings = MqttTlsSettings()
    user: str | None = Field(
        default=None, min_length=1, description="The user of the login at the broker"
    )
    password: SecretStr | None = Field(default=None, description="The password of `user`")
    password_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the password"
    )
    name: str = Field(
        default_factory=_host_name,
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="The daemon's name in topics and in the client's identifier; the default is the name of the host",
    )
    client_id: str = Field(
        default="binlog-dispatcher-{name}",
        min_length=1,
        max_length=200,
        description="The client's identifier; `{name}` stands for `name`",
    )
    topic_prefix: str = Field(
        default="binlog-dispatcher/{name}", min_length=1, description="The beginning of all topics"
    )
    qos: WholeNumber = Field(
        default=1, ge=0, le=2, description="The quality of service of all messages"
    )
    protocol: Annotated[Literal["5", "3.1.1"], BeforeValidator(_version)] = Field(
        default="5", description="The version of MQTT"
    )
    keepalive_seconds: WholeNumber = Field(
        default=30,
        ge=5,
        le=3600,
        description="The broker reports a lost daemon as offline after 1.5 times this time",
    )
    status_seconds: WholeNumber = Field(
        default=10,
        ge=1,
        le=3600,
        description="How often the daemon publishes statuses that have changed",
    )
    # While the daemon cannot reach the broker, the newest status of each consumer waits, and at most this many events
    # and at most this many commits wait.
    max_queued_messages: WholeNumber = Field(
        default=10_000,
        ge=1,
        le=10_000_000,
        description=(
            "Largest number of events that wait for the broker, and largest number of commits that wait; beyond these"
            " limits the daemon drops the oldest"
        ),
    )

    @field_validator("topic_prefix", "client_id")
    @classmethod
    def _has_no_other_variable(cls, value: str) -> str:
        if re.search(r"[{}]", value.replace("{name}", "")):
            raise ValueError("the only variable is {name}")
        return value

    @field_validator("topic_prefix")
    @classmethod
    def _is_a_topic(cls, value: str) -> str:
        if _TOPIC_FORBIDDEN.search(value):
            raise ValueError("must not contain '+', '#' or control characters")
        if value.startswith(("/", "$")) or value.endswith("/") or "//" in value:
            raise ValueError("must not begin with '$', nor contain an empty level")
        if len(value.encode()) > TOPIC_PREFIX_BYTES_MAX:
            raise ValueError(f"must not be longer than {TOPIC_PREFIX_BYTES_MAX} bytes")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("set either password_file or password, not both")
        if self.secret is not None and self.user is None:
            raise ValueError("a password needs user; set user")
        if "tls" in self.model_fields_set and not self.url.tls:
            raise ValueError("tls needs a url that begins with mqtts://")
        return self

    @property
    def secret(self) -> str | None:
        """The password, from `password` or `password_file`; None if neither is set."""
        if self.password is None and self.password_file is None:
            return None
        return secret_of(self.password, self.password_file)

    @property
    def prefix(self) -> str:
        """`topic_prefix` with `name` in place of `{name}`."""
        return self.topic_prefix.replace("{name}", self.name)

    @property
    def identifier(self) -> str:
        """`client_id` with `name` in place of `{name}`."""
        return self.client_id.replace("{name}", self.name)

    @property
    def warnings(self) -> tuple[str, ...]:
        if self.secret is None or self.url.tls or self.url.loopback:
            return ()
        return (
            f"mqtt.url: the password goes to {self.url} unencrypted; use mqtts:// and set mqtt.tls.ca if the broker's"
            " authority is not one of the system's",
        )
