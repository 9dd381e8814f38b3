"""Read a consumer of binlog-dispatcher over HTTP, with the standard library alone: each part becomes a binlog file.

    python examples/reader.py http://127.0.0.1:8085 shop folder        # then: mysqlbinlog -v folder/*.binlog

If there are several daemons, give all addresses, with commas: http://a:8085,http://b:8085. The reader follows the
leader.

A part is on disk before the next call acknowledges it, so a reader loses nothing, whenever it is stopped. It resumes at
its own checkpoint, `position.json`. If the daemon has tokens, set DISPATCHER_TOKEN.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

# The settings of the daemon lack the consumer or the token. If this reader has opened a session before, a daemon with
# other settings leads now, or the settings were changed. The reader waits until they are corrected.
OTHER_SETTINGS = (401, 403, 404)


def call(
    urls: list[str], path: str, body: dict[str, Any], *, may_pass: tuple[int, ...] = ()
) -> bytes:
    """Return the answer. `urls`: the addresses of all daemons; the one that was asked last comes first.

    Try again while no daemon answers, or a proxy says so (502, 503, 504), or a daemon asks to wait (429, 503), or the
    status is one of `may_pass`. Exit at other problems.
    """
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("DISPATCHER_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    while True:
        request = urllib.request.Request(urls[0] + path, json.dumps(body).encode(), headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:  # noqa: S310
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            problem = problem_of(error)
            # Final are, for example, 409: another reader has taken over; 410: the consumer has failed.
            if error.code not in (429, 502, 503, 504, *may_pass):
                sys.exit(": ".join(filter(None, (problem["kind"], problem["detail"]))))
            after = error.headers.get("Retry-After", "")
            wait_s = int(after) if after.isdigit() else 1
            elsewhere = problem["kind"] in ("", "NOT_LEADER") or error.code in may_pass
        # The connection was refused, or ended in the middle of an answer.
        except (OSError, http.client.HTTPException) as error:
            problem, wait_s, elsewhere = {"kind": "", "detail": str(error)}, 1, True
        print(f"waiting {wait_s} s: {urls[0]}: {problem['detail']}", file=sys.stderr)
        if elsewhere:
            urls.append(urls.pop(0))
            # The leader that a standby names comes first, if it was given: no other daemon must get the token.
            urls.sort(key=lambda url: url != problem.get("leader"))
        time.sleep(wait_s)


def problem_of(error: urllib.error.HTTPError) -> dict[str, Any]:
    """Return the daemon's problem document; for the answer of a proxy, a problem that names the status."""
    with suppress(ValueError, OSError, http.client.HTTPException):
        problem = json.load(error)
        if isinstance(problem, dict) and "kind" in problem and "detail" in problem:
            return problem
    return {"kind": "", "detail": f"HTTP status {error.code} of another program than the daemon"}


def read(urls: list[str], consumer: str, folder: Path) -> None:
    """Read from the checkpoint on, without end."""
    api = f"/v1/consumers/{consumer}"
    checkpoint = folder / "position.json"
    after = json.loads(checkpoint.read_text()) if checkpoint.exists() else None
    opened = json.loads(call(urls, f"{api}/session", {"after": after}))
    session, after = opened["session"], opened["position"]
    while True:
        poll = {"session": session, "after": after, "wait_ms": 30_000, "max_bytes": 1 << 24}
        # The call acknowledges everything up to `after`. The answer is a line of JSON, then the binlog of the range.
        answer_bytes = call(urls, f"{api}/read", poll, may_pass=OTHER_SETTINGS)
        line, _, data = answer_bytes.partition(b"\n")
        answer = json.loads(line)
        if answer["gap"]:
            print("the server has purged changes that were not read", file=sys.stderr)
        if answer["transactions"]:
            part = folder / f"{answer['end']['epoch']}-{answer['end']['seq']:020}.binlog"
            part.write_bytes(data)
            print(f"{part}: {answer['transactions']} transactions", flush=True)
        after = answer["end"]
        checkpoint.with_suffix(".new").write_text(json.dumps(after))
        checkpoint.with_suffix(".new").replace(checkpoint)


if __name__ == "__main__":
    addresses, name, target = sys.argv[1:]
    Path(target).mkdir(parents=True, exist_ok=True)
    with suppress(KeyboardInterrupt):
        read(addresses.split(","), name, Path(target))
