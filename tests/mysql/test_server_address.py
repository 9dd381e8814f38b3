from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dispatcher.model.errors import BinlogError, ErrorKind, UserError
from dispatcher.mysql.server_address import Login, password_of, refused_login_as_input


def _refuse(login: Login, kind: ErrorKind) -> None:
    with refused_login_as_input(login):
        raise BinlogError(kind, "server: refused", where="root@db1:3306")


def test_a_refused_login_says_that_no_password_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert password_of(Login(), "root", "db1") == ""
    with pytest.raises(UserError) as refused:
        _refuse(Login(), ErrorKind.ACCESS_DENIED)
    assert refused.value.what.endswith(
        "no password was given, and standard input is not a terminal"
    )
    assert "--password-file FILE" in refused.value.remedy
    assert refused.value.where == "root@db1:3306"


def test_a_refused_login_with_a_password_keeps_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    login = Login(password_file=tmp_path / "secret")
    assert password_of(login, "root", "db1") == "x"
    with pytest.raises(UserError) as refused:
        _refuse(login, ErrorKind.ACCESS_DENIED)
    assert str(refused.value) == str(
        BinlogError(ErrorKind.ACCESS_DENIED, "server: refused", where="root@db1:3306")
    )


def test_other_errors_of_the_server_are_no_input() -> None:
    with pytest.raises(BinlogError) as lost:
        _refuse(Login(), ErrorKind.CONNECTION_LOST)
    assert not isinstance(lost.value, UserError)
