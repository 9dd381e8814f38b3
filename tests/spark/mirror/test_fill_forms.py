"""The values of added columns in existing rows: types by defaults, against what four servers give them."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.servers import Server
from tests.spark.mirror.fill_forms import all_forms, differences, predicted

SAMPLE = 500  # forms, of which the mirror accepts about a third


@pytest.fixture(scope="module")
def seed() -> int:
    return random.SystemRandom().randrange(1 << 32)


def test_some_forms_have_the_servers_values(
    any_server: Server, new_database: Callable[[Server], str], seed: int
) -> None:
    print(f"seed {seed}")
    forms = random.Random(seed).sample(all_forms(), SAMPLE)
    accepted = [one for form in forms if (one := predicted(form)) is not None]
    seen, wrong = differences(any_server, new_database(any_server), accepted)
    assert wrong == []
    assert seen > 50


@pytest.mark.deep
def test_all_forms_have_the_servers_values(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    accepted = [one for form in all_forms() if (one := predicted(form)) is not None]
    seen, wrong = differences(any_server, new_database(any_server), accepted)
    assert wrong == []
    assert seen > 9000
