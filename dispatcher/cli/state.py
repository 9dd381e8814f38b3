"""The commands `state dump`, `state backup` and `state move`. The first two read the store, even while a daemon
runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dispatcher.cli.calls import errors_as_exit_codes, read_settings, state_of
from dispatcher.cli.status_text import position_text
from dispatcher.model.sizes import size_text
from dispatcher.terminal.output import say, say_json
from dispatcher.terminal.plain_help import PlainTyper

if TYPE_CHECKING:
    from dispatcher.settings.model import StateSettings
    from dispatcher.state.transfer import StateCounts

app = PlainTyper(help="Show, back up or move the state store.")

_Path = Annotated[
    Path | None,
    typer.Option(
        "--path",
        metavar="FILE",
        help="A state store's file, instead of --config.",
        show_default=False,
    ),
]
_Config = Annotated[
    list[Path] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        envvar="DISPATCHER_CONFIG",
        help="Settings that name it in their section state. Repeatable.",
        show_default=False,
    ),
]


@app.command("dump")
def dump_command(
    config: _Config = None,
    path: _Path = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print positions, sessions and epochs of all consumers.

    A daemon may be running.

    Example: binlog-dispatcher state dump --config dispatcher.yaml
    """
    with errors_as_exit_codes():
        state = state_of(_store(config, path))
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
    """Copy the state store to a new file.

    A daemon may be running.

    Example: binlog-dispatcher state backup copy.db --config dispatcher.yaml
    """
    with errors_as_exit_codes():
        from dispatcher.state.copies import back_up  # noqa: PLC0415

        state = _store(config, path)
        if state.mysql is None:
            size = back_up(state.path, target)
        else:
            from dispatcher.state.transfer import back_up_database  # noqa: PLC0415

            size = back_up_database(state, target)
        say(f"{target}: {size_text(size)}")


@app.command("move")
def move_command(
    to: Annotated[
        list[Path],
        typer.Option(
            "--to",
            metavar="FILE",
            help="The new settings, whose section state names the new store. Repeatable.",
            show_default=False,
        ),
    ],
    config: _Config = None,
) -> None:
    """Move the state from a file to a database, or back.

    No daemon may be running.

    Example: binlog-dispatcher state move --config old.yaml --to new.yaml

    --config names the present settings. The present store is marked as moved; no daemon opens it any more.
    """
    with errors_as_exit_codes():
        from dispatcher.state.transfer import move_state  # noqa: PLC0415

        source, target = _store(config, None), read_settings(to).state
        for line in _moved(source.label, target.label, move_state(source, target)):
            say(line)


def _store(config: list[Path] | None, path: Path | None) -> StateSettings:
    if path is not None:
        from dispatcher.settings.model import StateSettings  # noqa: PLC0415

        return StateSettings(path=path)
    if not config:
        raise typer.BadParameter("pass --config FILE or --path FILE")
    return read_settings(config).state


def _moved(source: str, target: str, moved: StateCounts) -> list[str]:
    with_position = f"with a position: {moved.positions}, with a session: {moved.sessions}"
    return [
        *(f"warning: consumer {loss.consumer}: {loss}" for loss in moved.losses),
        f"installation {moved.installation}, epoch of new consumers: {moved.epoch}",
        f"consumers: {moved.consumers}, {with_position}",
        f"declared consumers: {moved.declarations}",
        f"connections: {moved.connections}, table versions: {moved.table_versions}",
        f"prepared transactions: {moved.prepared}, {size_text(moved.prepared_bytes)}",
        f"moved from {source} to {target}; start the daemon with the new settings",
    ]


def _lines(state: dict[str, Any]) -> list[str]:
    lines = [f"installation {state['installation']}, schema {state['schema']}"]
    if "leader" in state:
        leader = state["leader"]
        leads = f"{leader['address']}, term {leader['term']}" if leader else "none"
        lines.append(f"leader: {leads}")
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
    for each in state["declarations"]:
        by = f"by {each['declared_by']}, " if each["declared_by"] else ""
        tables = each["tables"] or each["databases"]
        lines.append(
            f"consumer {each['consumer']}: declared {by}source {each['source']}, reads {', '.join(tables)}"
        )
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
