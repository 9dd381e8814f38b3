"""The conversation with one client after its login: its questions, its registration as a replica, and its dump."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dispatcher.front.connections import Connected, Connections
from dispatcher.front.daemon_errors import wire_error
from dispatcher.front.dump.request import DumpRequest, parse_dump, parse_register
from dispatcher.front.interfaces import GetConsumers
from dispatcher.front.questions.answer import (
    Answer,
    LookUp,
    Ok,
    ResultSet,
    Who,
    joined_answer,
    result_set,
)
from dispatcher.front.questions.answers import answer_to, check_database
from dispatcher.front.questions.parse import parse_question
from dispatcher.front.questions.question import Kill, Question, ShowReplicas
from dispatcher.front.questions.refusals import question_too_large, unknown_thread
from dispatcher.front.questions.variables import VariableMemory, Variables
from dispatcher.front.served_dump import ServedDump
from dispatcher.front.turns import UNITS_PER_ROW, Asker, ServerTurns, Turn, Turns
from dispatcher.front.wire.channel import Channel
from dispatcher.front.wire.errors import WireError, error_packet, unknown_command
from dispatcher.front.wire.login import FrontLogin
from dispatcher.front.wire.packets import Command
from dispatcher.front.wire.result_set import eof_packet, ok_packet, text_result_set
from dispatcher.model.errors import BinlogError
from dispatcher.model.server_picture import Picture, ServerAnswer
from dispatcher.mysql.error_map import number_of
from dispatcher.settings.front import FrontSettings

COMMAND_BYTES_MAX = 1 << 20
QUESTION_BYTES_MAX = 32 << 10
_SLICE_ROWS = 256  # how many rows of an answer the front computes, or encodes, before it counts these rows as work
IDLE_S = 8 * 3600.0
"""How long a client may send no command before the front disconnects it, like MySQL's `wait_timeout`."""
_STATISTICS = b"binlog-dispatcher"
# Among the clients of MariaDB that register, only replicas that read by file call this function. Source: MariaDB,
# sql/slave.cc, get_master_version_and_clock.
_OF_FILE_REPLICA = b"binlog_gtid_pos"
_DUMPS = (Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID)


@dataclass(frozen=True, slots=True)
class FrontServices:
    """The objects that all connections of the front share."""

    consumers: GetConsumers
    settings: FrontSettings
    connections: Connections
    turns: Turns = field(default_factory=Turns)
    server_turns: ServerTurns = field(default_factory=ServerTurns)
    memory: VariableMemory = field(default_factory=VariableMemory)


