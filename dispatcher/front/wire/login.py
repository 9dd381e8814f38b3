"""Logs a client in: greeting, TLS, method, password, and the refusal of a wrong one.

The exchange has a fixed order and no loop: the client sends at most a request for TLS, its response, an answer to the
change of the method, a request for the RSA key, and the password. Packets are small, and one limit of time holds for
all of them together. A wrong password and an unknown user take the same steps and end with the same error.
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

LOGIN_BYTES_MAX = 1 << 16  # of a packet before the login
LOGIN_S = 10.0  # for the whole login
_NAME_MAX = 80  # characters of a user's name in a message
_FAST_AUTH_OK, _FULL_AUTH = b"\x03", b"\x04"
_KEY_REQUEST = b"\x02"
_MARIADB_CLIENT = "libmariadb"


@dataclass(frozen=True, slots=True)
class LoginRules:
    """Who may log in, and how.

    `version`: of the server, for the greeting; `tls`: None = not offered; `require_tls`: True = refuse clients without
    TLS; `key`: the key with which clients encrypt passwords where there is no TLS, None = a login without TLS needs a
    right proof.

    `secrets`: the secrets of a user: () for an unknown user, None if no password is needed. `wrong` is awaited with the
    user (printable) and the client's address after a wrong password, before the client is told; `admit` before a
    login is confirmed, and may raise WireError to refuse it.
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
    """A client that has logged in. `secret`: the one that it has proven, None if none was needed; `capabilities`: those
    that both sides have; `charset`: the number of a collation; `attributes`: what the client says of itself, not
    printable; `host`: its address."""

    user: str
    database: str | None
    secret: str | None
    capabilities: Capability
    charset: int
    attributes: Mapping[str, str]
    tls: bool
    host: str
    connection_id: int


class _Denied(Exception):
    """The password is wrong, or the user unknown."""

    def __init__(self, user: str, *, with_password: bool) -> None:
        super().__init__()
        self.user = printable(user[:_NAME_MAX])
        self.with_password = "YES" if with_password else "NO"


async def log_in(channel: Channel, connection_id: int, rules: LoginRules) -> FrontLogin:
    """Log the client of a new connection in.

    Raises WireError, which the caller sends to the client, TimeoutError and ClientGone. The caller closes the channel.
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
        )

    async def _response(self) -> HandshakeResponse:
        """Greet the client, begin TLS if it asks for it, and read its response."""
        channel, tls = self._channel, self._rules.tls
        greeting = Greeting(self._rules.version(), self._id, self._nonce, tls is not None)
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
        """The secret that the client proves. Raises _Denied."""
        proof, native = response.proof, _is_native(response)
        if response.plugin not in (SHA2, ""):
            # The client may not have used the nonce of the greeting, which was for another method.
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
        """The password itself, which the client sends over TLS, or encrypted with the key that it asks for."""
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
    """True if the client is to use mysql_native_password: if it names this method, or is a client of MariaDB that names
    another method than the greeting does. A client that names no method has used the greeting's method if its proof has
    the size of that method's proofs."""
    if response.plugin == "":
        return len(response.proof) != SHA2_PROOF_BYTES
    if response.plugin == NATIVE:
        return True
    return response.plugin != SHA2 and response.attributes.get("_client_name") == _MARIADB_CLIENT
