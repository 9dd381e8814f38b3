"""Reads with python-mysql-replication, and prints the lines of `tests.front.clients.lines`.

The program reads its settings as JSON from standard input, and runs until it is killed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, MariadbGtidEvent, QueryEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.front.clients.programs.printing import show, values

_ROWS = (WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent)


def show_rows(event: Any, offset: int) -> None:
    for row in event.rows:
        if isinstance(event, UpdateRowsEvent):
            op, before, after = "update", row["before_values"], row["after_values"]
        elif isinstance(event, WriteRowsEvent):
            op, before, after = "insert", None, row["values"]
        else:
            op, before, after = "delete", row["values"], None
        key = (after or before)["id"]
        show("row", event.schema, event.table, op, key, values(before), values(after), offset)


def main() -> None:
    given = json.loads(sys.stdin.read())
    connection = {
        "host": given["host"], "port": given["port"], "user": given["user"], "passwd": given["password"],
    }  # fmt: skip
    connection["ssl_disabled"] = not given["tls"]
    if given["tls"]:
        connection["ssl"] = {"check_hostname": False, "verify_mode": "none"}
    place: dict[str, Any] = {"log_file": given["file"], "log_pos": given["offset"]}
    if given["gtids"] is not None:
        place = {"auto_position": given["gtids"]}
    # If the library reads by file, it ignores the offset when `is_mariadb` is set.
    by_gtid_of_mariadb = given["mariadb"] and given["gtids"] is not None
    # The library cannot parse the statements that MariaDB logs with microseconds.
    statements = [] if given["mariadb"] else [QueryEvent]
    stream = BinLogStreamReader(
        connection_settings=connection, server_id=given["server_id"], resume_stream=True, blocking=True,
        is_mariadb=by_gtid_of_mariadb, enable_logging=False, slave_heartbeat=5, verify_checksum=True, **place,
        only_events=[*_ROWS, GtidEvent, MariadbGtidEvent, *statements, XidEvent],
    )  # fmt: skip
    gtid, inside = "", False
    for event in stream:
        offset = event.packet.log_pos
        if isinstance(event, GtidEvent | MariadbGtidEvent):
            gtid = event.gtid
        elif isinstance(event, _ROWS):
            show_rows(event, offset)
        elif isinstance(event, XidEvent):
            show("end", stream.log_file, offset, gtid)
            inside = False
        elif event.query == "BEGIN":
            inside = True
        elif event.query == "COMMIT":
            show("end", stream.log_file, offset, gtid)
            inside = False
        else:
            show("ddl", event.schema.decode(), event.query, offset)
            if not inside:
                show("end", stream.log_file, offset, gtid)


if __name__ == "__main__":
    main()
