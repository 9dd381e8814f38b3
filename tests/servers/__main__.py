"""`python -m tests.servers provision [KIND…]` and `python -m tests.servers start KIND [mysqld option…]`."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from tests.servers import KINDS, ServerUnavailable, provision, start_server


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("provision", help="get servers into the cache folder")
    one.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default all")
    two = commands.add_parser("start", help="run a throw-away server until Ctrl-C")
    two.add_argument("kind", choices=KINDS)
    options, extra = parser.parse_known_args(arguments)
    if options.command == "start":
        return _start(options.kind, extra)
    wanted = options.kinds or KINDS
    unknown = [kind for kind in wanted if kind not in KINDS]
    if unknown or extra:
        parser.error(f"not understood: {' '.join([*unknown, *extra])}")
    failed = 0
    for kind in wanted:
        began = time.monotonic()
        try:
            installed = provision(kind)
        except ServerUnavailable as failure:
            print(failure, file=sys.stderr)
            failed = 1
        else:
            print(f"{kind}: {installed.version} ({time.monotonic() - began:.1f} s)", flush=True)
    return failed


def _start(kind: str, options: Sequence[str]) -> int:
    # SIGTERM ends the wait as Ctrl-C does, so the server is removed in both cases.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    (known,) = (one for one in KINDS if one == kind)
    try:
        with start_server(known, *options) as server:
            print(f"{kind} {server.version} on {server.host}:{server.port}")
            print(f"root's socket: {server.socket}\nfolder: {server.folder}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except ServerUnavailable as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
