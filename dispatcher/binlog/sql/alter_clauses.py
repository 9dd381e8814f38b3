"""Parses ALTER TABLE: each clause becomes an object of `clauses`, which describes its effect on columns, keys and rows.

If the parser does not understand a clause, and the clause is not listed as harmless, `copy_reason` names it as a clause
that changes rows. So if the list lacks a clause, the mirror makes a needless copy of the table, but it never misses a
change.

Sources: MySQL 9.7 manual, "ALTER TABLE Statement"; MariaDB knowledge base, "ALTER TABLE"; sql_yacc.yy of both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dispatcher.binlog.sql import data_types
from dispatcher.binlog.sql.clauses import (
    AddColumnClause,
    ChangeColumnClause,
    ColumnClause,
    ColumnPosition,
    ConvertCharsetClause,
    DropColumnClause,
    PrimaryKeyClause,
    RenameColumnClause,
)
from dispatcher.binlog.sql.columns import defined_column
from dispatcher.binlog.sql.create_table import cascades_of
from dispatcher.binlog.sql.lexer import Name, NotUnderstoodError, SqlToken, SqlTokens, upper
from dispatcher.binlog.sql.logged import LoggedStatement

# The first words of table options and of clauses that do not change columns or rows.
_HARMLESS = frozenset((
    "ALGORITHM", "ALTER", "ANALYZE", "AUTOEXTEND_SIZE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHARACTER", "CHARSET",
    "CHECK", "CHECKSUM", "COALESCE", "COLLATE", "COMMENT", "COMPRESSION", "CONNECTION", "DATA", "DEFAULT",
    "DELAY_KEY_WRITE", "DISABLE", "ENABLE", "ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "ENGINE",
    "ENGINE_ATTRIBUTE", "FORCE", "IETF_QUOTES", "INDEX", "INSERT_METHOD", "KEY_BLOCK_SIZE", "LOCK", "MAX_ROWS",
    "MIN_ROWS", "NOWAIT", "OPTIMIZE", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL",
    "PARTITION", "REBUILD", "REMOVE", "REORGANIZE", "REPAIR", "ROW_FORMAT", "SECONDARY_ENGINE",
    "SECONDARY_ENGINE_ATTRIBUTE", "SECONDARY_LOAD", "SECONDARY_UNLOAD", "START", "STATS_AUTO_RECALC",
    "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STORAGE", "TABLESPACE", "TRANSACTIONAL", "WAIT", "WITH", "WITHOUT",
))  # fmt: skip
_PARTITION_VERBS = ("ANALYZE", "CHECK", "COALESCE", "OPTIMIZE", "REBUILD", "REORGANIZE", "REPAIR")
_KEY_WORDS = ("CHECK", "CONSTRAINT", "FOREIGN", "FULLTEXT", "INDEX", "KEY", "SPATIAL", "UNIQUE")
# Engines whose tables do not store the rows that are written to them.
_ROWLESS = ("BLACKHOLE", "FEDERATED", "MERGE", "MRG_MYISAM", "SPIDER", "CONNECT", "S3", "SEQUENCE")


@dataclass(slots=True)
class ParsedAlter:
    """`clauses`: the clauses about columns and the primary key. `renamed_to`: the table's new name. `copy_reason`: the
    first clause that changes rows in a way that the statement does not show, "" if there is none. `others`: other
    tables that the statement concerns, with True for a table that does not exist after the statement. `ignore`: True
    for ALTER IGNORE, which truncates values that do not fit. `adds_unique`: True if the statement adds a unique key;
    with IGNORE the server then deletes rows with duplicate keys. `cascades`: actions of added foreign keys."""

    table: Name
    clauses: list[ColumnClause] = field(default_factory=list)
    renamed_to: Name | None = None
    copy_reason: str = ""
    others: dict[Name, bool] = field(default_factory=dict)
    ignore: bool = False
    adds_unique: bool = False
    cascades: tuple[str, ...] = ()

    def copy(self, reason: str) -> None:
        self.copy_reason = self.copy_reason or reason


def parse_alter_table(statement: LoggedStatement) -> ParsedAlter:
    """Parse an ALTER TABLE statement. Raises NotUnderstoodError if the statement is not an ALTER TABLE, or if its table
    has no name.

    The time is linear in the statement's length.
    """
    tokens = SqlTokens(statement)
    if tokens.accept("SET", "STATEMENT") and not tokens.skip_to("FOR"):
        raise NotUnderstoodError
    tokens.expect("ALTER")
    ignore = False
    while tokens.at("ONLINE") or tokens.at("OFFLINE") or tokens.at("IGNORE"):
        ignore = tokens.word() == "IGNORE" or ignore
    tokens.expect("TABLE")
    tokens.if_exists()
    parsed = ParsedAlter(tokens.name(), ignore=ignore)
    if tokens.accept("WAIT"):  # MariaDB: the lock timeout in seconds
        tokens.advance()
    tokens.accept("NOWAIT")
    _Clauses(tokens, parsed).parse()
    if parsed.ignore and parsed.adds_unique:
        parsed.copy("ALTER IGNORE TABLE ... ADD UNIQUE")
    if not tokens.complete:
        raise NotUnderstoodError
    if "REFERENCES" in upper(statement.text):
        parsed.cascades = cascades_of(SqlTokens(statement))
    return parsed


class _Clauses:
    def __init__(self, tokens: SqlTokens, parsed: ParsedAlter) -> None:
        self._tokens = tokens
        self._parsed = parsed
        self._in_order_by = False

    def parse(self) -> None:
        while (following := self._tokens.peek()) is not None:
            if following.keyword == ";":
                self._tokens.advance()
                continue
            self._clause(following)

    def _clause(self, following: SqlToken) -> None:
        """Consume one clause and the comma after it."""
        start = following.end - len(following.text)
        try:
            self._understood(following)
        except NotUnderstoodError:
            self._tokens.skip_clause()
            self._parsed.copy(self._tokens.since(start))

    def _understood(self, following: SqlToken) -> None:
        tokens, word = self._tokens, following.keyword
        in_order_by, self._in_order_by = self._in_order_by, False
        if tokens.accept("ADD"):
            self._add()
        elif tokens.accept("DROP"):
            self._drop()
        elif tokens.accept("CHANGE") or tokens.accept("MODIFY"):
            self._change(renames=word == "CHANGE")
        elif tokens.accept("RENAME"):
            self._rename()
        elif tokens.accept("CONVERT"):
            self._convert()
        elif word in ("EXCHANGE", "TRUNCATE", "DISCARD", "IMPORT"):
            self._change_partition()
        elif tokens.accept("ORDER", "BY"):
            self._in_order_by = True
            tokens.skip_clause()
        elif tokens.accept("ENGINE"):
            self._engine()
        elif tokens.at(word, "PARTITION") and word in _PARTITION_VERBS:
            while (
                tokens.skip_clause()
            ):  # a list of partitions; the grammar allows no other clause after it
                pass
        elif word in _HARMLESS or (in_order_by and self._is_order_item()):
            self._in_order_by = in_order_by
            tokens.skip_clause()
        else:
            raise NotUnderstoodError

    def _end(self) -> None:
        """Consume the comma after a clause, or the partitioning that may follow the last clause. Raises
        NotUnderstoodError for anything else."""
        tokens = self._tokens
        if tokens.peek() is None or tokens.accept(",") or tokens.at(";"):
            return
        if tokens.at("PARTITION") or tokens.at("REMOVE"):
            tokens.skip_clause()
            return
        raise NotUnderstoodError

    def _position(self) -> ColumnPosition | None:
        if self._tokens.accept("FIRST"):
            return ColumnPosition()
        if self._tokens.accept("AFTER"):
            return ColumnPosition(self._tokens.identifier())
        return None

    # -- ADD -------------------------------------------------------------------------------------------------

    def _add(self) -> None:
        tokens = self._tokens
        if tokens.accept("PARTITION"):
            tokens.skip_clause()
        elif tokens.at("PERIOD", "FOR") or tokens.at("SYSTEM", "VERSIONING"):
            raise NotUnderstoodError
        elif not self._add_key():
            tokens.accept("COLUMN")
            exists = tokens.accept("IF", "NOT", "EXISTS")
            if tokens.accept("("):
                self._add_list(exists)
                self._end()
            else:
                column = defined_column(tokens)
                clause = AddColumnClause(column, self._position(), exists)
                self._end()
                self._parsed.clauses.append(clause)

    def _add_list(self, exists: bool) -> None:
        """Consume columns and keys in brackets."""
        tokens, added = self._tokens, list[ColumnClause]()
        while not tokens.accept(")"):
            if self._at_key():
                self._key_in_list()
            else:
                added.append(AddColumnClause(defined_column(tokens), None, exists))
                if not tokens.accept(",") and not tokens.at(")"):
                    raise NotUnderstoodError
        self._parsed.clauses += added

    def _at_key(self) -> bool:
        tokens = self._tokens
        vector = tokens.at("VECTOR", "INDEX") or tokens.at("VECTOR", "KEY")
        return vector or tokens.at("PRIMARY", "KEY") or any(map(tokens.at, _KEY_WORDS))

    def _add_key(self) -> bool:
        """Consume a key's definition and the comma after it. False if the clause is not a key's definition."""
        if not self._at_key():
            return False
        self._key()
        self._tokens.skip_clause()
        return True

    def _key_in_list(self) -> None:
        self._key()
        tokens, depth = self._tokens, 0
        while (following := tokens.peek()) is not None:
            if depth == 0 and following.keyword == ")":
                return
            depth += (following.keyword == "(") - (following.keyword == ")")
            tokens.advance()
            if depth == 0 and following.keyword == ",":
                return

    def _key(self) -> None:
        """Consume the beginning of a key's definition; for a primary key up to the end of its columns."""
        tokens = self._tokens
        if tokens.accept("CONSTRAINT") and not any(
            map(tokens.at, ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"))
        ):
            tokens.accept("IF", "NOT", "EXISTS")
            tokens.identifier()
        self._parsed.adds_unique |= tokens.at("UNIQUE") or tokens.at("PRIMARY")
        if tokens.accept("PRIMARY", "KEY"):
            self._parsed.clauses.append(PrimaryKeyClause(self._key_columns()))

    def _key_columns(self) -> tuple[str, ...]:
        tokens = self._tokens
        while not tokens.accept("("):  # IF NOT EXISTS, a name, USING BTREE
            if tokens.advance() is None:
                raise NotUnderstoodError
        columns = []
        while True:
            columns.append(tokens.identifier())
            while not tokens.at(",") and not tokens.at(")"):
                if tokens.at("("):
                    tokens.skip_to(")")
                elif tokens.advance() is None:
                    raise NotUnderstoodError
            if not tokens.accept(","):
                tokens.expect(")")
                return tuple(columns)

    # -- the other verbs -------------------------------------------------------------------------------------

    def _change(self, *, renames: bool) -> None:
        """Consume CHANGE or MODIFY. `renames`: True for CHANGE, which contains the name of the old column."""
        tokens = self._tokens
        tokens.accept("COLUMN")
        exists = tokens.accept("IF", "EXISTS")
        old = tokens.identifier() if renames else ""
        column = defined_column(tokens)
        clause = ChangeColumnClause(old or column.name, column, self._position(), exists)
        self._end()
        self._parsed.clauses.append(clause)

    def _drop(self) -> None:
        tokens, clauses = self._tokens, self._parsed.clauses
        if tokens.accept("PRIMARY", "KEY"):
            clauses.append(PrimaryKeyClause())
            self._end()
        elif tokens.accept_either("INDEX", "KEY", "CHECK", "CONSTRAINT"):
            tokens.if_exists()
            if upper(tokens.identifier()) == "PRIMARY":
                clauses.append(PrimaryKeyClause())
            tokens.skip_clause()
        elif tokens.accept("FOREIGN", "KEY"):
            tokens.skip_clause()
        elif tokens.at("PARTITION") or tokens.at("PERIOD", "FOR") or tokens.at("SYSTEM", "VERSIONING"):  # fmt: skip
            self._parsed.copy("DROP " + tokens.word())
            tokens.skip_clause()
        else:
            tokens.accept("COLUMN")
            exists = tokens.accept("IF", "EXISTS")
            clause = DropColumnClause(tokens.identifier(), exists)
            tokens.accept_any("RESTRICT", "CASCADE")
            self._end()
            clauses.append(clause)

    def _rename(self) -> None:
        tokens = self._tokens
        if tokens.accept("COLUMN"):
            exists = tokens.accept("IF", "EXISTS")
            old = tokens.identifier()
            tokens.expect("TO")
            self._parsed.clauses.append(RenameColumnClause(old, tokens.identifier(), exists))
        elif tokens.at("INDEX") or tokens.at("KEY"):
            tokens.skip_clause()
            return
        else:
            tokens.accept_any("TO", "AS", "=")
            self._parsed.renamed_to = tokens.name()
        self._end()

    def _convert(self) -> None:
        tokens, parsed = self._tokens, self._parsed
        if tokens.accept("TABLE"):  # MariaDB 11.4: the table becomes a partition
            parsed.others[tokens.name()] = True
            parsed.copy("CONVERT TABLE")
            tokens.skip_clause()
        elif tokens.accept("PARTITION"):  # MariaDB 10.7: a partition becomes a table
            tokens.identifier()
            tokens.expect("TO", "TABLE")
            parsed.others[tokens.name()] = False
            parsed.copy("CONVERT PARTITION")
            tokens.skip_clause()
        else:
            tokens.expect("TO")
            if not tokens.accept("CHARSET") and not tokens.accept("CHARACTER", "SET"):
                tokens.expect("CHAR", "SET")
            charset = data_types.charset_name(tokens)
            if tokens.accept("COLLATE"):
                data_types.charset_name(tokens)
            parsed.clauses.append(ConvertCharsetClause(charset))
            self._end()

    def _change_partition(self) -> None:
        tokens, parsed = self._tokens, self._parsed
        verb = tokens.word()
        what = tokens.word()
        parsed.copy(f"{verb} {what}")
        if verb == "EXCHANGE":
            tokens.identifier()
            tokens.expect("WITH", "TABLE")
            parsed.others[tokens.name()] = False
        tokens.skip_clause()

    def _engine(self) -> None:
        tokens = self._tokens
        tokens.accept("=")
        following = tokens.peek()
        name = upper(following.text.strip("'\"`")) if following is not None else ""
        if name in _ROWLESS:
            self._parsed.copy(f"ENGINE={name}")
        tokens.skip_clause()

    def _is_order_item(self) -> bool:
        """True for `column [ASC | DESC]` up to a comma or the end."""
        following, behind = self._tokens.peek(), self._tokens.peek(1)
        words = ("", ",", ";", ".", "ASC", "DESC")
        return (
            following is not None
            and following.name is not None
            and (behind.keyword if behind is not None else "") in words
        )
