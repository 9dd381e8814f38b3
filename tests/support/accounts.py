"""Accounts of replicas on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dispatcher.mysql.login import Endpoint, Tls, TlsMode
from tests.servers.server import Server

SECRET = "p@ss: wörd'\"\\"
REPLICATION = ("REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.*",)


@contextmanager
def account(
    server: Server,
    name: str,
    *privileges: str,
    require: str = "",
    tls: Tls = Tls(TlsMode.PREFERRED),  # noqa: B008 - a frozen value
) -> Iterator[Endpoint]:
    """Create an account on the server for the duration of the block. Yields its endpoint."""
    server.add_user(name, SECRET, *(privileges or REPLICATION), require=require)
    try:
        yield Endpoint(server.host, server.port, name, SECRET, tls)
    finally:
        server.execute(f"DROP USER '{name}'@'%'")
