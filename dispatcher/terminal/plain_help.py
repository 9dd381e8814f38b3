"""The help of both programs, in plain text. It shows a required argument as `NAME` and a value as `FILE`.

Typer would show them as `{NAME}` and `<list[Path]>`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandFunctionType

_VALUES = {"path": "FILE", "int": "NUMBER", "float": "NUMBER"}
_TYPE = re.compile(r"<(?:list\[)?(\w+)[^>]*>")
_BRACES = re.compile(r"\{([^{}]*)\}")


def _plain_name(name: str, *, argument: bool) -> str:
    """`name`: the names of an option with its value, or of an argument, as Typer shows them."""
    name = _BRACES.sub(r"\1", name)
    if argument:
        return _TYPE.sub("", name).rstrip().upper()
    return _TYPE.sub(lambda match: _VALUES.get(match[1].lower(), "TEXT"), name)


def _write_options(command: Any, ctx: Any, formatter: Any) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            argument = param.param_type_name == "argument"
            name = _plain_name(record[0], argument=argument)
            sections["Arguments" if argument else "Options"].append((name, record[1]))
    for title, rows in sections.items():
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


class PlainCommand(TyperCommand):
    """A command with plain help."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_BRACES.sub(r"\1", each).upper() for each in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)


class PlainGroup(TyperGroup):
    """A group of commands with plain help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_options(self, ctx, formatter)
        self.format_commands(ctx, formatter)


class PlainTyper(typer.Typer):
    """A program, or a group of its commands, with plain help and without Typer's tracebacks, which show local variables
    and therefore passwords. Typer's help with rich takes 0.4 s to load, and shows flags as if they took values."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            cls=PlainGroup,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            rich_markup_mode=None,
            **options,
        )

    def command(
        self, name: str | None = None, **options: Any
    ) -> Callable[[CommandFunctionType], CommandFunctionType]:
        return super().command(name, cls=PlainCommand, **options)
