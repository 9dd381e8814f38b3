"""Parses ALTER TABLE: each clause becomes an object of `clauses`, which describes its effect on columns, keys and rows.

The mirror follows a clause only if the whole clause has one of the forms of `CLAUSES` and of `table_options`. Any other
clause is in doubt: `doubt` holds its words. So if these forms lack a clause, the mirror makes a needless copy of the
table, but it never misses a change.

Sources: MySQL 9.7 manual, "ALTER TABLE Statement"; MariaDB knowledge base, "ALTER TABLE"; sql_yacc.yy of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dispatcher.binlog.sql.clauses import (
    AddColumnClause,
    ChangeColumnClause,
    ColumnClause,
    ColumnPosition,
    ConvertCharsetClause,
    DefinitionClause,
    DropColumnClause,
    DropKeyClause,
    PrimaryKeyClause,
    RenameColumnClause,
    RenameKeyClause,
    UniqueKeyClause,
    VisibilityClause,
)
from dispatcher.binlog.sql.columns import defined_column, skip_default
from dispatcher.binlog.sql.forms import Form, Forms, Found, Slot, any_token, at_bracket, is_name
from dispatcher.binlog.sql.keys import key_parts
from dispatcher.binlog.sql.lexer import Name, NotUnderstoodError, SqlTokens, upper
from dispatcher.binlog.sql.table_options import OPTIONS, SLOTS, is_rowless, table_charset


@dataclass(slots=True)
class ParsedAlter:
    """`clauses`: the clauses about columns and the primary key. `definition`: the other clauses that change the
    table's definition. `renamed_to`: the table's new name. `copy_reason`: the
    first clause that changes rows in a way that the statement does not show, or that is in doubt; "" if there is none.
    `doubt`: the words of the first clause that is not followed; such a clause may name other tables.
    `others`: other tables that the statement concerns, with True for a table that does not exist after the statement.
    `ignore`: True for ALTER IGNORE, which deletes rows that a key or a check refuses, and truncates values that do not
    fit."""

    table: Name
    clauses: list[ColumnClause] = field(default_factory=list)
    definition: list[DefinitionClause] = field(default_factory=list)
    renamed_to: Name | None = None
    copy_reason: str = ""
    doubt: str = ""
    others: dict[Name, bool] = field(default_factory=dict)
    ignore: bool = False

    def copy(self, reason: str) -> None:
        self.copy_reason = self.copy_reason or reason


def altered_table(tokens: SqlTokens, *, ignore: bool) -> ParsedAlter:
    """Consume the rest of an ALTER TABLE statement after the word TABLE. Raises NotUnderstoodError if the table has no
    name. The time is linear in the statement's length."""
    tokens.if_exists()
    parsed = ParsedAlter(tokens.name(), ignore=ignore)
    tokens.altered = parsed.table
    tokens.wait()
    _Clauses(tokens, parsed).parse()
    return parsed


# -- slots of clauses ----------------------------------------------------------------------------------------


def _symbol(tokens: SqlTokens, n: int) -> bool:
    return is_name(tokens, n) and not any(
        tokens.at(word, n=n) for word in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK")
    )


def _index_name(tokens: SqlTokens, n: int) -> bool:
    return is_name(tokens, n) and not tokens.at("USING", n=n) and not tokens.at("TYPE", n=n)


def _position(tokens: SqlTokens) -> ColumnPosition:
    if tokens.accept("FIRST"):
        return ColumnPosition()
    tokens.expect("AFTER")
    return ColumnPosition(tokens.column_name())


def _order(tokens: SqlTokens) -> None:
    """Consume the columns of ORDER BY. A comma may also end the clause. So after a comma, a name is a column only if a
    comma, the end, a point or a direction follows the name."""
    tokens.column_name()
    tokens.accept_either("ASC", "DESC")
    while tokens.at(",") and is_name(tokens, 1):
        behind = tokens.peek(2)
        if behind is not None and behind.keyword not in (",", ";", ".", "ASC", "DESC"):
            return
        tokens.advance()
        tokens.column_name()
        tokens.accept_either("ASC", "DESC")


