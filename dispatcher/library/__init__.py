"""binlog-dispatcher as a library: one client of one server, and binlogs that a program iterates in its own process.

The library is the daemon without HTTP: the same dispatching, runner, state store and spill files, put together by the
same `runtime.client_service.ClientService`. So what docs/sharing.md says of consumers holds for binlogs, too.

The module `client` is the entry point. `binlogs` holds what a program iterates; `transactions` holds what the iteration
returns.
"""

from dispatcher.model.extras import needs_extra

with needs_extra("daemon", "dispatcher.library"):
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
