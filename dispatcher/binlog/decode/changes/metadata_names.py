"""The names of the columns that `metadata` builds. This module does not import the libraries that build the columns."""

from __future__ import annotations

from enum import StrEnum


class Metadata(StrEnum):
    """The columns by their names."""

    SERVER_ID = "server_id"  # the id of the server on which the transaction was committed first
    QUERY = "query"  # the text of the statement, if the log contains the text
    KEY = "key"  # the primary key's columns; for an update or delete the values before the change
    CHANGED = "changed"  # names of the columns that an update changed
    TRANSACTION_ROWS = "transaction_rows"  # count of the transaction's selected rows and statements
    TRANSACTION_END = "transaction_end"  # True for the transaction's last selected row or statement
