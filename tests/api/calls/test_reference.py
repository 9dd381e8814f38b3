"""The reference of the API is current, and its examples are what the models accept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from deploy import api_reference
from dispatcher.api.answers import models
from dispatcher.api.calls import administration, declarations
from dispatcher.api.calls.openapi import EXAMPLES_PATH

EXAMPLES = json.loads(EXAMPLES_PATH.read_text(encoding="utf-8"))
DOCUMENT = api_reference.openapi_document()
OPERATIONS = {item[2]["operationId"]: item[2] for item in api_reference.operations(DOCUMENT)}


def model_of(schema: dict[str, Any]) -> Any:
    """The class of a schema: a model, or a list of it."""
    if schema.get("type") == "array":
        return list[model_of(schema["items"])]  # type: ignore[misc]
    name = schema["$ref"].rsplit("/", 1)[1]
    modules = (models, administration, declarations)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def test_the_document_is_current() -> None:
    """Run `python -m deploy.api_reference` after a change. If an answer changes, run `python -m deploy.api_examples`
    before it."""
    assert api_reference.PATH.read_text(encoding="utf-8") == api_reference.text()


def test_every_call_has_an_example() -> None:
    assert EXAMPLES.keys() == OPERATIONS.keys()
    with_body = {name for name, operation in OPERATIONS.items() if "requestBody" in operation}
    assert {name for name, example in EXAMPLES.items() if "request" in example} == with_body


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_complete_and_valid(name: str) -> None:
    """This test also fails if a field was added after the recording."""
    operation = OPERATIONS[name]
    if "request" in EXAMPLES[name]:
        content = operation["requestBody"]["content"]["application/json"]
        adapter = TypeAdapter(model_of(content["schema"]))
        value = adapter.validate_python(content["example"])
        assert adapter.dump_python(value) == content["example"]
    if "answer" in EXAMPLES[name]:
        content = operation["responses"]["200"]["content"]["application/json"]
        adapter = TypeAdapter(model_of(content["schema"]))
        value = adapter.validate_python(content["example"])
        assert adapter.dump_python(value) == content["example"]
