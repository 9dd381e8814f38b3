"""The addresses of a daemon and its standbys, and the token with which the source logs in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dispatcher.model.api_addresses import ApiAddress, parse_addresses
from dispatcher.model.errors import ErrorKind, UserError


@dataclass(frozen=True, slots=True)
class DaemonEndpoint:
    """The daemon's addresses and the credentials for the daemon. Picklable, because Spark sends it to the executors.

    `url`: one address, or the addresses of a leader and its standbys with commas between them; `addresses`: the parsed
    addresses, in the order of `url`. The client reads `token_file` for every request, so a rotated token needs no
    restart. The file must exist on every host where a client runs. `user_agent`: how the daemon shows
    the reader. `repr` hides the token.
    """

    url: str
    token: str = field(default="", repr=False)
    token_file: str = ""
    ca_file: str = ""
    timeout_s: float = 60.0
    retry_timeout_s: float = 600.0
    user_agent: str = "binlog-source"
    addresses: tuple[ApiAddress, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "addresses", parse_addresses(self.url))

    def bearer(self) -> str:
        """Returns the token to send; "" if the options name none. Raises `UserError` if `token_file` cannot be read."""
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
