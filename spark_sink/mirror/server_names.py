"""Converts the names of tables in the settings to the names by which the servers know these tables.

The mirror's log contains names as `dispatcher.model.names.folded_name` spells them. So names in the settings mean the
same tables on every server, unless they contain upper-case letters. If they do, the job asks the daemon for the
servers' `lower_case_table_names` before it starts: an `exclude` that matches no name in the log would not prevent the
mirroring of its table.
"""

from __future__ import annotations

import time
from contextlib import closing

from dispatcher.model.errors import ErrorKind, UserError
from spark_sink.long_work import long_work
from spark_sink.mirror.values.settings import MirrorSettings
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.http.endpoint import DaemonEndpoint

ASK_EVERY_S = 1.0


def with_server_names(settings: MirrorSettings) -> MirrorSettings:
    """Returns the settings with each name in the form that the server compares. Calls the daemon only if the settings
    name a table in upper case, and then waits until the daemon has read the server, for at most
    `retry_timeout_seconds`.

    Raises `BinlogError` if the daemon does not answer or refuses the consumer. Raises `UserError` if the daemon does
    not know the server's value in time, or if the servers' values give one pattern two meanings.
    """
    if not settings.names_in_upper_case():
        return settings
    with long_work("asking the daemon how the server compares names"):
        values = {consumer: _value(settings, consumer) for consumer in settings.consumers}
    return settings.with_server_names(values)


def _value(settings: MirrorSettings, consumer: str) -> int:
    endpoint = DaemonEndpoint(
        settings.url,
        "" if settings.token is None else settings.token.get_secret_value(),
        str(settings.token_file or ""),
        str(settings.ca_file or ""),
        retry_timeout_s=settings.retry_timeout_seconds,
    )
    until = time.monotonic() + settings.retry_timeout_seconds
    with closing(ConsumerClient(endpoint, consumer)) as client:
        while True:
            value = client.open_session(None, read_only=True).lower_case_table_names
            if value is not None:
                return value
            if time.monotonic() >= until:
                raise _not_known(settings, consumer)
            time.sleep(ASK_EVERY_S)


def _not_known(settings: MirrorSettings, consumer: str) -> UserError:
    return UserError(
        ErrorKind.SETTINGS,
        f"the settings name {', '.join(settings.names_in_upper_case())}, and the daemon does not know yet whether the"
        " server distinguishes upper and lower case (lower_case_table_names)",
        where=f"consumer {consumer}",
        remedy="start the job when the daemon reads the server, or write the names in lower case if the server ignores"
        " case",
    )
