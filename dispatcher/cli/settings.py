"""The commands `settings reference` and `settings show`."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from dispatcher.cli.calls import Config, errors_as_exit_codes
from dispatcher.terminal.output import say, say_json
from dispatcher.terminal.plain_help import PlainTyper

if TYPE_CHECKING:
    from dispatcher.settings.reference import SettingReference

app = PlainTyper(help="Describe all settings, or show those in effect.")
_WIDTH = 100
_LINK = re.compile(r"\[([^\]]*)\]\(([^)]*)\)")

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("reference")
def reference_command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", help="Only settings that contain one of these.", show_default=False
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Print each setting: type, unit, limits, default, meaning.

    Example: binlog-dispatcher settings reference heartbeat
    """
    from dispatcher.settings.reference import daemon_settings  # noqa: PLC0415

    rows = [row for row in daemon_settings() if not words or any(w in row.path for w in words)]
    if as_json:
        say_json([row._asdict() for row in rows], indent=2)
        return
    for row in rows:
        say(f"{row.path}  ({_summary(row)})")
        # The meanings are Markdown, written for docs/settings.md.
        meaning = _LINK.sub(r"docs/\2", row.meaning).replace("`", "")
        for line in textwrap.wrap(meaning, _WIDTH):
            say(f"    {line}")


def _summary(row: SettingReference) -> str:
    kind = row.type.replace("`", "")
    default = f"default {row.default}" if row.default not in ("", "required") else row.default
    unit = f"in {row.unit}" if row.unit else ""
    return ", ".join(part for part in (f"{kind} {unit}".strip(), row.limits, default) if part)


@app.command("show")
def show_settings(config: Config, as_json: _Json = False) -> None:
    """Print the settings in effect with the origin of each value.

    Example: binlog-dispatcher settings show --config dispatcher.yaml

    The origin is file:line, an environment variable, or "default". Passwords and tokens are hidden.
    """
    with errors_as_exit_codes():
        from dispatcher.settings.effective import effective_settings  # noqa: PLC0415
        from dispatcher.settings.load import read_tree, validated_settings  # noqa: PLC0415

        tree = read_tree(config)
        validated_settings(tree)
        shown = list(effective_settings(tree))
        if as_json:
            values = [setting._asdict() for setting in shown]
            say_json(values, indent=2)
            return
        for setting in shown:
            say(f"{setting.path}: {setting.value}  ({setting.origin})")
