"""Reads rows with asyncmy, in its own virtual environment: see `benchmarks.peers`."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from asyncmy import connect
from asyncmy.replication import BinLogStream
from asyncmy.replication.row_events import WriteRowsEvent


async def main(host: str, port: str, user: str, password: str, file: str, rows: str) -> None:
    account = {"host": host, "port": int(port), "user": user, "password": password}
    stream = BinLogStream(
        await connect(**account),
        await connect(**account),
        server_id=0xB0000003,
        master_log_file=file,
        master_log_position=4,
        resume_stream=True,
        blocking=False,
        only_events=[WriteRowsEvent],
    )
    wanted, read, started, cpu = int(rows), 0, 0.0, 0.0
    async for event in stream:
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
    asyncio.run(main(*sys.argv[1:]))
