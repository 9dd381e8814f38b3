"""`python -m tests.data.record [KIND…]`: record a small log of each server, and its decoded events.

`KIND.binlog` is the file that a throw-away server of the kind wrote for the statements of `tests.support.workload`;
`KIND.jsonl` is the output of `binlog-dispatcher inspect --json`. The expected events are from our own decoder, at a
commit at which two tests passed: `tests/differential` compared its values with SELECT, and
`tests/inspect/test_agreement.py` compared its events with the server's own tool. Recording again changes only uuids,
times, and numbers that a server makes up.
"""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from dispatcher.binlog.event.header import parse_format_description
from dispatcher.binlog.event.types import EventType
from tests.servers import KINDS, Kind, start_server
from tests.support import workload
from tests.support.server_log import read_log

FOLDER = Path(__file__).parent
_FOLDER = re.compile(rb"(/[\w/]+)(?=/lines')")


def inspected(log: Path) -> str:
    """One JSON object per event and line."""
    command = [sys.executable, "-m", "dispatcher", "inspect", "--json", log.name]
    done = subprocess.run(
        command, cwd=log.parent, capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise AssertionError(f"{log.name}: inspect ended with {done.returncode}: {done.stderr}")
    return done.stdout


def without_folder(log: bytes) -> bytes:
    """The log with a folder of the same length in place of the random one of LOAD DATA."""
    out, at, checksum = bytearray(log[:4]), 4, False
    while at < len(log):
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        event = log[at : at + size]
        if event[4] == EventType.FORMAT_DESCRIPTION:
            checksum = parse_format_description(event).checksum
        changed = _FOLDER.sub(lambda found: b"/" + b"x" * (len(found[1]) - 1), event)
        if changed != event and checksum:
            changed = changed[:-4] + zlib.crc32(changed[:-4]).to_bytes(4, "little")
        out += changed
        at += size
    return bytes(out)


def record(kind: Kind) -> None:
    with start_server(kind) as server:
        server.execute("CREATE DATABASE recorded")
        name = workload.run(server, "recorded")
        log = FOLDER / f"{kind}.binlog"
        log.write_bytes(without_folder(read_log(server, name)))
        (FOLDER / f"{kind}.jsonl").write_text(inspected(log))


def main(kinds: Sequence[str]) -> int:
    for kind in KINDS:
        if not kinds or kind in kinds:
            record(kind)
            print(kind, (FOLDER / f"{kind}.binlog").stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
