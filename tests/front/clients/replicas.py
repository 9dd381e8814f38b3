"""Replicas of MySQL 9.7 and of MariaDB 11.8 as clients: real servers that apply the transactions that they read.

What a user needs, with a server and with the front:

* a unique `server-id`; MySQL: `gtid-mode=ON` for `SOURCE_AUTO_POSITION=1`;
* MySQL: `GET_SOURCE_PUBLIC_KEY=1` or `SOURCE_SSL=1`; MariaDB: `MASTER_SSL=0`, or `MASTER_SSL=1` with
  `MASTER_SSL_VERIFY_SERVER_CERT=0` for a certificate of a private authority;
* with a server: `replicate-do-db` if the replica has only one database (or `replicate-wild-do-table=db.%`, for
  statements that name tables with their database). With the front no filter is needed, because it sends only the
  consumer's databases;
* if a replica of MySQL moves from the front back to a server, its executed set must contain the GTIDs of other
  consumers' transactions, or it needs filters. Otherwise the server sends all these transactions.

A reading is the replica's own binlog: the replica logs what it applies, in the source's order and with the source's
GTIDs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.front.clients.printed import Printed
from tests.front.clients.readings import Collector, Endpoint, Reading, Start, Until
from tests.servers import Instance, Kind
from tests.servers.server import new_instance

_DEADLINE_S = 120.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Applied:
    """The content of a replica: the rows of each table as text, the place in the source's log up to which it has
    applied, and its executed set."""

    tables: dict[str, list[str]]
    file: str
    offset: int
    gtids: str

    def only(self, *databases: str) -> dict[str, list[str]]:
        return {name: rows for name, rows in self.tables.items() if name.split(".")[0] in databases}


class Replica:
    """A replica with its own server. `read` starts replication, waits until the replica has applied the mark, and kills
    the server. The next call continues at the place that the replica has stored."""

    def __init__(self, kind: Kind, *options: str, server_id: int = 7007) -> None:
        self.mariadb = kind.startswith("mariadb")
        parallel = () if self.mariadb else ("--replica-parallel-workers=0",)
        own = (
            f"--server-id={server_id}", "--max-allowed-packet=64M", "--relay-log=relay", "--skip-name-resolve",
            "--relay-log-recovery=ON", *parallel, *options,
        )  # fmt: skip
        self.server: Instance = new_instance(kind, *own)
        self.name = f"a replica of {kind}"
        self.stored = Start("")
        self._until: Until | None = None
        self._read = Start("")
        self._place: Endpoint | None = None

    def close(self) -> None:
        self.server.close()

    def begin(self, at: Endpoint, start: Start) -> None:
        self.stored = start
        self.server.start(*self._not_by_itself())
        if start.gtids is not None:
            # The transactions before the start count as executed, as if this replica had been restored from a backup.
            if self.mariadb:
                self.server.execute(f"SET GLOBAL gtid_slave_pos = '{start.gtids}'")
            elif start.gtids:
                self.server.execute(f"SET GLOBAL gtid_purged = '{start.gtids}'")
        file, offset = self.server.binlog_position()
        self._read = Start(file, offset)
        self._change_source(at, start)
        self._place = at

    def read(self, at: Endpoint, until: Until) -> Reading:
        """Returns the transactions since the last reading, from the replica's own binlog."""
        if at != self._place:
            self._change_source(at, None)
            self._place = at
        self.server.execute("START SLAVE" if self.mariadb else "START REPLICA")
        self._wait(lambda: self._has(until))
        if self.mariadb:
            # If a MariaDB replica is killed within a statement, its recovery may log the statement under a GTID of the
            # replica's own server id. The replica then refuses the source's GTID with the same number.
            self.server.execute("STOP SLAVE")
        if self.mariadb and self.stored.gtids is None:
            # A MariaDB replica that reads by file stores its place in files. After a kill, the stored place may be
            # older than the last applied changes.
            self.server.stop()
        else:
            self.server.kill()
        self.server.start(*self._not_by_itself())
        return self._own_log(until)

    def _not_by_itself(self) -> tuple[str, ...]:
        return ("--skip-slave-start" if self.mariadb else "--skip-replica-start",)

    def applied(self, *databases: str) -> Applied:
        """Returns the replica's content, with all tables of these databases."""
        status = self.status()
        prefix = "Master" if self.mariadb else "Source"
        held = "@@gtid_slave_pos" if self.mariadb else "@@gtid_executed"
        gtids = str(self.server.execute(f"SELECT {held}")[0][0]).replace("\n", "")
        return Applied(
            tables_of(self.server, *databases),
            str(status[f"Relay_{prefix}_Log_File"]),
            int(status[f"Exec_{prefix}_Log_Pos"]),
            gtids,
        )

    def status(self) -> dict[str, Any]:
        from pymysql.cursors import DictCursor  # noqa: PLC0415

        with self.server.connect() as connection, connection.cursor(DictCursor) as cursor:
            cursor.execute("SHOW SLAVE STATUS" if self.mariadb else "SHOW REPLICA STATUS")
            rows = list(cursor.fetchall())
        return dict(rows[0]) if rows else {}

    def _change_source(self, at: Endpoint, start: Start | None) -> None:
        if self.mariadb:
            settings = {
                "MASTER_HOST": f"'{at.host}'",
                "MASTER_PORT": at.port,
                "MASTER_USER": f"'{at.user}'",
                "MASTER_PASSWORD": f"'{_escaped(at.password)}'",
                "MASTER_SSL": int(at.tls),
                "MASTER_SSL_VERIFY_SERVER_CERT": 0,
                "MASTER_CONNECT_RETRY": 1,
            }
            if start is None and self.stored.gtids is None:
                settings |= self._executed()
            elif start is not None and start.gtids is None:
                settings |= {"MASTER_LOG_FILE": f"'{start.file}'", "MASTER_LOG_POS": start.offset}
                settings |= {"MASTER_USE_GTID": "no"}
            elif start is not None:
                settings |= {"MASTER_USE_GTID": "slave_pos"}
            verb = "CHANGE MASTER TO"
        else:
            settings = {
                "SOURCE_HOST": f"'{at.host}'",
                "SOURCE_PORT": at.port,
                "SOURCE_USER": f"'{at.user}'",
                "SOURCE_PASSWORD": f"'{_escaped(at.password)}'",
                "SOURCE_SSL": int(at.tls),
                "GET_SOURCE_PUBLIC_KEY": int(not at.tls),
                "SOURCE_CONNECT_RETRY": 1,
            }
            if start is None and self.stored.gtids is None:
                settings |= self._executed()
            elif start is not None and start.gtids is None:
                settings |= {"SOURCE_LOG_FILE": f"'{start.file}'", "SOURCE_LOG_POS": start.offset}
                settings |= {"SOURCE_AUTO_POSITION": 0}
            elif start is not None:
                settings |= {"SOURCE_AUTO_POSITION": 1}
            verb = "CHANGE REPLICATION SOURCE TO"
        chosen = ", ".join(f"{name} = {value}" for name, value in settings.items())
        self.server.execute(f"{verb} {chosen}")

    def _executed(self) -> dict[str, object]:
        """Returns the place in the source's log after the applied transactions. It is needed if the replica's source
        gets another host, because the replica then deletes its relay log."""
        status = self.status()
        prefix = "MASTER" if self.mariadb else "SOURCE"
        name = prefix.capitalize()
        return {
            f"{prefix}_LOG_FILE": f"'{status[f'Relay_{name}_Log_File']}'",
            f"{prefix}_LOG_POS": status[f"Exec_{name}_Log_Pos"],
        }

    def _has(self, until: Until) -> bool:
        status = self.status()
        errors = [str(status[name]) for name in ("Last_IO_Error", "Last_SQL_Error") if status[name]]
        assert not errors, errors
        databases = [row[0] for row in self.server.execute("SHOW DATABASES")]
        if until.database not in databases:
            return False
        if not self.server.execute(f"SHOW TABLES IN {until.database} LIKE 'marks'"):
            return False
        if until.rows:
            tables = [
                str(row[0]) for row in self.server.execute(f"SHOW TABLES IN {until.database}")
            ]
            counts = (f"SELECT COUNT(*) FROM {until.database}.{name}" for name in tables)
            return until.rows <= sum(int(self.server.execute(count)[0][0]) for count in counts)
        found = self.server.execute(
            f"SELECT id FROM {until.database}.marks WHERE id = {until.mark}"
        )
        return bool(found)

    def _own_log(self, until: Until) -> Reading:
        collector = Collector(until, self._read, self.mariadb)
        printed = Printed(self._read.file)
        files = [name for name, _ in self.server.binlogs() if name >= self._read.file]
        where = f"--start-position={self._read.offset}"
        options = ["--verbose", "--base64-output=decode-rows", where]
        for number, file in enumerate(files):
            chosen = options if number == 0 else options[:2]
            printed.file = file
            text = self.server.mysqlbinlog(*chosen, self.server.datadir / file).stdout
            for line in text.split("\n"):
                printed.line(collector, line)
        end = self.server.binlog_position()
        self._read = Start(*end)
        return Reading(collector.transactions, self._read)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, self.status()
            time.sleep(_POLL_S)


def tables_of(server: Any, *databases: str) -> dict[str, list[str]]:
    """Returns the rows of each table as text, ordered by the first column. Long values are replaced by their
    digests."""
    found: dict[str, list[str]] = {}
    for database in databases:
        for (table,) in server.execute(f"SHOW TABLES IN {database}"):
            name = f"{database}.{table}"
            columns = [
                f"IF(LENGTH(`{row[0]}`) > 200, SHA2(`{row[0]}`, 256), HEX(`{row[0]}`))"
                for row in server.execute(f"SHOW COLUMNS FROM {name}")
            ]
            text = f"CONCAT_WS(',', {', '.join(f'IFNULL({column}, 0)' for column in columns)})"
            rows = server.execute(f"SELECT {text} FROM {name} ORDER BY 1")
            found[name] = [str(row[0]) for row in rows]
    return found


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
