"""The command `check`: what `run` would fail at, and where the target has values that the settings mask."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.model.errors import BinlogError
from spark_sink.mirror.copy.server import CopyServer
from spark_sink.mirror.lake.local_control import local_target
from spark_sink.mirror.values.names import own_path
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.options import SourceOptions

RETRY_S = 5  # how long `check` waits for a daemon that does not answer; `run` waits for `retry_timeout_seconds`
_OTHERS = 0o077  # the permissions of all but the owner


@dataclass(slots=True)
class Findings:
    """`masked`: the masked columns as in the settings, with their masks. Each warning and error is one line."""

    masked: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def check_mirror(settings: MirrorSettings) -> Findings:
    """Ask the daemon for each consumer, log in to the server of the copies, and list the masked columns. Does not start
    Spark, and does not change which reader has a consumer."""
    found = Findings()
    impatient = settings.model_copy(update={"retry_timeout_seconds": RETRY_S})
    for consumer in settings.consumers:
        options = SourceOptions.parse(impatient.source_options(consumer))
        client = ConsumerClient(options.address, consumer)
        try:
            client.open_session(None, read_only=True)
        except BinlogError as error:
            found.errors.append(str(error))
        finally:
            client.close()
    if settings.copy_from is not None:
        try:
            with CopyServer.of_settings(settings.copy_from).session():
                pass
        except BinlogError as error:
            found.errors.append(f"copy: {error}")
    found.masked = [
        f"{table}.{column} ({form})"
        for table, section in settings.tables.items()
        for column, form in (section.mask or {}).items()
    ]
    if found.masked:
        found.warnings.append(_unmasked_log(settings))
    return found


def _unmasked_log(settings: MirrorSettings) -> str:
    """Returns what a person must know about the log of a mirror that masks columns."""
    path = own_path(settings.target, "log")
    days = f"{settings.log_days} day{'s' if settings.log_days != 1 else ''}"
    text = (
        f"{path} has the values of masked columns as the server sends them, for {days} (log_days)"
    )
    do = ["let only those read it who may see them", "encrypt the storage"]
    if settings.log_days > 1:
        do.insert(1, "set log_days: 1")
    local = local_target(path)
    if local is not None and _others_may_read(local):
        do[0] = f"others can read it now: chmod go= {local}"
    return f"{text}; {', '.join(do)} (docs/types.md, Masked columns)"


def _others_may_read(folder: Path) -> bool:
    try:
        return bool(folder.stat().st_mode & _OTHERS)
    except OSError:
        return False
