"""Completes the commands in the messages of this process: by the name of its program, and the options with which it was
started.

The printed commands do not contain `--conf`, because a value of `--conf` may be a secret. If the commands need settings
of `--conf`, users write these settings into the settings file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_sink.mirror.rules.remedies import MIRROR, CommandOptions, completed

if TYPE_CHECKING:
    from spark_sink.mirror.values.settings import MirrorSettings

# Options of `run` that this module does not add, because the printed commands set them themselves, or have no such
# option.
_OF_THE_RUN = ("available_now", "fail_on_data_loss", "spark.conf")
_OF_A_COMMAND = ("target",)
PROGRAM = "binlog-mirror"  # the installed program; other ways to start it are in __main__.py
_NAMES = {"consumers": "consumer", "spark.conf": "conf", "spark.master": "master"}


def option_name(key: str) -> str:
    """Returns the command line option of a setting, like `--token-file`."""
    return f"--{_NAMES.get(key, key).replace('_', '-')}"


def completing(
    config: Sequence[Path], given: Mapping[str, Any], settings: MirrorSettings | None = None
) -> Callable[[str], str]:
    """Returns a function that adds the options to the commands in a message.

    `config`: the settings files; `given`: the settings of the command line, by key; `settings`: all settings, from
    which the daemon's commands get URL, token file and CA file.
    """
    files = [word for path in config for word in ("--config", str(path))]
    run = {key: value for key, value in given.items() if key not in _OF_THE_RUN}
    target = {key: value for key, value in run.items() if key in _OF_A_COMMAND}
    options = CommandOptions(
        target=(*files, *_words(target)),
        run=(*files, *_words(run)),
        daemon=() if settings is None else tuple(_daemon(settings)),
        program=PROGRAM if Path(sys.argv[0]).name == PROGRAM else MIRROR,
    )
    return partial(completed, options=options)


def _words(given: Mapping[str, Any]) -> Iterator[str]:
    for key, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            yield option_name(key)
            yield str(each)


def _daemon(settings: MirrorSettings) -> Iterator[str]:
    yield from ("--url", settings.url)
    if settings.token_file is not None:
        yield from ("--token-file", str(settings.token_file))
    if settings.ca_file is not None:
        yield from ("--ca", str(settings.ca_file))
