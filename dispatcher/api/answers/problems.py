"""Converts all errors of the API to problem documents (RFC 9457): BinlogErrors, invalid requests, HTTP errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse, Response

from dispatcher.model.errors import (
    POLICY,
    Action,
    BinlogError,
    ErrorKind,
    NotLeaderError,
    UserError,
)

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = 1
LEADER = "Binlog-Leader"
"""The header in the answers of a standby that contains the address of the leader."""
_MESSAGE_MAX = 1000  # characters; a message may quote parts of the request

_STATUS = {
    ErrorKind.UNKNOWN_CONSUMER: 404,
    ErrorKind.UNKNOWN_TABLE: 404,
    ErrorKind.CONSUMER_EXISTS: 409,
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
    404: "compare the path with the calls in docs/http-api.md",
    405: "use a method that the Allow header names",
    408: "send the complete request without pauses",
    413: "send a smaller body, or raise api.max_bytes_in_request",
    431: "send fewer and shorter headers",
}


def status_of(error: BinlogError) -> int:
    """Returns the HTTP status: 4xx for an invalid request, 503 for a temporary error, 410 for a failed consumer."""
    if error.kind in _STATUS:
        return _STATUS[error.kind]
    if error.action in (Action.RETRY, Action.OPERATOR):
        return 503
    return 410 if error.action is Action.FATAL else 422


def problem(error: BinlogError) -> JSONResponse:
    """The answer to a request that raised `error`."""
    if (
        error.kind is ErrorKind.SETTINGS
    ):  # the parser of a setting has refused a value of the request, such as a GTID set
        error = UserError(ErrorKind.REQUEST, error.what, where=error.where, remedy=error.remedy)
    status = status_of(error)
    body = _document(status, error.kind, str(error), error.remedy)
    headers = headers_of(status)
    if error.kind is ErrorKind.NOT_LEADER:
        leader = error.leader if isinstance(error, NotLeaderError) else ""
        body["leader"] = leader or None
        headers |= {LEADER: leader} if leader else {}
    return JSONResponse(body, status, headers, PROBLEM_JSON)


def refusal(status: int, what: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request that the router refuses."""
    body, own_headers = _refusal_parts(status, what)
    return JSONResponse(body, status, {**own_headers, **(headers or {})}, PROBLEM_JSON)


def invalid(first: Mapping[str, Any], *place: str) -> JSONResponse:
    """The answer to a request that is not valid. `first`: pydantic's first error; `place`: the part of the request that
    pydantic has validated, such as `body`, if the error's location does not begin with that part."""
    if first["type"] == "json_invalid":
        return refusal(400, f"the body is not valid JSON: {first['ctx']['error']}")
    field = ".".join(map(str, (*place, *first["loc"])))
    return problem(UserError(ErrorKind.REQUEST, f"{field}: {first['msg']}"))


def disconnected() -> Response:
    """The answer to a request whose client has disconnected. No client receives this answer."""
    return Response(status_code=400)


def defect(error: Exception) -> JSONResponse:
    """The answer to a request that failed because of a defect. The answer contains only the exception's type; the log
    contains the exception."""
    return refusal(500, type(error).__name__)


def raw_refusal(status: int, what: str) -> bytes:
    """Returns a refusal as HTTP/1.1 bytes, for use below the router. The caller then closes the connection."""
    body, headers = _refusal_parts(status, what)
    data = json.dumps(body).encode()
    headers |= {
        "Content-Type": PROBLEM_JSON,
        "Content-Length": str(len(data)),
        "Connection": "close",
    }
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + data


def _refusal_parts(status: int, what: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the problem document and the headers."""
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
        # The request may contain an unpaired surrogate, which UTF-8 cannot encode.
        "detail": detail.encode("utf-8", "backslashreplace").decode(),
        "kind": kind.name,
        "hint": hint,
    }
