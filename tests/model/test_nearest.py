"""The hints in messages about names that are not known."""

from __future__ import annotations

import pytest

from dispatcher.model.nearest import did_you_mean, nearest_name


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("emial", ["id", "email", "mail_at"], "email"),
        ("EMIAL", ["id", "Email"], "Email"),
        ("card", ["id", "email"], ""),
        ("card", [], ""),
    ],
)
def test_the_known_name_that_resembles_the_name_is_found(
    name: str, known: list[str], expected: str
) -> None:
    assert nearest_name(name, known) == expected
    assert did_you_mean(name, known) == (f"; did you mean {expected}?" if expected else "")
