"""binlog-dispatcher as a library: one client of one server, and binlogs from which a program reads transactions in its
own process.

The library is the daemon without HTTP: both use `runtime.client.client_service.ClientService`, the rules of `dispatch`,
the state store and spill files. So docs/sharing.md, which describes consumers, is also true for binlogs.

The module `client` is the entry point. A program iterates over a `Binlog` of the module `binlogs`, and gets
`Transaction`s of the module `transactions`.
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
