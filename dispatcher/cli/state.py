"""The commands `state dump` and `state backup`, which read the state store beside the running daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dispatcher.cli.calls import errors_as_exit_codes, read_settings
from dispatcher.cli.status_text import position_text
from dispatcher.model.sizes import size_text
from dispatcher.terminal.output import say, say_json

app = typer.Typer(
    help="Show or back up the state store, also while the daemon runs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_Path = Annotated[
    Path | None,
    typer.Option(
        "--path", metavar="FILE", help="The state store, instead of --config.", show_default=False
    ),
]
_Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="DISPATCHER_CONFIG",
        help="Settings that name it in state.path. Repeatable.",
        show_default=False,
    ),
]


@app.command("dump")
def dump_command(
    config: _Config = None,
    path: _Path = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print positions, sessions and epochs of all consumers."""
    with errors_as_exit_codes():
        from dispatcher.state.copies import dump_state  # noqa: PLC0415

        state = dump_state(_store(config, path))
        if as_json:
            say_json(state, indent=2)
        else:
            for line in _lines(state):
                say(line)


@app.command("backup")
def backup_command(
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="The file to write.")],
    config: _Config = None,
    path: _Path = None,
) -> None:
    """Copy the state store to a file that does not exist yet."""
    with errors_as_exit_codes():
        from dispatcher.state.copies import back_up  # noqa: PLC0415

        size = back_up(_store(config, path), target)
        say(f"{target}: {size_text(size)}")


def _store(config: list[Path] | None, path: Path | None) -> Path:
    if path is not None:
        return path
    if not config:
        raise typer.BadParameter("pass --config FILE or --path FILE")
    return read_settings(config).state.path


def _lines(state: dict[str, Any]) -> list[str]:
    lines = [f"installation {state['installation']}, schema {state['schema']}"]
    lines.append(f"epoch of new consumers: {state['epoch']}")
    for consumer in state["consumers"]:
        paused = ", delivery paused" if consumer["paused"] else ""
        lines.append(f"consumer {consumer['name']}: session {consumer['session']}{paused}")
        for key in ("acknowledged", "covered"):
            position = consumer[key]
            if position is not None:
                seq = f"seq {position['seq']}, epoch {position['epoch']}"
                lines.append(f"  {key} {position_text(consumer, key)}, {seq}")
                lines += [f"    gtid {position['gtid']}"] if position["gtid"] else []
    for of in state["connections"]:
        place = f"{of['file']}:{of['offset']}"
        lines.append(
            f"connection {of['connection']}: read to {place}, {of['table_versions']} table versions"
        )
    for of in state["prepared"]:
        size = size_text(of["bytes"])
        lines.append(
            f"connection {of['connection']}: {of['transactions']} prepared transactions, {size}"
        )
    return lines
