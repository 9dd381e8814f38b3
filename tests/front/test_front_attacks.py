"""A client that attacks the front must not disturb other clients: their dumps continue, `/livez` answers within a
second, memory stays within limits, and the log has no traceback.

All tests share one daemon with small limits. During each attack, a client reads its consumer `other` through the front.
"""

from __future__ import annotations

import json
import random
import resource
import select
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pymysql
import pytest

from dispatcher.access.guesses import FREE
from dispatcher.front.wire.packets import Command
from dispatcher.front.wire.passwords import native_proof
from tests.daemon.harness import PASSWORD, Daemon, Json, until
from tests.daemon.watch import Watch, watched
from tests.front.attacker import Attacker, Refused
from tests.front.dump.raw_dump import NON_BLOCKING, THROUGH_GTID, by_file
from tests.front.fronted import Fronted, until_greets
from tests.front.questions.recorded import RECORDINGS
from tests.front.wire.raw_client import RawClient, response, ssl_request
from tests.servers import Instance
from tests.servers.plugin import ServerFactory
from tests.servers.ports import free_port
from tests.support.certificates import make_certificate

TOKEN = "token-of-all-the-consumers"
VIEWER = "token-that-only-reads-them"
STRANGER = "token-of-the-other-consumer"
VISITOR = "token-that-one-test-uses"
MIB = 1 << 20
QUEUE = 8 * MIB
TIMEOUT_S = 3
GROWTH_MAX = 64 * MIB  # of resident memory; each attack sends or requests much more than this
HALF_OPEN = 1000
CONNECTIONS = 10_000
ADMITTED_EVERY = 25
FENCING = 40
FENCED_S = 100.0  # long, because the daemon stores the numbers of all sessions one after the other


@pytest.fixture(scope="module")
def server(module_server_factory: ServerFactory) -> Instance:
    server = module_server_factory("mysql97", "--max-allowed-packet=64M")
    for database in ("shop", "other"):
        server.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, v LONGBLOB)",
        )
    server.add_user("attacked", PASSWORD)
    return server


@pytest.fixture(scope="module")
def fronted(server: Instance, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fronted]:
    folder = tmp_path_factory.mktemp("daemon")
    make_certificate(folder)
    source = {"mysql": f"attacked@{server.host}:{server.port}", "password": PASSWORD}
    common = {**source, "max_bytes_in_binlog_queue": QUEUE, "start": "earliest"}
    port = free_port()
    settings: Json = {
        "consumers": {name: {**common, "databases": [name]} for name in ("shop", "other")},
        "api": {
            "tokens": [
                {"token": TOKEN, "consumers": "all"},
                {"token": VIEWER, "consumers": "all", "scopes": ["read"]},
                {"token": STRANGER, "consumers": ["other"]},
                {"token": VISITOR, "consumers": ["shop"]},
            ]
        },
        "front": {
            "listen": f"127.0.0.1:{port}",
            "tls": {"cert": str(folder / "ca.pem"), "key": str(folder / "key.pem")},
            "write_timeout_seconds": TIMEOUT_S,
        },
    }
    daemon = Daemon(folder, settings)
    daemon.token = TOKEN
    daemon.start()
    for name in settings["consumers"]:
        daemon.api.until_state(name, "streaming")
    until_greets(port)
    with closing(Fronted(server, daemon, port)) as fronted:
        yield fronted
        daemon.stop()


def insert(server: Instance, database: str, size: int = 1, rows: int = 1) -> None:
    """Insert rows of `size` bytes in one transaction."""
    values = ", ".join([f"(REPEAT('x', {size}))"] * rows)
    server.execute(f"INSERT INTO {database}.t (v) VALUES {values}")


def rows_of(server: Instance, database: str) -> int:
    return int(server.execute(f"SELECT COUNT(*) FROM {database}.t")[0][0])


@pytest.fixture
def watch(fronted: Fronted) -> Iterator[Watch]:
    """While the test runs, read the consumer `other` and send probes. At the end, assert that the attack has disturbed
    neither, and that a client can still read the attacked consumer."""

    def read(watch: Watch) -> None:
        file, offset = fronted.server.binlog_position()
        with Attacker(fronted.port).enter("other", TOKEN) as reader:
            reader.dump_file(file, offset)
            while not watch.stopping.is_set():
                insert(fronted.server, "other")
                reader.until_rows(1)
                watch.rows += 1

    with watched(fronted.daemon, read, GROWTH_MAX) as seen:
        yield seen
    assert_serves(fronted)


