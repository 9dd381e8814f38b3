"""What the driver of a snapshot asks the server. The server's answers are in the test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql import grants as grants_module
from spark_sink.source.options import SourceOptions
from spark_sink.source.snapshot import repeats, server
from spark_sink.source.snapshot.remedies import with_own_remedy
from spark_sink.source.snapshot.repeats import with_retries
from spark_sink.source.snapshot.server import SnapshotServer
from spark_sink.source.table_rows.session import changed_during_copy
from spark_sink.source.table_rows.table_server import TableServer
from tests.spark.source.test_partial_changes import OPTIONS

ROOT = Path(__file__).parents[3]


class Answers:
    """A server. `tables`: the tables that the account sees; `failing`: errors of the next sessions."""

    def __init__(self) -> None:
        self.tables: list[tuple[str, str]] = [("shop", "orders"), ("shop", "items")]
        self.grants = ["GRANT SELECT, REPLICATION CLIENT ON *.* TO `reader`@`%`"]
        self.failing: list[BinlogError] = []
        self.sessions = 0

    @contextmanager
    def session(self) -> Iterator[Any]:
        self.sessions += 1
        if self.failing:
            raise self.failing.pop(0)
        yield self

    def ask(self, _connection: object, query: str, parse: Callable[[Any], Any]) -> list[Any]:
        assert "TABLE_SCHEMA" in query
        return [parse(row) for row in self.tables]

    def fetch(self, _connection: object, query: str) -> list[Any]:
        assert "binlog_row_image" in query
        return [("binlog_row_image", "FULL")]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    made = Answers()
    monkeypatch.setattr(server.SnapshotTableServer, "session", made.session)
    monkeypatch.setattr(server, "ask", made.ask)
    monkeypatch.setattr(server, "fetch", made.fetch)
    monkeypatch.setattr(server, "lower_case_table_names", lambda _: 0)
    monkeypatch.setattr(server, "read_grants", lambda _: grants_module.parse_grants(made.grants))
    monkeypatch.setattr(
        server, "visible_databases", lambda _: frozenset(name for name, _ in made.tables)
    )
    return made


def of(tmp_path: Path, **options: str) -> SnapshotServer:
    (tmp_path / "secret").write_text("s", encoding="utf-8")
    given = OPTIONS | {"mysqlPasswordFile": str(tmp_path / "secret")} | options
    if "table" in options:
        del given["tables"]
    return SnapshotServer(SourceOptions.parse(given))


# -- the tables --------------------------------------------------------------------------------------------------


def test_the_tables_are_those_that_the_options_select(answers: Answers, tmp_path: Path) -> None:
    assert of(tmp_path, tables="shop.*").check() == [("shop", "items"), ("shop", "orders")]
    assert of(tmp_path, table="shop.orders").check() == [("shop", "orders")]


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"table": "shop.none"}, "there is no table shop.none, or the account has no SELECT"),
        ({"tables": "shop.orders, shop.none"}, "there is no table shop.none, or"),
        ({"tables": "shop.*, other.none"}, "there is no table other.none, or"),
        ({"tables": "shop.Orders"}, "no table shop.Orders, did you mean shop.orders?, or"),
        ({"table": "shop.Orders"}, "no table shop.Orders, did you mean shop.orders?, or"),
        ({"tables": "shop.x*, y.*"}, "no table matches shop.x*, y.*, or the account has no SELECT"),
    ],
)
def test_a_table_that_the_account_does_not_see_is_not_left_out(
    answers: Answers, tmp_path: Path, options: dict[str, str], shown: str
) -> None:
    with pytest.raises(BinlogError) as caught:
        of(tmp_path, **options).check()
    assert caught.value.kind is ErrorKind.UNKNOWN_TABLE
    assert shown in caught.value.what
    assert "GRANT SELECT ON" in caught.value.remedy and "correct the option" in caught.value.remedy


def test_names_are_compared_as_the_server_compares_them(
    answers: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "lower_case_table_names", lambda _: 2)
    answers.tables = [("Shop", "Orders")]
    for options in ({"table": "SHOP.oRDERS"}, {"tables": "sHOP.Orders"}, {"tables": "Sh*.O*"}):
        assert of(tmp_path, **options).check() == [("shop", "orders")]
    assert of(tmp_path, table="SHOP.Orders").selects(("shop", "orders"))


@pytest.mark.parametrize(
    ("grant", "refused"),
    [
        ("GRANT SELECT ON `shop`.`orders` TO `reader`@`%`", True),
        ("GRANT SELECT ON `shop`.* TO `reader`@`%`", False),
        ("GRANT ALL PRIVILEGES ON `sh%`.* TO `reader`@`%`", False),
        ("GRANT SELECT ON *.* TO `reader`@`%`", False),
    ],
)
def test_a_pattern_needs_select_on_the_whole_database(
    answers: Answers, tmp_path: Path, grant: str, *, refused: bool
) -> None:
    answers.tables = [("shop", "orders")]
    answers.grants = ["GRANT REPLICATION CLIENT ON *.* TO `reader`@`%`", grant]
    assert of(tmp_path, tables="shop.orders").check() == [("shop", "orders")]
    if not refused:
        assert of(tmp_path, tables="sh*.o*").check() == [("shop", "orders")]
        return
    with pytest.raises(BinlogError, match="lacks SELECT on the whole database") as caught:
        of(tmp_path, tables="sh*.o*").check()
    assert caught.value.kind is ErrorKind.GRANT_MISSING
    assert "GRANT SELECT ON `shop`.* TO `reader`@`%`" in caught.value.remedy


# -- a lost connection -------------------------------------------------------------------------------------------


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replaces the clock. Returns the seconds of each pause."""
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: sum(pauses), sleep=pauses.append)
    monkeypatch.setattr(repeats, "time", clock)
    return pauses


