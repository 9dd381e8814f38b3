"""The values of added columns in existing rows, for types with defaults, compared with four servers."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.servers import Server
from tests.spark.mirror.fill_forms import all_forms, differences, predicted
from tests.support.commit_seed import commit_seed

SAMPLE = 500  # the number of drawn forms; the mirror accepts about a third of them


def test_some_forms_have_the_servers_values(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    forms = random.Random(commit_seed()).sample(all_forms(), SAMPLE)
    accepted = [one for form in forms if (one := predicted(form)) is not None]
    seen, wrong = differences(any_server, new_database(any_server), accepted)
    assert wrong == []
    assert seen > 50


@pytest.mark.deep
@pytest.mark.timeout(1200)
def test_all_forms_have_the_servers_values(
    any_server: Server, new_database: Callable[[Server], str]
) -> None:
    accepted = [one for form in all_forms() if (one := predicted(form)) is not None]
    seen, wrong = differences(any_server, new_database(any_server), accepted)
    assert wrong == []
    assert seen > 9000
