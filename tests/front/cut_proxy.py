"""A proxy that ends a connection at a chosen byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self


class CutProxy:
    """Passes connections on to a port of the loopback. After `arm`, the next bytes that the other side sends to a
    client are counted; at the chosen number of bytes, nothing more is passed on until `cut` ends the connection."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._left: int | None = None
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._end = threading.Event()
        self.held = threading.Event()  # the chosen byte was passed on
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._start(self._accept)

    def arm(self, count: int) -> None:
        self._end.clear()
        self.held.clear()
        self._left = count

    def cut(self) -> None:
        self._end.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for sock in (self._listener, *self._sockets):
            _close(sock)
        for thread in self._threads:
            thread.join(20)

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                try:
                    other = socket.create_connection(("127.0.0.1", self._to))
                except OSError:
                    _close(client)
                    continue
                self._sockets.append(other)
                self._start(self._to_server, client, other)
                self._start(self._to_client, other, client)

    def _to_server(self, client: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                other.sendall(data)
        _close(other)

    def _to_client(self, other: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := other.recv(1 << 16):
                if self._left is not None:
                    data = data[: self._left]
                    self._left -= len(data)
                client.sendall(data)
                if self._left == 0:
                    self._left = None
                    self.held.set()
                    self._end.wait()
                    break
        for sock in (client, other):
            _close(sock)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
