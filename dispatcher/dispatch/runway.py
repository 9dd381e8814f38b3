"""How long until the server purges what a consumer still needs.

A server purges a file as a whole, some time (`expire_s`) after it was closed, which is when the next one was begun. It
does so when it rotates or starts, so this is the earliest moment. Limits by size, which some servers have too, are not
known here.
"""

from __future__ import annotations

from collections.abc import Iterable

from dispatcher.dispatch.events import ServerPolled


def files_to_survey(survey: ServerPolled | None, needed: Iterable[str]) -> list[str]:
    """The files whose creation says when those that are needed were closed."""
    if survey is None:
        return []
    found = (_next(survey, file) for file in set(needed))
    return sorted({file for file in found if file})


def seconds(survey: ServerPolled, server: str, file: str, now_s: float) -> float | None:
    """Seconds until `file` of `server` may be purged, 0 where it was; None: never by age, or not known.

    `now_s`: s since 1970. The newest file lasts at least as long as one that is closed now.
    """
    view = survey.view
    if survey.expire_s is None or not file or server != view.server or not view.files:
        return None
    names = [name for name, _ in view.files]
    if file not in names:
        return 0.0 if (len(file), file) < (len(names[0]), names[0]) else None
    behind = _next(survey, file)
    if behind is None:
        return float(survey.expire_s)
    closed = view.created.get(behind, 0)
    return max(0.0, closed + survey.expire_s - now_s) if closed else None


def _next(survey: ServerPolled, file: str) -> str | None:
    names = [name for name, _ in survey.view.files]
    at = names.index(file) + 1 if file in names else len(names)
    return names[at] if at < len(names) else None
