"""The command `evidence`: finds the files with the differences that proofs have found. Needs no Spark, but a
local target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.mirror.lake.local_control import local_target
from spark_sink.mirror.values.names import fits_pattern, own_path

FOLDER = "evidence"


def local_folder(target: str) -> Path | None:
    """Returns the folder with the files of a target; None if the target is not a local folder."""
    folder = local_target(target)
    return None if folder is None else Path(own_path(str(folder), FOLDER))


def newest_evidence(folder: Path, patterns: Sequence[str], count: int) -> list[str]:
    """Returns the text of the newest `count` files of each table that fits a pattern, the newest file last.

    Raises `UserError` if there is no such file.
    """
    kept: dict[str, list[str]] = {}
    for text, found in _files(folder):
        label = str(found["table"])
        if any(fits_pattern(label, pattern) for pattern in patterns):
            kept.setdefault(label, []).append(text)
    if not kept:
        raise UserError(
            ErrorKind.UNKNOWN_TABLE,
            f"no difference was found of a table that fits {', '.join(patterns)}",
            where=str(folder),
            remedy="python -m spark_sink tables shows the tables that differ",
        )
    return [text for label in sorted(kept) for text in kept[label][-count:]]


def _files(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields text and content of all files, in the order of their times."""
    for path in sorted(folder.glob("*/*.json"), key=lambda path: path.name):
        text = path.read_text(encoding="utf-8")
        yield text, json.loads(text)
