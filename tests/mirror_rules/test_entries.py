"""The order of the log's entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_sink.mirror.values.entries import append_of, first_lsn, last_lsn
from spark_sink.source.raw_entries import ENTRIES_MAX, SLICES_MAX, entry_number

PLACES = st.tuples(
    st.integers(1, 2**31 - 1), st.integers(0, SLICES_MAX - 1), st.integers(0, ENTRIES_MAX - 1)
)


def lsn_of(place: tuple[int, int, int]) -> int:
    append, part, index = place
    return first_lsn(append) + entry_number(part, index)


@given(PLACES, PLACES)
def test_lsns_order_entries_by_append_slice_and_index(
    one: tuple[int, int, int], two: tuple[int, int, int]
) -> None:
    assert (lsn_of(one) < lsn_of(two)) == (one < two)
    assert append_of(lsn_of(one)) == one[0]
    assert first_lsn(one[0]) <= lsn_of(one) <= last_lsn(one[0]) < first_lsn(one[0] + 1)


def test_the_largest_lsn_is_a_bigint() -> None:
    assert lsn_of((2**31 - 1, SLICES_MAX - 1, ENTRIES_MAX - 1)) < 2**63


@pytest.mark.parametrize("place", [(SLICES_MAX, 0), (-1, 0), (0, ENTRIES_MAX), (0, -1)])
def test_an_entry_without_a_number(place: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is out of range"):
        entry_number(*place)
