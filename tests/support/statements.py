"""Statements for the parsers."""

from __future__ import annotations

from typing import Any

from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts

# The collations of a session with SET NAMES utf8mb4.
UTF8 = {"client": 45, "connection": 45, "server": 45}


def as_logged(text: str, database: str = "", sql_mode: int = 0, **facts: Any) -> LoggedStatement:
    """`facts`: fields of `SessionFacts` that differ from the defaults."""
    return LoggedStatement(text, database, SessionFacts(sql_mode, **facts))
