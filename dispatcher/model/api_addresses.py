"""Parses a reader's list of daemon addresses, and chooses the address for the reader's next request. Does no I/O.

If several daemons share a state store, one of them is the leader and answers the calls of readers. The others are
standbys: they answer NOT_LEADER and name the leader's address. Each request contains the reader's token. So the reader
sends requests only to the addresses of its own list, even if a standby names another address.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from dispatcher.model.errors import BinlogError, ErrorKind, UserError

_PORTS = {"http": 80, "https": 443}
_FORM = "write it like http://host:8085, or several with commas between them"


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """The address of one daemon's API. Two addresses are equal if they lead to the same API, even if they are written
    differently.

    `text`: the address as the user wrote it, without a final slash; `path`: the part of the path before `/v1`, such as
    a proxy's prefix.
    """

    text: str = field(compare=False)
    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> ApiAddress:
        """Raises `UserError` for an invalid address, and for an address with a user or a password."""
        text = text.strip().rstrip("/")
        try:
            parts = urlsplit(text)
        except ValueError:
            # Do not show a password before the @.
            raise _no_address(text.rpartition("@")[2]) from None
        if "@" in parts.netloc:
            raise UserError(
                ErrorKind.SETTINGS,
                f"the address of {parts.hostname} holds a user or a password",
                remedy="leave them out; a token of the daemon has an option of its own",
            )
        try:
            port = parts.port or _PORTS[parts.scheme]
        except (ValueError, KeyError):  # for example a port above 65535, or the scheme ftp
            raise _no_address(text) from None
        if parts.scheme not in _PORTS or not parts.hostname or parts.query or parts.fragment:
            raise _no_address(text)
        return cls(text, parts.scheme, parts.hostname, port, parts.path)

    def __str__(self) -> str:
        return self.text


def parse_addresses(text: str) -> tuple[ApiAddress, ...]:
    """Returns the addresses of a comma-separated list, in the order of the list. Raises `UserError`.

    All addresses must have the same scheme. The reader sends one token to all daemons, and a token that it sends to one
    daemon over https must not go to another over http.
    """
    addresses = tuple(ApiAddress.parse(part) for part in text.split(",") if part.strip())
    if not addresses:
        raise UserError(ErrorKind.SETTINGS, f"not the address of a daemon: {text!r}", remedy=_FORM)
    if len({address.scheme for address in addresses}) > 1:
        raise UserError(
            ErrorKind.SETTINGS,
            f"some addresses begin with http:// and others with https://: {text}",
            remedy="write all of them with one scheme",
        )
    if len(set(addresses)) < len(addresses):
        raise UserError(
            ErrorKind.SETTINGS,
            f"an address occurs twice: {text}",
            remedy="write each daemon's address once",
        )
    return addresses


def _no_address(text: str) -> UserError:
    what = f"not the address of a daemon: {text!r}"
    return UserError(ErrorKind.SETTINGS, what, remedy=_FORM)


class AddressChoice:
    """Chooses the address of each request of a reader. Not thread-safe.

    A call sends requests in rounds until a request gets a final answer. In a round, each address gets at most one
    request. `begin` begins a call with its first round, and `begin_round` begins a further round. A round begins at the
    address that answered last. If a request gets no final answer, the caller calls `failed`, `not_leader` or `busy`.
    These methods choose the address of the next request in the round, or return False if the round is over. After a
    round, the caller waits and begins another round, or gives up and raises `fault()`.

    If the leader does not answer, later rounds begin at a standby that answers, even if the standby still names the old
    leader. The standby is probably the next leader, and a connection to a host that is down fails only after a long
    time.
    """

    def __init__(self, addresses: tuple[ApiAddress, ...], first: int = 0) -> None:
        """`first`: the index of the address at which the first call begins."""
        self._addresses = addresses
        self._answered_last = self._at = first
        self._tried = 0  # one bit per address: 1 if it got a request in this round
        self._faults: dict[int, BinlogError] = {}  # the newest fault of each address in this call

    @property
    def current(self) -> ApiAddress:
        """The address of the next request."""
        return self._addresses[self._at]

    @property
    def number(self) -> int:
        """The index of the current address."""
        return self._at

    @property
    def has_several(self) -> bool:
        return len(self._addresses) > 1

    def begin(self) -> None:
        self._faults.clear()
        self.begin_round()

    def begin_round(self) -> None:
        self._at = self._answered_last
        self._tried = 0

    def answered(self) -> None:
        """Record that the current address has given the final answer."""
        self._answered_last = self._at

    def busy(self, fault: BinlogError) -> bool:
        """Record that the current address has answered that the caller must try again later. Returns False, because the
        round is over."""
        self.answered()
        self._faults[self._at] = fault
        return False

    def failed(self, fault: BinlogError) -> bool:
        """Record that the current address has not answered, and choose the next address. Returns False if the round is
        over."""
        self._faults[self._at] = fault
        self._tried |= 1 << self._at
        count = len(self._addresses)
        others = ((self._at + step) % count for step in range(1, count))
        another = next((at for at in others if not self._was_tried(at)), None)
        if another is None:
            return False
        self._at = another
        return True

    def not_leader(self, fault: BinlogError, leader: object) -> bool:
        """Record that the current address has answered NOT_LEADER, and choose the next address. `leader`: the field
        `leader` of the answer, an address or null. Returns False if the round is over."""
        self.answered()
        address = _address_of(leader)
        if address is not None and address not in self._addresses:
            remedy = f"add {address} to url, with a comma between the addresses"
            fault = BinlogError(fault.kind, fault.what, where=fault.where, remedy=remedy)
        another = self.failed(fault)
        if address in self._addresses and not self._was_tried(at := self._addresses.index(address)):
            self._at = at
        return another

    def fault(self) -> BinlogError:
        """Returns the fault of the call. If several addresses were tried, the fault's text contains the fault of each
        address.

        The kind and the remedy are those of the last address that has answered. If no address has answered, they are
        those of the last address.
        """
        faults = list(self._faults.values())
        if len(faults) == 1:
            return faults[0]
        answers = [fault for fault in faults if fault.kind is not ErrorKind.CONNECT_FAILED]
        chosen = (answers or faults)[-1]
        texts = (f"{self._addresses[at]}: {fault.what}" for at, fault in self._faults.items())
        return BinlogError(chosen.kind, ", ".join(texts), remedy=chosen.remedy)

    def _was_tried(self, at: int) -> bool:
        return bool(self._tried >> at & 1)


def _address_of(leader: object) -> ApiAddress | None:
    """Returns the leader's address; None if `leader` is null, or a text that is not the address of a daemon."""
    try:
        return ApiAddress.parse(leader) if isinstance(leader, str) else None
    except UserError:
        return None