def assert_serves(fronted: Fronted) -> None:
    """Assert that a client can read a new row of the attacked consumer."""
    file, offset = fronted.server.binlog_position()
    insert(fronted.server, "shop")
    with Attacker(fronted.port).enter("shop", TOKEN) as client:
        client.dump_file(file, offset)
        client.until_rows(1)
    assert "Traceback" not in fronted.daemon.log


def refusal(act: Callable[[], object]) -> int:
    """Returns the number of the error with which the front refuses the call in `act`."""
    with pytest.raises(Refused) as refused:
        act()
    return refused.value.number


# -- before the login ------------------------------------------------------------------------------------------


def test_half_logins_leave_room_for_others(fronted: Fronted, watch: Watch) -> None:
    hello = b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"
    begun = len(ssl_request()).to_bytes(3, "little") + b"\x01" + ssl_request()
    halves = [
        b"",
        b"\x20",
        response()[:20],
        begun,
        begun + hello[:3],
        begun + hello,
        begun + bytes(300),
        len(response()).to_bytes(3, "little") + b"\x01" + response()[:-1],
    ]
    with ExitStack() as stack:
        for n in range(HALF_OPEN):
            client = stack.enter_context(RawClient(fronted.port, greeted=False))
            with suppress(OSError):  # the front may close the oldest connection
                client.socket.sendall(halves[n % len(halves)])
        watch.until_undisturbed()
        assert_serves(fronted)


@pytest.mark.deep
def test_ten_thousand_connections_leave_room_for_clients(fronted: Fronted, watch: Watch) -> None:
    """One program opens connections and sends nothing. Clients that log in between them keep their connections."""
    _, files_max = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * CONNECTIONS, files_max), files_max))
    with ExitStack() as stack:
        admitted = []
        for n in range(CONNECTIONS):
            if n % ADMITTED_EVERY == 0:
                client = stack.enter_context(Attacker(fronted.port))
                admitted.append(client.enter("shop", TOKEN))
            else:
                stack.enter_context(RawClient(fronted.port, greeted=False))
        watch.until_undisturbed()
        for client in admitted:
            client.ping()
        assert_serves(fronted)


def test_packets_of_16_mib_before_the_login_take_no_memory(fronted: Fronted, watch: Watch) -> None:
    def send(_: int) -> int:
        with RawClient(fronted.port) as client:
            client.socket.sendall(b"\xff\xff\xff\x01")
            with suppress(OSError):
                for _ in range(16):
                    client.socket.sendall(bytes(MIB))
            with suppress(OSError):
                while client.socket.recv(1 << 16):
                    pass
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(send, range(24))) == 24


def test_resets_at_each_step_of_the_login(fronted: Fronted, watch: Watch) -> None:
    for size in range(0, 90, 3):
        client = RawClient(fronted.port)
        data = len(response("shop")).to_bytes(3, "little") + b"\x01" + response("shop")
        client.socket.sendall(data[:size])
        client.reset()
    for _ in range(20):
        client = RawClient(fronted.port)
        client.socket.sendall(len(ssl_request()).to_bytes(3, "little") + b"\x01" + ssl_request())
        client.reset()


@pytest.mark.parametrize(
    ("user", "secret"),
    [
        ("shop", VIEWER),
        ("shop", STRANGER),
        ("shop", ""),
        ("unknown", TOKEN),
        ("", TOKEN),
        ("shop\x1b[31m", TOKEN),
        ("s" * 50_000, TOKEN),
    ],
    ids=[
        "without acknowledge",
        "of another",
        "no password",
        "unknown",
        "no user",
        "controls",
        "long",
    ],
)
def test_who_may_not_read_the_consumer(fronted: Fronted, user: str, secret: str) -> None:
    with Attacker(fronted.port) as client:
        assert refusal(lambda: client.enter(user, secret)) == 1045


def test_clients_that_log_in_by_drivers(fronted: Fronted) -> None:
    account = {"host": "127.0.0.1", "port": fronted.port, "user": "shop"}
    with closing(pymysql.connect(**account, password=TOKEN)) as connection:  # type: ignore[call-overload]
        connection.ping(reconnect=False)
    with pytest.raises(pymysql.err.OperationalError, match="Access denied for user 'shop'"):
        pymysql.connect(**account, password=VIEWER)  # type: ignore[call-overload]


# -- after the login: commands ---------------------------------------------------------------------------------


