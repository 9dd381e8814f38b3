"""Reads rows with python-mysql-replication, in its own virtual environment: see `benchmarks.peers`."""

from __future__ import annotations

import json
import sys
import time

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent


def main(host: str, port: str, user: str, password: str, file: str, rows: str) -> None:
    stream = BinLogStreamReader(
        connection_settings={"host": host, "port": int(port), "user": user, "passwd": password},
        server_id=0xB0000002,
        log_file=file,
        log_pos=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent],
    )
    wanted, read, started, cpu = int(rows), 0, 0.0, 0.0
    for event in stream:
        started, cpu = started or time.perf_counter(), cpu or time.process_time()
        read += len(event.rows)
        if read >= wanted:
            break
    print(
        json.dumps(
            {
                "rows": read,
                "seconds": time.perf_counter() - started,
                "cpu_seconds": time.process_time() - cpu,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
