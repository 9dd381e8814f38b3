"""Describes each setting, from the models: its type, default, unit, limits and description."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from dispatcher.settings.api import ApiSettings
from dispatcher.settings.front import FrontSettings
from dispatcher.settings.model import (
    ConsumerSettings,
    LimitSettings,
    LogSettings,
    SourceSettings,
    StartSettings,
    StateDatabase,
    StateSettings,
)
from dispatcher.settings.mqtt import BrokerAddress, MqttSettings
from dispatcher.settings.webhook import WebhookSettings
from dispatcher.yaml_settings.section import HostPort, SettingsSection
from dispatcher.yaml_settings.server import MysqlSettings
from dispatcher.yaml_settings.values import WrittenAs

REQUIRED = "required"
NONE = ""  # the text for a setting without a fixed default

# Sections that are one value in a settings file, each with the form of that value.
_WRITTEN_AS = {
    MysqlSettings: "`user@host:port`",
    StateDatabase: "`user@host:port/database`",
    StartSettings: "position",
    HostPort: "`host:port`",
    BrokerAddress: "`mqtt://host:port`",
}
_SCALARS = {
    bool: "true or false",
    int: "number",
    float: "number",
    str: "text",
    SecretStr: "text",
    Path: "file name",
    dict: "mapping of text",
}
_UNITS = {
    "_seconds": "seconds",
    "_milliseconds": "milliseconds",
    "_days": "days",
    "_per_second": "rows/s",
    "_lease": "seconds",
}


class SettingReference(NamedTuple):
    """One setting. `path`: dotted, with NAME for a name that the user chooses and [] for elements of a list;
    `default`: as in YAML, `REQUIRED` or `NONE`; `limits`: such as ">= 1", or empty; `unit`: empty if there is none."""

    path: str
    type: str
    default: str
    unit: str
    limits: str
    meaning: str


def daemon_settings() -> Iterator[SettingReference]:
    """All settings of the daemon, in the order of the sections."""
    shared = LimitSettings.model_fields.keys()
    for section, model, without in (
        ("defaults", LimitSettings, ()),
        ("consumers.NAME", ConsumerSettings, shared),
        ("sources.NAME", SourceSettings, shared),
        ("api", ApiSettings, ()),
        ("front", FrontSettings, ()),
        ("state", StateSettings, ()),
        ("log", LogSettings, ()),
        ("mqtt", MqttSettings, ()),
        ("webhook", WebhookSettings, ()),
    ):
        yield from section_settings(section, model, without=tuple(without))


def section_settings(
    section: str, model: type[BaseModel], *, without: Sequence[str] = ()
) -> Iterator[SettingReference]:
    """The settings of a section, including those of the sections in it."""
    for name, field in model.model_fields.items():
        if name in without:
            continue
        key = field.alias or name
        path = f"{section}.{key}" if section else key
        nested = _section_of(field)
        if nested is not None:
            inner, suffix = nested
            yield from section_settings(path + suffix, inner)
            continue
        yield SettingReference(
            path, _type_of(field), _default_of(field), _unit_of(key, field), _limits_of(field),
            field.description or "",
        )  # fmt: skip


def _parts(annotation: Any) -> Iterator[Any]:
    """The alternatives of a union, without None."""
    if get_origin(annotation) in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    elif annotation is not type(None):
        yield annotation


def _section_of(field: FieldInfo) -> tuple[type[BaseModel], str] | None:
    """If the field is a section with keys of its own, returns the section's model, and the suffix of its path ("", "[]"
    or ".NAME"). Returns None for other fields."""
    (part, *others) = _parts(field.annotation)
    if others:
        return None
    suffix = ""
    if get_origin(part) is tuple:
        part, suffix = get_args(part)[0], "[]"
    elif get_origin(part) is dict:
        part, suffix = get_args(part)[1], ".NAME"
    is_section = isinstance(part, type) and issubclass(part, SettingsSection)
    return (part, suffix) if is_section and part not in _WRITTEN_AS else None


def _type_of(field: FieldInfo) -> str:
    return _name_of(field.annotation, field.metadata)


def _name_of(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    for item in metadata:
        if isinstance(item, WrittenAs):
            return item.kind
    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_name_of, _parts(annotation))))
    if origin is Annotated:
        inner, *more = get_args(annotation)
        return _name_of(inner, more)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if origin is tuple:
        return f"list of {_name_of(get_args(annotation)[0])}"
    if annotation in _WRITTEN_AS:
        return _WRITTEN_AS[annotation]
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    return _SCALARS[origin or annotation]


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return REQUIRED
    if field.default_factory is not None:
        factory: Callable[..., Any] = field.default_factory
        return "{}" if factory is dict else NONE
    return _written(field.default, size=_type_of(field) == "size")


def _written(value: Any, *, size: bool) -> str:
    """Returns a value as a person writes it into the settings."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, StartSettings):
        return value.at
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    if isinstance(value, int) and size:
        return format_size(value)
    return str(value) or '""'


def format_size(value: int) -> str:
    """Returns a size as text, such as 64MiB for 67108864. A size that is not a multiple of a unit is returned as a
    number of bytes."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power}{unit}"
    return str(value)


def _unit_of(key: str, field: FieldInfo) -> str:
    kind = _type_of(field)
    if kind == "size":
        return "bytes"
    if "number" not in kind.split(" or "):
        return ""
    return next((unit for suffix, unit in _UNITS.items() if suffix in f"_{key}"), "")


def _limits_of(field: FieldInfo) -> str:
    """Returns the limits as text, such as `>= 1` or `1 to 64`; empty if there are none."""
    at_least = next((item.ge for item in field.metadata if hasattr(item, "ge")), None)
    at_most = next((item.le for item in field.metadata if hasattr(item, "le")), None)
    as_text = format_size if _type_of(field) == "size" else str
    if at_least is None:
        return ""
    if at_most is None:
        return f">= {as_text(at_least)}" if at_least else ""
    return f"{as_text(at_least)} to {as_text(at_most)}"
