"""GTID sets against a simple model: a Python set of (source, number) pairs."""

from __future__ import annotations

import itertools
import pickle
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dispatcher.model.errors import ErrorKind, UserError
from dispatcher.model.gtid import GNO_MAX, DomainGtids, GtidSet, MariadbGtids

A = "2174b383-5441-11e8-b90a-c80aa9429562"
B = "fbc30c64-f8c9-4dda-8cfd-d2f9b3a7c4e1"
TAGGED = f"{A}:tag_1"
SOURCES = (A, B, TAGGED)
Pairs = frozenset[tuple[str, int]]

runs = st.lists(
    st.tuples(st.sampled_from(SOURCES), st.integers(1, 40), st.integers(0, 8)), max_size=8
)


def make(parts: list[tuple[str, int, int]]) -> tuple[GtidSet, Pairs]:
    out, model = GtidSet(), set()
    for source, start, size in parts:
        out = out.union(GtidSet({source: [(start, start + size)]}))
        model |= {(source, n) for n in range(start, start + size)}
    return out, frozenset(model)


def model_of(gtids: GtidSet) -> Pairs:
    return frozenset(
        (source, n)
        for source, intervals in gtids.sources().items()
        for start, end in intervals
        for n in range(start, end)
    )


sets = runs.map(make)


@given(sets, sets)
def test_the_laws_of_sets(left: tuple[GtidSet, Pairs], right: tuple[GtidSet, Pairs]) -> None:
    (a, model_a), (b, model_b) = left, right
    assert model_of(a) == model_a
    assert model_of(a.union(b)) == model_a | model_b
    assert model_of(a.intersection(b)) == model_a & model_b
    assert model_of(a.subtract(b)) == model_a - model_b
    assert a.contains(b) == (model_a >= model_b)
    assert (a == b) == (model_a == model_b)
    assert len(a) == len(model_a)
    assert bool(a) == bool(model_a)
    if a == b:
        assert hash(a) == hash(b)
        assert str(a) == str(b)


@given(sets, st.sampled_from(SOURCES), st.integers(1, 50), st.integers(1, 10))
def test_runs(made: tuple[GtidSet, Pairs], source: str, start: int, size: int) -> None:
    gtids, model = made
    run = {(source, n) for n in range(start, start + size)}
    assert gtids.has(source, start) == ((source, start) in model)
    assert gtids.covers(source, start, start + size) == (
        True if run <= model else False if not run & model else None
    )
    more = gtids.add(source, start, start + size)
    assert model_of(more) == model | run
    assert more == GtidSet.parse(str(more))
    assert model_of(gtids) == model, "the old set stays as it was"
    assert model_of(gtids.add(source, start)) == model | {(source, start)}


@given(sets)
def test_canonical(made: tuple[GtidSet, Pairs]) -> None:
    gtids, _ = made
    assert GtidSet.parse(str(gtids)) == gtids
    assert str(GtidSet.parse(str(gtids))) == str(gtids)
    assert pickle.loads(pickle.dumps(gtids)) == gtids
    assert list(gtids.sources()) == sorted(gtids.sources())
    for intervals in gtids.sources().values():
        assert all(a < b for a, b in intervals)
        assert all(x[1] < y[0] for x, y in itertools.pairwise(intervals))


@given(sets)
def test_binary_form(made: tuple[GtidSet, Pairs]) -> None:
    gtids, _ = made
    data = gtids.encode()
    assert GtidSet.decode(data) == gtids
    for cut in range(len(data)):
        with pytest.raises(UserError):
            GtidSet.decode(data[:cut])
    with pytest.raises(UserError, match="1 bytes too many"):
        GtidSet.decode(data + b"\0")


def test_binary_form_to_the_byte() -> None:
    gtids = GtidSet.parse(f"{A}:1-3:7")
    assert gtids.encode() == (
        (1).to_bytes(8, "little") + bytes.fromhex(A.replace("-", ""))
        + b"".join(n.to_bytes(8, "little") for n in (2, 1, 4, 7, 8))
    )  # fmt: skip


