"""The ids of the values in the quarantine. Pure."""

from __future__ import annotations

import hashlib


def logged_value_id(table_id: str, change: str, column: str) -> str:
    """Returns the id of a value that the log has. `change`: identifies the change of one row in the log."""
    return f"{table_id}/{change}/{column}"


def copied_value_id(copy_id: str, key: str, column: str, data: bytes) -> str:
    """Returns the id of a value that a copy has read. `key`: the row's key as JSON, or the whole row if its table has
    no key. Rows without a key may differ only in invalid values, in whose place `key` has NULL, so the id also depends
    on the value."""
    return f"{copy_id}/{key}/{column}/{hashlib.sha256(data).hexdigest()}"
