"""Finds the known name that resembles a name that is not known, for messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Returns the known name that resembles `name` most, without regard to case; "" if none resembles it."""
    folded = {each.casefold(): each for each in known}
    close = difflib.get_close_matches(name.casefold(), list(folded), n=1)
    return folded[close[0]] if close else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint to append to a message: `; did you mean NAME?` if a known name resembles `name`, else ""."""
    close = nearest_name(name, known)
    return f"; did you mean {close}?" if close else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for messages: ` (the nearest is NAME)` if a known name resembles `name`, else ""."""
    close = nearest_name(name, known)
    return f" (the nearest is {close})" if close else ""
