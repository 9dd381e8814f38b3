"""A proxy before a real server. The proxy answers dumps: a replica logs in to the server, and reads the front's
packets.

The proxy passes everything on until the client sends a dump command. Then it answers with what the test's function
returns, and goes on reading what the client sends until one side ends. It listens on the loopback.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

_DUMPS = (0x12, 0x1E)


@dataclass
class Command:
    """A dump command as a client sent it: its code, and the bytes after it."""

    code: int
    payload: bytes


Answer = Callable[[Command], Iterable[bytes | memoryview]]


@dataclass
class DumpProxy:
    """`port`: where clients connect. `commands`: the dump commands that came."""

    server: tuple[str, int]
    answer: Answer
    commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._closed = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(20)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self.server)
            except OSError:
                return
            self._sockets += (client, server)
            for run in (self._to_server, self._to_client):
                thread = threading.Thread(target=run, args=(client, server))
                self._threads.append(thread)
                thread.start()

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                head = _receive(client, 4)
                body = _receive(client, int.from_bytes(head[:3], "little"))
                if head[3] == 0 and body[:1] and body[0] in _DUMPS:
                    command = Command(body[0], body[1:])
                    self.commands.append(command)
                    for chunk in self.answer(command):
                        client.sendall(chunk)
                    while client.recv(1 << 16):
                        pass
                    break
                server.sendall(head + body)
        for sock in (client, server):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


def _receive(sock: socket.socket, size: int) -> bytes:
    out = bytearray()
    while len(out) < size:
        more = sock.recv(size - len(out))
        if not more:
            raise EOFError
        out += more
    return bytes(out)
