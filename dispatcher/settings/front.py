"""The settings of the front: the address at which replication clients read consumers with MySQL's protocol."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dispatcher.settings.api import ListenerTlsSettings, ScopeName
from dispatcher.yaml_settings.section import HostPort, SettingsSection
from dispatcher.yaml_settings.values import WholeNumber

CLIENT_SCOPES: frozenset[ScopeName] = frozenset(("read", "acknowledge"))
"""The scopes that the token of a client needs."""
_PORT = 3307  # next to MySQL's port


def parse_front_listen(value: Any) -> HostPort:
    """Parse the value of `front.listen`. Port 0 means any free port. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("expected text like 127.0.0.1:3307")
    return HostPort.parse(value, _PORT)


class FrontSettings(SettingsSection):
    """The section `front`. A client logs in with the name of a consumer, and with a token of `api.tokens` that is valid
    for this consumer and has the scopes `read` and `acknowledge`."""

    listen: Annotated[HostPort, BeforeValidator(parse_front_listen)] = Field(
        description=(
            "The address for replication clients, such as `127.0.0.1:3307`; an address other than loopback "
            "requires `api.tokens` and `tls`. Port 0: any free port"
        ),
    )
    tls: ListenerTlsSettings | None = None
    max_connections: WholeNumber = Field(
        default=1024,
        ge=16,
        le=1_000_000,
        description=(
            "Limit of open connections of replication clients; at most a quarter of this number may wait for their "
            "login"
        ),
    )
    acknowledge_after_seconds: WholeNumber = Field(
        default=10,
        ge=0,
        le=3600,
        description=(
            "Time after which the daemon acknowledges transactions that it has sent to a client. If the consumer's"
            " queue is full, the daemon acknowledges them at once. If a client connects again before the"
            " acknowledgement, the daemon sends the transactions again from memory, otherwise from the server's log"
        ),
    )
    write_timeout_seconds: WholeNumber = Field(
        default=60,
        ge=1,
        le=3600,
        description=(
            "Longest time that a client may take to receive the next part of a dump; after this time the daemon closes"
            " the connection"
        ),
    )
