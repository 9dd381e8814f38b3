"""The address of a daemon, and how to authenticate there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from dispatcher.model.errors import ErrorKind, UserError


@dataclass(frozen=True, slots=True)
class DaemonEndpoint:
    """Where the daemon listens, and how to authenticate. Picklable, since it is sent to the executors.

    `token_file` is read for every request, so a rotated token needs no restart; the file must exist wherever the client
    runs. `repr` hides the token.
    """

    url: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    ca_file: str = ""
    timeout_s: float = 60.0
    retry_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        is_http = parts.scheme in ("http", "https") and parts.hostname
        if not is_http or parts.query or parts.fragment:
            raise UserError(
                ErrorKind.SETTINGS,
                f"not the address of a daemon: {self.url!r}",
                remedy="write it like http://host:8085",
            )
        if parts.username or parts.password:
            raise UserError(
                ErrorKind.SETTINGS,
                f"the address of {parts.hostname} holds a user or a password",
                remedy="leave them out; set the option token or tokenFile if the daemon asks for a token",
            )

    def bearer(self) -> str:
        """Returns the token to send, or "". Raises `UserError` if the file cannot be read."""
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise UserError(
                ErrorKind.SETTINGS,
                f"cannot read the token file {self.token_file}: {error.strerror}",
                remedy="make it readable on the driver and on every executor",
            ) from None
