"""Logs a client in: sends the greeting, begins TLS, chooses the authentication method, and checks the password.

The exchange has a fixed order without loops. The client sends at most these packets: a request for TLS, its response,
an answer to a change of the method, a request for the RSA key, and the password. The size of each packet is limited,
and so is the time of the whole exchange. A login with a wrong password and a login of an unknown user take the same
steps and end with the same error.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.errors import WireError, bad_handshake
from dispatcher.front.wire.handshake import (
    NATIVE,
    SHA2,
    Greeting,
    HandshakeResponse,
    is_ssl_request,
    more_data,
    new_nonce,
    parse_response,
    switch_request,
)
from dispatcher.front.wire.packets import Capability
from dispatcher.front.wire.passwords import (
    SHA2_PROOF_BYTES,
    PasswordKey,
    native_proof,
    secret_of_proof,
    secret_of_text,
    sha2_proof,
)
from dispatcher.front.wire.result_set import ok_packet
from dispatcher.model.printable import printable

LOGIN_BYTES_MAX = 1 << 16  # the largest packet before the end of the login
LOGIN_S = 10.0  # the longest time of the whole login
_NAME_MAX = 80  # the longest user name in a message, in characters
_FAST_AUTH_OK, _FULL_AUTH = b"\x03", b"\x04"
_KEY_REQUEST = b"\x02"
_MARIADB_CLIENT = "libmariadb"


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The rules that decide which clients may log in.

    `version`: returns the server version for the greeting; `tls`: None if TLS is not offered; `require_tls`: True to
    refuse clients without TLS; `key`: the key with which clients without TLS encrypt their password. If `key` is None,
    a client without TLS can log in only with a right proof.

    `secrets`: returns the secrets of a user; () for an unknown user, None if no password is needed. `wrong`: awaited
    after a wrong password, before the error is sent, with the printable user name and the client's address. `admit`:
    awaited before a login is confirmed; it may raise WireError to refuse the login.
    """

    version: Callable[[], str]
    secrets: Callable[[str], Sequence[str] | None]
    wrong: Callable[[str, str], Awaitable[None]]
    admit: Callable[[FrontLogin], Awaitable[None]]
    tls: ssl.SSLContext | None = None
    require_tls: bool = False
    key: PasswordKey | None = None
    limit_s: float = LOGIN_S


@dataclass(frozen=True, slots=True)
class FrontLogin:
    """A client that has logged in. `secret`: the secret that the client has proven, None if no password was needed;
    `capabilities`: the capabilities that both sides have; `charset`: the id of a collation; `attributes`: the client's
    connection attributes, which may contain unprintable characters; `host`: the client's address; `version`: the
    server version in the greeting."""

    user: str
    database: str | None
    secret: str | None
    capabilities: Capability
    charset: int
    attributes: Mapping[str, str]
    tls: bool
    host: str
    connection_id: int
    version: str = ""


class _Denied(Exception):
    """The password is wrong, or the user is unknown."""

    def __init__(self, user: str, *, with_password: bool) -> None:
        super().__init__()
        self.user = printable(user[:_NAME_MAX])
        self.with_password = "YES" if with_password else "NO"


async def log_in(channel: Channel, connection_id: int, rules: LoginRules) -> FrontLogin:
    """Log the client of a new connection in.

    Raises WireError, TimeoutError and ClientGone. The caller sends the WireError to the client and closes the channel.
    """
    try:
        async with asyncio.timeout(rules.limit_s):
            login = await _Exchange(channel, connection_id, rules).run()
    except _Denied as denied:
        await rules.wrong(denied.user, channel.host)
        raise WireError(
            1045,
            f"Access denied for user '{denied.user}'@'{channel.host}'"
            f" (using password: {denied.with_password})",
        ) from None
    await rules.admit(login)
    channel.send([ok_packet()])
    return login


class _Exchange:
    """The packets of one login."""

    def __init__(self, channel: Channel, connection_id: int, rules: LoginRules) -> None:
        self._channel = channel
        self._rules = rules
        self._id = connection_id
        self._nonce = new_nonce()
        self._version = ""

    async def run(self) -> FrontLogin:
        response = await self._response()
        secrets = self._rules.secrets(response.user)
        secret = await self._secret(response, secrets)
        return FrontLogin(
            response.user,
            response.database,
            secret,
            response.capabilities,
            response.charset,
            response.attributes,
            self._channel.tls,
            self._channel.host,
            self._id,
            self._version,
        )

    async def _response(self) -> HandshakeResponse:
        """Send the greeting, begin TLS if the client requests it, and return the client's response."""
        channel, tls = self._channel, self._rules.tls
        self._version = self._rules.version()
        greeting = Greeting(self._version, self._id, self._nonce, tls is not None)
        channel.send([greeting.payload()])
        payload = await self._read()
        if is_ssl_request(payload):
            if tls is None:
                raise bad_handshake()
            await channel.start_tls(tls, LOGIN_BYTES_MAX, self._rules.limit_s)
            payload = await self._read()
        response = parse_response(payload, greeting.capabilities)
        if self._rules.require_tls and not channel.tls:
            raise WireError(
                3159,
                "Connections using insecure transport are prohibited; let the client use TLS",
            )
        return response

    async def _secret(
        self, response: HandshakeResponse, secrets: Sequence[str] | None
    ) -> str | None:
        """Return the secret that the client proves, None if no password is needed. Raises _Denied."""
        proof, native = response.proof, _is_native(response)
        if response.plugin not in (SHA2, ""):
            # The greeting's nonce was for another method, so the client's proof may not be based on it.
            self._channel.send([switch_request(NATIVE if native else SHA2, self._nonce)])
            proof = await self._read()
        given = proof not in (b"", b"\0")
        if secrets is None:
            if given and not native:
                self._channel.send([more_data(_FAST_AUTH_OK)])
            return None
        method = native_proof if native else sha2_proof
        secret = secret_of_proof(proof, self._nonce, secrets, method)
        if native or not given:
            if secret is None:
                raise _Denied(response.user, with_password=given)
            return secret
        if secret is not None:
            self._channel.send([more_data(_FAST_AUTH_OK)])
            return secret
        secret = secret_of_text(await self._full_exchange(response.user), secrets)
        if secret is None:
            raise _Denied(response.user, with_password=True)
        return secret

    async def _full_exchange(self, user: str) -> bytes:
        """Return the password in clear text. The client sends the password over TLS, or requests the RSA key and
        encrypts the password with this key."""
        key = self._rules.key
        if not self._channel.tls and key is None:
            raise _Denied(user, with_password=True)
        self._channel.send([more_data(_FULL_AUTH)])
        answer = await self._read()
        if self._channel.tls:
            return answer
        assert key is not None
        if answer == _KEY_REQUEST:
            self._channel.send([more_data(key.public_pem)])
            answer = await self._read()
        return key.decrypted(answer, self._nonce)

    async def _read(self) -> bytes:
        return await self._channel.read_packet(LOGIN_BYTES_MAX, None)


def _is_native(response: HandshakeResponse) -> bool:
    """True if the client must use mysql_native_password. This is so if the client names this method, or if it is a
    MariaDB client that names a method other than the greeting's. If the client names no method, it must use
    mysql_native_password unless its proof has the size of a caching_sha2_password proof."""
    if response.plugin == "":
        return len(response.proof) != SHA2_PROOF_BYTES
    if response.plugin == NATIVE:
        return True
    return response.plugin != SHA2 and response.attributes.get("_client_name") == _MARIADB_CLIENT