@given(st.binary(max_size=80))
@example(b"\xff" * 8)
@example((1).to_bytes(8, "little") + bytes(16) + b"\xff" * 8)
@example((1).to_bytes(8, "little") + bytes(16) + (1).to_bytes(8, "little") + bytes(16))
@example((1).to_bytes(8, "little") + bytes(16) + (1).to_bytes(8, "little") + b"\1" + b"\xff" * 15)
def test_invalid_binary_forms_are_refused(data: bytes) -> None:
    try:
        gtids = GtidSet.decode(data)
    except UserError as error:
        assert "not a GTID set" in error.what  # noqa: PT017 - either outcome is right
    else:
        assert GtidSet.parse(str(gtids)) == gtids


def test_the_binary_form_with_tags_to_the_byte() -> None:
    gtids = GtidSet.parse(f"{A}:1-3:tag_1:7,{B}:9")
    first, second = (bytes.fromhex(uuid.replace("-", "")) for uuid in (A, B))
    data = (
        b"\1\3\0\0\0\0\0\1"
        + first + b"\0" + b"".join(n.to_bytes(8, "little") for n in (1, 1, 4))
        + first + b"\x0atag_1" + b"".join(n.to_bytes(8, "little") for n in (1, 7, 8))
        + second + b"\0" + b"".join(n.to_bytes(8, "little") for n in (1, 9, 10))
    )  # fmt: skip
    assert gtids.encode() == data
    assert GtidSet.decode(data) == gtids


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\2\1\0\0\0\0\0\1" + bytes(17), "unknown kind 2"),
        (b"\1\1\0\0\0\0\0\1" + bytes(16) + b"\2A" + bytes(8), "the tag b'A'"),
        (b"\1\1\0\0\0\0\0\1" + bytes(16) + b"\3a" + bytes(8), "the tag b'a'"),
        (b"\1\1\0\0\0\0\0\1" + bytes(16) + b"\x0aa", "ends too early"),
    ],
)
def test_a_binary_form_with_tags_that_is_damaged(data: bytes, why: str) -> None:
    with pytest.raises(UserError, match=why):
        GtidSet.decode(data)


@given(st.text(alphabet="0123456789abcdef-:,_ \nX٣²", max_size=60))
@example("٣" + A[1:] + ":1")
@example(A + ":٣")
@example(A + ":²")
@example(A + ":" + "9" * 30)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        gtids = GtidSet.parse(text)
    except UserError as error:
        assert error.kind is ErrorKind.SETTINGS  # noqa: PT017 - either outcome is right
    else:
        assert GtidSet.parse(str(gtids)) == gtids
        assert str(gtids).isascii()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        (" , ,", ""),
        (f" {A.upper()} : 3 - 4 ", None),
        (f"{A.upper()}:3-4:1-2", f"{A}:1-4"),
        (f"{A.replace('-', '')}:1", f"{A}:1"),
        (f"{B}:1,\n{A}:5:5:7,{A}:6", f"{A}:5-7,{B}:1"),
        (f"{A}:5-3", ""),
        (f"{A}:Tag_1:4:1-3:b:2", f"{A}:b:2:tag_1:1-4"),
        (f"{A}:1:tag_1:2,{A}:tag_1:1", f"{A}:1:tag_1:1-2"),
        (f"{A}:{GNO_MAX}", f"{A}:{GNO_MAX}"),
    ],
)
def test_texts(text: str, canonical: str | None) -> None:
    if canonical is None:
        with pytest.raises(UserError):
            GtidSet.parse(text)
    else:
        assert str(GtidSet.parse(text)) == canonical


@pytest.mark.parametrize(
    "text",
    [A, f"{A}:", f"{A}:0", f"{A}:0-3", f"{A}:{GNO_MAX + 1}", f"{A}:-1", "xxxxxxxx:1", f"{A}:1 2", f"{A}:a-b"],
)  # fmt: skip
def test_texts_that_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a GTID set"):
        GtidSet.parse(text)


def test_containment() -> None:
    whole = GtidSet.parse(f"{A}:1-3:11:47-49,{B}:1-19:47-49:60")
    inside = ("", f"{A}:2-3:11:47-49", f"{A}:11", f"{B}:2-16:47-49:60", f"{B}:60", str(whole))
    outside = (
        f"{A}:1-3:11:47-50", f"{A}:99", f"{B}:2-16:46-49:60", f"{B}:99",
        f"{whole},00000000-0000-0000-0000-000000000000:1",
    )  # fmt: skip
    assert all(whole.contains(GtidSet.parse(text)) for text in inside)
    assert not any(whole.contains(GtidSet.parse(text)) for text in outside)


