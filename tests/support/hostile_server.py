"""A fake MySQL server in a few threads. A test chooses its answers: correct answers, or answers that no real server
gives.

`Answers` contains the answers; a test replaces the answers that it examines. The answers may depend on the account
(`by_user`), so that one port can simulate many servers. `learned` records what clients send before they are logged in,
so that a test can search it for the password.

The server speaks protocol 4.1: HandshakeV10 (it accepts any password), text result sets, COM_BINLOG_DUMP and
COM_BINLOG_DUMP_GTID. Source: MySQL source documentation, "Connection Lifecycle" and "Text Resultset".
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.support.event_encoder import LogWriter, event_packet, packets

SALT = b"12345678901234567890"
EOF = b"\xfe\0\0\2\0"
OK = b"\0\0\0\2\0\0\0"
UTF8MB4, BINARY = 45, 63
_COM_QUIT, _COM_QUERY, _COM_DUMP, _COM_DUMP_GTID = 0x01, 0x03, 0x12, 0x1E
_CLIENT_SSL = 0x0800
_NON_BLOCKING = 0x01

Value = str | bytes | None
Rows = Iterable[Sequence[Value]]


class Session:
    """One connection, with which the functions of `Answers` send and receive."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sequence = 0
        self.user = ""

    def packet(self, payload: bytes) -> None:
        """Send one payload, in several packets if it is large."""
        data = packets(payload, self.sequence)
        self.sequence = (self.sequence + 1 + len(payload) // 0xFFFFFF) & 0xFF
        self.sock.sendall(data)

    def raw(self, data: bytes) -> None:
        self.sock.sendall(data)

    def read(self) -> bytes:
        """Returns the next payload of the client. Raises ConnectionError if the client has closed the connection."""
        header = self._exactly(4)
        self.sequence = (header[3] + 1) & 0xFF
        return self._exactly(int.from_bytes(header[:3], "little"))

    def rows(self, rows: Rows, columns: int | None = None) -> None:
        """Send a result set. `columns`: the number of columns, None for the number in the first row."""
        given = iter(rows)
        first = next(given, None)
        count = columns if columns is not None else len(first) if first is not None else 1
        self.packet(lenenc(count))
        for n in range(count):
            self.packet(column(f"c{n}"))
        self.packet(EOF)
        for row in [first] if first is not None else []:
            self.packet(row_of(row))
        for row in given:
            self.packet(row_of(row))
        self.packet(EOF)

    def error(self, number: int, text: str) -> None:
        self.packet(b"\xff" + number.to_bytes(2, "little") + b"#HY000" + text.encode())

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.sock.recv(size - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return bytes(data)


def lenenc(number: int) -> bytes:
    if number < 251:
        return bytes((number,))
    if number < 1 << 16:
        return b"\xfc" + number.to_bytes(2, "little")
    if number < 1 << 24:
        return b"\xfd" + number.to_bytes(3, "little")
    return b"\xfe" + number.to_bytes(8, "little")


def column(name: str, charset: int = UTF8MB4) -> bytes:
    texts = [b"def", b"", b"", b"", name.encode(), b""]
    fixed = struct.pack("<BHIBHBH", 12, charset, 1 << 20, 253, 0, 0, 0)
    return b"".join(lenenc(len(text)) + text for text in texts) + fixed


def row_of(values: Sequence[Value]) -> bytes:
    out = b""
    for value in values:
        data = value.encode() if isinstance(value, str) else value
        out += b"\xfb" if data is None else lenenc(len(data)) + data
    return out


Answer = Callable[[Session, str], None]
Dump = Callable[[Session, bytes], None]

_GRANT = "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO `repl`@`%`"


def sensible_log() -> LogWriter:
    log = LogWriter()
    log.begin()
    log.commit()
    return log


@dataclass
class Answers:
    """The answers of a server. `statements`: answers by the beginning of the statement; they precede the correct
    answers; `dump`: the answer to a dump; `greeting`, `plugin`: version and
    authentication method in the greeting; `switch`: an
    authentication method to which the server switches, with its data; `full_authentication`: True if the server's cache
    for caching_sha2_password is empty; `refusal`: an error that the server sends instead of the greeting, as to a
    blocked host."""

    variables: Mapping[str, Value] = field(default_factory=dict)
    statements: Mapping[str, Answer] = field(default_factory=dict)
    dump: Dump | None = None
    plugin: bytes = b"mysql_native_password"
    greeting: str = "8.4.3"
    switch: tuple[bytes, bytes] | None = None
    full_authentication: bool = False
    after_login: Callable[[Session], None] | None = None
    refusal: tuple[int, str] | None = None
    log: LogWriter = field(default_factory=sensible_log)

    def all_variables(self) -> dict[str, Value]:
        executed = f"{self.log.transactions[0].source}:1-{len(self.log.transactions)}"
        return {
            "version": "8.4.3",
            "server_id": "1",
            "server_uuid": "3e11fa47-71ca-11e1-9e33-c80aa9429562",
            "log_bin": "1",
            "binlog_format": "ROW",
            "binlog_row_image": "FULL",
            "binlog_row_metadata": "FULL",
            "binlog_checksum": "CRC32",
            "gtid_mode": "ON",
            "gtid_executed": executed,
            "gtid_purged": "",
            "binlog_expire_logs_seconds": "2592000",
            "lower_case_table_names": "0",
            **self.variables,
        }

    def answer(self, session: Session, statement: str) -> None:
        for beginning, answer in self.statements.items():
            if statement.startswith(beginning):
                answer(session, statement)
                return
        variables, file = self.all_variables(), self.log.file
        if statement.startswith("SHOW GLOBAL VARIABLES"):
            session.rows([row for row in variables.items() if f"'{row[0]}'" in statement])
        elif statement.startswith("SELECT @@GLOBAL"):
            names = [part.strip().removeprefix("@@GLOBAL.") for part in statement[7:].split(",")]
            session.rows([tuple(variables[name] for name in names)])
        elif statement.startswith("SHOW GRANTS"):
            session.rows([(_GRANT,)])
        elif statement.startswith(("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")):
            session.rows([(file.name, str(file.size), "", "", variables["gtid_executed"])])
        elif statement.startswith("SHOW BINARY LOGS"):
            session.rows([(file.name, str(file.size), "No")])
        elif statement.startswith(("SHOW REPLICAS", "SHOW SLAVE HOSTS")):
            session.rows([], columns=5)
        elif statement.startswith("SELECT CONNECTION_ID(), GET_LOCK"):
            session.rows([("7", "1", "7")])
        elif statement.startswith("SELECT IS_USED_LOCK"):
            session.rows([(None,) * statement.count("IS_USED_LOCK")])
        elif statement.startswith("SELECT VERSION()"):
            session.rows([(variables["version"],)])
        else:
            session.packet(OK)

    def send_dump(self, session: Session, request: bytes) -> None:
        if self.dump is not None:
            self.dump(session, request)
            return
        offset = int.from_bytes(request[1:5], "little") if request[0] == _COM_DUMP else 4
        for raw in self.log.dump(file=self.log.file.name, offset=offset):
            send_event(session, raw)
        if request[0] == _COM_DUMP and request[5] & _NON_BLOCKING:
            session.packet(EOF)
        else:
            session.read()  # until the client closes the connection


def send_event(session: Session, raw: bytes) -> None:
    session.raw(event_packet(raw, session.sequence))
    session.sequence = (session.sequence + 1 + (len(raw) + 1) // 0xFFFFFF) & 0xFF


class HostileServer:
    """`with HostileServer(answers) as server:` listens on the loopback, on `server.port`. `tls`: certificate and key
    (PEM files) with which the server offers TLS."""

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        by_user: Mapping[str, Answers] | None = None,
        tls: tuple[str, str] | None = None,
    ) -> None:
        self.answers = answers or Answers()
        self.by_user = by_user or {}
        self.learned = bytearray()  # what clients sent before they were logged in, decrypted
        self.logins = 0
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.errors: list[BaseException] = []
        self._tls: ssl.SSLContext | None = None
        if tls is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*tls)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._ending = False
        self._threads = [threading.Thread(target=self._serve, name="hostile server")]

    @property
    def public_key(self) -> bytes:
        return self.key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in list(self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        assert self.errors == [], self.errors

    def _serve(self) -> None:
        while not self._ending:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._converse, args=(peer,), name="hostile session")
            self._threads.append(thread)
            thread.start()

    def _converse(self, peer: socket.socket) -> None:
        session = Session(peer)
        self._open.add(peer)
        try:
            answers = self._log_in(session)
            while True:
                request = session.read()
                if request[0] == _COM_QUIT:
                    return
                if request[0] == _COM_QUERY:
                    answers.answer(session, request[1:].decode())
                elif request[0] in (_COM_DUMP, _COM_DUMP_GTID):
                    answers.send_dump(session, request)
                else:
                    session.packet(OK)
        except (OSError, EOFError):
            pass  # the client has closed the connection, or the test has ended
        except BaseException as error:  # noqa: BLE001 - the test is told at its end
            self.errors.append(error)
        finally:
            self._open.discard(peer)
            self._open.discard(session.sock)
            session.sock.close()

    # -- the login -------------------------------------------------------------------------------------------

    def _log_in(self, session: Session) -> Answers:
        answers = self.answers
        if answers.refusal is not None:
            number, text = answers.refusal  # no SQLSTATE: the capabilities are not known yet
            session.packet(b"\xff" + number.to_bytes(2, "little") + text.encode())
            raise EOFError
        session.packet(self._greeting(answers))
        reply = session.read()
        if self._tls is not None and int.from_bytes(reply[:4], "little") & _CLIENT_SSL:
            plain = session.sock
            session.sock = self._tls.wrap_socket(plain, server_side=True)
            self._open.discard(plain)
            self._open.add(session.sock)
            reply = session.read()
        self.learned += reply
        session.user = reply[32:].partition(b"\0")[0].decode()
        answers = self.by_user.get(session.user, answers)
        if answers.switch is not None:
            plugin, data = answers.switch
            session.packet(b"\xfe" + plugin + b"\0" + data)
            self._authenticate(session, answers, plugin)
        elif answers.full_authentication:
            self._authenticate(session, answers, answers.plugin)
        session.packet(OK)
        self.logins += 1
        if answers.after_login is not None:
            answers.after_login(session)
        return answers

    def _authenticate(self, session: Session, answers: Answers, plugin: bytes) -> None:
        """Run an authentication method after its first message. Record in `learned` what the client sends,
        decrypted."""
        if answers.switch is not None:
            answer = self._learn(session)
            if plugin == b"sha256_password" and answer == b"\1":
                self._ask_with_key(session)
        elif plugin == b"sha256_password" and self._tls is None:
            self._ask_with_key(session)  # the client requested the key in its reply to the greeting
        if plugin == b"caching_sha2_password":
            session.packet(b"\1\4")  # perform full authentication
            if self._learn(session) == b"\2":
                self._ask_with_key(session)

    def _ask_with_key(self, session: Session) -> None:
        session.packet(b"\1" + self.public_key)
        self._learn(session)

    def _learn(self, session: Session) -> bytes:
        answer = session.read()
        self.learned += answer
        if len(answer) == 256:
            sha1 = hashes.SHA1()  # the protocol requires SHA1
            with contextlib.suppress(ValueError):
                masked = self.key.decrypt(
                    answer, padding.OAEP(mgf=padding.MGF1(sha1), algorithm=sha1, label=None)
                )
                self.learned += bytes(b ^ SALT[i % 20] for i, b in enumerate(masked))
        return answer

    def _greeting(self, answers: Answers) -> bytes:
        capabilities = 0x000FF7FF & ~_CLIENT_SSL | (_CLIENT_SSL if self._tls else 0)
        body = (
            b"\x0a"
            + answers.greeting.encode()
            + b"\0"
            + (7).to_bytes(4, "little")
            + SALT[:8]
            + b"\0"
        )
        body += (capabilities & 0xFFFF).to_bytes(2, "little") + b"\xff\2\0"
        body += (capabilities >> 16).to_bytes(2, "little") + b"\x15" + bytes(10)
        return body + SALT[8:] + b"\0" + answers.plugin + b"\0"
