"""Validates sections of the settings, and words the errors: which key, what is wrong, which key may be meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.nearest import nearest_name
from dispatcher.yaml_settings.section import SettingsSection
from dispatcher.yaml_settings.source import EXPECTED_MAPPING, KeyPath, Origin, Tree

_EXPECTED_LIST = "expected a list, such as [a, b]"
_EXPECTED = {
    "missing": "is missing",
    "string_type": "expected text; put the value in quotes",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "list_type": _EXPECTED_LIST,
    "tuple_type": _EXPECTED_LIST,
    "dict_type": EXPECTED_MAPPING,
    "model_type": EXPECTED_MAPPING,
    "model_attributes_type": EXPECTED_MAPPING,
    "path_type": "expected a file name",
    "too_short": "must not be empty",
}

S = TypeVar("S", bound=SettingsSection)


class SettingsError(UserError):
    """Invalid settings. `str()` has one line per error, in the order of the files. Each line contains only printable
    characters."""

    @staticmethod
    def _shown(what: str) -> str:
        return what

    def __str__(self) -> str:
        return self.what


def raise_findings(tree: Tree) -> None:
    """Raises `SettingsError` with all findings of the tree, if it has any."""
    if tree.findings:
        findings = sorted(dict.fromkeys(tree.findings), key=lambda finding: finding.origin)
        raise SettingsError(ErrorKind.SETTINGS, "\n".join(map(str, findings)))


def parse_section(model: type[S], values: Mapping[str, Any], origin: str) -> S:
    """Validate one section given as Python values. Raises `SettingsError`; each of its lines begins with `origin`."""
    tree = Tree(origins={(): Origin(origin)})
    section = read_section(tree, (), model, values)
    if section is None:
        raise SettingsError(ErrorKind.SETTINGS, "\n".join(map(str, tree.findings)))
    return section


def read_section(
    tree: Tree, path: KeyPath, model: type[S], value: Any, *, required: bool = False
) -> S | None:
    """Returns the validated section at `path`. If it is invalid, adds the errors to the tree's findings and returns
    None."""
    if value is None and not required:
        value = {}
    try:
        return model.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        messages = [((*path, *detail["loc"]), _message(detail, model)) for detail in details]
        for detail, (at, message) in zip(details, messages, strict=True):
            # A key that is misspelt is reported once, not also as missing.
            meant = _did_you_mean(str(at[-1])) if at else ""
            if detail["type"] == "missing" and any(said.endswith(meant) for _, said in messages):
                continue
            tree.report(at, message)
        return None


def _message(detail: ErrorDetails, model: type[SettingsSection]) -> str:
    kind = detail["type"]
    if kind == "extra_forbidden":
        key = str(detail["loc"][-1])
        if len(detail["loc"]) == 1 and key in model.instead:
            return f"unknown key; {model.instead[key]}"
        section = _section_at(model, detail["loc"][:-1])
        if place := next(_places_of(section, key), ""):
            return f"unknown key; {place}"
        return f"unknown key{suggestion(key, section.model_fields)}"
    if kind == "value_error":
        return str(detail.get("ctx", {}).get("error", detail["msg"]))
    return _EXPECTED.get(kind, detail["msg"].replace("Input should be", "must be"))


def _section_at(model: type[BaseModel], loc: KeyPath) -> type[BaseModel]:
    """Returns the section of the model at a location."""
    for part in loc:
        if isinstance(part, int) or part not in model.model_fields:
            continue
        model = next(_sections(model.model_fields[part].annotation), model)
    return model


def _places_of(model: type[BaseModel], key: str) -> Iterator[str]:
    """Yields where the key belongs, for each section of the model that has it."""
    for name, field in model.model_fields.items():
        for section in _sections(field.annotation):
            if key in section.model_fields:
                place = field.alias or name
                if get_origin(field.annotation) is dict:
                    yield f"write it below a name: {{{place}: {{NAME: {{{key}: ...}}}}}}"
                else:
                    yield f"set it in {place}"


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            yield candidate


def suggestion(name: str, known: Iterable[str]) -> str:
    close = nearest_name(name, known)
    return _did_you_mean(close) if close else ""


def _did_you_mean(name: str) -> str:
    return f"; did you mean {name!r}?"