def test_several_masters() -> None:
    a, b = "f189aee3-3cd2-11ed-a407-fa163ea7d4ed", "ff9de833-3cd2-11ed-87b7-fa163e99d975"
    both, one = GtidSet.parse(f"{a}:1-3602,{b}:1-172"), GtidSet.parse(f"{b}:1-172")
    assert both.contains(one)
    assert not one.contains(both)
    for known in (f"{b}:1-10", f"{b}:172", f"{b}:171-172", str(both)):
        assert not GtidSet.parse(known).subtract(both)
    for new in (f"{b}:171-173", f"{b}:173", f"{a}:1-3602,{b}:1-173"):
        assert GtidSet.parse(new).subtract(both)


# -- MariaDB --------------------------------------------------------------------------------------------------


def test_mariadb_positions() -> None:
    position = MariadbGtids.parse(" 1-2-5 ,0-1-100,")
    assert str(position) == "0-1-100,1-2-5"
    assert str(position.add("0-9", 101, 104)) == "0-9-103,1-2-5"
    assert str(position.add("7-1", 1)) == "0-1-100,1-2-5,7-1-1"
    assert position == MariadbGtids.parse("0-01-100,1-2-5")
    assert hash(position) == hash(MariadbGtids.parse(str(position)))
    assert position != GtidSet()
    assert pickle.loads(pickle.dumps(position)) == position


@given(
    st.dictionaries(
        st.integers(0, 2**32 - 1), st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
    )
)
def test_mariadb_round_trip(domains: dict[int, tuple[int, int]]) -> None:
    position = MariadbGtids(domains)
    assert MariadbGtids.parse(str(position)) == position


@pytest.mark.parametrize(
    "text", ["0-1", "0-1-2-3", "a-b-c", "0-1-", "0--1-2", "0-1-²", "0-1-٣", "0-1-" + "9" * 5000]
)
def test_mariadb_texts_that_are_refused(text: str) -> None:
    with pytest.raises(UserError, match="not a MariaDB GTID"):
        MariadbGtids.parse(text)


def test_two_mariadb_gtids_of_one_domain_are_refused() -> None:
    with pytest.raises(UserError, match="two MariaDB GTIDs of domain 0"):
        MariadbGtids.parse("0-1-5,1-1-2,0-2-7")


DOMAIN_SETS = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(1, 2), st.integers(1, 9)), max_size=3
).map(DomainGtids)


def members(gtids: DomainGtids) -> set[tuple[int, int]]:
    """Returns all transactions, as (domain, sequence number)."""
    newest = gtids.domains().items()
    return {(domain, n) for domain, (_, last) in newest for n in range(1, last + 1)}


@given(DOMAIN_SETS, DOMAIN_SETS)
def test_domain_sets_are_sets_of_all_transactions_up_to_the_newest(
    a: DomainGtids, b: DomainGtids
) -> None:
    assert len(a) == len(members(a)) and bool(a) is bool(members(a))
    assert a.contains(b) is (members(a) >= members(b))
    assert members(a.union(b)) == members(a) | members(b)
    assert members(a.intersection(b)) == members(a) & members(b)
    assert a.missing(b) == len(members(a) - members(b))
    assert bool(a.subtract(b)) is bool(members(a) - members(b))
    assert a.subtract(b).domains().items() <= a.domains().items()
    for domain in range(4):
        for start in range(1, 9):
            assert a.has(f"{domain}-9", start) is ((domain, start) in members(a))
            own = {(domain, n) for n in range(start, 9)}
            covers = a.covers(f"{domain}-9", start, 9)
            assert covers is (True if own <= members(a) else None if own & members(a) else False)


def test_a_domain_set_never_shrinks() -> None:
    held = DomainGtids.parse("0-1-100,1-2-5")
    assert str(held.add("0-2", 101, 104)) == "0-2-103,1-2-5"
    assert held.add("0-2", 99) is held and held.add("0-2", 98, 101) is held
    assert pickle.loads(pickle.dumps(held)) == held == MariadbGtids.parse(str(held))


def test_sets_of_many_intervals_are_compared_in_linear_time() -> None:
    many = GtidSet({A: [(2 * n, 2 * n + 1) for n in range(1, 50_000)]})
    began = time.process_time()
    assert many.contains(many) and not many.contains(GtidSet({A: [(1, 100_000)]}))
    assert time.process_time() - began < 5, "a quadratic comparison takes minutes"
