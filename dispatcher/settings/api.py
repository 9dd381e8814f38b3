"""The settings of the API: its address, its access rules, and limits on the resources that its clients can use."""

from __future__ import annotations

import re
import socket
from ipaddress import ip_network
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from dispatcher.yaml_settings.section import HostPort, SettingsSection, parse_listen, secret_of
from dispatcher.yaml_settings.values import ByteSize, ReadableFile, SecretFile, WholeNumber

TOKEN_LENGTH_MIN = 16
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9])?\Z|[0-9A-Fa-f:]+\Z")

_HOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
_URL = re.compile(r"https?://[A-Za-z0-9._:\[\]-]{1,200}/?\Z")


def _host_name(value: str) -> str:
    if not _HOST_NAME.match(value):
        raise ValueError(
            "expected a host name or IP address without a port, such as db.example.com"
        )
    return value.lower()


def _network(value: str) -> str:
    try:
        return str(ip_network(value, strict=True))
    except ValueError as error:
        raise ValueError(
            f"expected an IP address or a network, such as 10.0.0.5 or 10.1.0.0/16: {error}"
        ) from None


def _address(value: str | None) -> str | None:
    if value is not None and not _URL.match(value):
        raise ValueError("expected a URL without a path, such as http://dispatcher-1:8085")
    return None if value is None else value.rstrip("/")


_EXPECTED_CONSUMERS = "expected all or a list of consumer names"


def _scope(value: Any) -> Any:
    if value != "all" and not (isinstance(value, list) and all(isinstance(n, str) for n in value)):
        raise ValueError(_EXPECTED_CONSUMERS)
    return value


def _sources(value: Any) -> Any:
    names = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    if not names and value != "all":
        raise ValueError("expected all or a list of names of sources")
    return value


def _holder_name(value: str | None) -> str | None:
    if value is not None and not _HOLDER_NAME.match(value):
        rule = "at most 64 letters, digits, '_', '.' and '-', beginning with a letter or digit"
        raise ValueError(f"invalid name of a token; use {rule}")
    return value


ScopeName = Literal["read", "acknowledge", "administer", "metrics", "declare"]
OpenName = Literal["metrics", "docs", "readyz"]


class TokenSettings(SettingsSection):
    """A token of the API, and what the holder of the token may do."""

    token: SecretStr | None = Field(
        default=None, description="A bearer token of at least 16 characters"
    )
    token_file: SecretFile | None = Field(
        default=None, repr=False, description="A file that contains the token"
    )
    name: Annotated[str | None, AfterValidator(_holder_name)] = Field(
        default=None,
        description=(
            "The holder's name, required for the scope `declare`: the consumers that the token declares belong to this"
            " name. Two tokens may have the same name, for example while one replaces the other"
        ),
    )
    consumers: Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_scope)] = Field(
        description=(
            "`all`, or the names of the consumers that the token is valid for. The token is also valid for the "
            "consumers that its `name` has declared. With the scope `declare` the list may be empty"
        ),
    )
    sources: Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_sources)] = Field(
        default=(),
        description=(
            "With the scope `declare`: `all`, or the names of the `sources` for which the token may declare consumers"
        ),
    )
    scopes: tuple[ScopeName, ...] | None = Field(
        default=None,
        min_length=1,
        description=(
            "What the token allows ([http-api.md](http-api.md#tokens-and-scopes)); the default is `read` and "
            "`acknowledge`, and also `metrics` if `consumers` is `all`"
        ),
    )

    @model_validator(mode="after")
    def _fits(self) -> TokenSettings:
        if (self.token is None) == (self.token_file is None):
            raise ValueError("set either token_file or token")
        if len(self.secret) < TOKEN_LENGTH_MIN:
            raise ValueError(
                f"a token must have at least {TOKEN_LENGTH_MIN} characters; make one with: openssl rand -hex 24"
            )
        if "declare" not in (self.scopes or ()):
            if not self.consumers:
                raise ValueError(f"consumers: {_EXPECTED_CONSUMERS}")
            if self.sources:
                raise ValueError("sources needs the scope declare; add it to scopes")
        elif not self.name or not self.sources:
            missing = "sources" if self.name else "name"
            raise ValueError(f"the scope declare needs {missing}")
        return self

    @property
    def secret(self) -> str:
        return secret_of(self.token, self.token_file)

    @property
    def allowed(self) -> frozenset[ScopeName]:
        """The scopes of the token; the default scopes if the settings name none."""
        if self.scopes is not None:
            return frozenset(self.scopes)
        default: tuple[ScopeName, ...] = ("read", "acknowledge")
        return frozenset(default if self.consumers != "all" else (*default, "metrics"))

    def is_for(self, consumer: str) -> bool:
        """True for a consumer of the settings for which the token is valid."""
        return self.consumers == "all" or consumer in self.consumers


