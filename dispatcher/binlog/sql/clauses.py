"""What an ALTER TABLE statement does to columns, keys and rows, clause by clause, as it is written.

All names are those of the table before the statement: MySQL applies the clauses together, so `RENAME COLUMN a TO b,
RENAME COLUMN b TO a` exchanges two columns. `alter_clauses` parses the clauses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LiteralKind(StrEnum):
    """What a constant is written as."""

    NULL = "null"
    NUMBER = "number"  # 1, -1.50, 1e3
    TEXT = "text"  # 'a'
    BYTES = "bytes"  # x'00', 0x00, b'01': a text of hexadecimal digits
    OTHER = "other"  # N'a', _utf8mb4'a', DATE'2024-01-01': its value is not kept


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of a statement. `text`: its characters without quotes; of BYTES hexadecimal digits; of NULL and OTHER
    ""."""

    kind: LiteralKind
    text: str = ""


class Computed(StrEnum):
    """Why the server computes a column's values in rows that exist, or in new ones."""

    NO = ""
    GENERATED = "a generated column"
    EXPRESSION = "a default that is not a constant"
    AUTO_INCREMENT = "AUTO_INCREMENT"


@dataclass(frozen=True, slots=True)
class DefinedColumn:
    """A column definition of a statement.

    `type`: as information_schema prints it, in lower case, labels as they are written: `int unsigned`, `varchar(20)`,
    `enum('a','b')`, `text`; `charset`: of the column, "" if the definition does not tell; `nullable`: None if the
    definition has neither NULL nor NOT NULL; `default`: None without DEFAULT, or if it is no constant; `primary`:
    the definition says PRIMARY KEY.
    """

    name: str
    type: str
    charset: str = ""
    nullable: bool | None = None
    default: Literal | None = None
    computed: Computed = Computed.NO
    primary: bool = False


@dataclass(frozen=True, slots=True)
class ColumnPosition:
    """FIRST (`after` is "") or AFTER a column. No position: at the end, or where the column is."""

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
    """CHANGE, and MODIFY, which keeps the name."""

    old: str
    column: DefinedColumn
    position: ColumnPosition | None = None
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ConvertCharsetClause:
    """CONVERT TO CHARACTER SET. `charset`: "" for DEFAULT, the database's."""

    charset: str


@dataclass(frozen=True, slots=True)
class PrimaryKeyClause:
    """ADD PRIMARY KEY; DROP PRIMARY KEY if `columns` is empty."""

    columns: tuple[str, ...] = ()


ColumnClause = (
    AddColumnClause
    | DropColumnClause
    | RenameColumnClause
    | ChangeColumnClause
    | ConvertCharsetClause
    | PrimaryKeyClause
)
