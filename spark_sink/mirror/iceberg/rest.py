"""pyiceberg's REST catalog with time-outs. pyiceberg itself waits for an answer without a limit."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter

CONNECT_S, ANSWER_S = 10.0, 60.0


class TimedRestCatalog(RestCatalog):
    """A REST catalog whose requests fail if the connection takes `CONNECT_S`, or if nothing arrives for `ANSWER_S`."""

    def _create_session(self) -> Session:
        session = super()._create_session()
        for prefix, adapter in list(session.adapters.items()):
            if type(adapter) is HTTPAdapter:  # other adapters sign requests
                session.mount(prefix, _TimedAdapter())
        return session


class _TimedAdapter(HTTPAdapter):
    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        if options.get("timeout") is None:
            options["timeout"] = (CONNECT_S, ANSWER_S)
        return super().send(request, *arguments, **options)
