"""Finds the one table that a change of data changes, if the change was logged as a statement.

Besides the table that it names, a statement can change tables of other databases: by a trigger of the table, by a
stored function in an expression, or if the table is a view, a MERGE table, or the parent of a foreign key with an
action. MariaDB does not list the databases that a statement updates. MySQL does not list them if the statement's first
table is in the database `mysql` (tested on four servers).

A statement is understood only if its text begins with one of the forms of `HEADS`, which name exactly one table.
Sources: MySQL manual and MariaDB knowledge base, "INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD DATA"; MySQL manual,
"Function Name Parsing and Resolution".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dispatcher.binlog.sql.forms import COMMON, Form, Forms
from dispatcher.binlog.sql.lexer import ORACLE, Name, NotUnderstoodError, SqlToken, SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement
from dispatcher.binlog.sql.statement import ROUTING_BOUNDS, parse_statement

HEADS = (
    "INSERT [LOW_PRIORITY | DELAYED | HIGH_PRIORITY] [IGNORE] [INTO] <table>",
    "REPLACE [LOW_PRIORITY | DELAYED] [INTO] <table>",
    "UPDATE [LOW_PRIORITY] [IGNORE] <table> [AS <name>] SET",
    "DELETE [LOW_PRIORITY] [QUICK] [IGNORE] FROM <table>",
    "LOAD {DATA | XML} [LOW_PRIORITY | CONCURRENT] [LOCAL] INFILE <text> [REPLACE | IGNORE] INTO TABLE <table>",
)

_HEADS = Forms(Form(text, COMMON) for text in HEADS)
_AFTER_DELETE = ("WHERE", "ORDER", "LIMIT")  # after `,` or USING the DELETE has several tables

# The tables that servers and Amazon RDS make in the database `mysql`. Servers refuse triggers in `mysql`. They accept
# views and MERGE tables there, so a table that somebody else made is not listed.
_SYSTEM_DATABASE = "mysql"
_RDS_TABLE = re.compile(r"rds_[a-z0-9_]+")
SYSTEM_TABLES = frozenset((
    "column_stats", "columns_priv", "component", "db", "default_roles", "engine_cost", "event", "func",
    "general_log", "global_grants", "global_priv", "gtid_executed", "gtid_slave_pos", "help_category",
    "help_keyword", "help_relation", "help_topic", "host", "index_stats", "innodb_index_stats",
    "innodb_table_stats", "ndb_binlog_index", "password_history", "plugin", "proc", "procs_priv",
    "proxies_priv", "replication_asynchronous_connection_failover",
    "replication_asynchronous_connection_failover_managed", "replication_group_configuration_version",
    "replication_group_member_actions", "role_edges", "roles_mapping", "server_cost", "servers",
    "slave_master_info", "slave_relay_log_info", "slave_worker_info", "slow_log", "table_stats", "tables_priv",
    "time_zone", "time_zone_leap_second", "time_zone_name", "time_zone_transition", "time_zone_transition_type",
    "transaction_registry", "user",
))  # fmt: skip

# Functions that every server since 5.6 has. Their names, without a database and directly before the bracket, never mean
# a stored function. MD5 and SHA1 are not listed, because MySQL 9.7 has them only with a component.
NATIVE_FUNCTIONS = frozenset((
    "ABS", "ADDDATE", "BIT_LENGTH", "CAST", "CEIL", "CEILING", "CHAR_LENGTH", "COALESCE", "CONCAT", "CONCAT_WS",
    "CONNECTION_ID", "CONVERT", "CRC32", "CURDATE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP",
    "CURRENT_USER", "CURTIME", "DATABASE", "DATE", "DATE_ADD", "DATE_FORMAT", "DATE_SUB", "DATEDIFF", "DAY",
    "EXTRACT", "FLOOR", "FROM_UNIXTIME", "GREATEST", "HEX", "HOUR", "IF", "IFNULL", "LAST_INSERT_ID", "LEAST",
    "LEFT", "LENGTH", "LOCALTIME", "LOCALTIMESTAMP", "LOWER", "LPAD", "MICROSECOND", "MINUTE", "MOD", "MONTH",
    "NOW", "NULLIF", "RAND", "REPLACE", "REVERSE", "RIGHT", "ROUND", "RPAD", "SECOND", "SHA2", "SIGN",
    "SUBDATE", "SUBSTR", "SUBSTRING", "SYSDATE", "TIME", "TIMESTAMP", "TO_DAYS", "TRIM", "TRUNCATE", "UNHEX",
    "UNIX_TIMESTAMP", "UPPER", "USER", "UTC_DATE", "UTC_TIME", "UTC_TIMESTAMP", "UUID", "VERSION", "YEAR",
))  # fmt: skip
# Reserved words of all servers that may stand before a bracket, and so are not names of functions.
_BEFORE_BRACKET = frozenset((
    "AND", "BETWEEN", "BINARY", "BY", "CASE", "DIV", "ELSE", "IN", "INTERVAL", "LIKE", "NOT", "ON", "OR",
    "REGEXP", "RLIKE", "SET", "THEN", "VALUES", "WHEN", "WHERE", "XOR",
))  # fmt: skip
# Reserved words of queries and of sequences. (A view in a query may call a stored function.) WITH is reserved only
# since MySQL 8.0 and MariaDB 10.2; older servers have no query that begins with it.
_QUERY_WORDS = frozenset(("SELECT", "TABLE", "WITH", "FOR"))


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """`table`: the only table that the statement names as its target. `exact`: True if no other table can change,
    except by a foreign key that refers to this table."""

    table: Name
    exact: bool


def changed_table(statement: LoggedStatement) -> ChangedTable | None:
    """Returns the table that a change of data changes; None if the statement is not understood."""
    tokens = SqlTokens(statement, ROUTING_BOUNDS)
    try:
        table = _target(tokens)
    except NotUnderstoodError:
        created = _created(statement)
        return None if created is None else ChangedTable(created, exact=False)
    if not tokens.complete:
        return None
    return ChangedTable(table, _is_system_table(table) and _calls_no_stored_function(tokens))


def _target(tokens: SqlTokens) -> Name:
    form = _HEADS.chosen(tokens)
    if form is None:
        raise NotUnderstoodError
    table: Name = form.match(tokens).first("table")
    ends = any(tokens.at(word) for word in _AFTER_DELETE) or tokens.at_end()
    if form.text.startswith("DELETE") and not ends:
        raise NotUnderstoodError
    return table


def _created(statement: LoggedStatement) -> Name | None:
    """Returns the table of CREATE TABLE ... SELECT."""
    create = parse_statement(statement, ROUTING_BOUNDS).create
    return create.table if create is not None and create.selects else None


def _is_system_table(table: Name) -> bool:
    name = table[1]
    return table[0] == _SYSTEM_DATABASE and (
        name in SYSTEM_TABLES or _RDS_TABLE.fullmatch(name) is not None
    )


def _calls_no_stored_function(tokens: SqlTokens) -> bool:
    """True if the rest of the statement consists of values, columns, operators and native functions. With sql_mode
    ORACLE, MariaDB also reads sequences by `name.NEXTVAL`."""
    before: SqlToken | None = None
    last: SqlToken | None = None
    for token in tokens:
        if token.kind == "open" or token.keyword in _QUERY_WORDS:
            return False
        if token.keyword == "(" and not _may_open(before, last, token):
            return False
        before, last = last, token
    return tokens.complete and not tokens.facts.sql_mode & ORACLE


def _may_open(before: SqlToken | None, last: SqlToken | None, bracket: SqlToken) -> bool:
    """True if a bracket after the tokens `before` and `last` calls no stored function."""
    if last is None or (last.kind == "sign" and last.text != "."):
        return True
    if before is not None and before.keyword == ".":
        return False
    if last.keyword in _BEFORE_BRACKET:
        return True
    return last.keyword in NATIVE_FUNCTIONS and last.end == bracket.end - 1
