"""Completes the OpenAPI document that FastAPI generates: problems, links, the bearer token, bounds, examples."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from dispatcher.access.tokens import Scope
from dispatcher.api.answers.models import INTEGER_MAX, Problem
from dispatcher.api.answers.problems import PROBLEM_JSON
from dispatcher.api.framework.guarded_routes import SCOPES

Responses = dict[int | str, dict[str, Any]]

# A request and an answer of each operation, recorded from a real daemon (deploy/api_examples.py).
EXAMPLES_PATH = Path(__file__).with_name("examples.json")

_MEANINGS = {
    400: "The request is not HTTP, or its body is not JSON in UTF-8",
    401: "The request has no token, or one that the daemon does not know",
    403: "The token does not have the scope; or Host or Origin is not one of the daemon's",
    404: "The path, consumer or table does not exist; or the token is not valid for the consumer",
    408: "The request did not arrive completely in time",
    409: "A newer session is open; or the position is not one of this consumer; or a consumer of this name exists",
    410: "The consumer has failed and does not recover by itself; see `kind` and `hint`",
    413: "The body is larger than `api.max_bytes_in_request`",
    422: "A field is missing or invalid",
    429: "Too many requests of this consumer are open, or its readers do not receive their answers",
    431: "The headers are too large or too many",
    500: "A defect of the daemon",
    503: "Try again: the server is down, the range is being read again, the state store is not writable, or another"
    " daemon leads",
}
# Statuses that any request can get before a route handles it.
EVERY = (400, 403, 408, 431, 500, 503)
GUARDED = (*EVERY, 401, 413, 422, 429)
OF_CONSUMER = (*GUARDED, 404, 409, 410)


def problems(*statuses: int) -> Responses:
    """The problem documents that a call can return, as responses of OpenAPI."""
    return {status: _problem(status) for status in sorted(statuses)}


def _problem(status: int) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": f"{HTTPStatus(status).phrase}. {_MEANINGS[status]}.",
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
    """Returns the OpenAPI links from an answer to the next calls. `links`: for each operation id the body of the call,
    as runtime expressions."""
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
    """The `openapi_extra` of a route that requires a token with one of these scopes; without scopes: any token."""
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
            "description": "One of `api.tokens`. Not needed if the settings have no tokens.",
        }
    }
    _as_integers(document)
    examples = json.loads(EXAMPLES_PATH.read_text(encoding="utf-8"))
    for path in document["paths"].values():
        for operation in path.values():
            if SCOPES in operation:
                operation["security"] = [{"token": []}]
            _add_example(operation, examples.get(operation["operationId"], {}))
    return document


def _add_example(operation: dict[str, Any], example: dict[str, Any]) -> None:
    if "request" in example:
        operation["requestBody"]["content"]["application/json"]["example"] = example["request"]
    answers = operation["responses"]["200"]["content"]
    for key, media_type in (("answer", "application/json"), ("text", "text/plain")):
        if key in example:
            answers[media_type]["example"] = example[key]


def _as_integers(part: Any) -> None:
    """Convert bounds from floats to integers: FastAPI converts bounds to floats, which cannot represent 2^63 - 1."""
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
