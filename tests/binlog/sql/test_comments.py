"""Comments that servers execute by kind and version. `test_comments_servers` compares the rules with the servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.binlog.event.header import FormatDescription
from dispatcher.binlog.sql.comments import COMMENTS_MAX, ServerVersion, executed_text
from dispatcher.binlog.sql.lexer import ANSI_QUOTES, NO_BACKSLASH_ESCAPES, SqlTokens
from tests.support.statements import as_logged

MYSQL56, MYSQL80 = ServerVersion(number=50624), ServerVersion(number=80034)
MYSQL97, MARIADB = ServerVersion(number=90704), ServerVersion(mariadb=True, number=101118)


def words(query: str, server: ServerVersion = MYSQL97, sql_mode: int = 0) -> str:
    tokens = SqlTokens(as_logged(executed_text(query, sql_mode, server), sql_mode=sql_mode))
    text = " ".join(token.text for token in tokens)
    return text if tokens.complete else "not understood"


@pytest.mark.parametrize(
    ("query", "server", "executed"),
    [
        ("a /*! b */ c", MYSQL97, "a b c"),
        ("a /*! b */ c", MARIADB, "a b c"),
        ("a /*M! b */ c", MYSQL97, "a c"),
        ("a /*M! b */ c", MARIADB, "a b c"),
        ("a /*M!100000 b */ c", MYSQL97, "a c"),
        ("a /*M!100000 b */ c", MARIADB, "a b c"),
        ("a /*M!50700 b */ c", MARIADB, "a b c"),
        ("a /*M!110000 b */ c", MARIADB, "a c"),
        ("a /*!50624 b */ c", MYSQL56, "a b c"),
        ("a /*!50625 b */ c", MYSQL56, "a c"),
        ("a /*!50699 b */ c", MARIADB, "a b c"),
        ("a /*!50700 b */ c", MARIADB, "a c"),
        ("a /*!99999 b */ c", MARIADB, "a c"),
        ("a /*!100000 b */ c", MARIADB, "a b c"),
        ("a /*!100000 b */ c", MYSQL97, "a c"),
        ("a /*!090704 b */ c", MYSQL97, "a b c"),
        ("a /*!090704 b */ c", MYSQL56, "a 4 b c"),
        ("a /*!090704 b */ c", MYSQL80, "not understood"),
        ("a /*!5000 b */ c", MYSQL97, "a 5000 b c"),
        ("a /*!99999 b /* d */ e */ c", MYSQL97, "a c"),
        ("a /*!40000 b /* d */ e */ c", MYSQL97, "a b e c"),
        ("a /*M! b /* d */ c", MYSQL97, "a c"),
        ("a '/*! b */' c", MYSQL97, "a '/*! b */' c"),
        ("a /* /*! b */ c", MYSQL97, "a c"),
        ("a # /*! b */\n c", MYSQL97, "a c"),
        ("a /*! b '*/' d */ c", MYSQL97, "a b '*/' d c"),
        ("a /*99999 b */ c", MYSQL97, "a c"),
    ],
)
def test_what_a_server_executes(query: str, server: ServerVersion, executed: str) -> None:
    assert words(query, server) == executed


def test_quotes_are_those_of_the_sql_mode() -> None:
    assert words("'\\' /*M! b */", sql_mode=NO_BACKSLASH_ESCAPES) == "'\\'"
    assert words('"\\" /*M! b */', sql_mode=ANSI_QUOTES) == '"\\"'


@pytest.mark.parametrize(
    "query", ["a /*! b */", "a /*M!100000 b */", "a /*!99999 b", "x /*", "DROP /*!40005 TEMPORARY */ TABLE t"]
)  # fmt: skip
def test_a_comment_that_nobody_resolved_is_not_understood(query: str) -> None:
    tokens = SqlTokens(as_logged(query))
    list(tokens)
    assert tokens.complete is ("/*!" not in query and "/*M!" not in query)


def test_many_comments_are_not_understood() -> None:
    assert words("a" + "/*!*/" * (COMMENTS_MAX // 2 - 1)) == "a"
    assert words("a" + "/*!*/" * COMMENTS_MAX) == "not understood"


@given(
    st.text("/*!M 5'\"`#-\n\\0x", max_size=40),
    st.sampled_from([0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES]),
)
def test_the_length_stays(query: str, sql_mode: int) -> None:
    for server in (MYSQL56, MYSQL97, MARIADB):
        assert len(executed_text(query, sql_mode, server)) == len(query)


@pytest.mark.parametrize(
    ("version", "mariadb", "expected"),
    [
        ("9.7.4-2", False, ServerVersion(number=90704)),
        ("5.6.24-log", False, MYSQL56),
        ("10.11.18-MariaDB-0+deb12u1-log", True, MARIADB),
        ("unknown", False, ServerVersion()),
    ],
)
def test_the_version_of_a_log(version: str, mariadb: bool, expected: ServerVersion) -> None:
    assert ServerVersion.of(FormatDescription(b"", version, 0, True, mariadb)) == expected
