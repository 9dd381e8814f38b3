"""Reads with asyncmy, and prints the lines of `tests.front.clients.lines`.

The program reads its settings as JSON from standard input, and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Any

from asyncmy import connect
from asyncmy.replication import BinLogStream
from asyncmy.replication.events import GtidEvent, QueryEvent, XidEvent
from asyncmy.replication.gtid import Gtid
from asyncmy.replication.row_events import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.front.clients.programs.printing import show, values

# What MariaDB sends instead of an event if the client has not declared that it knows MariaDB's events.
_DUMMY = "# Dummy event"
_ROWS = (WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent)


def show_rows(event: Any, offset: int) -> None:
    for row in event.rows:
        if isinstance(event, UpdateRowsEvent):
            op, before, after = "update", row["before_values"], row["after_values"]
        elif isinstance(event, WriteRowsEvent):
            op, before, after = "insert", None, row["values"]
        else:
            op, before, after = "delete", row["values"], None
        key = next(iter((after or before).values()))
        show("row", event.schema, event.table, op, key, values(before), values(after), offset)


async def main() -> None:
    given = json.loads(sys.stdin.read())
    account = {name: given[name] for name in ("host", "port", "user", "password")}
    if given["tls"]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        account["ssl"] = context
    place: dict[str, Any] = {
        "master_log_file": given["file"],
        "master_log_position": given["offset"],
    }
    if given["gtids"] is not None:
        place = {"master_auto_position": {Gtid(one) for one in given["gtids"].split(",")}}
    stream = BinLogStream(
        await connect(**account), await connect(**account), server_id=given["server_id"], resume_stream=True,
        blocking=True, only_events=[*_ROWS, GtidEvent, QueryEvent, XidEvent], **place,
    )  # fmt: skip
    gtid, inside = "", False
    async for event in stream:
        file, offset = stream._master_log_file, stream._master_log_position
        if isinstance(event, GtidEvent):
            gtid = event.gtid
        elif isinstance(event, _ROWS):
            show_rows(event, offset)
        elif isinstance(event, XidEvent):
            show("end", file, offset, gtid)
            inside = False
        elif event.query.startswith(_DUMMY):
            pass
        elif event.query == "BEGIN":
            inside = True
        elif event.query == "COMMIT":
            show("end", file, offset, gtid)
            inside = False
        else:
            schema = event.schema
            show("ddl", schema if isinstance(schema, str) else schema.decode(), event.query, offset)
            if not inside:
                show("end", file, offset, gtid)


if __name__ == "__main__":
    asyncio.run(main())
