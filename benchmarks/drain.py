"""Measures `recv` alone: receives one binlog file into a 4 MiB buffer, without parsing. Prints the times as JSON.

Runs in a process of its own, as the daemon does. `python -m benchmarks.drain HOST PORT USER PASSWORD FILE`.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP

BUFFER_BYTES = 4 << 20
_NON_BLOCKING = 1
_SERVER_ID = 0xB0000001


def dump_socket(
    host: str,
    port: int,
    user: str,
    password: str,
    file: str,
    number: int = 0,
    *,
    until_end: bool = True,
) -> socket.socket:
    """Log in and ask for a dump that begins with this file. With `until_end` the dump ends at the present end of the
    log, otherwise it goes on. Returns the connection's socket. `number`: differs for each of several dumps at once,
    because a server ends an older dump with the same server id."""
    connection: Any = pymysql.connect(
        host=host, port=port, user=user, password=password, ssl_disabled=True
    )
    with connection.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
    request = (
        struct.pack("<IHI", 4, _NON_BLOCKING if until_end else 0, _SERVER_ID + number)
        + file.encode()
    )
    connection._execute_command(COM_BINLOG_DUMP, request)
    # PyMySQL closes its socket when the connection object is deleted, so this function returns a duplicate of the
    # socket.
    sock: socket.socket = connection._sock.dup()
    connection._force_close()
    return sock


def chunks(sock: socket.socket) -> Iterator[memoryview]:
    """Yields the bytes that arrive until the server has sent the end of its log. All of them are views of one buffer,
    which is reused.

    The server ends a dump with an EOF packet and keeps the connection open, so this function treats a pause of the
    server as the end.
    """
    buffer = memoryview(bytearray(BUFFER_BYTES))
    sock.settimeout(None)
    size = sock.recv_into(buffer)
    sock.settimeout(0.3)
    while size:
        yield buffer[:size]
        try:
            size = sock.recv_into(buffer)
        except TimeoutError:
            return


def drain(host: str, port: int, user: str, password: str, file: str) -> dict[str, float]:
    """Receive the dump. Returns `bytes`; `seconds` from the first byte to the last; and `cpu_seconds`, which also
    counts the wait for the first byte."""
    sock = dump_socket(host, port, user, password, file)
    total, started, ended = 0, 0.0, 0.0
    cpu = time.process_time()
    for chunk in chunks(sock):
        started = started or time.perf_counter()
        total += len(chunk)
        ended = time.perf_counter()
    return {
        "seconds": ended - started,
        "cpu_seconds": time.process_time() - cpu,
        "bytes": total,
    }


if __name__ == "__main__":
    print(json.dumps(drain(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5])))
