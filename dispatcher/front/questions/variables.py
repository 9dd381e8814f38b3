"""The variables of one connection: its user variables (`@a`), and the system variables that the client has set.

A replication client sets the options of its dump with user variables. The properties of `Variables` return these
options. An invalid value is treated as if the variable were not set.

Sources: sql/rpl_binlog_sender.cc and rpl_source.cc of MySQL, sql/sql_repl.cc of MariaDB (which variables a dump reads);
MySQL manual, "Server System Variables".
"""

from __future__ import annotations

from sys import getsizeof

from dispatcher.binlog.charset.collations import charset_of
from dispatcher.binlog.sql.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES
from dispatcher.front.questions.question import Value
from dispatcher.front.questions.refusals import (
    too_many_variables,
    unknown_variable,
    variable_not_settable,
    wrong_value,
)
from dispatcher.model.server_picture import Cell, Picture, Variable

VARIABLES_MAX = 200
BYTES_MAX = 64 << 10  # the most memory of the names and values of one connection
ALL_BYTES_MAX = 16 << 20  # and of all connections together
_UTF8MB4 = 45

# System variables that a client may set for its session, and that clients see even if they have not set them.
_SETTABLE = frozenset((
    "auto_increment_increment", "auto_increment_offset", "autocommit", "big_tables", "character_set_client",
    "character_set_connection", "character_set_database", "character_set_filesystem", "character_set_results",
    "character_set_server", "collation_connection", "collation_database", "collation_server",
    "default_storage_engine", "default_week_format", "div_precision_increment", "explicit_defaults_for_timestamp",
    "foreign_key_checks", "group_concat_max_len", "information_schema_stats_expiry", "innodb_lock_wait_timeout",
    "interactive_timeout", "lock_wait_timeout", "max_execution_time", "max_statement_time", "net_read_timeout",
    "net_write_timeout", "old_passwords", "query_cache_type", "session_track_system_variables", "sql_auto_is_null",
    "sql_mode", "sql_quote_show_create", "sql_safe_updates", "sql_select_limit", "time_zone",
    "transaction_isolation", "transaction_read_only", "tx_isolation", "tx_read_only", "unique_checks",
    "wait_timeout",
))  # fmt: skip
# System variables that clients set and that have no effect in the front. A client sees such a variable only after
# setting it.
_ACCEPTED = frozenset((
    "max_heap_table_size", "optimizer_switch", "profiling", "session_track_gtids", "session_track_schema",
    "session_track_state_change", "session_track_transaction_info", "sql_big_selects", "sql_notes", "sql_warnings",
    "timestamp", "tmp_table_size",
))  # fmt: skip
# The names of variables in MySQL 8.0 and later, and their names in older servers.
_FORMER = {"transaction_isolation": "tx_isolation", "transaction_read_only": "tx_read_only"}
_LATER = {former: name for name, former in _FORMER.items()}
_TRUE, _FALSE = frozenset(("1", "on", "true")), frozenset(("0", "off", "false"))
# The default collations of character sets for which it is not `..._general_ci`.
_COLLATIONS = {"latin1": "latin1_swedish_ci", "binary": "binary"}
_CHECKSUMS = {"0": "NONE", "1": "CRC32", "NONE": "NONE", "CRC32": "CRC32"}
_CHARSETS = ("character_set_client", "character_set_connection", "character_set_results")


class VariableMemory:
    """How many bytes the variables of all connections take. Each connection may take `BYTES_MAX`, all together
    `maximum`."""

    def __init__(self, maximum: int = ALL_BYTES_MAX) -> None:
        self.maximum = maximum
        self.held = 0

    def resize(self, before: int, after: int) -> None:
        """Replace the number of bytes of one connection. Raises `WireError` if the bytes are too many."""
        more = after - before
        if after > BYTES_MAX or (more > 0 and self.held + more > self.maximum):
            raise too_many_variables()
        self.held += more


