"""What OpenAPI says beyond what FastAPI finds out by itself: problem documents, links, the bearer token, limits."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from dispatcher.api.auth import Scope
from dispatcher.api.guard import SCOPES
from dispatcher.api.models import INTEGER_MAX, Problem
from dispatcher.api.problems import PROBLEM_JSON

Responses = dict[int | str, dict[str, Any]]

_MEANS = {
    400: "The request is not HTTP, or its body is not JSON in UTF-8",
    401: "No token, or none of the daemon's",
    403: "The token lacks the scope; or Host or Origin is not the daemon's own",
    404: "There is no such path, consumer or table; or the token is not for the consumer",
    408: "The request did not arrive in time",
    409: "A newer session was opened; or the position is not one of this consumer's",
    410: "The consumer has failed and needs a person; `kind` says what for",
    413: "The body is larger than `api.max_bytes_in_request`",
    422: "A field is missing or wrong",
    429: "Too many requests of this consumer are open, or it does not read its answers",
    431: "The headers are too large or too many",
    500: "A defect of the daemon",
    503: "Not available now: the server is down, the range is being read again, or the state store is not writable",
}
# What can befall every request, before any call is looked for.
EVERY = (400, 403, 408, 431, 500, 503)
GUARDED = (*EVERY, 401, 413, 422, 429)
OF_CONSUMER = (*GUARDED, 404, 409, 410)


def problems(*statuses: int) -> Responses:
    """The problem documents that a call may answer with."""
    return {status: _problem(status) for status in sorted(statuses)}


def _problem(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": f"{HTTPStatus(status).phrase}. {_MEANS[status]}.",
        "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {"schema": {"type": "integer", "minimum": 0}, "description": "Seconds."}
        }
    if status == 401:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
    return response


def linked(**links: dict[str, Any]) -> Responses:
    """Which calls go on from an answer: {operation id: its parameters and body, as runtime expressions}."""
    consumer = {"consumer": "$request.path.consumer"}
    return {
        200: {
            "links": {
                name: {"operationId": name, "parameters": consumer, "requestBody": body}
                for name, body in links.items()
            }
        }
    }


def scopes(*names: Scope) -> dict[str, Any]:
    """`openapi_extra` of a route whose caller needs a token with one of the scopes; none: any token."""
    return {SCOPES: [str(name) for name in names]}


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of the app."""
    document = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    components = document.setdefault("components", {})
    components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "One of `api.tokens`, if the daemon has any.",
        }
    }
    _as_integers(document)
    for path in document["paths"].values():
        for operation in path.values():
            if SCOPES in operation:
                operation["security"] = [{"token": []}]
    return document


def _as_integers(part: Any) -> None:
    """Bounds as integers again: FastAPI turns them into floats, which cannot hold 2^63 - 1."""
    if isinstance(part, dict):
        for name in ("minimum", "maximum"):
            bound = part.get(name)
            if isinstance(bound, float):
                part[name] = min(int(bound), INTEGER_MAX)
        for value in part.values():
            _as_integers(value)
    elif isinstance(part, list):
        for value in part:
            _as_integers(value)
