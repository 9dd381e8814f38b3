"""The FastAPI application: the routes of all calls, and the answers to requests that fail.

Two modules answer requests without FastAPI: `direct_routes` answers the calls of a reader's cycle (poll, read, binlog
and ack), and `probes` answers `/livez` and `/readyz`. Loading FastAPI and the models of its routes would take a quarter
of the time in which the daemon starts. So `app` imports this module at the first call that these two modules do not
answer.
"""

from __future__ import annotations

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dispatcher.api.access.guard import Guard
from dispatcher.api.answers import problems
from dispatcher.api.answers.models import (
    Consumers,
    GetAdministrator,
    GetDeclarer,
    GetRole,
    RenderMetrics,
)
from dispatcher.api.calls.feed import StatusFeed, StatusSource
from dispatcher.api.calls.reader_calls import ReaderCalls
from dispatcher.api.framework.administration import administration_routes
from dispatcher.api.framework.declarations import declaration_routes
from dispatcher.api.framework.page import page_routes
from dispatcher.api.framework.routes import consumer_routes
from dispatcher.api.framework.status import status_routes
from dispatcher.api.framework.status_page import status_page_routes
from dispatcher.model.errors import BinlogError

_DESCRIPTION = (
    "Delivers MySQL binlogs to consumers, each with the databases and tables it subscribes to. Pass positions back"
    " unchanged. Errors are problem documents (RFC 9457); `hint` says what to do. docs/http-api.md describes the calls,"
    " the scopes of tokens and the limits."
)


def make_framework(  # noqa: PLR0913 - one parameter per part
    consumers: Consumers,
    guard: Guard,
    calls: ReaderCalls,
    feed: StatusFeed,
    *,
    administrator: GetAdministrator,
    declarer: GetDeclarer,
    role: GetRole,
    live: StatusSource,
    metrics: RenderMetrics,
    version: str,
) -> FastAPI:
    """For the arguments see `app.Api`."""
    app = FastAPI(
        title="binlog-dispatcher",
        version=version,
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _install_handlers(app)
    app.include_router(consumer_routes(consumers, guard, calls))
    app.include_router(administration_routes(administrator, guard))
    app.include_router(declaration_routes(declarer, guard))
    app.include_router(status_routes(consumers, guard, metrics, role))
    app.include_router(page_routes(guard))
    app.include_router(status_page_routes(guard, live, feed))
    return app


def _install_handlers(app: FastAPI) -> None:
    app.add_exception_handler(BinlogError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_defect)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, BinlogError)
    return problems.problem(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problems.invalid(error.errors()[0])


async def _on_http(_: Request, error: Exception) -> Response:
    """Answer unknown paths and methods, bodies that are not JSON, and bodies that are too large."""
    assert isinstance(error, HTTPException)
    return problems.refusal(error.status_code, error.detail, error.headers)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return problems.disconnected()


async def _on_defect(_: Request, error: Exception) -> Response:
    return problems.defect(error)
