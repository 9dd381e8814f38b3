"""The policy table is complete, and errors survive pickling and re-raising."""

from __future__ import annotations

import pickle

import pytest

from dispatcher.model.errors import POLICY, Action, BinlogError, ErrorKind, UserError, with_name


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_has_a_policy_and_a_remedy(kind: ErrorKind) -> None:
    policy = POLICY[kind]
    assert policy.action in Action
    assert policy.remedy
    assert not policy.remedy.endswith(".")
    assert str(BinlogError(kind, "x")) == f"{kind.value}: x; {policy.remedy}"
    assert BinlogError(kind, "x").action is policy.action


def test_the_table_has_no_other_kinds() -> None:
    assert list(POLICY) == list(ErrorKind)


@pytest.mark.parametrize("cls", [BinlogError, UserError])
def test_errors_survive_pickling(cls: type[BinlogError]) -> None:
    error = cls(ErrorKind.CHECKSUM_MISMATCH, "XID_EVENT", where="binlog.000001:4", remedy="look")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert vars(again) == vars(error)
    assert str(again) == "checksum mismatch: XID_EVENT (binlog.000001:4); look"


def test_locations_are_outermost_first_and_the_cause_is_kept() -> None:
    error = UserError(ErrorKind.SETTINGS, "x", where="line 3", remedy="y")
    error.__cause__ = ValueError("why")
    outer = error.at("file a")
    assert isinstance(outer, UserError)
    assert (outer.where, outer.remedy, outer.__cause__) == ("file a, line 3", "y", error.__cause__)
    assert error.where == "line 3"
    assert BinlogError(ErrorKind.SETTINGS, "x").at("here").where == "here"


def test_a_remedy_may_name_the_consumer() -> None:
    error = BinlogError(ErrorKind.HISTORY_DIFFERS, "reset")
    remedy = with_name(str(error), "shop")
    assert "consumers seek shop --to POSITION" in remedy and "consumers forget shop" in remedy
    assert "NAME" not in remedy
