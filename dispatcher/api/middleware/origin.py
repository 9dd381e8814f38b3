"""Refuses requests that web pages make a browser send to the daemon: DNS rebinding and cross-origin requests.

DNS rebinding: a page of evil.example makes its name resolve to the daemon's address. The browser then treats the daemon
as the same origin and lets the page read every answer, but the Host header still says evil.example. Therefore Host must
be the listen address or one of `api.hosts`. If the daemon listens on loopback, Host may also be any loopback name or
address. Ports are not compared, because a forwarded port has another number.

With tokens and without `api.hosts` any Host is accepted, because behind a Service, an Ingress or a published port the
daemon does not know its own names. With tokens, a rebinding page can only send requests from the visitor's network. The
page has no token, and the browser sends the cookie of a login (`dispatcher.api.access.logins`) only to the host name
under which the login was made. So the page can read only what needs neither token nor login (`/livez`, `/readyz`,
`api.open`, the login form). With tokens an IP address is always accepted as Host, because the Host of a rebinding page
is a name, and because a kubelet probes a pod by its address.

Cross-origin: a request with a foreign Origin, or a request that the browser marks as cross-site, is always refused.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from dispatcher.access.tokens import Tokens
from dispatcher.api.answers.problems import problem
from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.yaml_settings.values import host_of, is_loopback

Headers = Iterable[tuple[bytes, bytes]]
_EXAMINED = frozenset((b"host", b"origin", b"sec-fetch-site"))
_ACCEPTED_MAX = 256


class OriginGuard:
    """ASGI middleware. `listen`: the host of `api.listen`; `hosts`: `api.hosts`."""

    def __init__(
        self, app: ASGIApp, *, listen: str, hosts: Collection[str], tokens: Tokens
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._listen = listen.lower()
        self._hosts: frozenset[str] = frozenset()
        self.replace(hosts)

    def replace(self, hosts: Collection[str]) -> None:
        """Accept these names from now on, besides the listen address. The caller must call this method when tokens
        change, too."""
        self._hosts = frozenset(hosts)
        self._accepted: set[str] = set()  # Host headers that `_is_accepted` has accepted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (why := self.refusal(scope["headers"])) is not None:
            await problem(why)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def refusal(self, headers: Headers) -> UserError | None:
        """The error (FORBIDDEN) if a request with these headers is refused, else None."""
        values: dict[bytes, list[str]] = {}
        for name, value in headers:
            if name in _EXAMINED:
                values.setdefault(name, []).append(value.decode("latin-1").strip().lower())
        hosts, origins = values.get(b"host", []), values.get(b"origin", [])
        if len(hosts) > 1 or (hosts and not self._is_accepted(hosts[0])):
            return UserError(
                ErrorKind.FORBIDDEN,
                f"the Host header {', '.join(hosts)!r} is not a name of the daemon",
                remedy="add the host name of the request to api.hosts",
            )
        own = hosts[0] if hosts else ""
        foreign = [origin for origin in origins if not self._is_own_origin(origin, own)]
        if foreign or "cross-site" in values.get(b"sec-fetch-site", ()):
            site = f" ({foreign[0]})" if foreign else ""
            return UserError(
                ErrorKind.FORBIDDEN,
                f"the request comes from another web site{site}",
                remedy="call the API from a program, or from a page of the daemon itself",
            )
        return None

    def _is_accepted(self, header: str) -> bool:
        """True if a Host header contains a name of the daemon. Accepted headers are stored, because most requests have
        the same header, and parsing it costs time."""
        if header in self._accepted:
            return True
        if not self._is_ours(host_of(header)):
            return False
        if len(self._accepted) < _ACCEPTED_MAX:
            self._accepted.add(header)
        return True

    def _is_ours(self, host: str) -> bool:
        if host == self._listen or host in self._hosts:
            return True
        if is_loopback(self._listen) and is_loopback(host):
            return True
        return bool(self._tokens) and (not self._hosts or _is_ip_address(host))

    def _is_own_origin(self, origin: str, own: str) -> bool:
        """True if an Origin header has the authority of the Host header, or a name of `api.hosts`."""
        try:
            parts = urlsplit(origin)
            host = parts.hostname or ""
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or not host:
            return False
        return parts.netloc == own or host in self._hosts


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
