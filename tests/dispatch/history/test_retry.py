"""When a dispatcher connects again, and which faults it does not retry."""

from __future__ import annotations

import pytest

from dispatcher.dispatch.history.retry import (
    DAMAGE_MAX,
    DUPLICATE_WINDOW_S,
    OPERATOR_RETRY_S,
    RetryPolicy,
)
from dispatcher.dispatch.values.executed_position import Mode, make_executed
from dispatcher.model.errors import BinlogError, ErrorKind

READ = make_executed(Mode.FILE, "", "binlog.000003", 400)
CUT = BinlogError(ErrorKind.CONNECTION_LOST, "cut")
DAMAGE = BinlogError(ErrorKind.CHECKSUM_MISMATCH, "damaged", where="binlog.000003:400")


def test_the_backoff_doubles_up_to_its_limit() -> None:
    policy = RetryPolicy()
    assert [policy.delay_s(CUT, 0.0, None) for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    policy.connected()
    assert policy.delay_s(CUT, 0.0, None) == 0.5


def test_a_fixed_delay_counts_as_an_attempt() -> None:
    policy = RetryPolicy()
    assert policy.delay_s(CUT, 0.0, 7.0) == 7.0
    assert policy.delay_s(CUT, 0.0, None) == 1.0


def test_a_duplicate_uuid_is_retried_soon_once_in_the_window() -> None:
    policy = RetryPolicy()
    duplicate = BinlogError(ErrorKind.DUPLICATE_SERVER_UUID, "killed")
    assert policy.delay_s(duplicate, 0.0, None) == 0.5
    assert policy.delay_s(duplicate, DUPLICATE_WINDOW_S - 1, None) == OPERATOR_RETRY_S


def test_damage_at_one_place_is_fatal_after_some_attempts() -> None:
    policy = RetryPolicy()
    fatal = [policy.classify(DAMAGE, READ)[1] for _ in range(DAMAGE_MAX)]
    assert fatal == [False] * (DAMAGE_MAX - 1) + [True]


def test_damage_is_forgotten_when_a_transaction_was_read() -> None:
    policy = RetryPolicy()
    for _ in range(DAMAGE_MAX * 2):
        assert not policy.classify(DAMAGE, READ)[1]
        policy.passed_damage()


@pytest.mark.parametrize(
    ("read", "kind"), [(READ, ErrorKind.SERVER_LOG), (None, ErrorKind.CONNECTION_LOST)]
)
def test_an_unreadable_log_is_reported_the_second_time_at_one_position(
    read: object, kind: ErrorKind
) -> None:
    policy = RetryPolicy()
    unreadable = BinlogError(ErrorKind.SERVER_LOG, "I/O error")
    assert policy.classify(unreadable, READ)[0].kind is ErrorKind.CONNECTION_LOST
    assert policy.classify(unreadable, READ if read else None)[0].kind is kind