class Variables:
    """`collation`: the id of the collation in the client's handshake. `database`: the connection's default database,
    which USE changes; "" = none. `mariadb`: True if the server is MariaDB."""

    def __init__(
        self,
        collation: int = _UTF8MB4,
        database: str = "",
        *,
        mariadb: bool = False,
        memory: VariableMemory | None = None,
    ) -> None:
        self.database = database
        self.mariadb = mariadb
        self._memory = memory or VariableMemory()
        self._bytes = 0
        self._user: dict[str, Value] = {}
        self._system: dict[str, Cell] = {}
        charset = charset_of(collation)
        # For an unknown id, a server uses its own default.
        self._system |= dict.fromkeys(_CHARSETS, charset if charset.isalnum() else "utf8mb4")

    def copy(self) -> Variables:
        """Return a copy of the variables for the assignments of one statement. If no assignment fails, `take` replaces
        the variables by the changed copy."""
        other = Variables(database=self.database, mariadb=self.mariadb)
        other._user, other._system = dict(self._user), dict(self._system)
        return other

    def take(self, other: Variables) -> None:
        """Replace the variables by the variables of a copy. Raises `WireError` if these are too many or too large."""
        values = [*other._user.items(), *other._system.items()]
        if len(values) > VARIABLES_MAX:
            raise too_many_variables()
        size = sum(getsizeof(name) + getsizeof(value) for name, value in values)
        self._memory.resize(self._bytes, size)
        self._user, self._system, self._bytes = other._user, other._system, size

    def clear(self) -> None:
        """Forget all values, and give their memory back. Call this method when the connection ends or is reset."""
        self._memory.resize(self._bytes, 0)
        self._user, self._system, self._bytes = {}, {}, 0

    # -- user variables --------------------------------------------------------------------------------------

    def user(self, name: str) -> Value:
        """Return the value of `@name`; None if it is not set."""
        return self._user.get(name.lower())

    def set_user(self, name: str, value: Value) -> None:
        self._user[name.lower()] = value

    # -- system variables ------------------------------------------------------------------------------------

    def session(self, name: str, picture: Picture) -> Variable | None:
        """Return the session value of a system variable, or None if the variable does not exist."""
        global_ = picture.variables.get(name)
        if name not in self._system:
            return global_
        value = self._system[name]
        if global_ is None:
            return Variable(value, value or "") if name in _ACCEPTED else None
        shown = value or ""
        if global_.boolean:
            shown = "ON" if value == "1" else "OFF"
        elif name in _CHARSETS and shown == "utf8mb3" and "utf8mb3" not in _utf8_names(picture):
            value = shown = "utf8"
        return Variable(value, shown, global_.integer)

    def set_session(self, name: str, value: Value, picture: Picture) -> None:
        """Set a variable for the session. Raises `WireError`."""
        name = _present(name, picture)
        global_ = picture.variables.get(name)
        if global_ is None and name not in _ACCEPTED:
            raise unknown_variable(name)
        if name not in _SETTABLE and name not in _ACCEPTED:
            raise variable_not_settable(name)
        stored = _stored(name, value, global_)
        self._system[name] = stored
        other = _FORMER.get(name, _LATER.get(name, ""))
        if other in picture.variables:  # the server shows one variable under both names
            self._system[other] = stored

    def reset_session(self, name: str, picture: Picture) -> None:
        """Set a variable to the server's value, as DEFAULT does. Raises `WireError`."""
        name = _present(name, picture)
        if name not in picture.variables and name not in _ACCEPTED:
            raise unknown_variable(name)
        self._system.pop(name, None)

    def set_names(self, charset: str | None, collation: str, picture: Picture) -> None:
        """Execute SET NAMES. `charset`: None = DEFAULT; `collation`: "" = the default collation of the character
        set."""
        charset = charset or picture.text("character_set_server") or "utf8mb4"
        self._system |= dict.fromkeys(_CHARSETS, charset)
        self._system["collation_connection"] = collation or _collation_of(charset, picture)

    def set_charset(self, charset: str | None, picture: Picture) -> None:
        """Execute SET CHARACTER SET, which sets the connection's character set to the database's character set."""
        self.set_names(charset, "", picture)
        self._system.pop("character_set_connection", None)
        self._system.pop("collation_connection", None)

    @property
    def sql_mode_bits(self) -> int:
        """The bits of sql_mode that change how a statement is parsed."""
        modes = {mode.strip() for mode in (self._system.get("sql_mode") or "").upper().split(",")}
        bits = ANSI_QUOTES if modes & {"ANSI_QUOTES", "ANSI"} else 0
        return bits | (NO_BACKSLASH_ESCAPES if "NO_BACKSLASH_ESCAPES" in modes else 0)

    @property
    def autocommit(self) -> bool:
        """The value of autocommit, for the status flags of answers. True if the client has not set the variable."""
        return self._system.get("autocommit", "1") == "1"

    def seconds(self, name: str) -> int | None:
        """Return the client's value of a time limit in seconds, such as net_write_timeout. None if the client has not
        set it."""
        value = self._system.get(name)
        return int(value) if value is not None and value.isdecimal() else None

    # -- what the client wants of a dump ---------------------------------------------------------------------

    @property
    def binlog_checksum(self) -> str | None:
        """The variable that the client sets to "NONE" or "CRC32"; None if the client has not set it. Old clients,
        which do not know checksums, never set it."""
        value = self._first("source_binlog_checksum", "master_binlog_checksum")
        return None if value is None else _CHECKSUMS.get(str(value).upper())

    @property
    def heartbeat_period_ns(self) -> int:
        """After how many nanoseconds without an event the client wants a heartbeat; 0 = no heartbeats."""
        return self._number("source_heartbeat_period", "master_heartbeat_period")

    @property
    def replica_uuid(self) -> str:
        """The UUID by which a server recognizes a replica that connects again; "" if the client has not set one."""
        value = self._first("replica_uuid", "slave_uuid")
        return value if isinstance(value, str) and len(value) <= 64 else ""

    @property
    def mariadb_capability(self) -> int:
        """The client's MariaDB capability. With 4 or more, the client understands MariaDB's GTID events; 0 = it is not
        a MariaDB client."""
        return self._number("mariadb_slave_capability")

    @property
    def slave_connect_state(self) -> str | None:
        """MariaDB's GTIDs after which the client wants the log; None if the client names a file and an offset
        instead."""
        value = self._user.get("slave_connect_state")
        return value if isinstance(value, str) else None

    @property
    def slave_gtid_strict_mode(self) -> bool:
        """True if a client of MariaDB wants the server to refuse a dump from a GTID between two GTIDs of the log."""
        return self._number("slave_gtid_strict_mode") != 0

    @property
    def slave_until_gtid(self) -> str | None:
        """MariaDB's GTIDs at which the dump shall end; None if the client sets no end."""
        value = self._user.get("slave_until_gtid")
        return value if isinstance(value, str) else None

    def _first(self, *names: str) -> Value:
        """Return the value of the first user variable of `names` that is set, None if none is set."""
        return next((self._user[name] for name in names if name in self._user), None)

    def _number(self, *names: str) -> int:
        """Return the value of the first of these user variables that is set, as a number >= 0. Return 0 if the value is
        not such a number."""
        value = self._first(*names)
        if isinstance(value, int):
            return max(value, 0)
        text = (value or "").strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else 0


