"""Parses the parts of primary and unique keys.

Sources: MySQL 9.7 manual, "CREATE TABLE Statement", "CREATE INDEX Statement"; MariaDB knowledge base, "CREATE TABLE".
"""

from __future__ import annotations

from dispatcher.binlog.sql.lexer import SqlTokens


def key_parts(tokens: SqlTokens) -> tuple[tuple[str | None, ...], tuple[int, ...]]:
    """Consume the parts of a key in brackets. Return columns (None: an expression) and prefixes, () if all are 0."""
    tokens.expect("(")
    columns: list[str | None] = []
    prefixes: list[int] = []
    while True:
        prefix = 0
        if tokens.at("("):
            tokens.skip_brackets()
            columns.append(None)
        else:
            columns.append(tokens.identifier())
            if tokens.accept("("):
                prefix = int(tokens.digits())
                tokens.expect(")")
            if tokens.accept("WITHOUT", "OVERLAPS"):  # MariaDB: a period
                columns[-1] = None
        prefixes.append(prefix)
        tokens.accept_any("ASC", "DESC")
        if not tokens.accept(","):
            tokens.expect(")")
            return tuple(columns), tuple(prefixes) if any(prefixes) else ()
