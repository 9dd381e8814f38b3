"""The server from which the mirror copies tables: takes its address from the settings, asks how busy it is, and
describes its tables without the columns that the mirror leaves out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.mysql.answers import ask_one, number_value, text_value
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.login import Endpoint, Tls, TlsMode
from dispatcher.mysql.server_facts import is_mariadb
from dispatcher.yaml_settings.server import MysqlSettings
from spark_sink.mirror.rules.omitted import kept_columns, ruled_columns
from spark_sink.mirror.values.names import TableName
from spark_sink.mirror.values.policies import TablePolicy, default_policy
from spark_sink.mirror.values.settings import CopySettings
from spark_sink.source.table_rows.source_table import SourceTable, read_source_table
from spark_sink.source.table_rows.table_server import TableServer, replica_status


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """`threads_running`: statements that run now, including this one; `lag_s`: how many seconds a replica is behind its
    source, None if the server is no replica or does not report the lag."""

    threads_running: int
    lag_s: int | None


@dataclass(frozen=True, slots=True)
class CopyServer(TableServer):
    """A server to copy from. `endpoint` contains the database password. Spark sends the endpoint to the executors; no
    text shows the password.

    `policy`: returns the policy of a mirrored table, which says which columns and versions it has, and how values are
    changed."""

    policy: Callable[[TableName], TablePolicy] = default_policy

    @classmethod
    def of_settings(
        cls,
        settings: CopySettings,
        policy: Callable[[TableName], TablePolicy] = default_policy,
    ) -> CopyServer:
        """Returns the server that the settings name. Raises `BinlogError` SETTINGS for an address that is not valid."""
        try:
            login = MysqlSettings.parse(settings.mysql)
        except ValueError as error:
            raise UserError(ErrorKind.SETTINGS, f"copy.mysql: {error}") from None
        if len(login.addresses) != 1:
            text = f"copy.mysql: {len(login.addresses)} hosts, but a copy reads one server"
            raise UserError(ErrorKind.SETTINGS, text, remedy="write it like user@host:3306")
        (address,) = login.addresses
        tls = Tls(TlsMode(settings.tls), settings.ca_file)
        endpoint = Endpoint(address.host, address.port, login.user, settings.secret, tls)
        return cls(endpoint, policy)

    def table(self, database: str, table: str) -> SourceTable:
        """Returns a table as the mirror copies it: without the columns that the policy leaves out, with all versions of
        the rows if the policy wants them, and with the policy's rules for values."""
        policy = self.policy((database, table))
        with self.session() as connection:
            source = read_source_table(
                connection, database, table, all_versions=policy.all_versions
            )
        source = without_columns(source, policy.omitted)
        columns = ruled_columns(source.columns, source.key, policy.rules, source.label)
        return replace(source, columns=columns)


def without_columns(source: SourceTable, omitted: Collection[str]) -> SourceTable:
    """Returns a table without the columns of these names. Raises `BinlogError` as `kept_columns` does."""
    if not omitted:
        return source
    return source.of_columns(kept_columns(source.columns, source.key, omitted, source.label))


def server_load(connection: Connection, *, with_lag: bool) -> ServerLoad:
    """Ask how busy the server is. `with_lag`: True to ask also how far a replica lags. The account then needs the
    privilege REPLICATION CLIENT, or on MariaDB SLAVE MONITOR. Raises `BinlogError`."""
    running = ask_one(
        connection,
        "SHOW GLOBAL STATUS LIKE 'Threads_running'",
        lambda row: number_value(row[1]),
    )
    lags: list[int] = []
    if with_lag:
        version = ask_one(connection, "SELECT VERSION()", lambda row: text_value(row[0]))
        try:
            rows = replica_status(connection, version)
        except BinlogError as error:
            if error.kind is not ErrorKind.GRANT_MISSING:
                raise
            privilege = "SLAVE MONITOR" if is_mariadb(version) else "REPLICATION CLIENT"
            raise BinlogError(
                ErrorKind.GRANT_MISSING,
                f"the account may not ask how far the replica lags: {error.what}",
                where=error.where,
                remedy=f"GRANT {privilege} ON *.* TO the account, or remove"
                " copy.pause_above_replica_lag_seconds",
            ) from error
        for status in rows:
            text = status.get("Seconds_Behind_Source", status.get("Seconds_Behind_Master"))
            if text is not None:
                lags.append(number_value(text))
    return ServerLoad(running, max(lags, default=None))
