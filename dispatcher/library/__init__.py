"""binlog-dispatcher as a library: one client of one server, and binlogs that are iterated in the program itself.

What the daemon is made of, without its HTTP: the same rules, runner, state store and spill files, put together by the
same `runtime.client_service.ClientService`. So all that docs/sharing.md says of consumers holds for binlogs.

`client` is the way in, `binlogs` what a program iterates, `transactions` what it gets.
"""

from dispatcher.library.binlogs import Binlog
from dispatcher.library.client import BinlogClient
from dispatcher.library.options import BinlogOptions, ConnectionOptions, StartAt, StateOptions
from dispatcher.library.transactions import Change, Transaction

__all__ = [
    "Binlog",
    "BinlogClient",
    "BinlogOptions",
    "Change",
    "ConnectionOptions",
    "StartAt",
    "StateOptions",
    "Transaction",
]
