"""Words of statements: the lexer cuts them as the four servers do."""

# ruff: noqa: RUF001 - these characters are the subject

from __future__ import annotations

import random
from contextlib import closing

import pymysql
import pytest

from dispatcher.binlog.sql.lexer import SqlTokens
from dispatcher.binlog.sql.logged import LoggedStatement, SessionFacts
from dispatcher.binlog.sql.statement import parse_statement
from tests.servers import Server
from tests.support.commit_seed import commit_seed

TODAY = [
    *(
        "t€1",
        "u–2",
        "c\u00a03",
        "กขค",
        "หมู่บ้าน",
        "ข\u0e34ี",
        "हिन्दी",
        "表\u3000名",
        "a\u2028b",
        "（名）",
    ),
    *(
        "a\u200db",
        "e\u0301",
        "ındex",
        "taſk",
        "\ufeffx",
        "\u1680a",
        "a\u0085b",
        "٣",
        "x\ue000",
        "\uffff",
        "$a",
    ),
    *(
        "a$b",
        "_",
        "9a",
        "1e",
        "1ex",
        "0xg",
        "0x1g",
        "0X1",
        "0b2",
        "0b1x",
        "1_",
        "12a.b",
        "x'a",
        "a-b",
        "a#b",
    ),
    *(
        "1e5",
        "1e5x",
        "0x1f",
        "0b1",
        "1.5",
        ".5a",
        "5",
        "a\x1cb",
        "a\x0bb",
        "a\x7fb",
        "a b",
        "a😀b",
        "a\ufffdb",
    ),
    "\U00020000",
]
# One character of each class that some language or lexer treats in its own way.
_CLASSES = (
    "aZzİıſßéÿ", "09٣०", "$_", "\u0e01\u0e34\u0e35\u0e48", "\u0939\u093f\u094d", "\u00a0\u1680\u2003\u2028\u3000\u0085",
    "\u200b\u200c\u200d\ufeff", "\u0301\u0308", "–—−‐", "（）［］，．", "中文日本", "€£¥", "\ue000\uffff\ufffe",
    "\t\n\x0b\x0c\r \x1c\x1f\x7f", "`\"'", ".-#/*@", "exXbBN", "😀\ufffd",
)  # fmt: skip


def random_names(count: int) -> list[str]:
    source = random.Random(commit_seed())
    return [
        "".join(source.choice(source.choice(_CLASSES)) for _ in range(source.randint(1, 5)))
        for _ in range(count)
    ]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.mark.parametrize(
    "shape", ["CREATE TABLE {} (i INT)", "CREATE TABLE {}(i INT)", "CREATE TABLE `{}` (i INT)"]
)
def test_the_tables_that_a_statement_names_are_those_that_the_server_makes(
    any_server: Server, database_name: str, shape: str
) -> None:
    """A statement that the server accepts is either in doubt, or names exactly the table that the server has made."""
    wrong, made = list[tuple[object, ...]](), 0
    with closing(any_server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database_name}")
        try:
            cursor.execute(f"USE {database_name}")
            for name in [*TODAY, *random_names(500)]:
                query = shape.format(name)
                try:
                    cursor.execute(query)
                except (pymysql.MySQLError, UnicodeEncodeError):
                    continue  # no log contains it
                made += 1
                cursor.execute("SHOW TABLES")
                tables = [(database_name, row[0]) for row in cursor.fetchall()]
                parsed = parse_statement(LoggedStatement(query, database_name))
                if parsed.parsed and list(parsed.tables) != tables:
                    wrong.append((query, parsed.tables, tables))
                if not parsed.parsed and all("\ufffd" != c <= "\uffff" for c in query):
                    wrong.append((query, "not parsed", tables))
                for _, table in tables:
                    cursor.execute(f"DROP TABLE {quoted(table)}")
        finally:
            cursor.execute(f"DROP DATABASE {database_name}")
    assert wrong == []
    assert made > 60


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1e5x", ["number 1e5", "word x"]),
        ("1ex 0X1 0x1g 0b2", ["word 1ex", "word 0X1", "word 0x1g", "word 0b2"]),
        ("0x1f 0b01 12", ["number 0x1f", "number 0b01", "number 12"]),
        ("1.5NOT .5e-3 1.", ["number 1.5", "word NOT", "number .5e-3", "number 1."]),
        ("t.1 t.1e5 t .1 `t`.1a", ["word t", "sign .", "word 1", "word t", "sign .", "word 1e5", "word t", "number .1",
                                   "quoted `t`", "number .1", "word a"]),
        ("ındex t€1", ["word ındex", "word t€1"]),
        ("a😀 b", ["word a", "open 😀 b"]),
        ("--\u00a0a", ["sign -", "sign -", "word \u00a0a"]),
        ("-- a\n--\x7f b\n--", []),
        ("@a := 1", ["sign @", "word a", "sign :", "sign =", "number 1"]),
    ],
)  # fmt: skip
def test_words_and_numbers(text: str, tokens: list[str]) -> None:
    assert [f"{token.kind} {token.text}" for token in SqlTokens(LoggedStatement(text))] == tokens


def test_keywords_are_ascii() -> None:
    assert [token.keyword for token in SqlTokens(LoggedStatement("ındex ſet select"))] == [
        "ıNDEX",
        "ſET",
        "SELECT",
    ]


@pytest.mark.parametrize(
    ("charset", "names"), [("utf8mb4", True), ("latin1", False), ("cp1250", False)]
)
def test_a_no_break_space_is_a_blank_to_sessions_in_other_character_sets(
    mysql97: Server, database_name: str, charset: str, names: bool
) -> None:
    """MySQL executes `DROP TABLE t<no-break space>` of such a session as `DROP TABLE t`."""
    mysql97.execute(f"CREATE DATABASE {database_name}")
    with closing(mysql97.connect(database_name)) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.collations WHERE character_set_name = %s LIMIT 1",
            [charset],
        )
        ((collation,),) = cursor.fetchall()
        cursor.execute(f"SET character_set_client = {charset}")
        connection.encoding = "utf8" if names else "latin1"
        cursor.execute("CREATE TABLE t\u00a0 (i INT)")
        connection.encoding = "utf8"
        cursor.execute("SET character_set_client = utf8mb4")
        cursor.execute("SHOW TABLES")
        assert cursor.fetchall() == (("t\u00a0" if names else "t",),)
        cursor.execute(f"DROP DATABASE {database_name}")
    facts = SessionFacts(client=collation)
    parsed = parse_statement(LoggedStatement("CREATE TABLE t\u00a0 (i INT)", "d", facts))
    assert parsed.parsed is names
