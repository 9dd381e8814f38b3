"""The packets of the handshake: the greeting, the client's request for TLS, the client's response, and the request to
change the authentication method.

The greeting does not offer compression, query attributes or session tracking. The greeting sets the bit
CLIENT_LONG_PASSWORD, so that MariaDB's clients use no capabilities of MariaDB. Source: page_protocol_connection_phase
of MySQL's source code documentation; sql/auth/sql_authentication.cc (parse_client_handshake_packet).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from dispatcher.front.wire.errors import WireError
from dispatcher.front.wire.packets import Capability, ServerStatus
from dispatcher.front.wire.payload_reader import PayloadReader

NONCE_BYTES = 20
SHA2, NATIVE = "caching_sha2_password", "mysql_native_password"

_SSL_REQUEST_BYTES = 32
_COLLATION = 45  # utf8mb4_general_ci, a collation that every client knows
_OFFERED = (
    Capability.LONG_PASSWORD
    | Capability.FOUND_ROWS
    | Capability.LONG_FLAG
    | Capability.CONNECT_WITH_DB
    | Capability.ODBC
    | Capability.IGNORE_SPACE
    | Capability.PROTOCOL_41
    | Capability.INTERACTIVE
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.MULTI_RESULTS
    | Capability.PS_MULTI_RESULTS
    | Capability.PLUGIN_AUTH
    | Capability.CONNECT_ATTRS
    | Capability.PLUGIN_AUTH_LENENC
    | Capability.DEPRECATE_EOF
)
_MORE_DATA = b"\x01"


@dataclass(frozen=True, slots=True)
class Greeting:
    """The greeting, which the server sends first. `version`: the server version as text; `nonce`: NONCE_BYTES bytes
    from `new_nonce`; `tls`: True if the server offers TLS."""

    version: str
    connection_id: int
    nonce: bytes
    tls: bool

    @property
    def capabilities(self) -> Capability:
        """The capabilities that the greeting offers."""
        return _OFFERED | Capability.SSL if self.tls else _OFFERED

    def payload(self) -> bytes:
        """Return the payload of the greeting, HandshakeV10."""
        return b"".join(
            (
                b"\x0a",
                self.version.encode(),
                b"\0",
                (self.connection_id & 0xFFFFFFFF).to_bytes(4, "little"),
                self.nonce[:8],
                b"\0",
                (self.capabilities & 0xFFFF).to_bytes(2, "little"),
                bytes((_COLLATION,)),
                ServerStatus.AUTOCOMMIT.to_bytes(2, "little"),
                (self.capabilities >> 16).to_bytes(2, "little"),
                bytes((NONCE_BYTES + 1,)),
                bytes(10),
                self.nonce[8:],
                b"\0",
                SHA2.encode(),
                b"\0",
            )
        )


@dataclass(frozen=True, slots=True)
class HandshakeResponse:
    """The client's answer to the greeting. `capabilities`: the capabilities that both the front and the client have;
    `proof`: the client's answer to the nonce; `plugin`: the authentication method of `proof`, "" if the client does not
    name it; `charset`: the id of a collation."""

    user: str
    proof: bytes
    database: str | None
    plugin: str
    attributes: Mapping[str, str]
    charset: int
    capabilities: Capability


def new_nonce() -> bytes:
    """Return random bytes without NUL and '$', which are end marks in some clients and in stored passwords."""
    letters = [letter for letter in range(1, 128) if letter != ord("$")]
    return bytes(secrets.choice(letters) for _ in range(NONCE_BYTES))


def is_ssl_request(payload: bytes) -> bool:
    """True for the packet after which the client begins the handshake of TLS."""
    capabilities = int.from_bytes(payload[:4], "little")
    return len(payload) == _SSL_REQUEST_BYTES and bool(capabilities & Capability.SSL)


def parse_response(payload: bytes, offered: Capability) -> HandshakeResponse:
    """Read the client's response, HandshakeResponse41. `offered`: the capabilities of the greeting.

    Raises WireError: 1251 for clients older than MySQL 4.1, 1043 if the response cannot be parsed. The capabilities in
    the response decide which fields are read, because some clients send a field whose capability was not offered.
    """
    reader = PayloadReader(payload)
    low = reader.integer(2)
    if not low & Capability.PROTOCOL_41 or not low & Capability.SECURE_CONNECTION:
        raise WireError(
            1251,
            "Client does not support authentication protocol requested by server; consider"
            " upgrading MySQL client",
        )
    sent = Capability(low | reader.integer(2) << 16)
    reader.fixed(4)  # the largest packet that the client accepts
    charset = reader.integer(1)
    reader.fixed(23)
    user = _text(reader.until_nul())
    lenenc = sent & Capability.PLUGIN_AUTH_LENENC
    proof = reader.lenenc_text() if lenenc else reader.fixed(reader.integer(1))
    database = _text(reader.until_nul()) if sent & Capability.CONNECT_WITH_DB else ""
    plugin = _text(reader.last_text()) if sent & Capability.PLUGIN_AUTH else ""
    attributes = _attributes(reader) if sent & Capability.CONNECT_ATTRS and reader.left else {}
    return HandshakeResponse(
        user, proof, database or None, plugin, attributes, charset, sent & offered
    )


def _attributes(reader: PayloadReader) -> dict[str, str]:
    inner = PayloadReader(reader.lenenc_text())
    attributes: dict[str, str] = {}
    while inner.left:
        name = _text(inner.lenenc_text())
        attributes[name] = _text(inner.lenenc_text())
    return attributes


def _text(data: bytes) -> str:
    """Decode UTF-8. Invalid bytes become escapes, so a name with such bytes never equals a consumer's name."""
    return data.decode(errors="backslashreplace")


def switch_request(plugin: str, nonce: bytes) -> bytes:
    """The payload that asks the client to answer again with another authentication method."""
    return b"\xfe" + plugin.encode() + b"\0" + nonce + b"\0"


def more_data(data: bytes) -> bytes:
    """The payload that continues the client's authentication method."""
    return _MORE_DATA + data