def _columns_and_keys(tokens: SqlTokens) -> list[ColumnClause | UniqueKeyClause]:
    """Consume columns and keys in brackets."""
    tokens.expect("(")
    clauses = list[ColumnClause | UniqueKeyClause]()
    while True:
        key = KEYS.chosen(tokens)
        if key is not None:
            clauses += unique_keys(key.match(tokens))
        else:
            clauses.append(AddColumnClause(defined_column(tokens)))
        if not tokens.accept(","):
            tokens.expect(")")
            return clauses


_SLOTS = SLOTS | {
    "symbol": Slot(SqlTokens.identifier, _symbol),
    "index": Slot(SqlTokens.identifier, _index_name),
    "primary key": Slot(key_parts, at_bracket),
    "unique key": Slot(key_parts, at_bracket),
    "column": Slot(SqlTokens.column_name, is_name),
    "definition": Slot(defined_column, is_name),
    "position": Slot(
        _position, lambda tokens, n: tokens.at("FIRST", n=n) or tokens.at("AFTER", n=n)
    ),
    "columns and keys": Slot(_columns_and_keys, at_bracket),
    "default": Slot(skip_default, any_token),
    "columns": Slot(_order, is_name),
}
_INDEX = "[IF NOT EXISTS] [<index>] [{USING | TYPE} <word>] <key parts> [<index option>] ..."
_UNIQUE = _INDEX.replace("<key parts>", "<unique key>")
_PRIMARY = _INDEX.replace("<key parts>", "<primary key>")
_CONSTRAINT = "[CONSTRAINT [IF NOT EXISTS] [<symbol>]]"
# Even with IGNORE, the keys of `_INDEX_TEXTS` delete no rows.
_INDEX_TEXTS = (
    f"{{INDEX | KEY}} {_INDEX}",
    f"{{FULLTEXT | SPATIAL}} [INDEX | KEY] {_INDEX}",
    f"VECTOR {{INDEX | KEY}} {_INDEX}",
)
_CONSTRAINT_TEXTS = (
    f"{_CONSTRAINT} {{UNIQUE [INDEX | KEY] {_UNIQUE} | PRIMARY KEY {_PRIMARY}"
    " | FOREIGN KEY [IF NOT EXISTS] [<index>] <brackets> REFERENCES <table> [<brackets>] [MATCH <word>]"
    " [ON DELETE <action> | ON UPDATE <action>] ... | CHECK <brackets> [ENFORCED | NOT ENFORCED]}",
)
KEYS = Forms(Form(text, _SLOTS) for text in (*_INDEX_TEXTS, *_CONSTRAINT_TEXTS))


# -- what clauses do -----------------------------------------------------------------------------------------

Apply = Callable[[ParsedAlter, Found], None]


def _nothing(parsed: ParsedAlter, found: Found) -> None:
    """Do nothing: the effect of a clause that changes neither columns nor rows."""


def _may_lack(found: Found) -> bool:
    return ("IF", "EXISTS") in found.words or ("IF", "NOT", "EXISTS") in found.words


def unique_keys(found: Found) -> list[PrimaryKeyClause | UniqueKeyClause]:
    """Returns the primary key or the unique key that the words define, if there is one."""
    keys: list[PrimaryKeyClause | UniqueKeyClause] = []
    for columns, prefixes in found.all("primary key"):
        if None in columns:
            raise NotUnderstoodError
        keys.append(PrimaryKeyClause(columns, prefixes))
    name = found.first("index") or found.first("symbol") or ""
    for columns, prefixes in found.all("unique key"):
        keys.append(UniqueKeyClause(name, columns, prefixes, _may_lack(found)))
    return keys


def _add_key(parsed: ParsedAlter, found: Found) -> None:
    keys = unique_keys(found)
    _doubt_key(parsed, found, any(isinstance(key, PrimaryKeyClause) for key in keys))
    _add_clauses(parsed, keys)


