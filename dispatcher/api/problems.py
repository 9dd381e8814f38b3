"""Every error of the API as an RFC 9457 problem document: faults of the rules, of requests and of the framework.

`kind` tells whose fault it is: `REQUEST` is the request's form, `SETTINGS` the daemon's settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from dispatcher.model.errors import POLICY, Action, BinlogError, ErrorKind, UserError

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = 1
_MESSAGE_MAX = 1000  # characters; what a request holds may stand in it

_STATUS = {
    ErrorKind.UNKNOWN_CONSUMER: 404,
    ErrorKind.UNKNOWN_TABLE: 404,
    ErrorKind.SESSION_FENCED: 409,
    ErrorKind.POSITION_UNKNOWN: 409,
    ErrorKind.UNAUTHORIZED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.TOO_MANY_REQUESTS: 429,
    ErrorKind.REQUEST: 422,
    ErrorKind.INTERNAL: 500,
}
_KIND = {
    401: ErrorKind.UNAUTHORIZED,
    403: ErrorKind.FORBIDDEN,
    429: ErrorKind.TOO_MANY_REQUESTS,
    500: ErrorKind.INTERNAL,
    503: ErrorKind.TOO_MANY_REQUESTS,
}
_HINT = {
    400: "send a JSON object in UTF-8 with Content-Type: application/json",
    404: "compare the path with the calls of docs/http-api.md",
    405: "the header Allow names the methods of this path",
    408: "send the whole request at once",
    413: "send less, or raise api.max_bytes_in_request",
    431: "send fewer and shorter headers",
}


def status_of(error: BinlogError) -> int:
    """4xx for a request's own fault, 503 for what may pass, 410 for a consumer that has failed for good."""
    if error.kind in _STATUS:
        return _STATUS[error.kind]
    if error.action in (Action.RETRY, Action.OPERATOR):
        return 503
    return 410 if error.action is Action.FATAL else 422


def problem(error: BinlogError) -> JSONResponse:
    """The answer to a request that ended in `error`."""
    if (
        error.kind is ErrorKind.SETTINGS
    ):  # of a value that a request and the settings share, such as a GTID set
        error = UserError(ErrorKind.REQUEST, error.what, where=error.where, remedy=error.remedy)
    status = status_of(error)
    body = _document(status, error.kind, str(error), error.remedy)
    return JSONResponse(body, status, headers_of(status), PROBLEM_JSON)


def refusal(status: int, what: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request that was refused before any rule looked at it."""
    body, more = parts_of_refusal(status, what)
    return JSONResponse(body, status, {**more, **(headers or {})}, PROBLEM_JSON)


def raw_refusal(status: int, what: str) -> bytes:
    """The same as bytes of HTTP/1.1, for where there is no request yet; the connection is closed after it."""
    body, headers = parts_of_refusal(status, what)
    data = json.dumps(body).encode()
    headers |= {
        "Content-Type": PROBLEM_JSON,
        "Content-Length": str(len(data)),
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def parts_of_refusal(status: int, what: str) -> tuple[dict[str, Any], dict[str, str]]:
    """(problem document, headers)"""
    kind = _KIND.get(status, ErrorKind.REQUEST)
    hint = _HINT.get(status, POLICY[kind].remedy)
    return _document(status, kind, f"{kind.value}: {what}; {hint}", hint), headers_of(status)


def headers_of(status: int) -> dict[str, str]:
    if status in (429, 503):
        return {"Retry-After": str(RETRY_AFTER_S)}
    return {"WWW-Authenticate": "Bearer"} if status == 401 else {}


def _document(status: int, kind: ErrorKind, detail: str, hint: str) -> dict[str, Any]:
    if len(detail) > 2 * _MESSAGE_MAX:
        detail = f"{detail[:_MESSAGE_MAX]} … {detail[-_MESSAGE_MAX:]}"
    return {
        "type": "about:blank",
        "title": kind.value,
        "status": status,
        # A request may hold half of a surrogate pair, which UTF-8 cannot say.
        "detail": detail.encode("utf-8", "backslashreplace").decode(),
        "kind": kind.name,
        "hint": hint,
    }


# -- handlers -------------------------------------------------------------------------------------------------


def install(app: FastAPI) -> None:
    app.add_exception_handler(BinlogError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_disconnect)
    app.add_exception_handler(Exception, _on_defect)


async def _on_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, BinlogError)
    return problem(error)


async def _on_invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return refusal(400, f"the body is not JSON: {first['ctx']['error']}")
    place = ".".join(str(part) for part in first["loc"])
    return problem(UserError(ErrorKind.REQUEST, f"{place}: {first['msg']}"))


async def _on_http(_: Request, error: Exception) -> Response:
    """What the framework or the guard refuses: unknown paths, methods, bodies that are not JSON, limits."""
    assert isinstance(error, HTTPException)
    return refusal(error.status_code, error.detail, error.headers)


async def _on_disconnect(_: Request, __: Exception) -> Response:
    return Response(status_code=400)  # the client has gone


async def _on_defect(_: Request, error: Exception) -> Response:
    """Nothing of the exception is told; the log has it."""
    return refusal(500, type(error).__name__)
