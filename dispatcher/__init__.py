"""binlog-dispatcher: one replication connection to a MySQL server, fanned out to many consumers.

The package imports the names below when they are first used, because Spark's executors import this package and must not
load asyncio or the MySQL client. docs/library.md shows how to use the names.
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

_MODULES = {
    "dispatcher.binlog.table_map.column_types": ("InvalidDates",),
    "dispatcher.library": ("Binlog", "BinlogClient", "Change", "Transaction"),
    "dispatcher.model.errors": ("BinlogError", "ErrorKind", "UserError"),
    "dispatcher.model.gtid": ("GtidSet", "MariadbGtids"),
    "dispatcher.model.position": ("Position",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
