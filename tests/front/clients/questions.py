"""The statements and commands that a client sends, from the server's general log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers import Server

Question = tuple[str, str]


@contextmanager
def asked(server: Server, user: str) -> Iterator[list[Question]]:
    """Fills the list, at the end of the block, with what the user's connections sent: (command, text), in order.

    The server needs `--log-output=TABLE`.
    """
    questions: list[Question] = []
    server.execute(
        "SET GLOBAL general_log = OFF", "TRUNCATE mysql.general_log", "SET GLOBAL general_log = ON"
    )
    try:
        yield questions
    finally:
        server.execute("SET GLOBAL general_log = OFF")
        rows = server.execute(
            "SELECT thread_id, command_type, CONVERT(argument USING utf8mb4) FROM mysql.general_log"
            f" WHERE user_host LIKE '%{user}%' ORDER BY event_time, thread_id"
        )
        numbers: dict[int, int] = {}
        for thread, command, text in rows:
            number = numbers.setdefault(thread, len(numbers) + 1)
            questions.append((f"{number} {command}", str(text)))


def distinct(questions: list[Question]) -> list[Question]:
    """Returns each question once, in the order of its first occurrence."""
    return list(dict.fromkeys(questions))


def markdown(name: str, questions: list[Question]) -> str:
    """Returns a table of the questions; the first column is the number of the connection."""
    lines = [f"### {name}", "", "| connection, command | text |", "|---|---|"]
    for command, text in distinct(questions):
        plain = " ".join(text.split()).replace("|", "\\|")
        lines.append(f"| {command} | `{plain}` |" if plain else f"| {command} | |")
    return "\n".join([*lines, ""])
