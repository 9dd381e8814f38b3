"""The kinds of changes, by their names in the column `op`. This module does not import the libraries that decode
changes."""

from __future__ import annotations

from enum import StrEnum


class Op(StrEnum):
    """The kinds of changes. The kinds of row changes come first, in the order of `row_walk.INSERT`, `UPDATE` and
    `DELETE`."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    DDL = "ddl"


ROW_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)
