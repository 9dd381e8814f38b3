"""Writes docs/http-api-reference.md from the API's models and recorded examples: `python -m deploy.api_reference`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from dispatcher.api.app import Access, Api
from dispatcher.api.calls.openapi import EXAMPLES_PATH, SCOPES
from dispatcher.settings.api import ApiLimitSettings
from tests.support.fake_readers import FakeDeclarer, FakeReaders

PATH = Path(__file__).parents[1] / "docs/http-api-reference.md"
_TAGS = {
    "readers": "Readers",
    "status": "Status",
    "administration": "Administration",
    "declarations": "Declared consumers",
}

Json = dict[str, Any]


def openapi_document() -> Json:
    """Returns the document that a daemon serves at /openapi.json."""

    async def no_metrics() -> tuple[bytes, str]:
        return b"", ""

    service = FakeReaders()
    api = Api(
        lambda: service,
        Access(),
        ApiLimitSettings(),
        administrator=lambda: service,
        declarer=FakeDeclarer,
        live=service,
        listen="127.0.0.1",
        version="",
        metrics=no_metrics,
        ready=list,
    )

    async def fetch() -> Json:
        transport = httpx.ASGITransport(app=api.asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            document: Json = (await client.get("/openapi.json")).raise_for_status().json()
            return document

    return asyncio.run(fetch())


def operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Yields (method, path, operation)."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


class _Writer:
    """Renders one document. It also reads the recorded examples, because an OpenAPI document cannot contain the length
    of a binlog."""

    def __init__(self, document: Json) -> None:
        self.schemas: Json = document["components"]["schemas"]
        self.recorded: Json = json.loads(EXAMPLES_PATH.read_text(encoding="utf-8"))

    def operation(self, method: str, path: str, operation: Json) -> str:
        parts = [f"### `{method} {path}`", operation["description"]]
        if scopes := operation.get(SCOPES):
            parts.append(f"Scope: {' or '.join(f'`{scope}`' for scope in scopes)}.")
        parts += self._request(operation)
        parts += self._answer(operation)
        statuses = sorted(status for status in operation["responses"] if status != "200")
        parts.append(f"[Problems](http-api.md#errors): {', '.join(statuses)}.")
        return "\n\n".join(parts)

    def _request(self, operation: Json) -> Iterator[str]:
        others = [item for item in operation.get("parameters", ()) if item["name"] != "consumer"]
        for item in others:
            yield f"`{item['name']}` ({item['in']}): {item['description']}"
        if "requestBody" not in operation:
            if "consumer" in str(operation.get("parameters")) and not others:
                yield "Request: no body."
            return
        content = operation["requestBody"]["content"]["application/json"]
        yield "Request:"
        yield self._fields(content["schema"], defaults=True)
        yield from self._notes(content["schema"])
        yield _json(content["example"])

    def _answer(self, operation: Json) -> Iterator[str]:
        answer = operation["responses"]["200"]
        content = answer["content"]
        if "application/json" not in content:
            recorded = self.recorded[operation["operationId"]]
            if "text" in recorded:
                yield f"Answer, `text/plain` (up to six lines of it):\n\n```\n{recorded['text'].rstrip()}\n```"
            else:
                what = answer["description"]
                yield (
                    f"Answer, `application/octet-stream`: {what[0].lower()}{what[1:]}"
                    f" ([delivered-binlog.md](delivered-binlog.md)); here `Content-Length: {recorded['bytes']}`."
                )
            return
        body = content["application/json"]
        schema = body["schema"]
        listed = schema.get("type") == "array"
        schema = schema["items"] if listed else schema
        yield "Answer, a list of:" if listed else "Answer:"
        yield self._fields(schema, defaults=False)
        yield from self._notes(schema)
        yield _json(body["example"])

    def _resolved(self, schema: Json) -> Json:
        reference = schema.get("$ref")
        resolved: Json = self.schemas[reference.rsplit("/", 1)[1]] if reference else schema
        return resolved

    def _notes(self, schema: Json) -> Iterator[str]:
        if description := self._resolved(schema).get("description"):
            yield " ".join(description.split())

    def _fields(self, schema: Json, *, defaults: bool) -> str:
        resolved = self._resolved(schema)
        required = resolved.get("required", ())
        lines = ["| field | type |", "|---|---|"]
        if defaults:
            lines = ["| field | type | default |", "|---|---|---|"]
        for name, field in resolved["properties"].items():
            default = "required" if name in required else f"`{json.dumps(field.get('default'))}`"
            line = f"| `{name}` | {self._type(field)} |"
            lines.append(f"{line} {default} |" if defaults else line)
        return "\n".join(lines)

    def _type(self, field: Json) -> str:
        if "anyOf" in field:
            return " or ".join(self._type(part) for part in field["anyOf"])
        if "$ref" in field:
            name = field["$ref"].rsplit("/", 1)[1]
            if name == "PositionBody":
                return "[position](#positions)"
            inner = self.schemas[name]["properties"]
            return f"`{{{', '.join(inner)}}}`"
        if field.get("type") == "array":
            return f"list of {self._type(field['items'])}"
        if "enum" in field:
            return " or ".join(f"`{json.dumps(value)}`" for value in field["enum"])
        name = str(field["type"])
        limits = [field.get("minimum"), field.get("maximum")]
        if limits[1] is not None and limits[1] < 2**63 - 1:
            return f"{name}, {limits[0]} to {limits[1]}"
        return name

    def position(self) -> str:
        return self._fields({"$ref": "#/components/schemas/PositionBody"}, defaults=False)

    def problem(self) -> str:
        return self._fields({"$ref": "#/components/schemas/Problem"}, defaults=False)


def _json(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=2)}\n```"


def text() -> str:
    """The complete document."""
    document = openapi_document()
    writer = _Writer(document)
    sections = []
    for tag, heading in _TAGS.items():
        found = [item for item in operations(document) if tag in item[2]["tags"]]
        body = "\n\n".join(writer.operation(*item) for item in found)
        sections.append(f"## {heading}\n\n{body}")
    calls = "\n\n".join(sections)
    return f"""# HTTP API reference

Written by `python -m deploy.api_reference` from the models; the bodies were recorded from a real daemon
(`python -m deploy.api_examples`). [http-api.md](http-api.md) explains how the calls work together, tokens, scopes,
limits and errors; [examples/reader.py](../examples/reader.py) is a complete reader.

## Positions

A point between two transactions. All fields are required. Pass a position back as it was returned.

{writer.position()}

## Problems

Every error is a document of type `application/problem+json`; [http-api.md](http-api.md#errors) lists the kinds.

{writer.problem()}

{calls}
"""


def main() -> None:
    PATH.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
