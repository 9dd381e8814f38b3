"""Serves the page of a running job, with its files and its data, beside the job's metrics. The page cannot change
anything."""

from __future__ import annotations

import json

from dispatcher.web.assets import HEADERS, SHARED, media_type, static_file
from spark_sink.metrics_server import WebAnswer
from spark_sink.mirror.page.job_status import JobStatus, ShownTables

_PACKAGE = "spark_sink.mirror.page"
_FILES = (*SHARED, "mirror.css", "mirror.mjs")


class JobPage:
    """GET / is the page, GET /status its data, /static/... its files."""

    def __init__(self, status: JobStatus) -> None:
        self._status = status

    def __call__(self, path: str, query: str) -> WebAnswer | None:
        """Returns the answer of a request; None for an unknown path."""
        if path == "/":
            return WebAnswer(
                static_file(_PACKAGE, "mirror.html"), "text/html; charset=utf-8", HEADERS
            )
        if path == "/status":
            status = self._status.answer(ShownTables.of_query(query))
            data = json.dumps(status, separators=(",", ":"), default=str).encode()
            return WebAnswer(data, "application/json", {"Cache-Control": "no-store"})
        name = path.removeprefix("/static/")
        if name == path or name not in _FILES:
            return None
        return WebAnswer(static_file(_PACKAGE, name), media_type(name))
