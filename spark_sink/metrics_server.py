"""Serves Prometheus metrics of the driver."""

from __future__ import annotations

from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector


def serve_metrics(host: str, port: int, *collectors: Collector) -> WSGIServer:
    """Serve metrics in a thread. Returns the server; its methods `shutdown` and `server_close` end it. Raises OSError
    if the server cannot listen at the address."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    server, _ = start_http_server(port, host, registry)
    return server
