"""Computes how long it takes until the server purges files that a consumer still needs, and how far the consumer is
behind the log.

A server purges whole files. It closes a file when it begins the next one, and may purge the closed file after
`expire_s`. A server purges only when it rotates or starts, so the real purge may come later than the computed time.
This module does not consider limits by size, which some servers also have.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.messages.events import ServerPolled


def files_to_poll(poll: ServerPolled | None, needed: Iterable[str]) -> list[str]:
    """Returns the files whose creation times show when the needed files were closed."""
    if poll is None:
        return []
    return sorted({file for name in set(needed) if (file := _file_after(poll, name))})


def seconds_to_purge(poll: ServerPolled, server: str, file: str, now_s: float) -> float | None:
    """Seconds until the server may purge `file`; 0 if it has purged the file; None: never by age, or not known.

    `now_s`: s since 1970. The newest file counts as if it were closed now.
    """
    view = poll.view
    if poll.expire_s is None or not file or server != view.server or not view.files:
        return None
    names = [name for name, _ in view.files]
    if file not in names:
        return 0.0 if (len(file), file) < (len(names[0]), names[0]) else None
    following = _file_after(poll, file)
    if following is None:
        return float(poll.expire_s)
    closed = view.created.get(following, 0)
    return max(0.0, closed + poll.expire_s - now_s) if closed else None


def bytes_behind(poll: ServerPolled, server: str, file: str, offset: int) -> int | None:
    """Bytes of the server's log after an offset of `file`; 0 if the offset lies beyond the polled end of the log;
    None: the server no longer has the file, or the file is of another server."""
    if not file or server != poll.view.server:
        return None
    files = poll.view.files
    newest, size = files[-1] if files else ("", 0)
    if file == newest:  # nearly always true
        return max(0, size - offset)
    names = [name for name, _ in files]
    if file not in names:
        return 0 if (len(file), file) > (len(newest), newest) else None
    following = sum(size for _, size in files[names.index(file) :])
    return max(0, following - offset)


def _file_after(poll: ServerPolled, file: str) -> str | None:
    names = [name for name, _ in poll.view.files]
    at = names.index(file) + 1 if file in names else len(names)
    return names[at] if at < len(names) else None