def lost() -> BinlogError:
    return BinlogError(ErrorKind.CONNECTION_LOST, "the server closed the connection", where="r@h")


def test_a_lost_connection_does_not_end_a_query(
    answers: Answers, tmp_path: Path, slept: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    answers.failing = [lost(), BinlogError(ErrorKind.CONNECT_FAILED, "refused")]
    assert of(tmp_path).tables() == [("shop", "items"), ("shop", "orders")]
    assert slept == [0.5, 1.0]
    assert "r@h: the server closed the connection; the request is repeated" in caplog.text


def test_a_request_is_repeated_until_the_time_is_over(slept: list[float]) -> None:
    def request() -> None:
        raise lost()

    with pytest.raises(BinlogError, match="the server closed the connection"):
        with_retries(request, 60)
    assert sum(slept) == 60


@pytest.mark.parametrize("kind", [ErrorKind.ACCESS_DENIED, ErrorKind.RANGE_UNAVAILABLE])
def test_other_errors_are_raised_at_once(
    answers: Answers, tmp_path: Path, slept: list[float], kind: ErrorKind
) -> None:
    answers.failing = [BinlogError(kind, "why")]
    with pytest.raises(BinlogError, match="why"):
        of(tmp_path).tables()
    assert slept == [] and answers.sessions == 1


def test_a_wrong_address_is_seen_at_once(
    answers: Answers, tmp_path: Path, slept: list[float]
) -> None:
    answers.failing = [BinlogError(ErrorKind.CONNECT_FAILED, "refused")]
    with pytest.raises(BinlogError, match="refused"):
        of(tmp_path).check()
    assert slept == []


# -- remedies ----------------------------------------------------------------------------------------------------


def test_no_remedy_names_a_setting_that_the_source_does_not_have() -> None:
    folder = ROOT / "dispatcher" / "mysql"
    names = ("driver.py", "login.py", "error_map.py")
    text = "".join((folder / name).read_text(encoding="utf-8") for name in names)
    joined = re.sub(r'"\s*\n\s*f?"', "", text)
    remedies = [
        found for found in re.findall(r'"([^"\n]*)"', joined) if "tls" in found and " " in found
    ]
    assert len(remedies) >= 6, remedies
    for remedy in remedies:
        error = with_own_remedy(BinlogError(ErrorKind.CONNECT_FAILED, "why", remedy=remedy))
        assert "tls." not in error.remedy and "tls settings" not in error.remedy, remedy
        assert "mysqlTls" in error.remedy or "mysqlCaFile" in error.remedy, remedy


def test_a_session_names_the_source_s_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refused(_self: object) -> Any:
        raise BinlogError(ErrorKind.CONNECT_FAILED, "why", remedy="point tls.ca at the CA")

    monkeypatch.setattr(TableServer, "session", refused)
    with pytest.raises(BinlogError) as caught, of(tmp_path).server.session():
        pass
    assert "mysqlCaFile" in caught.value.remedy
    assert caught.value.__context__ is None and caught.value.__cause__ is None


def test_other_remedies_are_true_for_the_source() -> None:
    altered = with_own_remedy(changed_during_copy("shop.t", "h"))
    assert "continues at its checkpoint" in altered.remedy and "copy" not in altered.remedy
    assert "continues at its checkpoint" in with_own_remedy(lost()).remedy
    kept = BinlogError(ErrorKind.ACCESS_DENIED, "why")
    assert with_own_remedy(kept).remedy == BinlogError(ErrorKind.ACCESS_DENIED, "why").remedy
