"""Draws the pictures of the first commands from a real run: `python -m deploy.first_hour docs`.

A MySQL server with the default settings of MySQL has two databases. The commands of a newcomer run one after the other,
each on a terminal: `init` prepares the server, `read` prints changes, and the mirror copies all tables. The terminals
are so wide that no program wraps a line. The pictures then wrap lines as a terminal of `WIDTH` columns does.

The pictures show what the programs print. `Names` replaces only what is particular to this run: the addresses of the
server and of the daemon, whose ports are random, and the folder of the Delta tables.
"""

from __future__ import annotations

import argparse
import io
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from pyte.screens import Char
from rich.console import Console
from rich.style import Style
from rich.text import Text

from deploy.demo.view import write_svg
from tests.cli.program import PASSWORD, environment
from tests.cli.running import Daemon, daemon
from tests.daemon.harness import until
from tests.servers import Server, start_server
from tests.servers.ports import free_port
from tests.support.terminal import INTERRUPT, Terminal, on_terminal

WIDTH = 100
_WIDE, _LINES = 700, 80  # of the terminals
_COLOURS = {"brown": "yellow", "brightbrown": "bright_yellow", "brightblack": "bright_black"}
_READY_S = 900.0
_SERVER, _DAEMON, _TARGET = "db1:3306", "127.0.0.1:8085", "/data/mirror"
# The number of rows, and the bytes of each row's note. The copy of the large table commits several times, so that its
# progress is shown.
_ROWS = {"shop.items": (800_000, 500), "shop.orders": (50_000, 0), "billing.invoices": (250_000, 0)}
_INIT = f"binlog-dispatcher init 'mysql://admin@{_SERVER}/shop,billing' --apply --mirror {_TARGET}"
_CHECK = "binlog-dispatcher check --config dispatcher.yaml"
_BINLOGS = f"binlog-dispatcher binlogs --url http://{_DAEMON}"
_READ = f"binlog-dispatcher read changes --url http://{_DAEMON}"
_COPY = "binlog-mirror run --config mirror.yaml --copy"
_SUMMARY = "    Spark: python -c "  # the beginning of its last line


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.first_hour", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pictures go")
    pictures: Path = parser.parse_args(arguments).folder
    # SIGTERM ends the blocks below as Ctrl-C does, so that no process is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (
        tempfile.TemporaryDirectory(prefix="first-hour-") as name,
        start_server("mysql97", "--binlog-row-metadata=MINIMAL") as server,
    ):
        prepare(server)
        home, port = Path(name), free_port()
        shell = Shell(home, Names.of(server, port, home / "mirror"))
        shell.run("binlog-dispatcher compile")  # so that no picture shows the compilation
        init = [*shell.run(_INIT, keys=f"{PASSWORD}\n"), *shell.run(_CHECK)]
        shell.draw(init, "binlog-dispatcher init", pictures / "init.svg")
        for file in ("dispatcher.yaml", "mirror.yaml"):
            text = (home / file).read_text(encoding="utf-8")
            (home / file).write_text(text.replace("8085", str(port)), encoding="utf-8")
        with daemon(home / "dispatcher.yaml", port) as running:
            running.until(lambda rows: all(row["state"] == "streaming" for row in rows.values()))
            read = [*shell.run(_BINLOGS), *read_changes(shell, server, running)]
            shell.draw(read, "binlog-dispatcher read", pictures / "read.svg")
            shell.draw(
                copy_tables(shell, server), "binlog-mirror run --copy", pictures / "copy.svg"
            )
    return 0


def prepare(server: Server) -> None:
    """Create an administrator, and databases with rows that the log does not have."""
    server.add_user("admin", PASSWORD)
    server.execute("GRANT ALL PRIVILEGES ON *.* TO 'admin'@'%' WITH GRANT OPTION")
    columns = "id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40) NOT NULL, price DECIMAL(9,2)"
    for table, (count, size) in _ROWS.items():
        database = table.partition(".")[0]
        numbers = (
            f"WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < {count})"
        )
        server.execute(
            "SET SESSION sql_log_bin = OFF",
            f"SET SESSION cte_max_recursion_depth = {count}",
            f"CREATE DATABASE IF NOT EXISTS {database}",
            f"CREATE TABLE {table} ({columns}{', note TEXT' if size else ''})",
            f"INSERT INTO {table} {numbers} SELECT n, CONCAT('name ', n), n % 1000 / 8"
            f"{f', LEFT(REPEAT(SHA2(n, 512), 1 + {size} DIV 128), {size})' if size else ''} FROM t",
            f"ANALYZE TABLE {table}",
        )


def read_changes(shell: Shell, server: Server, running: Daemon) -> list[Text]:
    """Read changes of all kinds as they are committed, and end with Ctrl-C."""
    with shell.running(_READ) as terminal:
        running.until(lambda rows: rows["changes"]["reader"] == "waiting")
        server.execute(
            "INSERT INTO orders (name, price) VALUES ('tea', 3.5)",
            "UPDATE orders SET price = 4.25 WHERE id = LAST_INSERT_ID()",
            "DELETE FROM orders WHERE id = LAST_INSERT_ID()",
            "ALTER TABLE orders ADD COLUMN note TEXT",
            database="shop",
        )
        until_shown(terminal, '"op":"ddl"')
        end(terminal, INTERRUPT)
    return shell.lines(_READ, terminal)


