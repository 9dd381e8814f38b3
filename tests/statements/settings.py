"""Settings of the session that runs a statement. A server that refuses one of the statements does not run the case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """`statements`: run before the statement; `encoding`: Python's name of the character set in which the text is
    sent."""

    name: str
    statements: tuple[str, ...] = ()
    encoding: str = "utf-8"


def _sql_mode(name: str, mode: str) -> Setting:
    return Setting(name, (f"SET sql_mode = '{mode}'",))


_STRICT = "STRICT_TRANS_TABLES"
_ALL = (
    Setting("plain"),
    _sql_mode("lenient", ""),
    _sql_mode("strict", _STRICT),
    _sql_mode("ansi", f"{_STRICT},ANSI_QUOTES"),
    _sql_mode("backslash", f"{_STRICT},NO_BACKSLASH_ESCAPES"),
    _sql_mode("ansi_backslash", f"{_STRICT},ANSI_QUOTES,NO_BACKSLASH_ESCAPES"),
    _sql_mode("oracle", "ORACLE"),
    _sql_mode("maxdb", "MAXDB"),
    _sql_mode("mssql", "MSSQL"),
    _sql_mode("empty_null", f"{_STRICT},EMPTY_STRING_IS_NULL"),
    _sql_mode("pads", f"{_STRICT},PAD_CHAR_TO_FULL_LENGTH"),
    _sql_mode("real_float", f"{_STRICT},REAL_AS_FLOAT"),
    _sql_mode("invalid_dates", "ALLOW_INVALID_DATES"),
    _sql_mode("zero_kept", f"{_STRICT},NO_AUTO_VALUE_ON_ZERO"),
    Setting("latin1", ("SET NAMES latin1",), "cp1252"),
    Setting("gbk", ("SET NAMES gbk",), "gbk"),
    Setting("connection_latin1", ("SET collation_connection = latin1_swedish_ci",)),
    Setting("connection_gbk", ("SET collation_connection = gbk_chinese_ci",)),
    Setting("collation_bin", ("SET NAMES utf8mb4 COLLATE utf8mb4_bin",)),
    Setting("timestamps_off", ("SET explicit_defaults_for_timestamp = OFF",)),
    Setting("timestamps_on", ("SET explicit_defaults_for_timestamp = ON",)),
    Setting("zone", ("SET time_zone = '+05:00'",)),
    Setting("statement_format", ("SET binlog_format = STATEMENT",)),
    Setting("mixed_format", ("SET binlog_format = MIXED",)),
    Setting("two_phase", ("SET binlog_alter_two_phase = ON",)),
    Setting(
        "no_database", ("CREATE DATABASE gone_soon", "USE gone_soon", "DROP DATABASE gone_soon")
    ),
    Setting("other_database", ("USE other",)),
)
SETTINGS = {setting.name: setting for setting in _ALL}
