"""Serves Prometheus metrics of the driver, and a page beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from dispatcher.yaml_settings.values import host_of, is_loopback

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_REFUSED = "the Host header is not a loopback address, and the job listens at one only"


@dataclass(frozen=True, slots=True)
class WebAnswer:
    body: bytes
    media_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    status: str = "200 OK"


class WebPage(Protocol):
    def __call__(self, path: str, query: str) -> WebAnswer | None:
        """Returns the answer of a GET request; None for an unknown path."""


def serve_metrics(
    host: str, port: int, *collectors: Collector, page: WebPage | None = None
) -> WSGIServer:
    """Serve metrics at /metrics, and a page, in threads. Returns the server; its methods `shutdown` and `server_close`
    end it. Raises OSError if the server cannot listen at the address."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    server, _ = start_http_server(port, host, registry)
    if page is not None and (metrics := server.get_app()) is not None:
        server.set_app(_with_page(metrics, page, local_only=is_loopback(host)))
    return server


def _with_page(metrics: WSGIApplication, page: WebPage, *, local_only: bool) -> WSGIApplication:
    """Returns an application that serves the page beside the metrics. `local_only`: True if the Host
    header of a request must be a loopback address. Otherwise the page of another site could read the answers by DNS
    rebinding: the site lets its own name resolve to the job's address."""

    def application(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            return metrics(environ, start)
        answer = _plain("405 Method Not Allowed", "use GET")
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            answer = _plain("403 Forbidden", _REFUSED)
            if not local_only or is_loopback(host_of(environ.get("HTTP_HOST", ""))):
                found = page(path, environ.get("QUERY_STRING", ""))
                answer = found or _plain("404 Not Found", "the job serves /, /status and /metrics")
        headers = {
            "Content-Type": answer.media_type,
            "Content-Length": str(len(answer.body)),
            "X-Content-Type-Options": "nosniff",
            **answer.headers,
        }
        start(answer.status, list(headers.items()))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [answer.body]

    return application


def _plain(status: str, text: str) -> WebAnswer:
    return WebAnswer(f"{text}\n".encode(), "text/plain", status=status)
