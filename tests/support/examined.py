"""Examines several hosts, and returns the findings as lists of errors."""

from __future__ import annotations

from collections.abc import Sequence

from dispatcher.model.errors import BinlogError
from dispatcher.mysql.login import Endpoint, connect
from dispatcher.mysql.server_settings import examine


def examine_hosts(
    endpoints: Sequence[Endpoint], databases: Sequence[str] = ()
) -> list[tuple[str, BinlogError]]:
    """Returns the findings of each host, with its label. If a host cannot be asked, that error is its finding."""
    errors_by_host: list[tuple[str, BinlogError]] = []
    for endpoint in endpoints:
        try:
            connection = connect(endpoint)
            try:
                errors = examine(connection, databases, several=len(endpoints) > 1)
            finally:
                connection.close()
        except BinlogError as error:
            errors = [error]
        errors_by_host += [(endpoint.label, error) for error in errors]
    return errors_by_host