def test_commands_of_every_number(fronted: Fronted, watch: Watch) -> None:
    """The front answers each command, or closes its connection."""
    chance = random.Random(1)
    dumps = (Command.BINLOG_DUMP, Command.BINLOG_DUMP_GTID)
    client = Attacker(fronted.port).enter("shop", TOKEN)
    for code in range(256):
        payloads = [b"", b"\xff" * 8, chance.randbytes(40)]
        payloads.append(chance.randbytes(2000))
        for payload in payloads:
            client.send(bytes([code]) + payload, 0)
            if code == Command.QUIT or code in dumps:
                with suppress(Refused, ConnectionError):
                    next(client.events(), None)
                client.drop()
                client = Attacker(fronted.port).enter("shop", TOKEN)
                continue
            with suppress(Refused):
                client.one() if code == Command.STATISTICS else client.answer()
            client.ping()
    client.send(b"", 0)
    with suppress(Refused):
        client.answer()
    client.ping()
    client.drop()


def test_packets_out_of_order_and_too_large_end_the_connection(fronted: Fronted) -> None:
    for data in (b"\x01\0\0\x07\x0e", b"\xff\xff\xff\0" + b"\x03" * 100, b"\0\0\x20\0\x03"):
        with Attacker(fronted.port).enter("shop", TOKEN) as client:
            client.socket.sendall(data)
            assert refusal(client.answer) in (1153, 1156)
            assert client.ended()


def test_any_sql_is_answered_or_refused(fronted: Fronted, watch: Watch) -> None:
    chance = random.Random(2)
    asked = [sql for recording in RECORDINGS for sql in recording.statements]
    words = sorted({word for sql in asked for word in sql.split()})
    words += [
        "(",
        ")",
        "@@",
        "@",
        "'",
        '"',
        "`",
        "/*!",
        "*/",
        "--",
        ";",
        "\0",
        "\\",
        "é",
        "%",
        "0x",
    ]
    with Attacker(fronted.port).enter("shop", TOKEN) as client:
        for n in range(600):
            if n % 3 == 0:
                text = bytearray(" ".join(chance.choices(words, k=chance.randint(1, 30))).encode())
            else:
                text = bytearray(chance.choice(asked).encode())
                for _ in range(chance.randint(1, 4)):
                    at = chance.randrange(len(text) + 1)
                    if n % 3 == 1:
                        text[at:at] = chance.choice(words).encode()
                    else:
                        text[at : at + chance.randint(0, 3)] = chance.randbytes(
                            chance.randint(0, 3)
                        )
            with suppress(Refused):
                client.ask(bytes(text))
        client.ping()


