"""Delays clients that guess tokens, and logs their wrong tokens.

Wrong tokens are counted for each network: an IPv4 address, or the /64 of an IPv6 address. After `FREE` wrong tokens,
the network may send `PER_S` requests per second that contain a token; each request waits for its turn, at most
`WAIT_MAX_S`. A request with a right token waits as long as a request with a wrong token, because otherwise the time of
the answer would show which token is right. But a right token waits only once, and is never refused. So the wrong tokens
of one client delay only the first request with each right token from the same network.

The module counts at most `NETWORKS_MAX` networks separately, so memory is bounded. All further networks share one
count.
"""

from __future__ import annotations

import ipaddress
import math
import time
from dataclasses import dataclass, field
from functools import lru_cache

import structlog

from dispatcher.access.tokens import Client

FREE = 10
"""How many wrong tokens of a network cause no delay: a client may still send a token that was replaced."""
FORGET_S = 10.0  # the time after which one wrong token is forgotten
PER_S = 5.0
WAIT_MAX_S = 10.0
NETWORKS_MAX = 1024
OTHERS = "other addresses"
UNKNOWN = "no IP address"


@dataclass(slots=True)
class _Network:
    """`wrong`: the number of wrong tokens that were not forgotten yet at the time `at`; `turn_at`: when the wait of the
    newest request ends; `proven`: the right tokens that have waited."""

    at: float
    wrong: float = 0.0
    turn_at: float = 0.0
    proven: set[str] = field(default_factory=set)

    def wrong_now(self, now: float) -> float:
        return max(0.0, self.wrong - (now - self.at) / FORGET_S)


class Guesses:
    """The wrong tokens of all networks. `now`: seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._networks: dict[str, _Network] = {}
        self._forgot_at = -math.inf
        self.slow_until = -math.inf
        """Until this time, requests of some networks may have to wait."""

    def __len__(self) -> int:
        return len(self._networks)

    def wrong(self, client: Client, now: float | None = None) -> None:
        """Count a wrong token that a client has sent."""
        now = time.monotonic() if now is None else now
        name = network_of(client)
        network = self._networks.get(name)
        if network is None:
            if len(self._networks) >= NETWORKS_MAX:
                self._forget(now)
            if len(self._networks) >= NETWORKS_MAX:
                name = OTHERS
            network = self._networks.setdefault(name, _Network(now))
        # The count is bounded, so that a network is free again some time after its last guess.
        network.wrong = min(network.wrong_now(now) + 1, 2.0 * FREE)
        network.at = now
        if network.wrong >= FREE:
            until = now + (network.wrong - FREE) * FORGET_S
            self.slow_until = max(self.slow_until, until)
        structlog.get_logger("dispatcher").warning("wrong token", address=name)

    def wait_s(self, client: Client, secret: str | None, now: float | None = None) -> float:
        """Returns how many seconds a request that carries a token has to wait. `secret`: the token, None if it is not
        known yet."""
        now = time.monotonic() if now is None else now
        network = self._find(client)
        if network is None or network.wrong_now(now) < FREE or secret in network.proven:
            return 0.0
        turn_at = min(max(now, network.turn_at) + 1 / PER_S, now + WAIT_MAX_S)
        network.turn_at = turn_at
        return turn_at - now

    def prove(self, client: Client, secret: str) -> None:
        """Record that a client has waited and that its token is right: this token does not wait again."""
        if (network := self._find(client)) is not None:
            network.proven.add(secret)

    def _find(self, client: Client) -> _Network | None:
        return self._networks.get(network_of(client)) or self._networks.get(OTHERS)

    def _forget(self, now: float) -> None:
        if now - self._forgot_at < FORGET_S:
            return  # a search through all networks costs more than one guess
        self._forgot_at = now
        ended = [name for name, network in self._networks.items() if not network.wrong_now(now)]
        for name in ended:
            del self._networks[name]


def network_of(client: Client) -> str:
    """The network of a client, as text."""
    return _network_of(client[0] if client else "")


@lru_cache(NETWORKS_MAX)
def _network_of(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return UNKNOWN
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))
