"""The state of a server at one moment, as the front shows it: variables, the log's files, the end of the log.

A client of the front sees only the variables in `SHOWN_VARIABLES`. This list contains the variables that describe how
the server writes its log, and variables that drivers read at login. Variables with paths, addresses, accounts or
secrets are not in this list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

Cell = str | None

SHOWN_VARIABLES = frozenset((
    "auto_increment_increment", "auto_increment_offset", "autocommit", "big_tables", "binlog_annotate_row_events",
    "binlog_checksum", "binlog_expire_logs_auto_purge", "binlog_expire_logs_seconds", "binlog_format",
    "binlog_gtid_simple_recovery", "binlog_row_event_max_size", "binlog_row_image", "binlog_row_metadata",
    "binlog_row_value_options", "binlog_rows_query_log_events", "binlog_transaction_compression",
    "character_set_client", "character_set_connection", "character_set_database", "character_set_filesystem",
    "character_set_results", "character_set_server", "character_set_system", "collation_connection",
    "collation_database", "collation_server", "default_storage_engine", "default_week_format",
    "div_precision_increment", "enforce_gtid_consistency", "expire_logs_days", "explicit_defaults_for_timestamp",
    "foreign_key_checks", "group_concat_max_len", "gtid_binlog_pos", "gtid_binlog_state", "gtid_current_pos",
    "gtid_domain_id", "gtid_executed", "gtid_mode", "gtid_purged", "gtid_slave_pos", "gtid_strict_mode",
    "information_schema_stats_expiry", "init_connect", "innodb_lock_wait_timeout", "interactive_timeout", "license",
    "lock_wait_timeout", "log_bin", "log_bin_compress", "log_replica_updates", "log_slave_updates",
    "lower_case_file_system", "lower_case_table_names", "max_allowed_packet", "max_binlog_size",
    "max_execution_time", "max_statement_time", "net_buffer_length", "net_read_timeout", "net_write_timeout",
    "old_passwords", "performance_schema", "protocol_version", "query_cache_size", "query_cache_type", "read_only",
    "server_id", "server_id_bits", "server_uuid",
    "session_track_system_variables", "sql_auto_is_null", "sql_mode", "sql_quote_show_create", "sql_safe_updates",
    "sql_select_limit", "super_read_only", "sync_binlog", "system_time_zone", "time_zone", "transaction_isolation",
    "transaction_read_only", "tx_isolation", "tx_read_only", "unique_checks", "version", "version_comment",
    "version_compile_machine", "version_compile_os", "wait_timeout",
))  # fmt: skip
# The values of these variables grow with the log, and SHOW VARIABLES cuts a value at 1024 characters.
GTID_VARIABLES = frozenset(name for name in SHOWN_VARIABLES if name.startswith("gtid_")) - {
    "gtid_mode", "gtid_domain_id", "gtid_strict_mode",
}  # fmt: skip


class TableColumn(NamedTuple):
    """A column of a server's answer. `integer`: True if its values are whole numbers."""

    name: str
    integer: bool = False


class ServerAnswer(NamedTuple):
    """A server's answer: columns, and rows of texts."""

    columns: tuple[TableColumn, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()


class Variable(NamedTuple):
    """A global variable. `selected`: its value in SELECT; `shown`: its value in SHOW VARIABLES, where a boolean is ON
    or OFF; `integer`: True if SELECT returns a whole number."""

    selected: Cell
    shown: str
    integer: bool = False

    @property
    def boolean(self) -> bool:
        return self.integer and self.shown in ("ON", "OFF")


@dataclass(frozen=True, slots=True)
class Picture:
    """The state of a server. `variables`: the variables that the server has, by name in lower case, in the server's
    order. `logs`: the answer to SHOW BINARY LOGS, without rows if the server writes no log; `status`: the answer to
    SHOW BINARY LOG STATUS."""

    variables: Mapping[str, Variable]
    logs: ServerAnswer
    status: ServerAnswer

    def text(self, name: str) -> str:
        """Return a variable's value in SELECT, "" if the server does not have the variable."""
        variable = self.variables.get(name)
        return "" if variable is None else variable.selected or ""

    @property
    def version(self) -> str:
        return self.text("version")

    @property
    def mariadb(self) -> bool:
        return "mariadb" in self.version.lower()

    @property
    def server_id(self) -> int:
        variable = self.variables.get("server_id")
        return int(variable.selected or "0") if variable is not None and variable.integer else 0

    @property
    def server_uuid(self) -> str:
        """The server's uuid; "" on MariaDB, which has none."""
        return self.text("server_uuid")

    @property
    def executed(self) -> str:
        """The GTIDs in the server's log: gtid_executed, or MariaDB's gtid_binlog_pos."""
        return self.text("gtid_binlog_pos" if self.mariadb else "gtid_executed").replace("\n", "")

    @property
    def purged(self) -> str:
        """gtid_purged; "" on MariaDB."""
        return self.text("gtid_purged").replace("\n", "")

    @property
    def lower_case_table_names(self) -> int:
        """The setting by which the server compares the names of databases and tables."""
        return int(self.text("lower_case_table_names") or "0")

    @property
    def log_files(self) -> tuple[tuple[str, int], ...]:
        """The files of the log, oldest first: name and size in bytes."""
        return tuple((row[0] or "", int(row[1] or "0")) for row in self.logs.rows)
