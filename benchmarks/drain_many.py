"""Several clients that receive one binlog file at the same time without parsing it, in one process. The program prints
as JSON the `seconds` from the first login to the last byte, and the `bytes` that all clients have received.

A client has the file when its dump ends in an EOF packet. `python -m benchmarks.drain_many HOST PORT PASSWORD FILE USER
[USER ...]`: one client for each user.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time

from benchmarks.drain import BUFFER_BYTES, dump_socket

_TIMEOUT_S = 600.0
# The last packet: its header, 0xFE, the number of warnings, the status.
_END = re.compile(rb"\x05\0\0.\xfe\0\0..", re.DOTALL)
_END_BYTES = 9


def receive(sockets: list[socket.socket]) -> int:
    """Receive all dumps to their ends. Returns the number of bytes. Raises ConnectionError if one ends too early."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    total = 0
    with selectors.DefaultSelector() as selector:
        tails = {}
        for sock in sockets:
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ, sock)
            tails[sock] = b""
        while tails:
            ready = selector.select(_TIMEOUT_S)
            if not ready:
                raise TimeoutError("no dump goes on")
            for key, _ in ready:
                sock = key.data
                size = sock.recv_into(buffer)
                if not size:
                    raise ConnectionError("a dump has no end")
                total += size
                tails[sock] = (tails[sock] + buffer[max(0, size - _END_BYTES) : size])[-_END_BYTES:]
                if _END.fullmatch(tails[sock]):
                    selector.unregister(sock)
                    del tails[sock]
    return total


def main(host: str, port: str, password: str, file: str, *users: str) -> dict[str, float]:
    started = time.perf_counter()
    sockets = [
        dump_socket(host, int(port), user, password, file, number)
        for number, user in enumerate(users)
    ]
    total = receive(sockets)
    return {"seconds": time.perf_counter() - started, "bytes": total}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
