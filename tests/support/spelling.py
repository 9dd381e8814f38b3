"""Spellings of names in random case, as people type them on a server whose `lower_case_table_names` is not 0."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable


def as_it_is(text: str) -> str:
    return text


def in_random_case(rng: random.Random, text: str) -> str:
    """Returns the text with some of its letters in upper case. It has as many characters as before."""
    return "".join(_raised(c) if rng.random() < 0.4 else c for c in text)


def _raised(letter: str) -> str:
    raised = letter.upper()
    return raised if len(raised) == 1 and raised.lower() == letter else letter


def random_speller(seed: object) -> Callable[[str], str]:
    """Returns a function that spells each text in another case each time."""
    rng = random.Random(f"names {seed}")
    return lambda text: in_random_case(rng, text)


class NameSpeller:
    """Spells the names in statements in random case. The spelling depends on the statement alone."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in names))

    def __call__(self, text: str, seed: object) -> str:
        rng = random.Random(f"{seed} {text}")
        return self._names.sub(lambda found: in_random_case(rng, found[0]), text)
