"""Print the changes of some databases of a MySQL or MariaDB server: a line of JSON per row and per DDL statement.

    MYSQL_PASSWORD=secret python examples/changes.py repl@127.0.0.1:3306 shop billing

All databases share one replication connection. After it was stopped in any way, the program resumes at the stored
position; it prints changes again that it had printed and not yet acknowledged. Without a stored position it begins with
the oldest binlog.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys

from dispatcher import BinlogClient, BinlogError


async def follow(client: BinlogClient, database: str) -> None:
    binlog = await client.create_binlog(database, [database], start="earliest")
    while transactions := await binlog.read():
        for transaction in transactions:
            for change in transaction.changes():
                line = {
                    "gtid": transaction.gtid,
                    "committed_at": transaction.committed_at,
                    "op": change.op,
                    "database": change.database,
                    "table": change.table,
                    "before": change.before,
                    "after": change.after,
                    "query": change.query,
                }
                print(json.dumps(line, default=str))
        sys.stdout.flush()
        # One acknowledgement for all transactions, since each acknowledgement writes to the disk.
        await binlog.acknowledge()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mysql", help="user@host:port")
    parser.add_argument("databases", nargs="+")
    parser.add_argument("--state", default="changes.db", help="where the positions are stored")
    args = parser.parse_args()
    password = os.environ["MYSQL_PASSWORD"]
    async with BinlogClient(args.mysql, password=password, state=args.state) as client:
        await asyncio.gather(*(follow(client, database) for database in args.databases))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except BinlogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
