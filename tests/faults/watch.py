"""Watches the dumps by GTIDs of a MySQL server: how many there are at a time, and how many there ever were.

The daemon reads consumers' logs by GTIDs. A login also looks at a few positions of the log by short dumps that name a
file and end after one event; they are not counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.servers import Server


class Watch:
    """`most`: dumps at one time, by user. `begun` reads the server's general log, which has all of them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.most: Counter[str] = Counter()
        self.seen: list[Counter[str]] = []  # the numbers after each change
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch")

    def _run(self) -> None:
        with closing(self.server.connect()) as connection, connection.cursor() as cursor:
            while not self._ended.wait(0.005):
                cursor.execute("SHOW PROCESSLIST")
                now = Counter(row[1] for row in cursor.fetchall() if row[4] == "Binlog Dump GTID")
                self.most |= now
                if not self.seen or self.seen[-1] != now:
                    self.seen.append(now)

    def begun(self, user: str) -> int:
        rows = self.server.execute(
            "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Binlog Dump GTID'"
            f" AND user_host LIKE '{user}[%'"
        )
        return int(rows[0][0])


@contextmanager
def watch(server: Server) -> Iterator[Watch]:
    """Watch the dumps of a MySQL server until the block ends."""
    server.execute(
        "SET GLOBAL log_output = 'TABLE'",
        "TRUNCATE TABLE mysql.general_log",
        "SET GLOBAL general_log = ON",
    )
    made = Watch(server)
    made._thread.start()
    try:
        yield made
    finally:
        made._ended.set()
        made._thread.join(10)
        server.execute("SET GLOBAL general_log = OFF")
