"""A picture of a server that tests make up, so no server is read; and a client that asks."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.front.questions.answer import Who
from dispatcher.model.server_picture import Picture, ServerAnswer, TableColumn, Variable
from dispatcher.model.subscription import Subscription

UUID = "7b3a768b-e955-11f1-ab9f-02fc00000001"
VARIABLES = {
    "autocommit": Variable("1", "ON", integer=True),
    "binlog_checksum": Variable("CRC32", "CRC32"),
    "character_set_results": Variable("utf8mb4", "utf8mb4"),
    "character_set_server": Variable("utf8mb4", "utf8mb4"),
    "gtid_executed": Variable(f"{UUID}:1-9,\n{UUID[:-1]}2:5", ""),
    "gtid_purged": Variable(f"{UUID}:1-3", ""),
    "lower_case_table_names": Variable("0", "0", integer=True),
    "net_write_timeout": Variable("60", "60", integer=True),
    "server_id": Variable("5", "5", integer=True),
    "server_uuid": Variable(UUID, UUID),
    "sql_mode": Variable("", ""),
    "transaction_isolation": Variable("REPEATABLE-READ", "REPEATABLE-READ"),
    "version": Variable("9.7.4", "9.7.4"),
}
_LOGS = ServerAnswer(
    (TableColumn("Log_name"), TableColumn("File_size", integer=True)),
    (("binlog.000001", "2825"), ("binlog.000002", "540")),
)
_STATUS = ServerAnswer(
    (
        TableColumn("File"),
        TableColumn("Position", integer=True),
        TableColumn("Binlog_Do_DB"),
        TableColumn("Binlog_Ignore_DB"),
        TableColumn("Executed_Gtid_Set"),
    ),
    (("binlog.000002", "540", "shop,vault", "vault", f"{UUID}:1-9"),),
)


def picture(**changed: Variable) -> Picture:
    return Picture(VARIABLES | changed, _LOGS, _STATUS)


def mariadb(**changed: Variable) -> Picture:
    version = Variable("11.8.9-MariaDB", "11.8.9-MariaDB")
    return picture(version=version, gtid_binlog_pos=Variable("0-1-9", "0-1-9"), **changed)


def who(
    databases: Sequence[str] = ("shop",), tables: Sequence[tuple[str, str]] | None = None
) -> Who:
    return Who("reader", "app", "127.0.0.1", 7, Subscription(databases, tables), 1_795_000_000)
