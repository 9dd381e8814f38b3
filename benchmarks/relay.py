"""A relay, which sends the bytes that it receives from the server to a reader process, and does nothing else.

A daemon between a server and its readers cannot take less time, because it must also receive and send each byte once.
With `checked` the relay also verifies each byte with CRC32 and copies it once, as a daemon that keeps bytes for its
readers must do. Prints the times as JSON. `python -m benchmarks.relay HOST PORT USER PASSWORD FILE [checked]`.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
import zlib
from multiprocessing.connection import Connection

from benchmarks.drain import BUFFER_BYTES, chunks, dump_socket


def _read(listener: socket.socket, results: Connection) -> None:
    """The reader process: receives all bytes, and then sends their number and the times of the first and the last
    one."""
    sock, _ = listener.accept()
    buffer = memoryview(bytearray(BUFFER_BYTES))
    total, started, ended = 0, 0.0, 0.0
    while size := sock.recv_into(buffer):
        started = started or time.perf_counter()
        total += size
        ended = time.perf_counter()
    results.send((started, ended, total))


def relay(
    host: str, port: int, user: str, password: str, file: str, mode: str = ""
) -> dict[str, float]:
    """Returns `seconds` from the first byte at the reader to the last one, and `cpu_seconds` of the relay alone."""
    listener = socket.create_server(("127.0.0.1", 0))
    ours, theirs = multiprocessing.Pipe()
    reader = multiprocessing.get_context("fork").Process(target=_read, args=(listener, theirs))
    reader.start()
    with socket.create_connection(listener.getsockname()) as sink:
        source = dump_socket(host, port, user, password, file)
        kept = memoryview(bytearray(BUFFER_BYTES))
        cpu = time.process_time()
        for chunk in chunks(source):
            if mode == "checked":
                zlib.crc32(chunk)
                kept[: len(chunk)] = chunk
                chunk = kept[: len(chunk)]  # noqa: PLW2901
            sink.sendall(chunk)
        cpu_seconds = time.process_time() - cpu
    started, ended, total = ours.recv()
    reader.join()
    return {"seconds": ended - started, "cpu_seconds": cpu_seconds, "bytes": total}


if __name__ == "__main__":
    host, port, *rest = sys.argv[1:]
    print(json.dumps(relay(host, int(port), *rest)))
