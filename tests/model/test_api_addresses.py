"""The addresses of daemons, and the choice of the one that a request goes to."""

from __future__ import annotations

import pytest

from dispatcher.model.api_addresses import AddressChoice, ApiAddress, parse_addresses
from dispatcher.model.errors import BinlogError, ErrorKind, UserError

A, B, C = (f"http://{host}:8085" for host in "abc")
REFUSED = BinlogError(ErrorKind.CONNECT_FAILED, "Connection refused")
STANDBY = BinlogError(ErrorKind.NOT_LEADER, "this daemon is a standby")


def choice_of(*urls: str) -> AddressChoice:
    choice = AddressChoice(parse_addresses(",".join(urls)))
    choice.begin()
    return choice


def test_one_address_or_several_with_commas() -> None:
    assert [address.text for address in parse_addresses("http://h:1/")] == ["http://h:1"]
    several = parse_addresses(" https://a.example , https://[::1]:8085/daemon/,")
    assert several == (
        ApiAddress("", "https", "a.example", 443, ""),
        ApiAddress("", "https", "::1", 8085, "/daemon"),
    )
    assert list(map(str, several)) == ["https://a.example", "https://[::1]:8085/daemon"]


@pytest.mark.parametrize("same", ["HTTP://A:80", "http://a", "http://a/", " http://a:80 "])
def test_addresses_are_equal_if_they_lead_to_the_same_place(same: str) -> None:
    assert ApiAddress.parse(same) == ApiAddress.parse("http://a:80")


@pytest.mark.parametrize("other", ["https://a:80", "http://b:80", "http://a:81", "http://a:80/b"])
def test_addresses_differ_in_each_part(other: str) -> None:
    assert ApiAddress.parse(other) != ApiAddress.parse("http://a:80")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not the address of a daemon: ''"),
        (" , ", "not the address of a daemon"),
        ("daemon:8085", "not the address of a daemon: 'daemon:8085'"),
        (f"{A},ftp://b", "not the address of a daemon: 'ftp://b'"),
        ("http://", "not the address of a daemon"),
        ("http://h:0x1", "not the address of a daemon"),
        ("http://h:65536", "not the address of a daemon"),
        ("ftp://b:80", "not the address of a daemon"),
        ("http://[::1", "not the address of a daemon"),
        ("http://h/?a=1", "not the address of a daemon"),
        (f"{A},http://user:pw@b:99999", "the address of b holds a user or a password"),
        ("http://user:pw@[b", "not the address of a daemon: '[b'"),
        (f"{A},https://b:8085", "some addresses begin with http:// and others with https://"),
        (f"{A},{B},{A}/", "an address occurs twice"),
    ],
)
def test_what_is_not_a_list_of_addresses_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_addresses(text)
    assert message in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_call_goes_to_the_address_that_answered_last() -> None:
    choice = choice_of(A, B)
    assert (str(choice.current), choice.number) == (A, 0)
    assert choice.failed(REFUSED)
    choice.answered()
    choice.begin()
    assert (str(choice.current), choice.number) == (B, 1)


def test_an_address_that_does_not_answer_is_followed_by_the_next() -> None:
    choice = choice_of(A, B, C)
    assert [choice.failed(REFUSED) and str(choice.current) for _ in range(3)] == [B, C, False]


def test_after_the_last_address_comes_the_first() -> None:
    choice = AddressChoice(parse_addresses(f"{A},{B},{C}"), first=1)
    choice.begin()
    tried = [str(choice.current)]
    while choice.failed(REFUSED):
        tried.append(str(choice.current))
    assert tried == [B, C, A]


def test_one_address_is_one_round() -> None:
    choice = choice_of(A)
    assert not choice.failed(REFUSED)
    choice.begin_round()
    assert str(choice.current) == A
    assert not choice.not_leader(STANDBY, B)


def test_a_standby_leads_to_the_leader() -> None:
    choice = choice_of(A, B, C)
    assert choice.not_leader(STANDBY, f"{C}/")
    assert str(choice.current) == C


@pytest.mark.parametrize("leader", [None, "http://elsewhere:8085", "https://c:8085", "c", 7])
def test_an_address_that_was_not_given_is_never_chosen(leader: object) -> None:
    choice = choice_of(A, B, C)
    chosen = {str(choice.current)}
    while choice.not_leader(STANDBY, leader):
        chosen.add(str(choice.current))
    choice.begin_round()
    assert chosen | {str(choice.current)} == {A, B, C}


def test_a_leader_that_was_tried_in_this_round_is_not_tried_again() -> None:
    choice = choice_of(A, B, C)
    assert choice.failed(REFUSED)
    assert choice.not_leader(STANDBY, A)
    assert str(choice.current) == C
    assert not choice.not_leader(STANDBY, A)


def test_two_standbys_that_name_each_other_end_the_round() -> None:
    choice = choice_of(A, B)
    assert choice.not_leader(STANDBY, B)
    assert not choice.not_leader(STANDBY, A)


def test_while_the_leader_is_down_a_round_begins_at_the_standby() -> None:
    choice = choice_of(A, B)
    choice.failed(REFUSED)
    choice.not_leader(STANDBY, A)
    choice.begin_round()
    assert str(choice.current) == B


def test_while_no_address_answers_each_round_is_like_the_first() -> None:
    choice = choice_of(A, B)
    assert [choice.failed(REFUSED), choice.failed(REFUSED)] == [True, False]
    choice.begin_round()
    assert str(choice.current) == A


def test_the_fault_of_one_address_is_that_of_the_call() -> None:
    choice = choice_of(A)
    choice.failed(REFUSED)
    assert choice.fault() is REFUSED


def test_the_fault_of_several_names_each_with_its_newest_fault() -> None:
    choice = choice_of(A, B)
    choice.failed(STANDBY)
    choice.failed(STANDBY)
    choice.begin_round()
    choice.not_leader(STANDBY, A)
    choice.failed(REFUSED)
    fault = choice.fault()
    assert fault.what == f"{A}: this daemon is a standby, {B}: Connection refused"
    assert (fault.kind, fault.remedy) == (STANDBY.kind, STANDBY.remedy)


def test_a_call_does_not_report_the_faults_of_an_earlier_one() -> None:
    choice = choice_of(A, B)
    choice.failed(STANDBY)
    choice.answered()
    choice.begin()
    choice.failed(REFUSED)
    assert choice.fault() is REFUSED


def test_a_leader_that_was_not_given_is_named_in_the_remedy() -> None:
    choice = choice_of(A)
    choice.not_leader(STANDBY, B)
    assert choice.fault().remedy == f"add {B} to url, with a comma between the addresses"
    choice.begin()
    choice.not_leader(STANDBY, None)
    assert choice.fault().remedy == STANDBY.remedy