def test_long_sql_is_answered_or_refused(fronted: Fronted, watch: Watch) -> None:
    size = MIB - 100
    parts = [
        "(",
        "'",
        "@@",
        "SELECT ",
        "a,",
        "/*",
        "*/",
        "\\",
        "`",
        "1+",
        "NOT ",
        "x OR ",
        "\0",
        "é",
    ]
    heads = ["", "SELECT ", "SHOW VARIABLES WHERE ", "SET @a = ", "/*! SELECT "]
    with Attacker(fronted.port).enter("shop", TOKEN) as client:
        for head in heads:
            for part in parts:
                with suppress(Refused):
                    client.ask((head + part * (size // len(part.encode()))).encode()[:size])
        client.ping()


def test_large_answers_take_little_memory(fronted: Fronted, watch: Watch) -> None:
    """Each answer is as large as the variables of a connection allow; a larger question or variable is refused."""

    def ask(_: int) -> None:
        with Attacker(fronted.port).enter("shop", TOKEN) as client:
            for size in (MIB - 1000, 100_000):
                with pytest.raises(Refused):
                    client.ask(f"SET @a = '{'x' * size}'")
            client.ask(f"SET @a = '{'x' * 30_000}'")
            with suppress(Refused):
                client.send(b"\x03SELECT " + b", ".join([b"@a"] * 16), 0)
                client.answer()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(16)))


def test_a_client_that_asks_and_does_not_read_is_closed(fronted: Fronted, watch: Watch) -> None:
    with Attacker(fronted.port, received_bytes_max=4096).enter("shop", TOKEN) as client:
        question = b"\x03SHOW VARIABLES"
        packet = len(question).to_bytes(3, "little") + b"\0" + question
        client.socket.settimeout(10 * TIMEOUT_S)

        def ask() -> None:
            while True:
                client.socket.sendall(packet * 1000)

        with pytest.raises(ConnectionError):
            ask()


# -- requests for a dump ---------------------------------------------------------------------------------------

FILES = (
    "", "binlog.999999", "../../etc/passwd", "/etc/passwd", "a" * 5000, "\x1b[31m", "binlog", ".", "binlog.",
    "binlog.000001\n", "binlog.-1", "'; DROP DATABASE shop; --", "mysql-bin.000001", "binlog.99999999999999999999",
    "bin\u200blog.000001", "binlog.\u0661", "binlog.0000001",
)  # fmt: skip
OFFSETS = (0, 1, 3, 4, 5, 100, 127, 10_000, 2**31, 2**32 - 1)
GTID_SETS = (
    "", "00000000-0000-0000-0000-000000000000:1", "ffffffff-ffff-ffff-ffff-ffffffffffff:1-9223372036854775806",
    ",".join(f"{n:08x}-0000-0000-0000-000000000000:1-{n + 1}" for n in range(2000)),
    "3e11fa47-71ca-11e1-9e33-c80aa9429562:" + ":".join(str(2 * n + 1) for n in range(60_000)),
)  # fmt: skip


def read_to_end(client: Attacker, command: bytes) -> None:
    """Request a dump, and read it to the end of the log, or until the front refuses it."""
    client.dump(command)
    with suppress(Refused):
        for _ in client.events():
            pass


def test_hostile_places(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    for name in (*FILES, file):
        for place in OFFSETS if name in ("", file) else (4, offset):
            with Attacker(fronted.port).enter("shop", TOKEN) as client:
                read_to_end(client, by_file(name, place, NON_BLOCKING))


def test_places_inside_of_events(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    insert(fronted.server, "shop", 1000)
    for place in range(offset - 3, offset + 60, 7):
        with Attacker(fronted.port).enter("shop", TOKEN) as client:
            read_to_end(client, by_file(file, place, NON_BLOCKING))


@pytest.mark.parametrize("gtids", GTID_SETS, ids=lambda text: text[:20])
def test_sets_of_other_servers(fronted: Fronted, watch: Watch, gtids: str) -> None:
    executed = str(fronted.server.execute("SELECT @@gtid_executed")[0][0]).replace("\n", "")
    for more in ("", executed):
        text = ",".join(filter(None, (gtids, more)))
        with Attacker(fronted.port).enter("shop", TOKEN) as client:
            client.dump_gtids(text, flags=NON_BLOCKING | THROUGH_GTID)
            with suppress(Refused):
                for _ in client.events():
                    pass


def test_malformed_sets(fronted: Fronted, watch: Watch) -> None:
    chance = random.Random(3)
    head = bytes(6) + bytes(4) + (4).to_bytes(8, "little")
    uuid = bytes(16)

    def number(*values: int) -> bytes:
        return b"".join(value.to_bytes(8, "little") for value in values)

    sets = [
        number(2**63), number(1) + uuid + number(2**60), number(1) + uuid + number(1, 5, 3),
        number(1) + uuid + number(1, 0, 3), number(1) + uuid + number(2, 5, 9, 1, 3),
        number(2) + 2 * (uuid + number(1, 1, 2)), number(1) + uuid + number(1, 1, 2) + b"more",
        b"\x01" * 7, b"", number(2**32), *(chance.randbytes(n) for n in range(0, 200, 5)),
        number(1) + uuid + number(40_000) + number(*range(40_000, 0, -1)) * 2,
    ]  # fmt: skip
    for encoded in sets:
        for size in (len(encoded), 2**32 - 1):
            with Attacker(fronted.port).enter("shop", TOKEN) as client:
                client.dump(b"\x1e" + head + size.to_bytes(4, "little") + encoded)
                with suppress(Refused):
                    next(client.events(), None)


def test_flags_of_every_bit(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    insert(fronted.server, "shop")
    for bit in range(16):
        with Attacker(fronted.port).enter("shop", TOKEN) as client:
            client.dump(by_file(file, offset, 1 << bit))
            client.until_rows(1)


# -- clients of a dump -----------------------------------------------------------------------------------------


def test_a_client_that_reads_nothing_is_cut(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    with Attacker(fronted.port, received_bytes_max=4096).enter("shop", TOKEN) as client:
        client.dump_file(file, offset)
        for _ in range(20):
            insert(fronted.server, "shop", MIB // 2, 10)
        watch.until_undisturbed()
        until(lambda: connections(fronted) == 1, "the front has closed it, and serves the other")
        with pytest.raises(ConnectionError):
            for _ in client.events():
                pass


def connections(fronted: Fronted) -> int:
    """Returns the present number of the front's clients."""
    lines = fronted.daemon.api.text("/metrics").splitlines()
    (line,) = [line for line in lines if line.startswith("binlog_dispatcher_front_connections ")]
    return int(float(line.split()[1]))


def test_a_client_that_reads_byte_by_byte_is_served(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    with Attacker(fronted.port, received_bytes_max=4096).enter("shop", TOKEN) as client:
        client.dump_file(file, offset)
        insert(fronted.server, "shop", MIB, 10)
        for _ in range(300_000):
            assert client.socket.recv(1)
        watch.until_undisturbed()
        client.drop()


def test_resets_within_a_dump(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    insert(fronted.server, "shop", MIB, 6)
    for n in range(30):
        client = Attacker(fronted.port).enter("shop", TOKEN)
        client.dump_file(file, offset)
        client.socket.recv(1 + n * 10_000)
        client.drop()


def test_commands_within_a_dump_end_it(fronted: Fronted, watch: Watch) -> None:
    file, offset = fronted.server.binlog_position()
    for data in (b"\x01\0\0\0\x01", b"\xff\xff\xff\0", b"\x09\0\0\0\x03SELECT 1", bytes(1000)):
        with Attacker(fronted.port).enter("shop", TOKEN) as client:
            client.dump_file(file, offset)
            next(client.events())
            client.socket.sendall(data)
            with pytest.raises((ConnectionError, Refused)):
                for _ in client.events():
                    pass


def test_clients_that_fence_each_other(fronted: Fronted, watch: Watch) -> None:
    """The newest dump continues, and all other dumps end."""
    file, offset = fronted.server.binlog_position()
    for _ in range(20):
        insert(fronted.server, "shop", 1000)
    ends: list[object] = []

    def read(_number: int) -> None:
        try:
            with Attacker(fronted.port, timeout_s=FENCED_S + 60).enter("shop", TOKEN) as client:
                client.dump_file(file, offset)
                for _ in client.events():
                    pass
        except (Refused, OSError) as error:
            ends.append(error)

    with ThreadPoolExecutor(FENCING) as pool:
        reading = [pool.submit(read, n) for n in range(FENCING)]
        until(lambda: len(ends) >= FENCING - 1, "all but one have ended", timeout_s=FENCED_S)
        assert_serves(fronted)
        for each in reading:
            each.result()
    assert all(isinstance(end, Refused) and end.number == 1236 for end in ends), ends


# -- guesses: the last test, because they slow the address down -------------------------------------------------


def test_wrong_tokens_are_slowed_and_the_right_one_is_admitted(fronted: Fronted) -> None:
    guessers = 20

    def guess(n: int) -> int:
        with Attacker(fronted.port) as client:
            return refusal(lambda: client.enter("shop", f"wrong{n}"))

    with ThreadPoolExecutor(guessers) as pool:
        first = list(pool.map(guess, range(FREE + 1)))
        waiting = [pool.submit(guess, n) for n in range(guessers)]
        until(lambda: any(each.done() for each in waiting), "a turn comes")
        assert not all(each.done() for each in waiting)
        assert_serves(fronted)
        assert {*first, *(each.result() for each in waiting)} == {1045}
    events = [json.loads(line) for line in fronted.daemon.log.splitlines() if line[:1] == "{"]
    assert {line["address"] for line in events if line["event"] == "wrong token"} == {"127.0.0.1"}


def test_a_right_token_waits_like_wrong_ones_once(fronted: Fronted) -> None:
    """Otherwise an attacker who guesses tokens could treat a token as wrong if the front does not confirm its login at
    once, and try the next token. The front delays the client of a right token only once."""
    with ExitStack() as stack:

        def guess(count: int) -> list[Attacker]:
            guessers = [stack.enter_context(Attacker(fronted.port)) for _ in range(count)]
            for number, guesser in enumerate(guessers):
                proof = native_proof(f"wrong{number}".encode(), guesser.nonce)
                guesser.send(response("shop", proof, plugin=""), 1)
            return guessers

        def answered(guessers: list[Attacker]) -> int:
            return len(select.select([each.socket for each in guessers], [], [], 0)[0])

        earlier = guess(FREE)
        until(lambda: answered(earlier) == FREE, "all of them have had their turns")
        waiting = guess(10)
        with Attacker(fronted.port) as client:
            client.enter("shop", VISITOR)
            assert answered(waiting) > 5
        waiting = guess(20)
        with Attacker(fronted.port) as client:
            client.enter("shop", VISITOR)
            assert answered(waiting) < 15
