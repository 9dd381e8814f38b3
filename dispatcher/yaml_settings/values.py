"""Parses the values of settings: sizes, numbers, timestamps, addresses, files and secrets.

A function that cannot parse a value raises ValueError. The message says what was expected, and never repeats a value
that may be a secret.
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, SecretStr

from dispatcher.model.sizes import nearest_size, size_in_bytes


class WrittenAs(NamedTuple):
    """Metadata of a type: what a person writes into the settings."""

    kind: str


_HOST_PORT = re.compile(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\[\],\s/@]*))(?::(?P<port>[^:]*))?\Z")
PORT_RANGE = "the port must be between 1 and 65535"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_bytes(value: Any) -> int:
    """Returns the number of bytes of a size such as 4096, 64MiB or "1 MB". KB means 1000 bytes and KiB 1024 bytes; K
    alone is ambiguous, so it is refused."""
    if isinstance(value, str) and (size := size_in_bytes(value)) is not None:
        return size
    hint = nearest_size(value) if isinstance(value, str) else ""
    return parse_whole_number(value, "a number of bytes like 4096, 64MiB or 1 MB", hint)


def parse_whole_number(value: Any, expected: str = "a whole number", hint: str = "") -> int:
    if isinstance(value, str) and re.fullmatch(r"-?\d+", value.strip()):
        return int(value)
    # bool is a subclass of int, but YAML's true is not 1.
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"expected {expected}, not {value!r}{hint}")


def parse_timestamp(value: Any) -> int:
    """Converts ISO 8601 to microseconds since 1970. A time without an offset is UTC; a date without a time is
    midnight."""
    expected = "expected a time like 2026-11-21T12:00:00Z, in 1970 or later"
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise ValueError(expected) from None
    if not isinstance(value, datetime):
        raise ValueError(expected)
    try:
        since = value.replace(tzinfo=value.tzinfo or UTC) - _EPOCH
    except OverflowError:
        raise ValueError(expected) from None
    if since < timedelta():
        raise ValueError(expected)
    return since // timedelta(microseconds=1)


def is_loopback(host: str) -> bool:
    """True if `host` is localhost or a loopback IP address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_of(header: str) -> str:
    """The host of a Host header, without port and brackets; "" if the header is invalid."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def split_host_port(text: str, default_port: int) -> tuple[str, int]:
    """Returns the host in lower case, and the port; port 0 is accepted. Raises ValueError."""
    match = _HOST_PORT.match(text)
    if match is None:
        address = text.count(":") > 1
        also = "; write IPv6 addresses like [::1]:3306" if address else f" like db1:{default_port}"
        raise ValueError(f"expected host:port{also}")
    host, port = match["v6"] or match["host"], match["port"]
    if not host:
        raise ValueError(f"the host is missing; expected host:port like 127.0.0.1:{default_port}")
    if port is None:
        return host.lower(), default_port
    if not re.fullmatch(r"[0-9]+", port):
        raise ValueError(f"the port must be a number, not {port!r}")
    if len(port) > 5 or int(port) > 65535:
        raise ValueError(PORT_RANGE)
    return host.lower(), int(port)


def _read_secret(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a file name")
    try:
        return Path(value).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"cannot read the file {value}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the file {value} is not UTF-8 text") from None


def _readable(path: Path) -> Path:
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"cannot read the file {path}: {error.strerror}") from None
    return path


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    for n, name in enumerate(names):
        if not name:
            raise ValueError("contains an empty name")
        if name in names[:n]:
            raise ValueError(f"{name!r} is listed twice")
    return names


ByteSize = Annotated[int, BeforeValidator(parse_bytes), WrittenAs("size")]
WholeNumber = Annotated[int, BeforeValidator(parse_whole_number)]
# The content of the file.
SecretFile = Annotated[SecretStr, BeforeValidator(_read_secret), WrittenAs("file name")]
ReadableFile = Annotated[Path, AfterValidator(_readable)]
NameList = Annotated[tuple[str, ...], AfterValidator(_distinct)]
