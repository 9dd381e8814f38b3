"""The clauses of an ALTER TABLE statement: the effect of each clause on columns, keys and rows, as the statement
describes it.

A clause names the column that it changes or drops by the column's name before the statement, because MySQL applies the
clauses together: `RENAME COLUMN a TO b, RENAME COLUMN b TO a` exchanges two columns. `alter_clauses` parses clauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LiteralKind(StrEnum):
    """The form in which a constant is written."""

    NULL = "null"
    NUMBER = "number"  # 1, -1.50, 1e3
    TEXT = "text"  # 'a'
    BYTES = "bytes"  # x'00', 0x00, b'01': a text of hexadecimal digits
    OTHER = "other"  # N'a', _utf8mb4'a', DATE'2024-01-01': the parser does not return the value of such a constant


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a statement. `text`: its characters without quotes; for BYTES hexadecimal digits; for NULL and
    OTHER ""."""

    kind: LiteralKind
    text: str = ""


class Computed(StrEnum):
    """The reason why the server, not a statement, computes a column's values in existing or new rows."""

    NO = ""
    GENERATED = "a generated column"
    EXPRESSION = "a default that is not a constant"
    AUTO_INCREMENT = "AUTO_INCREMENT"


@dataclass(frozen=True, slots=True)
class DefinedColumn:
    """A column definition of a statement.

    `type`: in the form of information_schema, in lower case, with labels as in the statement: `int unsigned`,
    `varchar(20)`, `enum('a','b')`, `text`. `charset`: the character set of the column, "" if the definition does not
    contain it. `nullable`: None if the definition has neither NULL nor NOT NULL. `default`: None without DEFAULT, or if
    the default is not a constant. `primary`: True if the definition says PRIMARY KEY. `unique`: True if it says UNIQUE,
    also by the synonym SERIAL. `collation`: the name after COLLATE, "binary" for the attribute BINARY, else "".
    """

    name: str
    type: str
    charset: str = ""
    nullable: bool | None = None
    default: Literal | None = None
    computed: Computed = Computed.NO
    primary: bool = False
    unique: bool = False
    visible: bool = True
    collation: str = ""


@dataclass(frozen=True, slots=True)
class ColumnPosition:
    """FIRST (`after` is "") or AFTER a column. Without a position, a new column is added at the end, and an existing
    column keeps its position."""

    after: str = ""


@dataclass(frozen=True, slots=True)
class AddColumnClause:
    column: DefinedColumn
    position: ColumnPosition | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropColumnClause:
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumnClause:
    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ChangeColumnClause:
    """CHANGE, or MODIFY, which keeps the name."""

    old: str
    column: DefinedColumn
    position: ColumnPosition | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ConvertCharsetClause:
    """CONVERT TO CHARACTER SET. `charset`: "" for DEFAULT, which means the character set of the database. `collation`:
    the name after COLLATE, "" if the statement does not contain it."""

    charset: str
    collation: str = ""


@dataclass(frozen=True, slots=True)
class VisibilityClause:
    """ALTER COLUMN ... SET VISIBLE or SET INVISIBLE."""

    column: str
    visible: bool


@dataclass(frozen=True, slots=True)
class TableCharsetClause:
    """The table options CHARACTER SET and COLLATE: the defaults of columns that are defined later. "" if the statement
    does not contain the option, or says DEFAULT."""

    charset: str = ""
    collation: str = ""


@dataclass(frozen=True, slots=True)
class PrimaryKeyClause:
    """ADD PRIMARY KEY; DROP PRIMARY KEY if `columns` is empty. `prefixes`: for each column the number of characters
    that the key contains, 0 = all; () if all are 0."""

    columns: tuple[str, ...] = ()
    prefixes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UniqueKeyClause:
    """ADD UNIQUE. `name`: "" if the server chooses it. `columns`: None for an expression; `prefixes`: see
    `PrimaryKeyClause`."""

    name: str
    columns: tuple[str | None, ...]
    prefixes: tuple[int, ...] = ()
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropKeyClause:
    """DROP INDEX, or DROP CONSTRAINT, which may name a unique key."""

    name: str


@dataclass(frozen=True, slots=True)
class RenameKeyClause:
    old: str
    new: str


ColumnClause = (
    AddColumnClause
    | DropColumnClause
    | RenameColumnClause
    | ChangeColumnClause
    | ConvertCharsetClause
    | PrimaryKeyClause
)
# Clauses that change a table's definition, but neither rows, nor columns, nor the primary key.
DefinitionClause = (
    VisibilityClause | TableCharsetClause | UniqueKeyClause | DropKeyClause | RenameKeyClause
)
