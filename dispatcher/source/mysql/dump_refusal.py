"""Asks a server whether it accepts a dump that a client of the front asks for.

The daemon sends the client's request to the server as a separate dump, and ends this dump at the first event of the
log. So the client gets the server's own answer if the server has purged the place or never had it, or if no event
begins there. The functions here block.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import chain

import pymysql

from dispatcher.binlog.event.header import EventHeader, parse_format_description
from dispatcher.binlog.event.types import EventType
from dispatcher.model.asked_dump import AskedDump, DumpRefusal
from dispatcher.model.errors import BinlogError, ErrorKind
from dispatcher.mysql.driver import Connection
from dispatcher.mysql.error_map import FATAL_READING_LOG, STATE_OF_SERVER, number_of
from dispatcher.mysql.replication_commands import (
    Identity,
    ask_by_domains,
    ask_by_file,
    ask_by_gtids,
    introduce,
)
from dispatcher.mysql.server_facts import is_mariadb, server_version
from dispatcher.source.mysql.blocking_dump import BlockingDump
from dispatcher.source.start_search import is_made_for_dump, is_whole_event

_MALFORMED_STATE = 1941  # ER_INCORRECT_GTID_STATE of MariaDB
# The refusal of a place at which no event begins, although the bytes there form a valid header, as bytes of a row can.
# Not every server compares the header's position with the place.
_NOT_AN_EVENT = "bogus data in log event; no event begins at {file}:{offset}"


def refusal_of(connection: Connection, asked: AskedDump, label: str) -> DumpRefusal | None:
    """Return the server's refusal of the dump; None if the server accepts it. The connection cannot be used afterwards.

    Raises BinlogError if the server does not answer, or refuses for a reason other than the request itself.
    """
    mariadb = is_mariadb(server_version(connection))
    identity = Identity.for_once()
    introduce(connection, identity, mariadb=mariadb, checksum=True)
    if asked.gtids is not None:
        ask_by_gtids(connection, identity, asked.gtids.encode(), follow=False)
    elif asked.state is not None:
        ask_by_domains(connection, identity, asked.state, strict=asked.strict, follow=False)
    else:
        ask_by_file(connection, identity, asked.file, asked.offset, mariadb=mariadb, follow=False)
    try:
        with closing(BlockingDump(connection, label).events()) as events:
            return _first_answer(chain.from_iterable(events), asked)
    except BinlogError as error:
        refusal = _refusal(error)
        if refusal is None:
            raise
        return refusal


def _first_answer(events: Iterator[bytes], asked: AskedDump) -> DumpRefusal | None:
    """Judge a dump by its first event of the log. Raises BinlogError if the server refuses the dump."""
    files, checksum = 0, True
    for event in events:
        header = EventHeader.read(event)
        is_made = is_made_for_dump(header)
        files += is_made and header.type == EventType.ROTATE
        # If the server refuses a dump by GTID, it sends no event.
        if asked.by_gtid or files > 1:
            return None
        if header.type == EventType.FORMAT_DESCRIPTION:
            checksum = parse_format_description(event).checksum
        if not is_made:
            if is_whole_event(event, asked.offset, checksum=checksum):
                return None
            text = _NOT_AN_EVENT.format(file=asked.file, offset=asked.offset)
            return DumpRefusal(FATAL_READING_LOG, text)
    return None  # the log ends at the place


def _refusal(error: BinlogError) -> DumpRefusal | None:
    """Return the server's refusal of the request; None for any other error."""
    number, cause = number_of(error), error.__cause__
    if number == _MALFORMED_STATE or (
        number == FATAL_READING_LOG
        and error.kind is not ErrorKind.DUPLICATE_SERVER_UUID
        and not any(text in error.what.lower() for text in STATE_OF_SERVER)
    ):
        assert isinstance(cause, pymysql.Error)
        return DumpRefusal(number, str(cause.args[1]))
    return None
