"""The clauses of ALTER TABLE: which of them change the rows that a table already has.

The lists below name the clauses that leave existing rows as they are. A clause that is not on them is taken to change
rows, so a list that lacks one stops a mirror needlessly, but never lets it miss a change.

An added column leaves them as they are only where its value in them is NULL. With another default, NOT NULL, a
generated value or AUTO_INCREMENT, MySQL gives existing rows values that it writes to no log.

Source: MySQL 9.7 manual, "ALTER TABLE Statement".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatcher.binlog.sql.lexer import NotUnderstoodError, SqlToken, SqlTokens

_HARMLESS = {
    "ALGORITHM", "ALTER", "ANALYZE", "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHARACTER", "CHARSET",
    "CHECK", "CHECKSUM", "COALESCE", "COLLATE", "COMMENT", "COMPRESSION", "CONNECTION", "DEFAULT", "DELAY_KEY_WRITE",
    "DISABLE", "ENABLE", "ENCRYPTION", "ENGINE", "ENGINE_ATTRIBUTE", "FORCE", "INSERT_METHOD", "KEY_BLOCK_SIZE",
    "LOCK", "MAX_ROWS", "MIN_ROWS", "NOWAIT", "OPTIMIZE", "ORDER", "PACK_KEYS", "PARTITION", "REBUILD", "REMOVE",
    "REORGANIZE", "REPAIR", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_LOAD", "SECONDARY_UNLOAD",
    "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE", "WAIT", "WITH", "WITHOUT",
}  # fmt: skip
_KEYS = {"CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "SPATIAL", "UNIQUE"}
_VALUES = {"AS", "AUTO_INCREMENT", "GENERATED", "PRIMARY", "SERIAL"}


def row_changing_clause(query: str, sql_mode: int = 0) -> str:
    """The first clause of an ALTER TABLE statement that may change existing rows; "" where none may."""
    tokens = SqlTokens(query, sql_mode)
    try:
        tokens.expect("ALTER")
        tokens.accept_any("ONLINE", "OFFLINE", "IGNORE")
        tokens.expect("TABLE")
        tokens.if_exists()
        tokens.name()
    except NotUnderstoodError:
        return "not an ALTER TABLE statement"
    clauses = _split_clauses(tokens)
    if not clauses or not tokens.complete:
        return "not an ALTER TABLE statement"
    changing = (clause for clause in clauses if not _keeps_rows(clause))
    return " ".join(token.text for token in next(changing, ()))


def _split_clauses(tokens: Iterable[SqlToken]) -> list[list[SqlToken]]:
    """Split at the commas outside brackets."""
    clauses: list[list[SqlToken]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            clauses.append([])
        elif token.text != ";":
            clauses[-1].append(token)
    return [clause for clause in clauses if clause]


def _keeps_rows(clause: Sequence[SqlToken]) -> bool:
    words = [token.keyword for token in clause]
    match words:
        case ["ADD", "PARTITION", *_] | ["RENAME", "INDEX" | "KEY", *_]:
            return True
        case ["ADD", "PRIMARY", *_] | ["ADD", "PERIOD", "FOR", *_] | ["ADD", "SYSTEM", "VERSIONING", *_]:  # fmt: skip
            return False
        case ["ADD", second, *_] if second in _KEYS:
            return "PRIMARY" not in words
        case ["ADD", *_]:
            return _adds_null_columns(clause[1:])
        case ["DROP", "INDEX" | "KEY" | "FOREIGN" | "CHECK" | "CONSTRAINT", *_]:
            return not any((token.name or "").upper() == "PRIMARY" for token in clause)
    return words[0] in _HARMLESS


def _adds_null_columns(definition: Sequence[SqlToken]) -> bool:
    """`definition`: what follows ADD: one column, or several in brackets."""
    if definition and definition[0].keyword == "COLUMN":
        definition = definition[1:]
    if [token.keyword for token in definition[:3]] == ["IF", "NOT", "EXISTS"]:
        definition = definition[3:]
    if definition and definition[0].text == "(":
        end = max((i for i, token in enumerate(definition) if token.text == ")"), default=0)
        return end > 0 and all(map(_is_null_column, _split_clauses(definition[1:end])))
    return _is_null_column(definition)


def _is_null_column(column: Sequence[SqlToken]) -> bool:
    words = [token.keyword for token in column[1:]]  # the name may be spelled like a keyword
    if not words or _VALUES.intersection(words):
        return False
    if column[0].keyword in _KEYS:
        return "PRIMARY" not in words
    pairs = zip(words, [*words[1:], ""], strict=True)
    return not any(
        (word == "NOT" and following == "NULL") or (word == "DEFAULT" and following != "NULL")
        for word, following in pairs
    )
