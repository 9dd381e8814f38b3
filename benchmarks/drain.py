"""The baseline: `recv` of one binlog file into a 4 MiB buffer, without parsing. Prints seconds and bytes as JSON.

Runs in a process of its own, as the daemon does. `python -m benchmarks.drain HOST PORT USER PASSWORD FILE`.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from typing import Any

import pymysql
from pymysql.constants.COMMAND import COM_BINLOG_DUMP

_NON_BLOCKING = 1
_SERVER_ID = 0xB0000001


def drain(host: str, port: int, user: str, password: str, file: str) -> dict[str, float]:
    connection: Any = pymysql.connect(
        host=host, port=port, user=user, password=password, ssl_disabled=True
    )
    with connection.cursor() as cursor:
        cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
    buffer = memoryview(bytearray(4 << 20))
    started = ended = time.perf_counter()
    request = struct.pack("<IHI", 4, _NON_BLOCKING, _SERVER_ID) + file.encode()
    connection._execute_command(COM_BINLOG_DUMP, request)
    sock = connection._sock
    total = 0
    size = -1
    while size:
        # The few events of the next file follow. The server ends the dump with an EOF packet and sends nothing more.
        sock.settimeout(None if total == 0 else 0.3)
        try:
            size = sock.recv_into(buffer)
        except TimeoutError:
            break
        total += size
        ended = time.perf_counter()
    connection._force_close()
    return {"seconds": ended - started, "bytes": total}


if __name__ == "__main__":
    print(json.dumps(drain(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5])))
