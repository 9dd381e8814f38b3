"""A client that sends any bytes: packets over a socket, and TLS of which each step is visible."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from typing import Self

from dispatcher.front.wire.handshake import NATIVE
from dispatcher.front.wire.packets import Capability, framed
from dispatcher.front.wire.passwords import native_proof
from dispatcher.front.wire.result_set import ok_packet
from tests.front.wire.fronts import DEADLINE_S, HOST, SECRET, USER

CAPABILITIES = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION
QUIT, PING, QUERY = b"\x01", b"\x0e", b"\x03SELECT 1"


def ssl_request() -> bytes:
    return _head(CAPABILITIES | Capability.SSL)


def response(user: str = USER, proof: bytes = b"", plugin: str = NATIVE) -> bytes:
    """`plugin`: "" for a client that knows no methods."""
    fields = user.encode() + b"\0" + bytes([len(proof)]) + proof
    if not plugin:
        return _head(CAPABILITIES) + fields
    return _head(CAPABILITIES | Capability.PLUGIN_AUTH) + fields + plugin.encode() + b"\0"


def _head(capabilities: Capability) -> bytes:
    return capabilities.to_bytes(4, "little") + bytes(4) + b"\x2d" + bytes(23)


class RawClient:
    """`greeting`: the first payload that the server sends. `nonce`: of the greeting."""

    def __init__(self, port: int, *, greeted: bool = True) -> None:
        self.socket = socket.create_connection((HOST, port), DEADLINE_S)
        self.greeting = self.receive()[1] if greeted else b""
        at = self.greeting.find(b"\0") + 5
        self.nonce = self.greeting[at : at + 8] + self.greeting[at + 27 : at + 39]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def log_in(self) -> None:
        """Log in without TLS, as a client that knows no methods."""
        self.send(response(proof=native_proof(SECRET.encode(), self.nonce), plugin=""), 1)
        assert self.receive() == (2, ok_packet())

    def send(self, payload: bytes, sequence: int) -> None:
        self.socket.sendall(framed(payload, sequence))

    def receive(self) -> tuple[int, bytes]:
        """Sequence number and payload of the next packet. Raises ConnectionError at the end."""
        header = self._exactly(4)
        return header[3], self._exactly(int.from_bytes(header[:3], "little"))

    def error(self) -> int:
        """The number of the error in the next packet. After this packet the connection ends."""
        _, payload = self.receive()
        assert payload[0] == 0xFF, payload
        assert self.ended()
        return int.from_bytes(payload[1:3], "little")

    def end(self) -> None:
        """Send no more, and receive up to the end."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)
        while not self.ended():
            pass

    def trickled(self, byte: int) -> bool:
        """Send a byte, and wait a little for an answer. True if the connection has ended."""
        self.socket.settimeout(0.005)
        try:
            self.socket.sendall(bytes([byte]))
            return self.socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    def ended(self) -> bool:
        """True if nothing more comes; otherwise a byte was read."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError
            data += part
        return data


class RawTls:
    """TLS over the socket of a client. The caller decides what is sent together."""

    def __init__(self, client: RawClient, context: ssl.SSLContext) -> None:
        self._client = client
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out)

    def hello(self) -> bytes:
        """The first bytes of the handshake, not sent yet."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return self._out.read()
        raise AssertionError

    def finish(self) -> None:
        """Receive up to the end of the handshake; the client's last bytes are not sent yet."""
        while True:
            self._in.write(self._client.socket.recv(1 << 16))
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                continue
            return

    def send(self, data: bytes) -> None:
        """Encrypt, and send together with what was not sent yet."""
        self._tls.write(data)
        self._client.socket.sendall(self._out.read())

    def receive(self, size: int) -> bytes:
        """Bytes that are decrypted. Raises ConnectionError at the end."""
        data = b""
        while len(data) < size:
            try:
                decrypted = self._tls.read(size - len(data))
            except ssl.SSLWantReadError:
                part = self._client.socket.recv(1 << 16)
                if not part:
                    raise ConnectionError from None
                self._in.write(part)
                continue
            if not decrypted:
                raise ConnectionError
            data += decrypted
        return data