def _doubt_key(parsed: ParsedAlter, found: Found, primary: bool) -> None:
    """If the table has a primary key, MariaDB ignores the primary key of a clause with IF EXISTS or IF NOT EXISTS.
    But it adds or changes the column that has the attribute PRIMARY KEY in this clause."""
    if primary and _may_lack(found):
        parsed.copy("a primary key with IF EXISTS or IF NOT EXISTS")


def _add_clauses(parsed: ParsedAlter, clauses: Iterable[ColumnClause | UniqueKeyClause]) -> None:
    for clause in clauses:
        if isinstance(clause, UniqueKeyClause):
            parsed.definition.append(clause)
        else:
            parsed.clauses.append(clause)


def _add_column(parsed: ParsedAlter, found: Found) -> None:
    exists = _may_lack(found)
    column = found.first("definition")
    added = found.first("columns and keys") or [AddColumnClause(column, found.first("position"))]
    keys = (clause.column.primary for clause in added if isinstance(clause, AddColumnClause))
    _doubt_key(parsed, found, any(keys))
    _add_clauses(
        parsed,
        (
            replace(clause, if_not_exists=exists) if isinstance(clause, AddColumnClause) else clause
            for clause in added
        ),
    )


def _change_column(parsed: ParsedAlter, found: Found) -> None:
    column = found.first("definition")
    old = found.first("column") or column.name
    clause = ChangeColumnClause(old, column, found.first("position"), _may_lack(found))
    _doubt_key(parsed, found, column.primary)
    parsed.clauses.append(clause)


def _drop_column(parsed: ParsedAlter, found: Found) -> None:
    parsed.clauses.append(DropColumnClause(found.first("column"), _may_lack(found)))


def _drop_primary_key(parsed: ParsedAlter, found: Found) -> None:  # noqa: ARG001
    parsed.clauses.append(PrimaryKeyClause())


def _drop_index(parsed: ParsedAlter, found: Found) -> None:
    name = found.first("name")
    if upper(name) == "PRIMARY":
        parsed.clauses.append(PrimaryKeyClause())
    else:
        parsed.definition.append(DropKeyClause(name))


def _rename_index(parsed: ParsedAlter, found: Found) -> None:
    old, new = found.all("name")
    parsed.definition.append(RenameKeyClause(old, new))


def _alter_column(parsed: ParsedAlter, found: Found) -> None:
    for word, visible in (("VISIBLE", True), ("INVISIBLE", False)):
        if ("SET", word) in found.words:
            parsed.definition.append(VisibilityClause(found.first("column"), visible))


def _rename_column(parsed: ParsedAlter, found: Found) -> None:
    old, new = found.all("column")
    parsed.clauses.append(RenameColumnClause(old, new, _may_lack(found)))


def _rename(parsed: ParsedAlter, found: Found) -> None:
    parsed.renamed_to = found.first("table")


def _convert_charset(parsed: ParsedAlter, found: Found) -> None:
    charset, *collation = found.all("charset")
    parsed.clauses.append(ConvertCharsetClause(charset, *collation))


def _copied(reason: str) -> Apply:
    """Returns the effect of a clause that changes rows in a way that the log does not show."""

    def apply(parsed: ParsedAlter, found: Found) -> None:  # noqa: ARG001
        parsed.copy(reason)

    return apply


def _with_table(reason: str, *, is_gone: bool = False) -> Apply:
    def apply(parsed: ParsedAlter, found: Found) -> None:
        parsed.others[found.first("table")] = is_gone
        parsed.copy(reason)

    return apply


def _option(parsed: ParsedAlter, found: Found) -> None:
    engine = found.first("engine")
    if engine is not None and is_rowless(engine):
        parsed.copy(f"ENGINE={engine}")
    charset = table_charset(found)
    if charset is not None:
        parsed.definition.append(charset)


class Clause(NamedTuple):
    """`form`: its syntax. `apply`: writes the clause's effect into a ParsedAlter. `safe`: True if ALTER IGNORE with the
    clause deletes and changes no rows."""

    form: Form
    apply: Apply
    safe: bool = False


