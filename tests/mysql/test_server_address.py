from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from dispatcher.mysql.server_address import Login, password_of


def test_without_a_terminal_a_missing_password_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert password_of(Login(), "root", "db1") == ""
    said = capsys.readouterr().err
    assert "logging in as root without a password" in said and "--password-file FILE" in said
    (tmp_path / "secret").write_text("x\n")
    assert password_of(Login(password_file=tmp_path / "secret"), "root", "db1") == "x"
    assert capsys.readouterr().err == ""
