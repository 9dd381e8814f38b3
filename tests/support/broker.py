"""A real Mosquitto, from Debian's packages, unpacked into the cache: `python -m tests.support.broker`.

Nothing is installed and no service starts. `Broker` runs a broker on a free port of the loopback; `Subscriber` receives
what the broker sends.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_sink.cache import cache_dir, cached_folder
from tests.servers import debian
from tests.servers.installs import by_own_loader
from tests.servers.ports import free_port
from tests.support.certificates import make_certificate

_SUITES = ("bookworm", "trixie")


def command(program: str) -> tuple[str, ...]:
    """Returns the command that runs `sbin/mosquitto` or a program in `bin`. Raises ServerUnavailable if the packages
    are not available."""

    def unpack(staging: Path) -> None:
        names = ["mosquitto", "mosquitto-clients"]
        packages = debian.unpack(staging / "prefix", _SUITES, names)
        (staging / "packages").write_text(packages, encoding="utf-8")

    prefix = cached_folder(cache_dir() / "programs/mosquitto", unpack) / "prefix"
    return by_own_loader(prefix, prefix / "usr" / program)


@dataclass(frozen=True)
class Received:
    topic: str
    retained: bool
    text: str

    @property
    def body(self) -> dict[str, Any]:
        value = json.loads(self.text)
        assert isinstance(value, dict)
        return value


class Subscriber:
    """A `mosquitto_sub` that subscribes to all topics and keeps the messages."""

    def __init__(self, options: list[str]) -> None:
        self.messages: list[Received] = []
        every = ["-t", "#", "-q", "1", "-F", "%r\t%t\t%p"]
        arguments = [*command("bin/mosquitto_sub"), *every, *options]
        self._process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            retained, topic, text = line.rstrip("\n").split("\t", 2)
            self.messages.append(Received(topic, retained == "1", text))

    def of(self, topic: str) -> list[Received]:
        """Returns the messages whose topics end with `topic`."""
        return [message for message in list(self.messages) if message.topic.endswith(topic)]

    def last(self, topic: str) -> Received | None:
        found = self.of(topic)
        return found[-1] if found else None

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Broker:
    """Mosquitto with a folder of its own. `password`: of the user `dispatcher`; `tls`: its certificate is `ca`."""

    def __init__(self, folder: Path, *, password: str = "", tls: bool = False) -> None:
        self.folder = folder
        self.port = free_port()
        self.password = password
        self.ca = folder / "ca.pem" if tls else None
        self._process: subprocess.Popen[bytes] | None = None
        lines = [f"listener {self.port} 127.0.0.1", "persistence false", "user root"]
        if password:
            users = folder / "users"
            write = ["-b", "-c", str(users), "dispatcher", password]
            arguments = [*command("bin/mosquitto_passwd"), *write]
            subprocess.run(arguments, check=True, capture_output=True)
            lines += ["allow_anonymous false", f"password_file {users}"]
        else:
            lines.append("allow_anonymous true")
        if tls:
            make_certificate(folder)
            lines += [f"certfile {folder / 'ca.pem'}", f"keyfile {folder / 'key.pem'}"]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    @property
    def url(self) -> str:
        return f"{'mqtts' if self.ca else 'mqtt'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections."""
        log = (self.folder / "log").open("ab")
        arguments = [*command("sbin/mosquitto"), "-c", str(self.folder / "mosquitto.conf")]
        with log:
            self._process = subprocess.Popen(arguments, stdout=log, stderr=log)
        pause = threading.Event()
        for _ in range(1000):
            try:
                socket.create_connection(("127.0.0.1", self.port), 5).close()
            except ConnectionRefusedError:
                assert self._process.poll() is None, (self.folder / "log").read_text()
                pause.wait(0.01)
            else:
                return
        raise AssertionError("mosquitto does not listen")

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def subscriber(self) -> Iterator[Subscriber]:
        options = ["-h", "127.0.0.1", "-p", str(self.port)]
        if self.password:
            options += ["-u", "dispatcher", "-P", self.password]
        if self.ca is not None:
            options += ["--cafile", str(self.ca)]
        subscriber = Subscriber(options)
        try:
            yield subscriber
        finally:
            subscriber.close()


class SilentBroker:
    """Accepts connections and answers each with the same bytes, or with nothing."""

    def __init__(self, answer: bytes = b"") -> None:
        self.accepted = 0
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._connections.append(connection)
            if self._answer:
                connection.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._connections:
            connection.close()


if __name__ == "__main__":
    print(f"mosquitto: {command('sbin/mosquitto')[-1]}")
