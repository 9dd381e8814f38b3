"""What a client asks, as values: the closed set of questions that the front answers.

Names of system variables, functions and columns are in lower case, names of databases and tables as the client writes
them. Of the client's other text only constants, names of user variables and names for columns of the answer are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dispatcher.binlog.sql.lexer import Name
from dispatcher.front.questions.conditions import RowFilter

Value: TypeAlias = str | int | None
Scope: TypeAlias = Literal["", "session", "global"]


@dataclass(frozen=True, slots=True)
class Constant:
    value: Value


@dataclass(frozen=True, slots=True)
class SystemVariable:
    """`scope`: "" if the client names none."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class UserVariable:
    name: str


@dataclass(frozen=True, slots=True)
class FunctionCall:
    function: str
    arguments: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class ColumnName:
    """A column of a table that the client selects from."""

    name: str


Expression: TypeAlias = Constant | SystemVariable | UserVariable | FunctionCall | ColumnName


@dataclass(frozen=True, slots=True)
class Item:
    """`name`: what the answer's column is called. `alias`: True if the client has chosen the name."""

    name: str
    expression: Expression
    alias: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """The part of an answer's rows that is returned. `rows`: None = all behind `offset`."""

    rows: int | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Select:
    items: tuple[Item, ...]
    limit: Limit = Limit()


@dataclass(frozen=True, slots=True)
class SelectSchema:
    """Columns of a view of information_schema. `order`: columns, each with True if it is descending."""

    view: str
    items: tuple[Item, ...]
    filter: RowFilter
    order: tuple[tuple[str, bool], ...] = ()
    limit: Limit = Limit()


@dataclass(frozen=True, slots=True)
class VariableSetting:
    """`value`: None = DEFAULT. The value of the targets `names` (SET NAMES) and `charset` (SET CHARACTER SET) is a
    character set. `collation`: of SET NAMES; "" = the default."""

    target: UserVariable | SystemVariable | Literal["names", "charset"]
    value: Expression | None
    collation: str = ""


@dataclass(frozen=True, slots=True)
class SetVariables:
    assignments: tuple[VariableSetting, ...]


@dataclass(frozen=True, slots=True)
class ShowVariables:
    scope: Scope
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowStatus:
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowLogStatus:
    """SHOW BINARY LOG STATUS, SHOW MASTER STATUS, SHOW BINLOG STATUS."""


@dataclass(frozen=True, slots=True)
class ShowLogs:
    """SHOW BINARY LOGS, SHOW MASTER LOGS."""


@dataclass(frozen=True, slots=True)
class ShowReplicas:
    """`old`: True for SHOW SLAVE HOSTS, whose answer has other names of columns."""

    old: bool


@dataclass(frozen=True, slots=True)
class ShowWarnings:
    """SHOW WARNINGS, SHOW ERRORS."""


@dataclass(frozen=True, slots=True)
class ShowGrants:
    pass


@dataclass(frozen=True, slots=True)
class ShowCharsets:
    """`collations`: True for SHOW COLLATION, False for SHOW CHARACTER SET."""

    collations: bool
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowTables:
    """`database`: "" if none is named and the connection has none."""

    database: str
    full: bool
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW COLUMNS, DESCRIBE."""

    table: Name
    full: bool
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowIndexes:
    table: Name
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    table: Name


@dataclass(frozen=True, slots=True)
class Use:
    database: str


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL of a connection, with which some clients end their dump."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """A statement that needs no work here, such as COMMIT: the front has no transactions and no locks."""


Question: TypeAlias = (
    Select
    | SelectSchema
    | SetVariables
    | ShowVariables
    | ShowStatus
    | ShowLogStatus
    | ShowLogs
    | ShowReplicas
    | ShowWarnings
    | ShowGrants
    | ShowCharsets
    | ShowDatabases
    | ShowTables
    | ShowColumns
    | ShowIndexes
    | ShowCreateTable
    | Use
    | Kill
    | Nothing
)