class ClientSession:
    """Serves one client."""

    def __init__(self, channel: Channel, login: FrontLogin, services: FrontServices) -> None:
        self._channel = channel
        self._login = login
        self._services = services
        self._consumers = services.consumers
        self._name = login.user
        self._asker = Asker(login.secret, login.user)
        self._variables = self._new_variables()
        self._connected = Connected(login, channel.close)
        self._asked_for_gtids = False

    async def run(self) -> None:
        """Serve the client until it leaves. Raises WireError for an error that ends the connection."""
        connections = self._services.connections
        connections.add(self._connected)
        try:
            if self._login.database:
                await self._use(self._login.database)
            while True:
                payload = await self._channel.read_command(COMMAND_BYTES_MAX, IDLE_S)
                code, argument = (payload[0], payload[1:]) if payload else (0, b"")
                if code == Command.QUIT:
                    return
                if code in _DUMPS:
                    async with self._services.turns.turn(self._asker):
                        request = parse_dump(code, argument)
                    await self._dump(request)
                    return
                payloads = await self._answer(code, argument)
                for part, _, ends in _slices(payloads):
                    self._channel.send(part)
                    await self._channel.drain(self._services.settings.write_timeout_seconds)
                    if not ends:
                        await asyncio.sleep(0)  # `drain` does not wait for a fast client
        except BinlogError as error:
            raise wire_error(error) from None
        finally:
            self._variables.clear()
            connections.remove(self._connected)

    def _new_variables(self) -> Variables:
        return Variables(self._login.charset, memory=self._services.memory)

    # -- questions -------------------------------------------------------------------------------------------

    async def _answer(self, code: int, argument: bytes) -> list[bytes]:
        """Return the payloads that answer a command."""
        try:
            return await self._answer_command(code, argument)
        except BinlogError as error:
            return [error_packet(wire_error(error), self._login.capabilities)]
        except WireError as error:
            return [error_packet(error, self._login.capabilities)]

    async def _answer_command(self, code: int, argument: bytes) -> list[bytes]:
        match code:
            case Command.QUERY:
                return await self._answer_question(argument)
            case Command.PING:
                return [ok_packet()]
            case Command.SET_OPTION:
                return [eof_packet()]
            case Command.INIT_DB:
                await self._use(argument.decode("utf-8", "replace"))
                return [ok_packet()]
            case Command.STATISTICS:
                return [_STATISTICS]
            case Command.RESET_CONNECTION:
                self._variables.clear()
                self._variables = self._new_variables()
                return [ok_packet()]
            case Command.REGISTER_SLAVE:
                self._connected.registration = parse_register(argument)
                self._connected.uuid = self._variables.replica_uuid
                return [ok_packet()]
        raise unknown_command()

    async def _answer_question(self, argument: bytes) -> list[bytes]:
        picture = await self._picture()
        self._asked_for_gtids |= _OF_FILE_REPLICA in argument.lower()
        if len(argument) > QUESTION_BYTES_MAX:
            raise question_too_large(QUESTION_BYTES_MAX)
        async with self._services.turns.turn(self._asker) as turn:
            question = parse_question(argument.decode("utf-8", "replace"), self._variables)
            await turn.spend(len(argument))
            answer = self._own_answer(question)
            if answer is None:
                answer = answer_to(question, picture, self._variables, self._who())
            if not isinstance(answer, LookUp):
                await turn.spend(len(argument))
                return await self._encoded(answer, turn)
        found = await self._look_up(answer)
        async with self._services.turns.turn(self._asker) as turn:
            parts = []
            for rows, _, _ in _slices(found.rows):
                parts.append(answer.result(ServerAnswer(found.columns, rows)))
                await turn.spend(len(rows) * UNITS_PER_ROW)
            return await self._encoded(joined_answer(parts), turn)

    async def _encoded(self, answer: ResultSet | Ok, turn: Turn) -> list[bytes]:
        if isinstance(answer, Ok):
            return [ok_packet()]
        payloads = []
        capabilities = self._login.capabilities
        for rows, begins, ends in _slices(answer.rows):
            payloads += text_result_set(
                answer.columns, rows, capabilities, begins=begins, ends=ends
            )
            await turn.spend(len(rows) * UNITS_PER_ROW)
        return payloads

    def _own_answer(self, question: Question) -> Answer | None:
        """Answer a question about the front's own connections. Returns None for a question about anything else."""
        if isinstance(question, Kill):
            killed = self._services.connections.kill(question.connection_id, self._name)
            if not killed:
                raise unknown_thread(question.connection_id)
            return Ok()
        if isinstance(question, ShowReplicas):
            empty = answer_to(question, self._shown, self._variables, self._who())
            assert isinstance(empty, ResultSet)
            return self._replicas(empty)
        return None

    def _replicas(self, empty: ResultSet) -> ResultSet:
        rows = []
        for client in self._services.connections.of(self._name):
            if (registration := client.registration) is not None:
                source = self._shown.server_id
                row = registration.server_id, registration.host, registration.port, source
                rows.append((*row, client.uuid)[: len(empty.columns)])
        return result_set([column.name for column in empty.columns], rows)

    async def _look_up(self, asked: LookUp) -> ServerAnswer:
        """Return the server's answer. Raises WireError if the server refuses the statement."""
        try:
            async with self._services.server_turns.turn(self._asker):
                return await self._consumers().look_up(self._name, asked.statement)
        except BinlogError as error:
            if number := number_of(error):
                raise asked.refusal(number) from None
            raise

    async def _picture(self) -> Picture:
        self._shown = picture = await self._consumers().picture(self._name)
        self._variables.mariadb = picture.mariadb
        return picture

    def _who(self) -> Who:
        login = self._login
        return Who(
            self._name,
            login.user,
            login.host,
            login.connection_id,
            self._consumers().subscription(self._name),
            int(time.time()),
        )

    async def _use(self, database: str) -> None:
        """Make a database the connection's default. Raises WireError for a database that the consumer does not read."""
        check_database(database, await self._picture(), self._who())
        self._variables.database = database

    # -- the dump --------------------------------------------------------------------------------------------

    async def _dump(self, request: DumpRequest) -> None:
        dump = ServedDump(
            self._channel,
            self._login,
            self._consumers,
            self._services.settings,
            self._variables,
            await self._picture(),
            is_mariadb_replica=self._asked_for_gtids and self._connected.registration is not None,
        )
        async with self._services.server_turns.turn(self._asker):
            await dump.admit(request)
        await dump.serve(request)


T = TypeVar("T")


def _slices(items: Sequence[T]) -> Iterator[tuple[tuple[T, ...], bool, bool]]:
    """Yield items in slices of _SLICE_ROWS. With each slice, yield True if it is the first one, and True if it is the
    last one. If there are no items, yield one empty slice."""
    for begin in range(0, len(items) or 1, _SLICE_ROWS):
        end = begin + _SLICE_ROWS
        yield tuple(items[begin:end]), begin == 0, end >= len(items)