def _clauses(apply: Apply, *texts: str, safe: bool = False) -> list[Clause]:
    return [Clause(Form(text, _SLOTS), apply, safe) for text in texts]


_LOCAL = "[NO_WRITE_TO_BINLOG | LOCAL]"
_VALIDATION = "[WITH VALIDATION | WITHOUT VALIDATION]"
CLAUSES: tuple[Clause, ...] = (
    *_clauses(_nothing, *(f"ADD {text}" for text in _INDEX_TEXTS), safe=True),
    *_clauses(_add_key, *(f"ADD {text}" for text in _CONSTRAINT_TEXTS)),
    *_clauses(_copied("ADD PERIOD"), "ADD PERIOD FOR <name> <brackets>"),
    *_clauses(_copied("ADD SYSTEM VERSIONING"), "ADD SYSTEM VERSIONING"),
    *_clauses(_nothing, f"ADD PARTITION [IF NOT EXISTS] {_LOCAL} {{PARTITIONS <number> | <brackets>}}"),
    *_clauses(_add_column, "ADD [COLUMN] [IF NOT EXISTS] {<columns and keys> | <definition> [<position>]}"),
    *_clauses(_change_column, "CHANGE [COLUMN] [IF EXISTS] <column> <definition> [<position>]"),
    *_clauses(_change_column, "MODIFY [COLUMN] [IF EXISTS] <definition> [<position>]"),
    *_clauses(
        _nothing, "ALTER {INDEX | KEY} [IF EXISTS] <name> {VISIBLE | INVISIBLE | IGNORED | NOT IGNORED}", safe=True
    ),
    *_clauses(_nothing, "ALTER {CHECK | CONSTRAINT} <name> {ENFORCED | NOT ENFORCED}"),
    *_clauses(
        _alter_column,
        "ALTER [COLUMN] [IF EXISTS] <column> {SET DEFAULT <default> | DROP DEFAULT | SET VISIBLE | SET INVISIBLE}",
        safe=True,
    ),
    *_clauses(_drop_primary_key, "DROP PRIMARY KEY"),
    *_clauses(_drop_index, "DROP {INDEX | KEY | CONSTRAINT | CHECK} [IF EXISTS] <name>"),
    *_clauses(_nothing, "DROP FOREIGN KEY [IF EXISTS] <name>", safe=True),
    *_clauses(_copied("DROP PARTITION"), "DROP PARTITION [IF EXISTS] <word>, ..."),
    *_clauses(_copied("DROP PERIOD"), "DROP PERIOD FOR <name>"),
    *_clauses(_copied("DROP SYSTEM VERSIONING"), "DROP SYSTEM VERSIONING"),
    *_clauses(_drop_column, "DROP [COLUMN] [IF EXISTS] <column> [RESTRICT | CASCADE]"),
    *_clauses(_rename_column, "RENAME COLUMN [IF EXISTS] <column> TO <column>", safe=True),
    *_clauses(_rename_index, "RENAME {INDEX | KEY} [IF EXISTS] <name> TO <name>", safe=True),
    *_clauses(_rename, "RENAME [TO | AS | =] <table>", safe=True),
    *_clauses(
        _convert_charset,
        "CONVERT TO {CHARACTER SET | CHARSET | CHAR SET} <charset> [COLLATE <charset>]",
    ),
    *_clauses(
        _with_table("CONVERT TABLE", is_gone=True),
        "CONVERT TABLE <table> TO PARTITION <word>"
        f" [VALUES LESS THAN {{MAXVALUE | <brackets>}} | VALUES IN <brackets> | DEFAULT] {_VALIDATION}",
    ),
    *_clauses(_with_table("CONVERT PARTITION"), "CONVERT PARTITION <word> TO TABLE <table>"),
    *_clauses(_with_table("EXCHANGE PARTITION"), f"EXCHANGE PARTITION <word> WITH TABLE <table> {_VALIDATION}"),
    *_clauses(_copied("TRUNCATE PARTITION"), "TRUNCATE PARTITION <word>, ..."),
    *_clauses(_copied("DISCARD TABLESPACE"), "DISCARD TABLESPACE"),
    *_clauses(_copied("DISCARD PARTITION"), "DISCARD PARTITION <word>, ... TABLESPACE"),
    *_clauses(_copied("IMPORT TABLESPACE"), "IMPORT TABLESPACE"),
    *_clauses(_copied("IMPORT PARTITION"), "IMPORT PARTITION <word>, ... TABLESPACE"),
    *_clauses(
        _nothing,
        f"COALESCE PARTITION {_LOCAL} <number>",
        f"REORGANIZE PARTITION {_LOCAL} [<word>, ... INTO <brackets>]",
        "{REBUILD PARTITION | OPTIMIZE PARTITION | ANALYZE PARTITION | CHECK PARTITION | REPAIR PARTITION}"
        f" {_LOCAL} <word>, ... [QUICK | EXTENDED | FAST | MEDIUM | CHANGED | USE_FRM | FOR UPGRADE] ...",
        "REMOVE PARTITIONING",
        "<partitioning>",
        "ORDER BY <columns>",
        "FORCE",
        "{SECONDARY_LOAD | SECONDARY_UNLOAD} [PARTITION <brackets>]",
        "WITH VALIDATION",
        "WITHOUT VALIDATION",
    ),
    *_clauses(
        _nothing, "{DISABLE KEYS | ENABLE KEYS}", "{ALGORITHM | LOCK} [=] <word>", safe=True
    ),
)  # fmt: skip
_FORMS = Forms(clause.form for clause in CLAUSES)
_CLAUSE_OF = {clause.form: clause for clause in CLAUSES}
_PARTITIONING = Forms(
    clause.form
    for clause in CLAUSES
    if clause.form.text in ("<partitioning>", "REMOVE PARTITIONING")
)


