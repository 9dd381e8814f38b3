"""A receiver of the webhook: an HTTP server on a port of the loopback, which verifies the signature of each request."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.servers.ports import free_port


def new_secret(character: str) -> str:
    """Returns a secret whose key is 32 times this character."""
    return f"whsec_{base64.b64encode(character.encode() * 32).decode()}"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """True if the request has the signature of the Standard Webhooks specification for this secret."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return headers["webhook-signature"] == f"v1,{expected}"


@dataclass(frozen=True)
class Attempt:
    """A request, and the status that the receiver answered."""

    path: str
    headers: Mapping[str, str]
    raw: bytes
    status: int

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def body(self) -> dict[str, Any]:
        value = json.loads(self.raw)
        assert isinstance(value, dict)
        return value


@dataclass
class WebhookReceiver:
    """`status`, `answer_headers`: the status and the headers of the next answers. While `hangs` is set, requests get no
    answer."""

    port: int = field(default_factory=free_port)
    status: int = 204
    answer_headers: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    hangs: threading.Event = field(default_factory=threading.Event)
    hung: int = 0  # requests that get no answer
    _released: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?for=test"

    @property
    def accepted(self) -> list[Attempt]:
        return [one for one in self.attempts if 200 <= one.status < 300]

    @property
    def kinds(self) -> list[str]:
        """The kinds of the accepted events, in the order in which they came."""
        return [one.body["event"] for one in self.accepted]

    @contextmanager
    def running(self, certificate: Path | None = None) -> Iterator[WebhookReceiver]:
        """`certificate`: a folder with ca.pem and key.pem, for TLS."""
        server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "ca.pem", certificate / "key.pem")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield self
        finally:
            self._released.set()
            server.shutdown()
            server.server_close()
            thread.join()
            self._released.clear()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.hangs.is_set():
                    receiver.hung += 1
                    receiver._released.wait()
                    return
                status = receiver.status
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.attempts.append(Attempt(self.path, headers, body, status))
                self.send_response(status)
                for name, value in receiver.answer_headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *_: Any) -> None:  # noqa: A002
                """Write nothing to stderr."""

        return Handler