def copy_tables(shell: Shell, server: Server) -> list[Text]:
    """Copy all tables with the mirror. End it with Ctrl-C after it has read a change from after the copy."""
    with shell.running(_COPY) as terminal:
        until_shown(terminal, _SUMMARY)
        server.execute("INSERT INTO shop.orders (name, price) VALUES ('coffee', 2.75)")
        until_shown(terminal, " INFO applied consumer=mirror ", behind=_SUMMARY)
        end(terminal, INTERRUPT)
    # On a very busy machine a worker of Spark may not start in time. The job tries again, but a newcomer sees no error.
    assert " ERROR " not in screen_of(terminal), f"repeat the run: {screen_of(terminal)}"
    return shell.lines(_COPY, terminal)


def until_shown(terminal: Terminal, text: str, behind: str = "") -> None:
    """Wait until the screen shows `text`, after the text `behind`. Raises AssertionError if the program ends before."""

    def shown() -> bool:
        screen = screen_of(terminal)
        assert terminal.process.poll() is None, screen
        return text in screen.rpartition(behind)[2] if behind else text in screen

    until(shown, text, timeout_s=_READY_S)


def screen_of(terminal: Terminal) -> str:
    return "\n".join("".join(cell.data for cell in line) for line in terminal.cells())


def end(terminal: Terminal, keys: bytes) -> None:
    """Type keys, and wait for the end of the program. Raises AssertionError if it fails."""
    terminal.type(keys)
    code = terminal.process.wait(_READY_S)
    assert code == 0, (code, screen_of(terminal))


# -- the terminal, and what a picture shows of it ------------------------------------------------------------------

Cells = Sequence[tuple[str, Style]]  # the characters of a line


@dataclass(frozen=True, slots=True)
class Names:
    """`shown`: for each text of this run the text that the pictures have in its place, the longest first."""

    shown: Mapping[str, str]

    @classmethod
    def of(cls, server: Server, port: int, target: Path) -> Names:
        host = _SERVER.partition(":")[0]
        return cls({
            str(target): _TARGET,
            f"{server.host}:{server.port}": _SERVER,
            f"127.0.0.1:{port}": _DAEMON,
            f"admin@{server.host}": f"admin@{host}",
        })  # fmt: skip

    def real(self, command: str) -> list[str]:
        """Returns the words of a command line as this run needs them."""
        for real, shown in self.shown.items():
            command = command.replace(shown, real)
        return shlex.split(command)

    def replaced(self, cells: Cells) -> Cells:
        """Returns a line with the names that the pictures have. A name has the style of its first character."""
        for real, shown in self.shown.items():
            while (at := "".join(character for character, _ in cells).find(real)) >= 0:
                style = cells[at][1]
                named = [(character, style) for character in shown]
                cells = [*cells[:at], *named, *cells[at + len(real) :]]
        return cells


@dataclass(frozen=True, slots=True)
class Shell:
    """Runs commands in the folder of a newcomer."""

    home: Path
    names: Names

    @contextmanager
    def running(self, command: str) -> Iterator[Terminal]:
        """Yields the terminal of a command that has been started. `command`: as the picture shows it."""
        program, *words = self.names.real(command)
        path = str(Path(sys.executable).with_name(program))
        with on_terminal([path, *words], environment(), self.home, _WIDE, _LINES) as terminal:
            yield terminal

    def run(self, command: str, keys: str = "") -> list[Text]:
        """Run a command to its end. Returns the lines of the picture. `keys`: what is typed at its first question."""
        with self.running(command) as terminal:
            if keys:
                until_shown(terminal, ": ")
            end(terminal, keys.encode())
        return self.lines(command, terminal)

    def lines(self, command: str, terminal: Terminal) -> list[Text]:
        """Returns the lines of the picture: the command, all that it has printed, and an empty line."""
        prompt = Text.assemble(("$ ", "bold green"), (command, "bold"))
        shown = ([(cell.data, style_of(cell)) for cell in line] for line in terminal.cells())
        return [prompt, *(text_of(self.names.replaced(line)) for line in shown), Text()]

    def draw(self, lines: Sequence[Text], title: str, path: Path) -> None:
        """Write a picture of the lines. Raises AssertionError if it would show what is particular to this run."""
        private = [*self.names.shown, str(self.home), PASSWORD]
        written = "\n".join(line.plain for line in lines)
        assert [text for text in private if text in written] == [], written
        console = Console(record=True, file=io.StringIO(), width=WIDTH)
        for line in wrapped(lines[:-1]):
            console.print(line, no_wrap=True, highlight=False)
        write_svg(console, title, path)
        print(path)


def wrapped(lines: Sequence[Text], width: int = WIDTH) -> Iterator[Text]:
    """Yields the lines as a terminal shows them: a line that is longer than `width` continues in the next line."""
    for line in lines:
        yield from line.divide(range(width, len(line), width)) if len(line) > width else [line]


def text_of(cells: Cells) -> Text:
    """Returns a line. Neighbours of the same style are one part, so that the picture is small."""
    text = Text()
    for style, group in groupby(cells, key=lambda cell: cell[1]):
        text.append("".join(character for character, _ in group), style)
    return text


def style_of(cell: Char) -> Style:
    """Returns the style of a character on the terminal."""
    colour, behind = (_COLOURS.get(name, name) for name in (cell.fg, cell.bg))
    return Style(
        color=colour,
        bgcolor=behind,
        bold=cell.bold,
        italic=cell.italics,
        underline=cell.underscore,
        reverse=cell.reverse,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
