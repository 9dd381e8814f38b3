"""The questions that the front answers, as values.

Names of system variables, functions and columns are in lower case. Names of databases and tables are as the client has
written them. Apart from these names, a question contains only these parts of the client's text: constants, names of
user variables, and names for columns of the answer.
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
    """`scope`: "" if the client names no scope."""

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
    """An element of a SELECT list. `name`: the name of its column in the answer. `alias`: True if the client has given
    the column an alias."""

    name: str
    expression: Expression
    alias: bool = False


@dataclass(frozen=True, slots=True)
class Select:
    """`limit`: the most rows of the answer, None = all."""

    items: tuple[Item, ...]
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class SelectSchema:
    """A SELECT of columns of a view of information_schema. `order`: the columns of ORDER BY."""

    view: str
    items: tuple[Item, ...]
    filter: RowFilter
    order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VariableSetting:
    """`value`: None = DEFAULT. If `target` is `names` (SET NAMES) or `charset` (SET CHARACTER SET), the value is a
    character set. `collation`: the collation of SET NAMES, "" = the default collation."""

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
    """`old`: True for SHOW SLAVE HOSTS, whose answer has different column names."""

    old: bool


@dataclass(frozen=True, slots=True)
class ShowWarnings:
    """SHOW WARNINGS, SHOW ERRORS."""


@dataclass(frozen=True, slots=True)
class ShowGrants:
    pass


@dataclass(frozen=True, slots=True)
class ShowDatabases:
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowTables:
    """`database`: the named database or else the connection's default database, "" if both are missing."""

    database: str
    full: bool
    filter: RowFilter


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """SHOW COLUMNS, DESCRIBE."""

    table: Name
    full: bool


@dataclass(frozen=True, slots=True)
class ShowCreateTable:
    table: Name


@dataclass(frozen=True, slots=True)
class Use:
    database: str


@dataclass(frozen=True, slots=True)
class Kill:
    """KILL of a connection. Some clients end their dump with it."""

    connection_id: int


@dataclass(frozen=True, slots=True)
class Nothing:
    """A statement that has no effect in the front, such as COMMIT: the front has no transactions and no locks."""


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
    | ShowDatabases
    | ShowTables
    | ShowColumns
    | ShowCreateTable
    | Use
    | Kill
    | Nothing
)
