"""binlog-dispatcher: one replication connection to a MySQL server, fanned out to many consumers.

What a program imports from here is loaded when it is first used, so that importing this package loads nothing: Spark's
executors do it, and have neither asyncio nor MySQL's client. docs/library.md shows the use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispatcher.binlog.table_map.column_types import InvalidDates
    from dispatcher.library import Binlog, BinlogClient, Change, Transaction
    from dispatcher.model.errors import BinlogError, ErrorKind, UserError
    from dispatcher.model.gtid import GtidSet, MariadbGtids
    from dispatcher.model.position import Position

__all__ = [
    "Binlog",
    "BinlogClient",
    "BinlogError",
    "Change",
    "ErrorKind",
    "GtidSet",
    "InvalidDates",
    "MariadbGtids",
    "Position",
    "Transaction",
    "UserError",
]

_HOMES = {
    "Binlog": "dispatcher.library",
    "BinlogClient": "dispatcher.library",
    "BinlogError": "dispatcher.model.errors",
    "Change": "dispatcher.library",
    "GtidSet": "dispatcher.model.gtid",
    "InvalidDates": "dispatcher.binlog.table_map.column_types",
    "ErrorKind": "dispatcher.model.errors",
    "MariadbGtids": "dispatcher.model.gtid",
    "Position": "dispatcher.model.position",
    "Transaction": "dispatcher.library",
    "UserError": "dispatcher.model.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
