"""Refuses requests that a web page makes a browser send: by DNS rebinding, or across origins.

DNS rebinding: a page of evil.example lets its name resolve to the daemon's address. The browser then takes the
daemon for a part of that page and lets it read every answer, but the Host header still says evil.example. So Host
must be the listen address, a name of the loopback if the daemon listens there, or one of `api.hosts`. The port is
not compared: a forwarded port has another number.

With tokens and without `api.hosts` any Host is accepted. Rebinding gives a page the network position of its visitor
and nothing else: the daemon knows no cookies, no client certificates and no other credential that a browser adds by
itself, so such a page lacks the token and sees what everybody sees who reaches the port (`/livez`, `/readyz`,
`api.open`). Behind a Service, an Ingress or a published port the daemon cannot know its own names. With tokens an
IP address is always accepted as Host, because a page that rebinds has a name, and a kubelet probes a pod by its
address.

Across origins: a request whose Origin is not the daemon's own, or that the browser marks as cross-site, is refused
whatever its Host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from dispatcher.api.auth import Tokens
from dispatcher.api.problems import problem
from dispatcher.model.errors import ErrorKind, UserError

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

Headers = Iterable[tuple[bytes, bytes]]


class OriginGuard:
    """ASGI middleware, see the module. `listen`: the host that the daemon listens on; `hosts`: `api.hosts`."""

    def __init__(
        self, app: ASGIApp, *, listen: str, hosts: Collection[str], tokens: Tokens
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._listen = listen.lower()
        self._hosts: frozenset[str] = frozenset()
        self.replace(hosts)

    def replace(self, hosts: Collection[str]) -> None:
        """Accept these names from now on, beside the listen address."""
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (why := self.refusal(scope["headers"])) is not None:
            await problem(why)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def refusal(self, headers: Headers) -> UserError | None:
        """Why a request with these headers is refused (FORBIDDEN), or None."""
        found: dict[bytes, list[str]] = {}
        for name, value in headers:
            found.setdefault(name, []).append(value.decode("latin-1").strip().lower())
        hosts, origins = found.get(b"host", []), found.get(b"origin", [])
        if len(hosts) > 1 or (hosts and not self._is_ours(host_of(hosts[0]))):
            return UserError(
                ErrorKind.FORBIDDEN,
                f"the daemon is not called {', '.join(hosts)!r}",
                remedy="add the name under which you reach the daemon to api.hosts",
            )
        own = hosts[0] if hosts else ""
        foreign = [origin for origin in origins if not self._is_own_origin(origin, own)]
        if foreign or "cross-site" in found.get(b"sec-fetch-site", ()):
            return UserError(
                ErrorKind.FORBIDDEN,
                f"the request comes from another web site ({foreign[0]})"
                if foreign
                else "the request comes from another web site",
                remedy="call the API from a program, or from a page of the daemon itself",
            )
        return None

    def _is_ours(self, host: str) -> bool:
        if host == self._listen or host in self._hosts:
            return True
        if _is_loopback(self._listen) and (host in LOOPBACK_NAMES or _is_loopback(host)):
            return True
        if not self._tokens:
            return False
        return not self._hosts or _address(host) is not None

    def _is_own_origin(self, origin: str, own: str) -> bool:
        """True if an Origin header names the authority that Host names, or one of `api.hosts`."""
        try:
            parts = urlsplit(origin)
            host = parts.hostname or ""
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not host:
            return False
        return parts.netloc == own or host in self._hosts


def host_of(header: str) -> str:
    """The host of a Host header, without port and brackets; "" if it is not a host."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback
