"""Asks the front and a server the same questions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pymysql
from pymysql.converters import escape_bool, escape_string

from dispatcher.front.questions.answer import LookUp, ResultSet, Who
from dispatcher.front.questions.answers import answer_to
from dispatcher.front.questions.parse import parse_question
from dispatcher.front.questions.variables import Variables
from dispatcher.front.wire.errors import WireError
from dispatcher.model.errors import BinlogError
from dispatcher.model.server_picture import Picture
from dispatcher.model.subscription import Subscription
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import number_of
from dispatcher.source.mysql.front_answers import read_look_up, read_picture
from tests.servers.server import Server

Answered = tuple[list[str], list[tuple[str | None, ...]]] | int
"""The names of the columns, and the rows; or the number of an error."""
TEXTS: dict[Any, Any] = {str: escape_string, bool: escape_bool}  # no conversion of values


class Front:
    """Questions of one connection, answered over the daemon's connection to a server."""

    def __init__(
        self,
        connection: Connection,
        databases: Sequence[str],
        *,
        database: str = "",
        tables: Sequence[tuple[str, str]] | None = None,
        tls: str = "",
    ) -> None:
        self.connection = connection
        self.picture: Picture = read_picture(connection)
        self.variables = Variables(database=database, mariadb=self.picture.mariadb)
        self.who = Who(
            "reader", "app", "127.0.0.1", 7, Subscription(databases, tables), 1_795_000_000, tls
        )
        self.statements: list[str] = []  # that the server was asked

    def ask(self, sql: str) -> Answered:
        try:
            return self._answer(sql)
        except WireError as error:
            return error.number

    def _answer(self, sql: str) -> Answered:
        question = parse_question(sql, self.variables)
        answer = answer_to(question, self.picture, self.variables, self.who)
        if isinstance(answer, LookUp):
            self.statements.append(answer.statement)
            try:
                table = read_look_up(self.connection, answer.statement)
            except BinlogError as error:
                raise answer.refusal(number_of(error)) from error
            answer = answer.result(table)
        if not isinstance(answer, ResultSet):
            return [], []
        rows = [tuple(None if cell is None else str(cell) for cell in row) for row in answer.rows]
        return [column.name for column in answer.columns], rows


class Direct:
    """Questions of one connection to the server itself."""

    def __init__(self, server: Server, database: str = "") -> None:
        self.connection = server.connect(database or None, conv=TEXTS)

    def ask(self, sql: str) -> Answered:
        with closing(self.connection.cursor()) as cursor:
            try:
                cursor.execute(sql)
            except pymysql.Error as error:
                return int(error.args[0])
            names = [str(column[0]) for column in cursor.description or ()]
            return names, [tuple(row) for row in cursor.fetchall()]

    def close(self) -> None:
        self.connection.close()
