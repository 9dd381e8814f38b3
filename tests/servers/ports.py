"""Chooses ports for the programs that tests, demo and benchmarks start on loopback."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
# Tests seed the default generator. With it, processes with the same seed would get the same ports.
_CHANCE = random.SystemRandom()


def free_port() -> int:
    """Returns a port on which no program listens.

    The port is outside the range from which the kernel chooses the local ports of connections. The caller's program
    binds its port seconds later; in the meantime, the kernel could give a port of that range to a connection of another
    program.
    """
    lowest, highest = map(int, _RANGE.read_text().split())
    ports = [*range(_LOWEST, lowest), *range(highest + 1, 1 << 16)]
    while True:
        port: int = _CHANCE.choice(ports)
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
