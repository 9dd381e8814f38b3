"""Checks that an executor's host has what the mirror needs: this package, the target's folder, the daemon and the
server.

Runs in a Python worker of the executor. Before this, the driver has connected to the daemon and the server from its own
host. The executors check only what the driver itself can reach. So if a check fails, the cause is the executor's host.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from dispatcher.model.errors import BinlogError, ErrorKind
from spark_sink.mirror.lake.data_file import require_folder
from spark_sink.source.http.client import ConsumerClient
from spark_sink.source.http.endpoint import DaemonEndpoint

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_sink.mirror.copy.server import CopyServer

RESULT = "host string, what string, place string, remedy string"
_RETRY_S = 5.0
_DISTRIBUTION = "binlog-dispatcher"


@dataclass(frozen=True, slots=True)
class HostNeeds:
    """What each host of an executor must have.

    `version`: the version of this package, "" if it is not installed as a package; `mark`: a file in the target that
    the driver has made, None if the target is not on a local file system; `daemon`, `server`: None if the driver does
    not reach the daemon or the server. `server` contains the database password. The password reaches the executors only
    inside the serialized `check_hosts` function.
    """

    version: str
    mark: str | None
    daemon: DaemonEndpoint | None
    consumer: str
    server: CopyServer | None


def package_version() -> str:
    """Returns the version of this package, "" if it is not installed as a package."""
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def check_hosts(needs: HostNeeds, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the name of this host and its first fault; without a fault, the fault's texts are empty. Runs on the
    executors."""
    import pyarrow as pa  # noqa: PLC0415

    for _ in numbers:
        fault = host_fault(needs)
        texts = ("", "", "") if fault is None else (fault.what, fault.where, fault.remedy)
        names = ("host", "what", "place", "remedy")
        yield pa.RecordBatch.from_pydict(
            {name: [text] for name, text in zip(names, (socket.gethostname(), *texts), strict=True)}
        )


def host_fault(needs: HostNeeds) -> BinlogError | None:
    """Returns the first fault of this host; None if the host has everything that it needs."""
    try:
        _check_version(needs.version)
        if needs.mark is not None:
            _check_folder(needs.mark)
        if needs.daemon is not None:
            reach_daemon(needs.daemon, needs.consumer)
        if needs.server is not None:
            reach_server(needs.server)
    except BinlogError as fault:
        return fault
    return None


def _check_version(expected: str) -> None:
    own = package_version()
    if own != expected:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"the Python of an executor has version {own or 'unknown'} of {_DISTRIBUTION}, the driver's has"
            f" {expected or 'unknown'}",
            remedy="install the same wheel on the driver and on the hosts of all executors",
        )


def _check_folder(mark: str) -> None:
    folder = Path(mark).parent
    require_folder(str(folder))
    if not Path(mark).is_file():
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"an executor has a folder {folder} of its own, which is not the driver's",
            remedy="mount one shared file system there on the driver and on the hosts of all executors, or give the"
            " mirror a target on a file system that all of them reach, such as hdfs:// or s3a://",
        )
    own = Path(f"{mark}.{socket.gethostname()}.{os.getpid()}")
    try:
        own.touch(exist_ok=False)
        own.unlink()
    except OSError as error:
        raise BinlogError(
            ErrorKind.SETTINGS,
            f"an executor cannot write into {folder}: {error.strerror}",
            remedy="run the driver and the executors as one user, or let both write the target",
        ) from None


def reach_daemon(daemon: DaemonEndpoint, consumer: str) -> None:
    """Raises `BinlogError` if the daemon does not answer, or refuses this reader. The check fences no session."""
    client = ConsumerClient(replace(daemon, retry_timeout_s=_RETRY_S), consumer)
    try:
        client.open_session(None, read_only=True)
    except BinlogError as error:
        what, remedy = f"the daemon: {error.what}", error.remedy
        if error.kind is ErrorKind.CONNECT_FAILED:
            what = error.what  # names the daemon
            remedy = "set url to an address that the hosts of all executors reach; 127.0.0.1 is each host itself"
        raise BinlogError(error.kind, what, where=error.where, remedy=remedy) from None
    finally:
        client.close()


def reach_server(server: CopyServer) -> None:
    """Raises `BinlogError` if this host cannot log in to the server that copies read."""
    try:
        with server.session():
            pass
    except BinlogError as error:
        raise error.at("copy.mysql") from None