class _Clauses:
    def __init__(self, tokens: SqlTokens, parsed: ParsedAlter) -> None:
        self._tokens = tokens
        self._parsed = parsed

    def parse(self) -> None:
        while not self._tokens.at_end():
            following = self._tokens.peek()
            assert following is not None
            start = following.end - len(following.text)
            try:
                is_safe = self._clause() if _FORMS.chosen(self._tokens) else self._options()
            except NotUnderstoodError:
                self._tokens.skip_clause()
                words = self._tokens.since(start)
                self._parsed.copy(words)
                self._parsed.doubt = self._parsed.doubt or words
                continue
            if self._parsed.ignore and not is_safe:
                self._parsed.copy(f"ALTER IGNORE TABLE ... {self._tokens.since(start)}")

    def _clause(self) -> bool:
        """Consume a clause and the comma after it. Returns True if the clause is safe with IGNORE."""
        form = _FORMS.chosen(self._tokens)
        assert form is not None
        clause = _CLAUSE_OF[form]
        found = form.match(self._tokens)
        is_safe = self._end() and clause.safe
        clause.apply(self._parsed, found)
        return is_safe

    def _options(self) -> bool:
        """Consume table options, which need no commas between them, and the comma after them."""
        is_safe, options = True, list[Found]()
        while (form := OPTIONS.chosen(self._tokens)) is not None:
            options.append(form.match(self._tokens))
            is_safe &= options[-1].first("engine") is None
        if not options:
            raise NotUnderstoodError
        is_safe &= self._end()
        for found in options:
            _option(self._parsed, found)
        return is_safe

    def _end(self) -> bool:
        """Consume the comma after a clause, or the partitioning that may follow the last clause. Returns True if no
        partitioning follows. Raises NotUnderstoodError for anything else."""
        tokens = self._tokens
        if tokens.accept(",") or tokens.at_end():
            return True
        form = _PARTITIONING.chosen(tokens)
        if form is None:
            raise NotUnderstoodError
        form.match(tokens)
        if not tokens.at_end():
            raise NotUnderstoodError
        return False