def _present(name: str, picture: Picture) -> str:
    """Return the name under which the server shows a variable."""
    former = _FORMER.get(name)
    return former if former and name not in picture.variables else name


def _stored(name: str, value: Value, global_: Variable | None) -> Cell:
    """Return the value as SELECT shows it. Raises `WireError` for an invalid value."""
    if value is None:
        if name != "character_set_results":
            raise wrong_value(name, None)
        return None
    text = str(value)
    if global_ is not None and global_.boolean:
        if text.lower() in _TRUE:
            return "1"
        if text.lower() in _FALSE:
            return "0"
        raise wrong_value(name, text)
    if global_ is not None and global_.integer:
        if not isinstance(value, int) or value < 0:
            raise wrong_value(name, text)
        return text
    return text.upper() if name in ("sql_mode", "transaction_isolation", "tx_isolation") else text


def _utf8_names(picture: Picture) -> str:
    """The character set in which the server stores names: `utf8`, or `utf8mb3` on newer servers."""
    return picture.text("character_set_system")


def _collation_of(charset: str, picture: Picture) -> str:
    """The default collation of a character set. A character set without an entry in `_COLLATIONS` has
    `..._general_ci`."""
    if charset == picture.text("character_set_server"):
        return picture.text("collation_server")
    return _COLLATIONS.get(charset, f"{charset}_general_ci")
