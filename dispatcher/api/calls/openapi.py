"""Makes the OpenAPI document of the routes: bodies, answers, problems, links, the bearer token, examples."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from dispatcher.api.answers.models import Problem
from dispatcher.api.answers.problems import PROBLEM_JSON
from dispatcher.api.calls.reader_calls import TABLE_NAME
from dispatcher.api.calls.route import Documented, Json, Route

SCOPES = "x-scopes"
"""Key of an operation: the token must have one of these scopes; [] = any token."""

_DESCRIPTION = (
    "Delivers MySQL binlogs to consumers, each with the databases and tables it subscribes to. Pass positions back"
    " unchanged. Errors are problem documents (RFC 9457); `hint` says what to do. docs/http-api.md describes the calls,"
    " the scopes of tokens and the limits."
)
_PARAMETERS = {
    "{consumer}": {
        "name": "consumer",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "maxLength": 64},
        "description": "Name of a consumer.",
    },
    "{name}": {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": TABLE_NAME, "examples": ["shop.orders"]},
        "description": "database.table",
    },
}

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


def describe(routes: Iterable[Route], version: str) -> Json:
    """The OpenAPI document of the routes that are documented."""
    shown = [(route, route.documented) for route in routes if route.documented]
    models: list[tuple[Any, JsonSchemaMode, TypeAdapter[Any]]] = [
        (Problem, "serialization", TypeAdapter(Problem))
    ]
    for route, documented in shown:
        if route.body is not None:
            models.append((route.body, "validation", TypeAdapter(route.body)))
        if not isinstance(documented.returns, dict):
            models.append((documented.returns, "serialization", TypeAdapter(documented.returns)))
    by_model, definitions = TypeAdapter.json_schemas(
        models, ref_template="#/components/schemas/{model}"
    )
    schemas = {model: schema for (model, _), schema in by_model.items()}
    examples = json.loads(EXAMPLES_PATH.read_text(encoding="utf-8"))
    paths: dict[str, Json] = {}
    for route, documented in shown:
        operation = _operation(route, documented, schemas)
        _add_example(operation, examples.get(operation["operationId"], {}))
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    token = {
        "type": "http",
        "scheme": "bearer",
        "description": "One of `api.tokens`. Not needed if the settings have no tokens.",
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "binlog-dispatcher", "version": version, "description": _DESCRIPTION},
        "paths": paths,
        "components": {"schemas": definitions["$defs"], "securitySchemes": {"token": token}},
    }


def _operation(route: Route, documented: Documented, schemas: Mapping[Any, Json]) -> Json:
    name = route.answer.__name__
    answer = documented.returns
    if not isinstance(answer, dict):
        content = {"application/json": {"schema": schemas[answer]}}
        answer = {"description": "Successful Response", "content": content}
    if documented.links:
        answer = {
            **answer,
            "links": {name: _link(name, body) for name, body in documented.links.items()},
        }
    responses = {200: answer} | {status: _problem(status) for status in documented.problems}
    responses |= documented.more
    operation = {
        "tags": [documented.tag],
        "summary": name.replace("_", " ").title(),
        "description": inspect.getdoc(route.answer),
        "operationId": name,
        "parameters": [
            *(_PARAMETERS[part] for part in route.path.split("/") if part in _PARAMETERS),
            *(_query(parameter, meaning) for parameter, meaning in documented.query.items()),
        ],
        "responses": {str(status): responses[status] for status in sorted(responses)},
    }
    if route.body is not None:
        content = {"application/json": {"schema": schemas[route.body]}}
        operation["requestBody"] = {"required": True, "content": content}
    if route.scopes is not None:
        operation |= {SCOPES: list(map(str, route.scopes)), "security": [{"token": []}]}
    elif 401 in documented.problems:
        operation["security"] = [{"token": []}, {}]
    return operation


def _link(name: str, body: Json) -> Json:
    """A link to the next call, `name`, of the same consumer. `body`: runtime expressions."""
    consumer = {"consumer": "$request.path.consumer"}
    return {"operationId": name, "parameters": consumer, "requestBody": body}


def _query(name: str, meaning: str) -> Json:
    schema = {"type": "string"}
    return {
        "name": name,
        "in": "query",
        "required": False,
        "schema": schema,
        "description": meaning,
    }


def _add_example(operation: dict[str, Any], example: dict[str, Any]) -> None:
    if "request" in example:
        operation["requestBody"]["content"]["application/json"]["example"] = example["request"]
    answers = operation["responses"]["200"]["content"]
    for key, media_type in (("answer", "application/json"), ("text", "text/plain")):
        if key in example:
            answers[media_type]["example"] = example[key]
