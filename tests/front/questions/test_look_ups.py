"""Which statements reach the server, whatever a client asks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.front.questions.answer import LookUp, Ok, ResultSet
from dispatcher.front.questions.answers import answer_to
from dispatcher.front.questions.look_ups import hexadecimal, quoted
from dispatcher.front.questions.parse import parse_question
from dispatcher.front.questions.variables import Variables
from dispatcher.front.wire.errors import WireError
from tests.front.questions.hostile import HOSTILE, IMPOSSIBLE, STATEMENT, client_quoted
from tests.front.questions.made_picture import mariadb, picture, who
from tests.front.questions.recorded import RECORDINGS


def everything() -> Variables:
    return Variables(database="shop")


def asked(sql: str, databases: tuple[str, ...] = ("*",)) -> LookUp | ResultSet | Ok:
    variables = everything()
    return answer_to(parse_question(sql, variables), picture(), variables, who(databases))


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    for sql in (
        f"SHOW CREATE TABLE {quoted(name)}.{quoted(name)}",
        f"SHOW FULL COLUMNS FROM {quoted(name)} FROM {quoted(name)}",
        f"SHOW TABLES FROM {quoted(name)} LIKE {client_quoted(name)}",
        f"SHOW DATABASES LIKE {client_quoted(name)}",
        f"SELECT column_name AS {quoted(name)} FROM information_schema.columns WHERE table_schema ="
        f" {client_quoted(name)} AND table_name IN ({client_quoted(name)}, 'b') AND data_type = {client_quoted(name)}",
    ):
        look_up = asked(sql)
        assert isinstance(look_up, LookUp), sql
        assert STATEMENT.fullmatch(look_up.statement), look_up.statement


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_names_that_no_server_has(name: str) -> None:
    for sql in (
        f"SHOW CREATE TABLE shop.{quoted(name)}",
        f"DESCRIBE {quoted(name)}.items",
        f"SHOW TABLES FROM {quoted(name)}",
    ):
        with pytest.raises(WireError) as caught:
            asked(sql)
        assert caught.value.number in (1046, 1049, 1146)
    if name:
        columns = "SELECT column_name FROM information_schema.columns WHERE table_schema = "
        assert isinstance(asked(columns + client_quoted(name)), ResultSet)


def test_a_question_about_all_databases_is_refused() -> None:
    with pytest.raises(WireError):
        asked("SELECT column_name FROM information_schema.columns")
    with pytest.raises(WireError):
        asked("SELECT column_name FROM information_schema.columns WHERE table_name = 'items'")
    with pytest.raises(WireError):
        asked("SELECT table_name FROM information_schema.tables WHERE table_type = 'a'")


_STATEMENTS = sorted({sql for recording in RECORDINGS for sql in recording.statements})
_PIECES = st.sampled_from(
    [
        "SELECT", "SHOW", "SET", "FROM", "WHERE", "LIKE", "IN", "(", ")", ",", ";", "=", "@", "@@", "global.",
        "session.", "'", '"', "`", "\\", "/*", "*/", "/*!", "-- ", "#", "\0", "\n", "information_schema", ".columns",
        "table_schema", "TABLES", "COLUMNS", "CREATE TABLE", "items", "shop", "1", "NULL", "-", ".", "AS", "LIMIT",
        "ORDER BY", "AND", "OR", "NOT", "version()", "binlog_gtid_pos('binlog.000001',", "concat(", "?", "NAMES",
        "DEFAULT", ":=", "é",
    ]
)  # fmt: skip


@given(
    st.one_of(
        st.text(max_size=60),
        st.lists(st.one_of(_PIECES, st.text(max_size=3)), max_size=25).map(" ".join),
        st.tuples(
            st.sampled_from(_STATEMENTS), st.integers(0, 400), _PIECES, st.integers(0, 5)
        ).map(lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + cut[3] :]),
    ),
    st.booleans(),
)
def test_any_text_is_answered_or_refused(sql: str, is_mariadb: bool) -> None:
    """Each statement that the front sends to the server has one of the known forms."""
    variables = Variables(database="shop", mariadb=is_mariadb)
    of = mariadb() if is_mariadb else picture()
    try:
        answer = answer_to(parse_question(sql, variables), of, variables, who(("*",)))
    except WireError:
        return
    if isinstance(answer, LookUp):
        assert STATEMENT.fullmatch(answer.statement), answer.statement


@given(st.text(max_size=70))
def test_quoting_is_reversible(text: str) -> None:
    assert quoted(text)[1:-1].replace("``", "`") == text
    if not re.search("[\ud800-\udfff]", text):
        assert bytes.fromhex(hexadecimal(text).split("'")[1]).decode() == text