class ListenerTlsSettings(SettingsSection):
    """A section `tls` of a listener: the listener then speaks TLS."""

    cert: ReadableFile = Field(description="The certificate of the listener, with its chain")
    key: ReadableFile = Field(description="The private key of `cert`")


class ApiLimitSettings(SettingsSection):
    """Limits on the daemon's resources that clients of the API can use."""

    max_connections: WholeNumber = Field(
        default=4096,
        ge=16,
        le=1_000_000,
        description=(
            "Largest number of open connections; at the limit the daemon closes the connection that has waited longest"
            " for a request"
        ),
    )
    max_polls_per_consumer: WholeNumber = Field(
        default=64,
        ge=1,
        le=100_000,
        description=(
            "Largest number of open polls of one token for a consumer; all tokens together may have twice as many"
            " ([http-api.md](http-api.md#shares))"
        ),
    )
    # Spark requests one answer for each partition that it reads.
    max_answers_per_consumer: WholeNumber = Field(
        default=64,
        ge=1,
        le=100_000,
        description=(
            "Largest number of open calls of `read`, `binlog` and `slices` of one token for a consumer; all tokens"
            " together may have twice as many"
        ),
    )
    max_bytes_in_request: ByteSize = Field(
        default=2**20, ge=2**12, le=2**30, description="Largest size of a request's body"
    )
    header_timeout_seconds: WholeNumber = Field(
        default=10,
        ge=1,
        le=3600,
        description="Longest time until the headers of a request have arrived",
    )
    body_timeout_seconds: WholeNumber = Field(
        default=30,
        ge=1,
        le=3600,
        description="Longest time from the headers until the body has arrived",
    )
    write_timeout_seconds: WholeNumber = Field(
        default=60,
        ge=1,
        le=3600,
        description=(
            "Longest time that a reader may take to receive the next part of an answer (a part has at most 4 MiB, or"
            " is one larger event); after this time the daemon closes the connection"
        ),
    )


class ApiSettings(ApiLimitSettings):
    """The section `api`."""

    listen: Annotated[HostPort, BeforeValidator(parse_listen)] = Field(
        default=HostPort(host="127.0.0.1", port=8085),
        description=(
            "The address of the API and of the status page; an address other than loopback requires `tokens`. "
            "Port 0: any free port"
        ),
    )
    advertise: Annotated[str | None, AfterValidator(_address)] = Field(
        default=None,
        description=(
            "The URL at which readers reach this API. If several daemons share the state, a standby tells readers the"
            " URL of the leader. The default is `listen`, with the host's name in place of 0.0.0.0"
        ),
    )
    hosts: tuple[Annotated[str, AfterValidator(_host_name)], ...] = Field(
        default=(),
        description=(
            "Names that the daemon accepts in the header `Host` besides its address, without ports "
            "([http-api.md](http-api.md#host-and-origin))"
        ),
    )
    proxies: tuple[Annotated[str, AfterValidator(_network)], ...] = Field(
        default=(),
        description=(
            "Addresses and networks of the proxies in front of the daemon; the daemon trusts `X-Forwarded-For` and "
            "`X-Forwarded-Proto` from these proxies ([http-api.md](http-api.md#behind-a-proxy))"
        ),
    )
    tokens: tuple[TokenSettings, ...] = ()
    open: tuple[OpenName, ...] = Field(default=(), description="Requests that need no token")
    tls: ListenerTlsSettings | None = None

    @property
    def address(self) -> str:
        """The URL at which readers reach the API."""
        if self.advertise is not None:
            return self.advertise
        listen = self.listen
        if listen.host in _ANY_ADDRESS:
            listen = HostPort(host=socket.gethostname(), port=listen.port)
        return f"{'https' if self.tls else 'http'}://{listen}"
